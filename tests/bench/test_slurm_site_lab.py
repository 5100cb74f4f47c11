"""The workload that a real Slurm is given, and the comparison of replays with its spread from run to run."""

import re
from pathlib import Path

import pytest

from bench.slurm_compare import Apart, Line, apart, lines, table, victims
from bench.slurm_replay import Past, past
from bench.slurm_site_lab import Shape, accounting, workload

HEADER = "JobID|JobName|User|QOS|Submit|Start|End|State|SubmitLine"


def _tasks(options: tuple[str, ...]) -> int:
    array = next((option for option in options if option.startswith("--array=")), "--array=1-1%1")
    return int(re.split("[-%]", array.removeprefix("--array="))[1])


@pytest.mark.parametrize("shape", [Shape(), Shape(jobs=1000, users=30, mean_s=6.0)])
def test_a_workload_is_fixed_and_holds_every_kind_of_job(shape: Shape) -> None:
    plan = workload(shape)
    assert plan == workload(shape)
    assert [step.when for step in plan] == sorted(step.when for step in plan)
    jobs = [step for step in plan if not step.command]
    assert sum(_tasks(step.options) for step in jobs) == shape.jobs
    assert {step.user for step in jobs} == set(shape.people)
    asked = " ".join(option for step in jobs for option in step.options)
    assert set(re.findall(r"--dependency=(\w+)", asked)) == {"afterok", "afterany", "singleton"}
    assert set(re.findall(r"--qos=(\w+)", asked)) == {"high", "long", "normal", "scavenger"}
    assert all(f"--{option}=" in asked for option in ("array", "begin", "reservation"))


def test_dependencies_name_jobs_that_were_submitted_before() -> None:
    seen: set[str] = set()
    for step in workload(Shape()):
        named = {name for option in step.options for name in re.findall(r"\{(\w+)\}", option)}
        assert named <= seen
        seen.add(step.name)


def test_every_user_of_a_site_has_an_account() -> None:
    shape = Shape(users=30)
    assert len(shape.people) == 30
    assert sum(command.startswith("add user ") for command in accounting(shape)) == 30


def _past(start: float | None, submit: float = 0.0, qos: str = "normal") -> Past:
    return Past("1", qos, "ada", submit, start, None, 0, "COMPLETED")


def test_the_distance_between_runs_is_over_jobs_that_started_in_both() -> None:
    found = apart([({"a": 1.0, "b": 5.0, "c": 9.0}, {"a": 2.0, "b": 5.0})], lambda _: True)
    assert found == Apart(0.5, pytest.approx(0.9), 0.5)


def test_an_error_is_kept_up_to_one_and_a_half_times_the_spread() -> None:
    runs = [{"a": _past(10.0), "b": _past(20.0, qos="long")}, {"a": _past(14.0), "b": _past(20.0, qos="long")}]
    found = lines(runs, [{"a": 16.0, "b": 20.0}, {"a": 20.0, "b": 21.0}])
    assert [line.qos for line in found] == ["long", "normal", "all"]
    long, normal, _ = found
    assert normal.spread == Apart(4.0, 4.0, 4.0)
    assert normal.error == Apart(6.0, 6.0, 6.0)
    assert normal.kept == (True, True, True)
    assert long.kept == (True, True, True), "5 % of a mean wait of 20 s is 1 s"
    assert "| normal | 1 | 12.0 | 4.0 | 6.0 |" in table(found)


def test_victims_are_compared_as_sets() -> None:
    assert victims([frozenset("ab"), frozenset("bc")]) == pytest.approx(1 / 3)
    assert Line("x", 1, 100.0, Apart(0, 0, 0), Apart(5.1, 5, 0)).kept == (False, True, True)


def test_attempts_of_a_requeued_job_are_one_job_with_its_first_start(tmp_path: Path) -> None:
    day = "2026-11-17T15:00"
    rows = [
        HEADER,
        f"1|s|ada|low|{day}:00|{day}:01|{day}:05|PREEMPTED|sbatch --wrap sleep | cat",
        f"1|s|ada|low|{day}:05|{day}:20|{day}:30|COMPLETED|sbatch",
        f"2_1|array|ada|low|{day}:02|{day}:03|{day}:04|COMPLETED|sbatch",
        f"3|s|ada|low|{day}:10|Unknown|{day}:11|CANCELLED by 0|sbatch",
    ]
    (tmp_path / "sacct.txt").write_text("\n".join(rows) + "\n")
    found = past(tmp_path)
    assert list(found) == ["s", "array_1", "s.2"]
    assert (found["s"].submit, found["s"].start, found["s"].end, found["s"].preempted) == (0, 1, 30, 1)
    assert (found["s.2"].submit, found["s.2"].start) == (10, None)
