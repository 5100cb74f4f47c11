"""Tiers and preemption of a Slurm site as knobs of runs and what-ifs."""

from pathlib import Path

import pytest

from headway import api as hw

HEADER = "JobID|User|Account|QOS|Partition|State|Submit|Start|End|Elapsed|Timelimit|ReqTRES"
NODES = "NodeName=n1 CPUTot=64 RealMemory=640000 Gres=gpu:a100:8 State=IDLE Partitions=batch,debug\n"
QOS = "Name|Priority|Preempt|PreemptMode\nnormal|10|scavenger|cluster\nscavenger|0||cluster\n"
CONF = (
    "ClusterName=x\nPreemptType=preempt/qos\nPreemptMode=REQUEUE\nPriorityType=priority/basic\n"
    "SchedulerType=sched/builtin\nPartitionName=batch Nodes=n1 PriorityTier=1\n"
    "PartitionName=debug Nodes=n1 PriorityTier=1\n"
)
FILES = ("nodes.txt", "qos.txt", "slurm.conf")


def row(job: int, qos: str, partition: str, submit: int, minutes: int) -> str:
    def clock(minute: int) -> str:
        return f"2026-03-01T{minute // 60:02d}:{minute % 60:02d}:00"

    times = f"{clock(submit)}|{clock(submit)}|{clock(submit + minutes)}|00:{minutes:02d}:00|01:00:00"
    return f"{job}|eve|bio|{qos}|{partition}|COMPLETED|{times}|cpu=1,gres/gpu=8,mem=1G,node=1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A scavenger that a normal job preempts, and later two jobs of which the second is in partition debug."""
    rows = [row(1, "scavenger", "batch", 0, 50), row(2, "normal", "batch", 10, 10)]
    rows += [row(10 + each, "normal", part, 200 + each, 20) for each, part in enumerate(("batch", "batch", "debug"))]
    (tmp_path / "sacct.txt").write_text("\n".join([HEADER, *rows]) + "\n")
    for name, text in zip(FILES, (NODES, QOS, CONF), strict=True):
        (tmp_path / name).write_text(text)
    return tmp_path


def work(folder: Path, **settings: object) -> hw.Work:
    files = [str(folder / name) for name in FILES]
    return hw.Jobs(str(folder / "sacct.txt"), cluster=files, policy=f"slurm:{folder}/slurm.conf", **settings)


def test_preemption_is_turned_off(folder: Path) -> None:
    assert hw.simulate(work(folder)).row["preemptions"] == 1
    spared = hw.simulate(work(folder, preempt="scavenger=off"))
    assert spared.row["preemptions"] == 0
    assert "changed for this run: QOS scavenger: is preempted by nobody instead of normal" in spared.notes


def test_a_tier_orders_jobs(folder: Path) -> None:
    def waits(**settings: object) -> dict[str, float]:
        table = hw.simulate(work(folder, **settings)).table("jobs")
        return dict(zip(table["name"].to_list(), table["wait_s"].to_list(), strict=True))

    assert waits()["11"] < waits()["12"]
    raised = waits(partition="debug.PriorityTier=2")
    assert raised["12"] < raised["11"]


def test_a_what_if_changes_tiers_and_preemption_and_continues_exactly_without_a_change(folder: Path) -> None:
    hw.simulate(work(folder), out=str(folder / "run"))
    run = hw.open(folder / "run")
    same = run.whatif("1m", preempt="normal=off", partition="debug.PriorityTier=1", qos="normal.Preempt=scavenger")
    assert same.record()["digest"] == run.row["digest"]
    assert "note: nothing was to change: the rest of the tape is the same, row for row" in same.notes
    spared = run.whatif("1m", preempt="scavenger=off").record()
    assert spared["changes"] == ["QOS scavenger: is preempted by nobody instead of normal"]
    assert spared["digest"] != run.row["digest"]
    tiers = run.whatif("2h", partition="debug.PriorityTier=2").record()
    both = (*tiers["gain"], *tiers["lose"])
    changed = {each["job"]: each["wait_after_s"] - each["wait_before_s"] for each in both}
    assert changed["12"] < 0 < changed["11"]
