"""A real Slurm with limits, tiers and preemption: its records keep its rules, and headway reads and replays them."""

import json
import os
from pathlib import Path

import pytest

from bench.slurm_drive import Step
from bench.slurm_lab import missing
from bench.slurm_replay import arguments
from bench.slurm_rule_cases import Case
from bench.slurm_rules_lab import REQUEUE_S, record
from headway.cli import main
from tests.jobs.experiment.slurm_rules import Attempt, attempts, most

ADA, ALAN = ("lab-ada", "--account=bio"), ("lab-alan", "--account=vision")


def job(when: float, name: str, seconds: float, owner: tuple[str, str], gpus: str, *options: str) -> Step:
    return Step(when, name, (owner[1], f"--gpus-per-node={gpus}", "--time=1", *options), seconds, owner[0])


CASE = Case(
    "live",
    (
        *(job(0, f"s{place}", 12, ADA, "4", "--qos=scavenger", "--partition=low") for place in range(3)),
        *(job(3, f"j{place}", 4, ADA, "2") for place in range(3)),
        job(3.5, "typed", 4, ALAN, "h100:2"),
        job(4, "array", 2, ALAN, "1", "--array=1-4%2"),
        job(4, "after", 2, ALAN, "1", "--dependency=afterok:{j0}"),
    ),
    {"PreemptType": "preempt/qos", "PreemptMode": "REQUEUE"},
    (
        "PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=2",
        "PartitionName=low Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1",
    ),
    (
        "add qos scavenger",
        "modify cluster lab set qos=normal,scavenger defaultqos=normal",
        "modify qos normal set Priority=100 MaxTRESPU=gres/gpu=4 Preempt=scavenger",
    ),
    {"a100": 2, "h100": 1},
)


@pytest.mark.skipif(bool(missing()) or os.geteuid() != 0, reason="needs Slurm with its accounting, and root")
def test_what_a_real_slurm_ran_keeps_its_rules_and_is_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path, CASE)
    ran = attempts(tmp_path / "sacct.txt")
    ended = {each["JobID"]: each for each in ran if each["State"] == "COMPLETED"}
    assert len(ended) == 12, "all jobs end well"
    assert most([each for each in ran if each["User"] == ADA[0] and each["QOS"] == "normal"]) == 4
    assert most([each for each in ran if each["JobName"] == "array"]) <= 2
    named = {each["JobName"]: each for each in ended.values()}
    assert named["typed"].nodes == ["n3"]
    assert named["after"].start >= named["j0"].end
    stopped: list[Attempt] = [each for each in ran if each["State"] == "PREEMPTED"]
    assert {each["QOS"] for each in stopped} == {"scavenger"}
    assert all(ended[each["JobID"]].start >= each.end + REQUEUE_S for each in stopped)
    with pytest.raises(SystemExit) as code:
        main([*arguments(tmp_path), "--json"])
    assert code.value.code == 0
    (site,) = json.loads(capsys.readouterr().out)
    assert (site["jobs"], site["compared"], site["only_recorded"]) == (12, 12, 0)
    assert {group["group"] for group in site["by_qos"]} == {"normal", "scavenger"}
