"""Cut the part of a history between two times out of it: new arrivals, and what was there at its beginning.

Jobs that ran or waited at the first moment are taken along with what was left of them: they arrive as the part begins,
those that ran a nanosecond before those that waited. They load the cluster and are not measured: they are no new
arrivals. Where the file does not say when jobs started, nobody knows which these are, and only new arrivals are kept.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from headway.errors import ExperimentError, InputError, NoJobsError, TraceError
from headway.formats.dates import EXAMPLE, Calendar, is_date
from headway.jobs.model.job import Job, Outcome
from headway.jobs.model.submission import shifted
from headway.jobs.traces.build import altered
from headway.jobs.traces.trace import Trace
from headway.units import DAY, SECOND, counted, format_duration, parse_duration

_EPOCH_SECONDS = 10**9
"""A number as large as this is meant as seconds since 1970: a run is never as long in seconds."""
MOST_EARLY = 0.01
"""So small a part of the jobs may have been submitted long before all others."""
LONG_BEFORE = 0.1
"""And this is long before: so much of the time that the others were submitted in, and a day."""


def between(trace: Trace, start: str = "", end: str = "") -> Trace:
    """Return the jobs submitted from ``start`` up to but not including ``end``: dates, or times since the first.

    Without ``start``, jobs submitted long before nearly all others are treated as if it were given.
    """
    check_order(start, end)
    first = moment(trace, start, "--from") if start else _bulk_begins(trace)
    last = moment(trace, end, "--to") if end else None
    if first is None and last is None:
        return trace
    edge = first or 0
    fresh = [job for job in trace.jobs if job.submit >= edge and (last is None or job.submit < last)]
    old = _taken_along(trace, edge) if edge and (trace.starts or trace.ran) else []
    if not fresh and not old:
        raise NoJobsError(_none_left(trace, start, end))
    begins = edge if old else fresh[0].submit
    kept_jobs = [*old, *fresh]
    terms = [None if job.terms is None else shifted(job.terms, begins) for job in kept_jobs]
    submits = [*accumulate([max(job.submit - begins, 0) for job in kept_jobs], max)]  # after those that waited already
    jobs = altered(kept_jobs, {"id": range(len(kept_jobs)), "submit": submits, "terms": terms})
    kept = {job.name for job in jobs}
    starts = {name: time - begins for name, time in trace.starts.items() if name in kept}
    eligible = {name: max(time - begins, 0) for name, time in trace.eligible.items() if name in kept}
    before = {name: max(0, -time) for name, time in starts.items() if name in trace.ran}
    return replace(
        trace,
        jobs=jobs,
        starts=starts,
        eligible=eligible,
        ran={name: max(ran - before.get(name, 0), SECOND) for name, ran in trace.ran.items() if name in kept},
        calendar=None if trace.calendar is None else trace.calendar.shifted(begins),
        carried=frozenset(job.name for job in old),
        notes=(*trace.notes, *_told(trace, edge, len(old), bool(start))),
    )


def check_order(start: str, end: str) -> None:
    """Refuse a part that ends before it begins, or lengths of time that are none, before anything is read."""
    for text, flag in ((start, "--from"), (end, "--to")):
        if text and not is_date(text):
            _length(text, flag)
    both_dates = is_date(start) and is_date(end)
    clocks = (
        [Calendar.parsed(text, what=flag).begins for text, flag in ((start, "--from"), (end, "--to"))]
        if both_dates
        else [parse_duration(start or "0s"), parse_duration(end)]
        if end and not (is_date(start) or is_date(end))
        else [0, 1]
    )
    if clocks[1] <= clocks[0]:
        raise ExperimentError(f"--to {end} must be after --from {start or '0s'}")


def moment(trace: Trace, text: str, flag: str) -> int:
    """Return the time of a date, or of a length of time since the first submission."""
    if not is_date(text):
        return _length(text, flag)
    if trace.calendar is None:
        raise TraceError(
            f"{flag} {text}: the trace has no dates: write a time since its first submission like 3d, "
            "or say when that was: --set trace.begins=2026-03-01"
        )
    return trace.calendar.time_of(text, flag)


def _length(text: str, flag: str) -> int:
    """Return a length of time since the first submission; refuse what was meant as a date."""
    if text.isdecimal() and int(text) >= _EPOCH_SECONDS:
        raise TraceError(f"{flag} {text}: seconds since 1970 are not read here: write a date like {EXAMPLE}")
    try:
        return parse_duration(text, what=flag)
    except InputError as problem:
        raise TraceError(f"{problem}; or a date like {EXAMPLE}") from None


def _bulk_begins(trace: Trace) -> int | None:
    """Return when nearly all jobs begin to arrive, where a few came long before; only where starts are known.

    A log of a month holds whatever ran in it, however long ago that was submitted.
    """
    if not trace.starts or len(trace.jobs) < 2:
        return None
    submits = np.fromiter((job.submit for job in trace.jobs), np.int64, len(trace.jobs))
    few = max(1, int(len(submits) * MOST_EARLY))
    usual = int(submits[few])
    far = max(int((submits[-1] - usual) * LONG_BEFORE), DAY)
    early = int(np.searchsorted(submits, usual - far))
    return int(submits[early]) if early else None


def _taken_along(trace: Trace, edge: int) -> list[Job]:
    """Return what ran and then what waited at a moment, with what was left of it."""
    running: list[Job] = []
    done: list[int] = []
    waiting: list[Job] = []
    patience: list[int] = []
    for job in trace.jobs:
        if job.submit >= edge:
            break
        began = trace.starts.get(job.name)
        left = job.submit + job.patience - edge if began is None and job.patience else 0
        if (began is None and (job.name in trace.ran or left > 0)) or (began is not None and began >= edge):
            waiting.append(job)
            patience.append(left or job.patience)
        elif began is not None and began + job.ends_after > edge:
            running.append(job)
            done.append(edge - began)
    waited = altered(waiting, {"submit": [edge + 1] * len(waiting), "patience": patience})
    return [*_rests(running, done, edge), *waited]


def _rests(jobs: Sequence[Job], done: Sequence[int], edge: int) -> tuple[Job, ...]:
    """Return jobs that have run for so long already."""
    both = list(zip(jobs, done, strict=True))
    columns = {
        "submit": [edge] * len(jobs),
        "work": [job.work - ran for job, ran in both],
        "outcome_after": [0 if job.outcome is Outcome.FINISHES else job.outcome_after - ran for job, ran in both],
        "estimate": [max(job.estimate - ran, SECOND) if job.estimate else 0 for job, ran in both],
    }
    return altered(jobs, columns)


def _told(trace: Trace, edge: int, old: int, asked: bool) -> list[str]:
    """Return what was done about the jobs of before."""
    if not edge:
        return []
    when = _named(trace.calendar, edge)
    if not trace.starts:
        return [f"the trace does not say when jobs started: those that ran or waited at {when} are left out"]
    early = sum(1 for job in trace.jobs if job.submit < edge)
    along = f"{counted(old, 'job')} that ran or waited then {'is' if old == 1 else 'are'} taken along, not measured"
    if asked:
        return [f"the run begins at {when}: {along}"]
    ago = format_duration(edge - trace.jobs[0].submit)
    who = f"{counted(early, 'job')} {'was' if early == 1 else 'were'}"
    begins = f"the run begins with the others at {when}; {along} (--from says another beginning)"
    return [f"{who} submitted long before the others (up to {ago}): {begins}"]


def _named(calendar: Calendar | None, time: int) -> str:
    return format_duration(time) if calendar is None else calendar.text(time)


def _none_left(trace: Trace, start: str, end: str) -> str:
    first, last = (_named(trace.calendar, time) for time in (trace.jobs[0].submit, trace.jobs[-1].submit))
    asked = " ".join(part for part in (f"--from {start}" if start else "", f"--to {end}" if end else "") if part)
    return f"{asked}: no job was submitted then; the {len(trace.jobs):,} of the trace were from {first} to {last}"


def dated(trace: Trace, begins: str, zone: str) -> Trace:
    """Return the trace with the date of its first submission, or the zone of its site, where these are given."""
    calendar = trace.calendar
    if calendar is None and not begins:
        if zone:
            raise TraceError(f"trace.zone {zone}: the trace has no dates; trace.begins says when it began")
        return trace
    if calendar is None:
        return replace(trace, calendar=Calendar.parsed(begins, zone))
    named = replace(calendar, zone=zone)
    named.date(0)  # refuses a zone that there is not
    return replace(trace, calendar=named)


def recorded_waits(trace: Trace) -> dict[str, int]:
    """Return how long eligible jobs really waited for their first start, by name; 0 for those that ran already."""
    starts, eligible = trace.starts, trace.eligible
    return {
        job.name: max(0, starts[job.name] - max(job.submit, eligible.get(job.name, 0)))
        for job in trace.jobs
        if job.name in starts
    }
