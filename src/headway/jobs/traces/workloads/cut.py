"""Select part of a workload by time, number or tenant. What is kept begins at time 0."""

from collections.abc import Collection, Sequence

from headway.errors import TraceError
from headway.jobs.model.job import Job
from headway.jobs.model.submission import shifted
from headway.jobs.traces.build import altered
from headway.units import format_duration


def cut(
    jobs: Sequence[Job],
    *,
    start: int = 0,
    end: int | None = None,
    numbers: tuple[int, int | None] = (0, None),
    tenants: Collection[str] = (),
) -> tuple[Job, ...]:
    """Return the jobs that meet all conditions, the first of them submitted at 0.

    ``start`` and ``end`` are times since the first submission, ``numbers`` positions in the whole workload; of both
    the first is included and the second is not. Without tenants those of all are kept.
    """
    first, last = numbers
    chosen = [
        job
        for job in jobs[first:last]
        if start <= job.submit and (end is None or job.submit < end) and (not tenants or job.tenant in tenants)
    ]
    if not chosen:
        over = format_duration(jobs[-1].submit - jobs[0].submit) if jobs else "no time"
        raise TraceError(f"of {len(jobs):,} jobs over {over} none is left: {_asked(start, end, numbers, tenants)}")
    begin = chosen[0].submit
    columns = {"id": range(len(chosen)), "submit": [job.submit - begin for job in chosen]}
    return altered(chosen, columns | {"terms": [shifted(job.terms, begin) for job in chosen]})


def _asked(start: int, end: int | None, numbers: tuple[int, int | None], tenants: Collection[str]) -> str:
    """Return the conditions in words."""
    asked = []
    if start or end is not None:
        asked.append(f"from {format_duration(start)} to {'the end' if end is None else format_duration(end)}")
    if numbers != (0, None):
        asked.append(f"jobs {numbers[0]} to {'the last' if numbers[1] is None else numbers[1]}")
    if tenants:
        asked.append(f"tenant {' or '.join(tenants)}")
    return ", ".join(asked) or "all"
