"""What a real Slurm ran, replayed from its records: each rule alone, job by job, and a site with all of them.

The folders under samples/slurm-lab were recorded by ``python -m bench.slurm_rules_lab`` (a rule each) and
``python -m bench.slurm_site_lab``.
"""

from pathlib import Path

import pytest

from bench.slurm_replay import begins, past, replay, rows, seconds, trace
from bench.slurm_rule_cases import CASES
from bench.slurm_site_lab import REQUEUE_S
from tests.experiment.jobs.slurm_rules import attempts, grouped, most, overlapping

SAMPLES = Path(__file__).parents[2] / "samples" / "slurm-lab"
LATE_S = 1.0
"""Slurm needs up to so long from a submission or an end to the next start; each wait in a chain of jobs adds up."""
DIFFERS: dict[str, str] = {}
"""Cases that are not replayed as they were, and why."""


def test_every_case_is_recorded() -> None:
    assert {path.name for path in (SAMPLES / "cases").iterdir()} == set(CASES)


def _within(folder: Path) -> dict[str, str]:
    """Return the jobs that the replay starts at another time than Slurm did, or does not start, or preempts otherwise."""
    was, (now, _) = past(folder), replay(folder)
    wrong = {}
    for name, job in was.items():
        before = sum(1 for each in was.values() if each.end is not None and job.start is not None and each.end <= job.start)
        new = now[name]
        if job.start is None or new.start is None:
            late = job.start is not new.start
        else:
            late = not -1.0 <= job.start - new.start <= LATE_S * (1 + before)
        if late or job.preempted != new.preempted:
            wrong[name] = f"started at {job.start} and now at {new.start}, preempted {job.preempted} and now {new.preempted}"
    return wrong


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_rule_alone_is_replayed_job_by_job(name: str, request: pytest.FixtureRequest) -> None:
    if name in DIFFERS:
        request.applymarker(pytest.mark.xfail(reason=DIFFERS[name], strict=True))
    assert not _within(SAMPLES / "cases" / name)


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_rule_alone_starts_jobs_in_slurms_order(name: str, request: pytest.FixtureRequest) -> None:
    if name in DIFFERS:
        request.applymarker(pytest.mark.xfail(reason=DIFFERS[name], strict=False))
    folder = SAMPLES / "cases" / name
    was, (now, _) = past(folder), replay(folder)
    began = {name: job.start for name, job in was.items() if job.start is not None}
    for one, start in began.items():
        for other, later in began.items():
            first, second = now[one].start, now[other].start
            if later > start + 2:
                assert first is not None and second is not None and first <= second, (one, other)


def test_the_records_of_the_site_keep_its_rules() -> None:
    folder = SAMPLES / "site" / "run-1"
    ran = attempts(trace(folder))
    for user, own in grouped([each for each in ran if each["QOS"] == "normal"], "User"):
        assert most(own) <= 12, f"MaxTRESPU of {user}"
    assert most([each for each in ran if each["QOS"] == "long"]) <= 16
    assert most([each for each in ran if each["Account"] == "bio"]) <= 20
    for _, own in grouped([each for each in ran if each["QOS"] == "high"], "User"):
        assert most(own, lambda _: 1) <= 3
    stopped = [each for each in ran if each["State"] == "PREEMPTED"]
    assert {each["QOS"] for each in stopped} == {"scavenger"}
    for each in stopped:
        again = [other.start for other in ran if other["JobID"] == each["JobID"] and other.start > each.start]
        assert min(again) >= each.end + REQUEUE_S
    text = (folder / "reservations.txt").read_text()
    begin, end = (seconds(text.split(f"{key}=")[1].split()[0]) or 0.0 for key in ("StartTime", "EndTime"))
    inside = [each for each in overlapping(ran, begin, end) if {"n9", "n10"} & set(each.nodes)]
    assert inside
    assert {each["User"] for each in inside} == {"lab-ada"}
    assert begins(folder) < begin


def test_arrays_of_the_site_are_throttled() -> None:
    folder = SAMPLES / "site" / "run-1"
    ran = attempts(trace(folder))
    lines = {row["JobName"]: row["SubmitLine"] for row in rows(trace(folder)) if "--array=" in row["SubmitLine"]}
    assert len(lines) == 6
    for name, line in lines.items():
        throttle = int(line.split("--array=")[1].split()[0].partition("%")[2])
        assert most([each for each in ran if each["JobName"] == name], lambda _: 1) <= throttle
