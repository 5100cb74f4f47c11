"""Limits in experiments, their tables, results and what-ifs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from headway.cli import main
from headway.errors import ExperimentError, InfeasibleJobError, InputError
from headway.formats import toml
from headway.jobs.ask.changes import Changes
from headway.jobs.ask.whatif import what_if
from headway.jobs.experiment.scene import prepare
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.metrics.waits.by_limit import by_limit
from headway.jobs.model.cluster import uniform
from headway.jobs.model.job import Job, workload
from headway.jobs.model.rows import Kind
from headway.jobs.rules.limits.limit import LimitRule
from headway.jobs.rules.limits.table import amount, rule_from_table, table_from_rule, with_values, written
from headway.jobs.tables.settings import Experiment
from headway.units import HOUR, SECOND
from tests.conformance.checks import check_delivered
from tests.drive import Run, World, drive
from tests.jobs.ask.test_whatif import recorded, scene_of
from tests.strategies import limited, limits, specs

LIMITS = """
scale = "jobs"
[trace]
path = "jobs.csv"
[cluster]
nodes = 1
gpus_per_node = 8
limits = [
    { name = "MaxGPUs", resource = "gpus", most = 2, where = { qos = "long" }, per = ["user"] },
    { name = "MaxGPUs", resource = "gpus", most = 6, where = { qos = "short" } },
    { name = "MaxWall", resource = "wall", most = "1h", denies = true },
]
[policy]
name = "fifo"
"""
JOBS = """name,submit_s,work_s,gpus,user,qos,estimate_s
a,0,100,2,alice,long,1000
b,1,100,1,alice,long,1000
c,2,10,6,bob,short,1000
d,3,10,1,bob,short,7200
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an experiment and its jobs."""
    (tmp_path / "mine.toml").write_text(LIMITS)
    (tmp_path / "jobs.csv").write_text(JOBS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(limits())
def test_a_limit_is_read_back_as_it_was_written(rules: tuple[LimitRule, ...]) -> None:
    assert tuple(rule_from_table(table_from_rule(rule)) for rule in rules) == rules


@pytest.mark.parametrize(
    ("resource", "given", "core"),
    [
        ("gpus", 2.5, 2500),
        ("gpus:h100", "32", 32_000),
        ("memory", "64GB", 64 * 10**9),
        ("wall", "1h30m", 90 * 60 * SECOND),
        ("gpu_time", "10h", 10 * HOUR * 1000),
        ("jobs", 7, 7),
    ],
)
def test_amounts_are_written_as_people_write_them(resource: str, given: float | str, core: int) -> None:
    assert amount("x", resource, given) == core
    assert amount("x", resource, written(resource, core)) == core


@pytest.mark.parametrize(
    ("resource", "given", "message"),
    [
        ("jobs", 1.5, "limit x: jobs 1.5 must be a whole number"),
        ("gpus", "many", "limit x: gpus 'many' is not a number"),
        ("gpu_time", 5, "limit x: gpu_time 5 is not a time: write it like '12h'"),
        ("memory", "5 apples", "limit x: memory '5 apples' is not understood"),
    ],
)
def test_an_amount_that_is_none_is_refused(resource: str, given: float | str, message: str) -> None:
    with pytest.raises((ExperimentError, InputError)) as refused:
        amount("x", resource, given)
    assert message in str(refused.value)


def test_a_limit_is_changed_by_its_name_or_its_address() -> None:
    rules = [LimitRule("x", "gpus", 1000), LimitRule("y", "jobs", 1, (("qos", "a"),)), LimitRule("y", "jobs", 2)]
    assert with_values(rules, {"x": 3, "y@qos:a": "none"}) == (replace(rules[0], most=3000), rules[2])
    with pytest.raises(ExperimentError, match=r"limit z|unknown limit 'z' \(valid: x, y, y@qos:a\)"):
        with_values(rules, {"z": 1})
    both = [replace(rules[1], where=(("user", "b"),)), rules[1]]
    with pytest.raises(ExperimentError, match="limit y: 2 limits have this name; write which: y@qos:a, y@user:b"):
        with_values(both, {"y": 1})


def called(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The status of a command, and all it said, in one line."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), " ".join(f"{out} {err}".split())


def test_an_experiment_with_limits_runs_and_says_what_they_cost(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, told = called(capsys, "run", "mine.toml", "--out", "out", "--by", "limit")
    assert status == 0
    assert "1 job rejected at submission, limit MaxWall: it wants 2h 00m, at most 1h 00m may be had" in told
    assert "job-hours waited by limit" in told
    assert called(capsys, "audit", "out")[0] == 0
    result = json.loads((folder / "out" / "result.json").read_text())
    waited = {"limit": "MaxGPUs@qos:long", "job_hours": pytest.approx(99 / 3600), "share": pytest.approx(1)}
    assert result["limits"] == [waited]
    held = "limit MaxGPUs: alice holds 2 of 2 GPUs under QOS long, it wants 1 GPU; job a (2 GPUs)"
    assert held in called(capsys, "story", "out", "b")[1]
    _, told = called(capsys, "explain", "out", "b", "--at", "50s", "--draws", "5")
    assert held in told
    assert "preempt job a" in told


def test_a_what_if_raises_a_limit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    called(capsys, "run", "mine.toml", "--out", "out")
    asked = ("whatif", "out", "--at", "50s")
    status, told = called(capsys, *asked, "--limit", "MaxGPUs@qos:long=3")
    assert status == 0
    assert "limit MaxGPUs@qos:long: 3 GPUs instead of 2 GPUs" in told
    assert "1 of them ends sooner" in told
    assert "2 limits have this name" in called(capsys, *asked, "--limit", "MaxGPUs=3")[1]
    assert "unknown limit 'MaxCPUs'; did you mean" in called(capsys, *asked, "--limit", "MaxCPUs=3")[1]
    status, told = called(capsys, *asked, "--set", "cluster.limit.MaxGPUs@qos:long=none")
    assert status == 0
    assert "1 of them ends sooner" in told


def test_a_job_over_a_limit_is_an_error_unless_it_is_skipped_or_rejected(folder: Path) -> None:
    (folder / "jobs.csv").write_text(JOBS + "e,4,10,3,alice,long,10\n")
    document = toml.read(folder / "mine.toml")
    document.pop("scale")
    with pytest.raises(InfeasibleJobError, match="job e can never run: limit MaxGPUs: it wants 3 GPUs, at most 2"):
        prepare(toml.typed(document, Experiment, "mine.toml"))
    document["trace"]["skip_infeasible"] = True
    scene = prepare(toml.typed(document, Experiment, "mine.toml"))
    assert scene.skipped == ("d", "e")
    assert [job.name for job in scene.jobs] == ["a", "b", "c"]


def test_time_behind_a_limit_is_counted_to_the_nanosecond() -> None:
    jobs = workload(Job(0, n * SECOND, 10 * SECOND, user="a") for n in range(3))
    cluster = uniform(1, 8, limits=(LimitRule("one", "jobs", 1),))
    run = drive("srtf", World(cluster, jobs))
    rows = by_limit(Ledger(run.tape, jobs, cluster), run.tape)
    assert rows == [{"limit": "one", "job_hours": (9 + 18) / 3600, "share": 1.0}]


@settings(max_examples=30, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.data())
def test_a_run_with_limits_goes_on_the_same_without_a_change_and_soundly_with_one(data: st.DataObject) -> None:
    world = data.draw(limited(faults=False))
    spec = data.draw(specs(cluster=world.cluster))
    stored = recorded(scene_of(world.cluster, world.jobs, spec))
    at = data.draw(st.integers(0, 80)) * SECOND
    same = what_if(stored, at, Changes(), skip_infeasible=True)
    assert same.after.tape.digest == stored.tape.digest
    rule = data.draw(st.sampled_from(world.cluster.limits))
    value = data.draw(st.sampled_from([None, written(rule.resource, rule.most * 2)]))
    try:
        other = what_if(stored, at, Changes(limit={rule.address: value}), skip_infeasible=True)
    except InfeasibleJobError:
        return
    check_delivered(Run(other.after.tape, None, None, world.jobs))  # type: ignore[arg-type]
    starts = [row for row in other.after.tape if row.kind == Kind.START]
    assert len(starts) >= len({row.subject for row in starts})
