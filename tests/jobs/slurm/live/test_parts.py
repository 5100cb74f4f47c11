"""Rows of what Slurm prints, tags, the order of jobs that are given back, delays of others; without a Slurm."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st

from headway.errors import QueueError, SlurmError
from headway.jobs.slurm.live.client import SlurmClient
from headway.jobs.slurm.live.commands import Slurm, _error
from headway.jobs.slurm.live.delays import Delays
from headway.jobs.slurm.live.giving_back import GAP, lowered, raised
from headway.jobs.slurm.live.ground import start_s
from headway.jobs.slurm.live.lock import AWAY_S, SlurmLock
from headway.jobs.slurm.live.rows import FIELDS, JobRow, NodeRow, jobs, nodes, seconds, status
from headway.jobs.slurm.live.tag import LockTag, Tag, is_free, lock_of, tag_of

CELLS = {
    "JobID": "17",
    "ArrayJobID": "17",
    "ArrayTaskID": "N/A",
    "State": "PENDING",
    "Reason": "JobHeldUser",
    "UserName": "ada",
    "Account": "bio",
    "Partition": "batch",
    "QOS": "normal",
    "PriorityLong": "0",
    "SubmitTime": "2026-03-01T12:00:00",
    "EligibleTime": "N/A",
    "StartTime": "N/A",
    "EndTime": "N/A",
    "TimeLimit": "1-00:00:00",
    "NodeList": "",
    "ReqNodes": "n[1-2]",
    "NumNodes": "2-2",
    "NumCPUs": "8",
    "MinMemory": "2000M",
    "tres-alloc": "cpu=8,mem=16G,node=2,billing=8,gres/gpu=4",
    "Requeue": "1",
    "BatchFlag": "1",
    "RestartCnt": "0",
    "exit_code": "0",
    "NumTasks": "2",
    "tres-per-node": "gres:gpu:2",
    "tres-per-job": "N/A",
    "tres-per-task": "N/A",
    "Reservation": "(null)",
    "Name": "train",
    "Comment": "headway",
}


def printed(mark: str, **cells: str) -> str:
    return "".join(f"{(CELLS | cells)[name]}{mark}" for name in FIELDS) + "\n"


def row(**cells: Any) -> JobRow:
    (found,) = jobs(printed("|x|", **cells).strip("\n"), "|x|")
    return found


def test_a_job_is_read_with_all_that_it_asks_for() -> None:
    found = row()
    assert (found.id, found.gpus, found.cpus, found.node_count, found.memory_bytes) == (17, 4, 8, 2, 16 << 30)
    assert (found.wanted_nodes, found.limit, found.submit_s) == (("n1", "n2"), 86400 * 10**9, 1772366400.0)
    assert found.held
    assert not found.ended
    assert found.array == ""


def test_nodes_are_those_that_slurm_counts() -> None:
    """Of a job that waits squeue guesses the nodes: 3 for two tasks of four CPUs on two nodes, as 22.05 was seen to."""
    guessed = row(NumNodes="3", NumTasks="2", **{"tres-alloc": "cpu=8,mem=16G,node=2,billing=8"})
    assert (guessed.node_count, guessed.gpus) == (2, 4)
    assert row(NumNodes="3", **{"tres-alloc": ""}).node_count == 3


@pytest.mark.parametrize(
    ("cells", "gpus"),
    [
        ({"tres-alloc": "cpu=8,mem=16G,node=2"}, 4),
        ({"tres-alloc": "cpu=8", "tres-per-node": "N/A", "tres-per-job": "gres:gpu:a100:3"}, 3),
        ({"tres-alloc": "cpu=8", "tres-per-node": "N/A", "tres-per-task": "gres:gpu:1"}, 2),
        ({"tres-alloc": "cpu=8", "tres-per-node": "N/A"}, 0),
    ],
)
def test_gpus_are_counted_where_the_site_does_not(cells: dict[str, str], gpus: int) -> None:
    assert row(**cells).gpus == gpus


@given(st.text(), st.text())
def test_what_users_write_into_names_and_comments_forges_no_row(name: str, comment: str) -> None:
    clean = [text.replace("\r", "").strip() for text in (name, comment)]
    mark = "|0123456789ab|"
    text = printed(mark, Name=clean[0], Comment=clean[1]) + printed(mark, JobID="18")
    found = list(jobs(text.strip("\n"), mark))
    assert [each.id for each in found] == [17, 18]
    assert found[0].name == clean[0].strip()


def test_another_number_of_fields_is_refused() -> None:
    with pytest.raises(SlurmError, match="no multiple of"):
        list(jobs("a|x|b|x|", "|x|"))


@pytest.mark.parametrize(
    ("cell", "expected"), [("85:0", 85), ("0:15", -15), ("0", 0), (str(85 << 8), 85), ("9", -9), ("odd", 0), ("", 0)]
)
def test_statuses(cell: str, expected: int) -> None:
    assert status(cell) == expected


def test_times_that_are_none() -> None:
    assert seconds("N/A") is None
    assert seconds("yesterday") is None


def test_nodes_say_what_is_held_of_them() -> None:
    text = "NodeName=n1 CPUTot=16 RealMemory=64000 Gres=gpu:a100:4 State=MIXED Partitions=batch "
    text += "CfgTRES=cpu=16,mem=62.50G,billing=16,gres/gpu=4 AllocTRES=cpu=3,mem=6G,gres/gpu=1\n"
    text += "NodeName=n2 CPUTot=16 RealMemory=64000 Gres=gpu:2 State=DOWN+DRAIN Reason=broken CfgTRES=cpu=16 "
    text += "AllocTRES=\n"
    first, second = nodes(text)
    assert (first.gpus, first.used_gpus, first.used_cpus, first.takes_jobs) == (4, 1, 3, True)
    assert (second.gpus, second.takes_jobs, second.reason) == (2, False, "broken")


@given(
    st.from_regex(r"[0-9a-f]{8}\.[0-9]{1,3}", fullmatch=True),
    st.integers(min_value=0, max_value=10**9),
    st.integers(min_value=0, max_value=10**9),
)
def test_tags_are_read_back(queue: str, job: int, lease: int) -> None:
    tag = Tag(queue, job, lease)
    assert tag_of(str(tag)) == tag
    assert not is_free(str(tag))


@pytest.mark.parametrize("comment", ["", "headway", "headway:x", "headway:x:1:y", "headway::1:2", "mine:x:1:2"])
def test_other_comments_are_no_tags(comment: str) -> None:
    assert tag_of(comment) is None
    assert is_free(comment) is (comment == "headway")


@given(st.lists(st.integers(min_value=1, max_value=10**6)))
def test_priorities_fall_along_the_list_and_move_one_way(priorities: list[int]) -> None:
    up, down = raised(priorities), lowered(priorities)
    for wanted in (up, down):
        assert all(before - after >= GAP for before, after in pairwise(wanted))
    assert all(after >= before for before, after in zip(priorities, up, strict=True))
    assert all(after <= before for before, after in zip(priorities, down, strict=True))


def test_delays_count_only_what_later_starts_of_headway_may_cost() -> None:
    node = NodeRow("n1", "MIXED", 16, 0, 4, 4, 0, 4, "")
    waits = row(State="PENDING", Reason="Resources", PriorityLong="5", EligibleTime="2026-03-01T12:00:00", Comment="")
    waits = replace(waits, gpus=2)
    later = replace(row(State="RUNNING", StartTime="2026-03-01T12:05:00"), gpus=2)
    earlier = replace(later, start_s=seconds("2026-03-01T11:00:00"))
    for own, expected in (([later], 3.0), ([earlier], 0.0), ([], 0.0), ([replace(later, gpus=1)], 0.0)):
        counted = Delays()
        for now in (10.0, 13.0):
            counted.count(now, own, [waits, replace(waits, reason="Dependency")], [node])
        assert counted.seconds == expected
        assert len(counted.jobs) == int(expected > 0)


def test_two_cycles_of_the_slower_scheduler() -> None:
    assert start_s({}) == 120.0
    assert start_s({"schedulerparameters": "bf_interval=10,sched_interval=20,defer"}) == 40.0
    assert start_s({"schedulerparameters": "bf_interval=1,sched_interval=2"}) == 5.0


def test_errors_tell_refusals_from_silence() -> None:
    away = _error(("squeue",), "slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
    denied = _error(("scontrol", "update", "JobId=1"), "slurm_update error: Access/permission denied")
    assert type(away).__name__ == "SlurmAwayError"
    assert "slurmctld" in str(away)
    assert denied.denied
    assert type(denied) is SlurmError


def test_commands_get_no_settings_of_the_user() -> None:
    slurm = Slurm({"PATH": "/usr/bin:/bin", "SQUEUE_FORMAT": "%i", "SLURM_CONF": "/a", "SLURM_JOB_ID": "1"})
    said = dict(line.split("=", 1) for line in slurm.run("env").splitlines())
    assert said["SLURM_CONF"] == "/a"
    assert said["TZ"] == "UTC"
    assert not {"SQUEUE_FORMAT", "SLURM_JOB_ID"} & set(said)
    assert slurm.run("printf", "%s", "$(id); 'x'") == "$(id); 'x'", "no shell"


class Locks(SlurmClient):
    """A Slurm with locks in it."""

    def __init__(self, *tags: LockTag) -> None:
        self.rows = [replace(row(JobID=str(at)), comment=str(tag)) for at, tag in enumerate(tags, start=1)]
        self.cancelled: list[int] = []

    def jobs(self) -> list[JobRow]:
        return [each for each in self.rows if each.id not in self.cancelled]

    def submit(self, options: Any, script: str) -> int:
        comment = next(each.partition("=")[2] for each in options if each.startswith("--comment="))
        self.rows.append(replace(row(JobID=str(len(self.rows) + 1)), comment=comment))
        return len(self.rows)

    def cancel(self, job: int) -> None:
        self.cancelled.append(job)


def test_locks_of_the_living_count_and_those_of_the_dead_do_not() -> None:
    import time

    now = int(time.time())
    dead, own = LockTag("aa", "m", now - int(AWAY_S) - 5), LockTag("bb", "m", now)
    there = Locks(dead, own)
    SlurmLock(there, "bb").take()
    assert there.cancelled == [1, 2], "what a queue that is gone, and this one's killed process, have left"
    assert len(there.jobs()) == 1
    with pytest.raises(QueueError, match="another headway"):
        SlurmLock(there, "cc").take()
    assert lock_of("headway-lock:aa:m:x") is None
