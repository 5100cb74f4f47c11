"""Read what logs with one row a job share: the end state, and when it was submitted, started and ended.

Work is the time between start and end, not a duration that the log states: where both are given they are compared,
and the two clusters of Acme do not mean the same by it. Stamps have whole seconds, so a job that starts and ends in
the same one ran for less: it is taken as 1 s.
"""

import polars as pl

from headway.formats.times import stamps
from headway.jobs.model.job import Outcome
from headway.jobs.traces.sheet import Sheet
from headway.units import SECOND

STATES = {
    "completed": int(Outcome.FINISHES),
    "cancelled": int(Outcome.CANCELLED),
    "failed": int(Outcome.FAILS),
    "timeout": int(Outcome.FAILS),
    "node_fail": int(Outcome.FAILS),
    "out_of_memory": int(Outcome.FAILS),
}
TIMES = ("submit_time", "start_time", "end_time")
NEVER_STARTED = "is empty: it never started, how long it would have run is not known"


def lifetimes(sheet: Sheet) -> dict[str, pl.Series]:
    """Return submission, start, work and outcome, from the columns ``state`` and ``TIMES``."""
    sheet.text("state")
    outcome = sheet.choice("state", STATES, int(Outcome.FINISHES))
    times = stamps(sheet, TIMES, optional=TIMES[1:])
    submit, start, end = (times[name] for name in TIMES)
    sheet.drop(start.is_null(), "start_time", NEVER_STARTED, fault=False)
    sheet.drop(end.is_null(), "end_time", "is empty: it had not ended, how long it runs is not known", fault=False)
    sheet.drop(end < start, "end_time", "is before start_time")
    sheet.note(start < submit, "started before being submitted: a clock that jumped?")
    if "duration" in sheet.columns:
        stated = sheet.text("duration", default="").cast(pl.Float64, strict=False) * SECOND
        other = (stated - (end - start)).abs() >= SECOND
        sheet.note(other, "with a duration that is not end_time - start_time: the times are taken")
    work = at_least_a_second(sheet, end - start)
    return {"submit": submit, "start": start, "work": work, **ending(outcome, work)}


def ending(outcome: pl.Series, work: pl.Series) -> dict[str, pl.Series]:
    """Return an outcome as the fields of ``Job``: what does not finish ends after all the work that was seen of it."""
    after = work.zip_with(outcome != int(Outcome.FINISHES), pl.Series([0], dtype=pl.Int64))
    return {"outcome": outcome, "outcome_after": after}


def at_least_a_second(sheet: Sheet, work: pl.Series) -> pl.Series:
    """Return work of logs with whole seconds, in which 0 means less than one, at 1 s or more."""
    sheet.note(work == 0, "ran for less than a second: taken as 1 s")
    return work.to_frame("work").select(pl.when(pl.col("work") == 0).then(SECOND).otherwise("work")).to_series()


def note_cpu_jobs(sheet: Sheet, gpus: pl.Series) -> None:
    """Say how many jobs would dilute what is measured over all jobs."""
    sheet.note(gpus == 0, "without a GPU: they count as jobs, and wait for CPUs only")
