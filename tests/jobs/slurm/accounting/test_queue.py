"""A Slurm queue as it is: jobs that wait or run are jobs with all of their time limit before them."""

from pathlib import Path

from headway.jobs.traces import Trace, load
from headway.jobs.traces.workloads.window import between
from headway.units import DAY, HOUR, SECOND

HEAD = "JobID|User|Account|Submit|Eligible|Start|End|Elapsed|Timelimit|State|Reason|ReqTRES|AllocTRES|NNodes"


def read(folder: Path, *rows: str, format: str = "slurm-queue") -> Trace:
    path = folder / "sacct.txt"
    path.write_text("\n".join([HEAD, *rows]) + "\n")
    return load(path, format)


def row(job: str, state: str, *, start: str = "Unknown", end: str = "Unknown", elapsed: str = "", **more: str) -> str:
    cells = {
        "eligible": "00:00:00",
        "limit": "02:00:00",
        "req": "cpu=8,gres/gpu=16,mem=64G,node=2",
        "alloc": "",
        **more,
    }
    times = [f"2026-03-01T{each}" if ":" in each else each for each in (cells["eligible"], start, end)]
    who = (job, "ada", "bio", "2026-03-01T00:00:00")
    return "|".join((*who, *times, elapsed, cells["limit"], state, "None", cells["req"], cells["alloc"], "2"))


def test_jobs_that_wait_and_run_have_their_limit_before_them_and_tell_how_long_they_ran(tmp_path: Path) -> None:
    waits = row("1", "PENDING")
    runs = row("2", "RUNNING", start="00:10:00", elapsed="00:30:00", alloc="cpu=8,gres/gpu=16,mem=64G,node=2")
    ended = row("3", "COMPLETED", start="00:10:00", end="00:20:00", elapsed="00:10:00")
    trace = read(tmp_path, waits, runs, ended)
    assert {job.name: job.work for job in trace.jobs} == {"1": 2 * HOUR, "2": 2 * HOUR, "3": 600 * SECOND}
    assert trace.ran == {"1": SECOND, "2": 1800 * SECOND}
    assert {job.name: job.nodes for job in trace.jobs} == dict.fromkeys("123", 2), "as it asks, and as it got"
    assert "1 job waiting when the file was written: taken to run to the limit" in trace.notes
    assert {job.name for job in read(tmp_path, waits, runs, ended, format="slurm").jobs} == {"2", "3"}


def test_a_job_beyond_its_limit_is_about_to_end_and_one_without_has_a_year(tmp_path: Path) -> None:
    late = row("1", "RUNNING", start="00:00:00", elapsed="05:00:00")
    free = row("2", "PENDING", limit="UNLIMITED")
    done = row("3", "COMPLETED", start="00:10:00", end="00:20:00", elapsed="00:10:00", limit="UNLIMITED")
    jobs = {job.name: job for job in read(tmp_path, late, free, done).jobs}
    assert jobs["1"].work == 5 * HOUR + SECOND
    assert (jobs["2"].work, jobs["2"].estimate) == (365 * DAY, 365 * DAY)
    assert (jobs["3"].work, jobs["3"].estimate) == (600 * SECOND, 365 * DAY), "what it ran is no estimate of it"


def test_what_is_not_eligible_is_left_out_and_a_forecast_is_no_start(tmp_path: Path) -> None:
    held = row("1", "PENDING", eligible="Unknown")
    planned = row("2", "PENDING", start="09:00:00", end="11:00:00")
    trace = read(tmp_path, held, planned)
    assert [job.name for job in trace.jobs] == ["2"]
    assert trace.starts == {}
    (dropped,) = trace.dropped
    assert (dropped.column, dropped.fault) == ("Eligible", False)


def test_a_part_of_it_begins_with_what_runs_and_waits_then(tmp_path: Path) -> None:
    waits = row("1", "PENDING")
    runs = row("2", "RUNNING", start="00:10:00", elapsed="00:30:00")
    trace = between(read(tmp_path, waits, runs), "2026-03-01T00:25:00")
    assert [(job.name, job.submit) for job in trace.jobs] == [("2", 0), ("1", 1)]
    assert trace.carried == {"1", "2"}
    assert trace.jobs[0].work == 2 * HOUR - 900 * SECOND
    assert trace.ran == {"1": SECOND, "2": 900 * SECOND}, "of the part"
