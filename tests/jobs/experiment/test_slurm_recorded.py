"""What a real Slurm ran, replayed from its records: each rule alone, job by job, and a site with all of them.

The folders under samples/slurm-lab were recorded by ``python -m bench.slurm_rules_lab`` (a rule each) and
``python -m bench.slurm_site_lab``.
"""

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import pytest

from bench.slurm_replay import Past, Simulated, begins, past, replay, rows, seconds, trace
from bench.slurm_rule_cases import CASES
from bench.slurm_site_lab import REQUEUE_S
from tests.jobs.experiment.slurm_rules import attempts, grouped, most, overlapping

SAMPLES = Path(__file__).parents[2] / "samples" / "slurm-lab"
LATE_S = 1.0
"""Slurm needs up to so long from a submission or an end to the next start; each wait in a chain of jobs adds up."""
DIFFERS = {
    "preempt-grace": "its victims ignore SIGTERM: Slurm kills them KillWait after their grace, and notices 5 s later",
}
"""Cases that are not replayed as they were, and why."""


def test_every_case_is_recorded() -> None:
    assert {path.name for path in (SAMPLES / "cases").iterdir()} == set(CASES)


def _late(job: Past, now: Simulated, ends: Sequence[float]) -> bool:
    """Return whether a start is too far from the recorded one; each job that ended before it may have added a delay."""
    if job.start is None or now.start is None:
        return job.start is not now.start
    before = sum(end <= job.start for end in ends)
    return not -1.0 <= job.start - now.start <= LATE_S * (1 + before)


def _requeued(job: Past) -> int:
    """Return how often a job was preempted and waited again. What one that was cancelled would have run is not
    recorded: it ends when it did, whoever comes."""
    return job.preempted - (job.state == "PREEMPTED")


def _wrong(folder: Path) -> list[str]:
    """Return the jobs that are replayed otherwise than Slurm ran them, and pairs that start in another order."""
    was, (now, _) = past(folder), replay(folder)
    ends = [job.end for job in was.values() if job.end is not None]
    found = [
        f"{name}: started at {job.start}, now {now[name].start}; preempted {job.preempted}, now {now[name].preempted}"
        for name, job in was.items()
        if _late(job, now[name], ends) or _requeued(job) != now[name].preempted
    ]
    began = {name: job.start for name, job in was.items() if job.start is not None and now[name].start is not None}
    found += [
        f"{one} before {other}"
        for one, other in permutations(began, 2)
        if began[other] > began[one] + 2 and (now[one].start or 0.0) > (now[other].start or 0.0)
    ]
    return found


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_rule_alone_is_replayed_job_by_job(name: str, request: pytest.FixtureRequest) -> None:
    if name in DIFFERS:
        request.applymarker(pytest.mark.xfail(reason=DIFFERS[name], strict=True))
    assert _wrong(SAMPLES / "cases" / name) == []


def test_the_records_of_the_site_keep_its_rules() -> None:
    folder = SAMPLES / "site" / "run-1"
    ran = attempts(trace(folder))
    for user, own in grouped([each for each in ran if each["QOS"] == "normal"], "User"):
        assert most(own) <= 12, f"MaxTRESPU of {user}"
    assert most([each for each in ran if each["QOS"] == "long"]) <= 16
    bio = [each for each in ran if each["Account"] == "bio"]
    for each in (each for each in bio if each["QOS"] != "long"):  # whose own GrpTRES takes the place of the account's
        beside = [other for other in bio if other.start < each.start < other.end]
        assert each.gpus + sum(other.gpus for other in beside) <= 20
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
