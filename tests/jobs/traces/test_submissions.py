"""What jobs wait for and count under, read from Slurm's records and from headway's own format."""

from pathlib import Path

import pytest

from headway.errors import TraceError
from headway.jobs.model.job import Job, Outcome, workload
from headway.jobs.model.submission import Terms
from headway.jobs.rules.limits.limit import LimitRule
from headway.jobs.slurm.output.records import SiteRules
from headway.jobs.slurm.site.accounts import Tree
from headway.jobs.slurm.site.limits import limits
from headway.jobs.traces import Trace, load, write
from headway.jobs.traces.workloads.window import between, recorded_waits
from headway.units import HOUR, SECOND

_DAY = "2026-03-02T"
_COLUMNS = (
    "JobID",
    "JobName",
    "User",
    "Submit",
    "Eligible",
    "Start",
    "End",
    "Elapsed",
    "State",
    "ReqTRES",
    "AllocTRES",
)
_TRES = "cpu=4,gres/gpu=1,mem=16G,node=1"


def _line(job: str, hours: tuple[int, int, int, int], command: str, **cells: str) -> str:
    """Return a row of sacct: submitted, eligible, started and ended at full hours."""
    submit, eligible, start, end = (f"{_DAY}{hour:02d}:00:00" for hour in hours)
    elapsed = f"{hours[3] - hours[2]:02d}:00:00"
    usual = (job, "train", "alice", submit, eligible, start, end, elapsed, "COMPLETED", _TRES, _TRES)
    row = {**dict(zip(_COLUMNS, usual, strict=True)), **cells}
    return "|".join((*row.values(), command))


def _sacct(folder: Path, *lines: str) -> Trace:
    path = folder / "sacct.txt"
    path.write_text("\n".join(("|".join((*_COLUMNS, "SubmitLine")), *lines)) + "\n")
    return load(path, "slurm")


def _terms(trace: Trace) -> dict[str, Terms | None]:
    return {job.name: job.terms for job in trace.jobs}


@pytest.mark.parametrize(
    ("command", "after"),
    [
        ("sbatch --dependency=afterok:1 x.sh", "afterok:1"),
        ("sbatch --dependency afterok:1 x.sh", "afterok:1"),
        ("sbatch -d afterok:1:2 x.sh", "afterok:1,afterok:2"),
        ("sbatch -dafterany:1 x.sh", "afterany:1"),
        ("sbatch -d afterok:1?afterok:2 -J a x.sh", "afterok:1?afterok:2"),
        ("sbatch --dependency=after:1+30,afterany:2 x.sh", "after:1+30,afterany:2"),
    ],
)
def test_a_dependency_is_followed_from_the_submission_on(tmp_path: Path, command: str, after: str) -> None:
    trace = _sacct(
        tmp_path,
        _line("1", (1, 1, 1, 3), "sbatch x.sh"),
        _line("2", (1, 1, 1, 3), "sbatch x.sh"),
        _line("3", (2, 4, 5, 6), command),
    )
    assert _terms(trace) == {"1": None, "2": None, "3": Terms(after=after)}
    assert trace.jobs[2].submit == HOUR
    assert trace.eligible == {"3": 3 * HOUR}
    assert recorded_waits(trace)["3"] == HOUR
    assert any("1 job submitted with dependency waited 1.0 h: followed:" in note for note in trace.notes)


@pytest.mark.parametrize(
    ("command", "cells", "why"),
    [
        ("sbatch -d afterok:77 x.sh", {}, "on jobs that are not in the file"),
        ("sbatch -d afternotok:1 x.sh", {}, "which they did not keep to"),
        ("sbatch -d afterok:2 x.sh", {}, "which they did not keep to"),
        ("sbatch -d expand:1 x.sh", {}, "of a kind that is not simulated"),
        ("sbatch -d singleton x.sh", {"JobName": ""}, "of a kind that is not simulated"),
    ],
)
def test_what_cannot_be_followed_arrives_as_recorded(
    tmp_path: Path, command: str, cells: dict[str, str], why: str
) -> None:
    trace = _sacct(
        tmp_path,
        _line("1", (1, 1, 1, 3), "sbatch x.sh"),
        _line("2", (1, 1, 1, 9), "sbatch x.sh"),
        _line("3", (2, 4, 5, 6), command, **cells),
    )
    assert set(_terms(trace).values()) == {None}
    assert trace.jobs[2].submit == 3 * HOUR
    assert not trace.eligible
    assert any(why in note and "as recorded" in note for note in trace.notes)


def test_arrays_are_waited_for_as_a_whole_or_task_by_task(tmp_path: Path) -> None:
    trace = _sacct(
        tmp_path,
        *(_line(f"10_{task}", (1, 1, 1, 3), "sbatch --array=1-2%1 x.sh") for task in (1, 2)),
        *(_line(f"20_{task}", (1, 1, 1, 3), "sbatch -a 1-2 x.sh") for task in (1, 2)),
        _line("30_2", (2, 4, 5, 6), "sbatch -a 2 -d aftercorr:10 x.sh"),
        _line("40", (2, 4, 5, 6), "sbatch -d afterok:20 x.sh"),
    )
    throttled, waited = Terms(array="10", throttle=1), Terms(array="20")
    assert _terms(trace) == {
        "10_1": throttled,
        "10_2": throttled,
        "20_1": waited,
        "20_2": waited,
        "30_2": Terms(after="afterok:10_2"),
        "40": Terms(after="afterok:20"),
    }


def test_a_singleton_waits_for_jobs_of_its_user_and_name(tmp_path: Path) -> None:
    trace = _sacct(
        tmp_path,
        _line("1", (1, 1, 1, 3), "sbatch x.sh"),
        _line("2", (1, 1, 1, 3), "sbatch x.sh", User="bob"),
        _line("3", (2, 3, 3, 6), "sbatch --dependency=singleton x.sh"),
    )
    assert _terms(trace) == {
        "1": Terms(series="alice/train"),
        "2": None,
        "3": Terms(after="singleton", series="alice/train"),
    }


def test_begin_nice_and_licences_are_read(tmp_path: Path) -> None:
    trace = _sacct(
        tmp_path,
        _line("1", (1, 4, 5, 6), "sbatch --begin=now+3hours x.sh"),
        _line("2", (1, 1, 1, 3), "sbatch --nice x.sh"),
        _line("3", (1, 1, 1, 3), "sbatch --nice=-20 -L matlab:2,ansys x.sh"),
        _line("4", (1, 1, 1, 3), "sbatch x.sh", ReqTRES=f"{_TRES},license/matlab=3"),
    )
    assert _terms(trace) == {
        "1": Terms(begin=3 * HOUR),
        "2": Terms(nice=100),
        "3": Terms(nice=-20, licences=(("matlab", 2), ("ansys", 1))),
        "4": Terms(licences=(("matlab", 3),)),
    }
    assert recorded_waits(trace)["1"] == HOUR


def test_a_window_moves_begins_and_keeps_when_jobs_were_eligible(tmp_path: Path) -> None:
    trace = _sacct(
        tmp_path,
        _line("1", (1, 1, 1, 3), "sbatch x.sh"),
        _line("2", (2, 4, 5, 6), "sbatch -d afterok:1 x.sh"),
        _line("3", (3, 6, 7, 8), "sbatch -b 06:00 x.sh"),
    )
    part = between(trace, "1h")
    assert [(job.name, job.submit) for job in part.jobs] == [("1", 0), ("2", 0), ("3", HOUR)]
    assert part.jobs[2].terms == Terms(begin=4 * HOUR)
    assert recorded_waits(part) == {"1": 0, "2": HOUR, "3": HOUR}


def test_a_site_says_how_many_licences_there_are() -> None:
    site = SiteRules(settings={"licenses": "matlab:4,ansys", "accountingstorageenforce": "none"})
    assert limits(site, Tree(site)) == (
        LimitRule("licence matlab", "licences:matlab", 4),
        LimitRule("licence ansys", "licences:ansys", 1),
    )


# --- headway's own format ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["csv", "parquet", "csv.gz"])
def test_terms_are_written_and_read_back(tmp_path: Path, suffix: str) -> None:
    jobs = workload(
        [
            Job(0, 0, SECOND, name="a", outcome=Outcome.FAILS, outcome_after=SECOND, terms=Terms(series="s")),
            Job(0, SECOND, SECOND, name="b", terms=Terms(after="afterok:a", begin=9 * SECOND, nice=-5)),
            Job(0, SECOND, SECOND, name="c_1", terms=Terms(array="c", throttle=2, licences=(("x", 2), ("y", 1)))),
            Job(0, SECOND, SECOND, name="d"),
        ]
    )
    path = tmp_path / f"jobs.{suffix}"
    write(jobs, path, {"b": 11 * SECOND}, {"b": 10 * SECOND})
    read = load(path, "headway", strict=True)
    assert read.jobs == jobs
    assert recorded_waits(read) == {"b": SECOND}


@pytest.mark.parametrize(
    ("header", "cells", "line"),
    [
        ("throttle,array", "0,7", "line 2: throttle '0' must be at least 1"),
        ("after", "afterok:zz", "job a: after afterok:zz: no job or array is called 'zz'"),
        ("after", "afterok:a", "job a waits for itself: a after a"),
        ("after", "afterwards:a", "unknown dependency 'afterwards'"),
        ("licences", "matlab:x", "line 2: licences 'matlab:x' is not a list like matlab:2,ansys"),
    ],
)
def test_bad_terms_are_one_clear_line(tmp_path: Path, header: str, cells: str, line: str) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(f"name,submit_s,work_s,gpus,{header}\na,0,1,1,{cells}\n")
    with pytest.raises(TraceError) as problem:
        load(path, "headway", strict=True)
    assert line in str(problem.value)
    assert "\n" not in str(problem.value)
