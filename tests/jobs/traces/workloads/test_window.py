"""Parts of a history between two dates: who is a new arrival, who is taken along, and what is said."""

from dataclasses import replace

import pytest

from headway.errors import InputError
from headway.formats.dates import Calendar
from headway.jobs.model.job import Job, Outcome, workload
from headway.jobs.traces.trace import Trace
from headway.jobs.traces.workloads.window import between, recorded_waits
from headway.units import DAY, HOUR, SECOND

HALF = HOUR // 2
JOBS = workload(
    (
        Job(0, submit=0, work=3 * HOUR, name="ended", estimate=4 * HOUR),
        Job(1, submit=0, work=30 * HOUR, name="runs", estimate=40 * HOUR),
        Job(2, submit=HOUR, work=30 * HOUR, name="fails", outcome=Outcome.FAILS, outcome_after=26 * HOUR),
        Job(3, submit=20 * HOUR, work=HOUR, name="waits"),
        Job(
            4,
            submit=22 * HOUR,
            work=HOUR,
            name="gives up",
            patience=4 * HOUR,
            outcome=Outcome.CANCELLED,
            outcome_after=1,
        ),
        Job(5, submit=25 * HOUR, work=HOUR, name="new"),
        Job(6, submit=50 * HOUR, work=HOUR, name="later"),
    )
)
STARTS = {"ended": 0, "runs": 0, "fails": 2 * HOUR, "waits": 25 * HOUR, "new": 26 * HOUR, "later": 50 * HOUR}
TRACE = Trace(JOBS, "slurm", 7, starts=STARTS, calendar=Calendar.parsed("2026-03-01"))


def test_what_ran_or_waited_at_the_edge_is_taken_along_with_what_was_left_of_it() -> None:
    part = between(TRACE, "2026-03-02", "2026-03-03")
    assert [job.name for job in part.jobs] == ["runs", "fails", "waits", "gives up", "new"]
    assert part.carried == {"runs", "fails", "waits", "gives up"}
    runs, fails, waits, quits, new = part.jobs
    assert (runs.submit, runs.work, runs.estimate) == (0, 6 * HOUR, 16 * HOUR)
    assert (fails.submit, fails.work, fails.ends_after) == (0, 8 * HOUR, 4 * HOUR)
    assert (waits.submit, waits.work) == (1, HOUR)
    assert (quits.submit, quits.patience) == (1, 2 * HOUR)
    assert (new.submit, part.starts["new"]) == (HOUR, 2 * HOUR)
    assert part.calendar is not None
    assert part.calendar.iso(0) == "2026-03-02T00:00:00"
    assert recorded_waits(part) == {"runs": 0, "fails": 0, "waits": HOUR - 1, "new": HOUR}
    assert "4 jobs that ran or waited then are taken along, not measured" in part.notes[-1]


def test_a_job_that_is_submitted_at_the_edge_comes_after_those_that_waited_then() -> None:
    part = between(TRACE, "2026-03-02T01:00:00")
    assert [(job.name, job.submit) for job in part.jobs][:5] == [
        *(("runs", 0), ("fails", 0), ("waits", 1), ("gives up", 1), ("new", 1)),
    ], "arrivals are in order"


def test_times_since_the_first_submission_do_as_well() -> None:
    assert between(TRACE, "1d", "2d").jobs == between(TRACE, "2026-03-02", "2026-03-03").jobs
    assert between(TRACE, end="1d").jobs == JOBS[:5]


def test_without_starts_nobody_knows_what_ran() -> None:
    part = between(replace(TRACE, starts={}), "2026-03-02")
    assert [job.name for job in part.jobs] == ["new", "later"]
    assert part.jobs[0].submit == 0
    assert "does not say when jobs started" in part.notes[-1]


@pytest.mark.parametrize(
    ("start", "end", "line"),
    [
        ("2026-05-01", "", "no job was submitted then; the 7 of the trace were from Sun 2026-03-01 00:00:00"),
        ("2026-03-02", "2026-03-02", "--to 2026-03-02 must be after --from 2026-03-02"),
        ("2d", "1d", "--to 1d must be after --from 2d"),
        ("soon", "", "--from 'soon' is not understood"),
        ("2026-02-31", "", "is no date"),
    ],
)
def test_a_window_that_holds_nothing_or_is_none_is_one_line(start: str, end: str, line: str) -> None:
    with pytest.raises(InputError, match=line) as problem:
        between(TRACE, start, end)
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("8.1.2026", "is not understood: .* or a date like 2026-03-05"),
        ("1767900000", "seconds since 1970 are not read here: write a date like 2026-03-05"),
    ],
)
def test_what_was_meant_as_a_date_is_told_how_to_write_one(text: str, line: str) -> None:
    with pytest.raises(InputError, match=f"--from .*{line}"):
        between(TRACE, text)


def test_a_date_needs_a_trace_with_dates() -> None:
    with pytest.raises(InputError, match="has no dates"):
        between(replace(TRACE, calendar=None), "2026-03-02")


def test_a_submission_from_months_before_does_not_begin_the_run() -> None:
    early = Job(0, submit=0, work=92 * DAY, name="old", estimate=100 * DAY)
    others = [Job(i, submit=90 * DAY + i * HOUR, work=HOUR, name=f"j{i}") for i in range(1, 300)]
    jobs = workload([early, *others])
    trace = Trace(jobs, "slurm", 300, starts={job.name: job.submit + SECOND for job in jobs})
    part = between(trace)
    assert (part.jobs[0].name, part.carried) == ("old", {"old"})
    assert part.jobs[1].submit == 0
    assert part.jobs[0].work == 2 * DAY - HOUR + SECOND
    assert "1 job was submitted long before the others" in part.notes[-1]
    assert between(replace(trace, jobs=jobs[1:])).jobs == jobs[1:], "nothing is done about those that are not"
