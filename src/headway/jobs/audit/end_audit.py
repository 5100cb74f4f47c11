"""The end of a job in the audit: under its own lease, with all its work delivered, and not later than that."""

from collections.abc import Iterator

from headway.jobs.model.accounting import Life
from headway.jobs.model.job import Outcome
from headway.jobs.model.rows import Kind

_OUTCOMES: dict[int, Outcome] = {Kind.FAILED: Outcome.FAILS, Kind.CANCELLED: Outcome.CANCELLED}


def wrong_end(life: Life, row: list[int], completions: int | None) -> Iterator[tuple[str, str]]:
    """Yield (rule, text) for each thing that is wrong with the end of a job.

    ``completions``: ends are noticed at multiples of this; None: whenever they are.
    """
    now, kind, job, lease, _, _, value = row
    if lease != life.lease or (not lease and kind != Kind.CANCELLED and not life.job.open_end):
        yield "lease", f"job {job} ends under lease {lease}, its live one is {life.lease}"
    target = life.job.work if kind == Kind.FINISHED else life.job.ends_after
    delivered = life.done_at(now) if life.job.open_end else min(life.done_at(now), target)
    if value != delivered:
        yield "service", f"job {job} was delivered {delivered} ns of work, the tape says {value}"
    if life.job.open_end or not (kind == Kind.FINISHED or (lease and _OUTCOMES[kind] is life.job.outcome)):
        return  # a real program ends when it does, and an earlier end than planned is the user's
    if delivered != target:
        yield "service", f"job {job} ends after {delivered} of {target} ns of work"
    elif completions is not None and life.base < (before := now - completions) and life.done_at(before) >= target:
        yield "service", f"job {job} was done before {now} ns and still held its GPUs"
