"""Workloads of an experiment that are drawn, models for traces that name none, and profiles that go with a run."""

import json
from pathlib import Path
from typing import Any

import pytest

from headway.cli import main
from headway.errors import ExperimentError, ProfileError
from headway.formats import toml
from headway.jobs.audit.replay import replay
from headway.jobs.experiment.scene import draws, prepare
from headway.jobs.tables.profiles import SHIPPED
from headway.jobs.tables.settings import Experiment
from headway.jobs.traces import load, synergy_like, with_models
from headway.runs import identity
from headway.runs.folder.folder import open_run
from headway.runs.measured import measured
from tests.drive import first_difference

CLUSTER = {"nodes": 2, "gpus_per_node": 8, "cpus_per_node": 24, "memory_per_node": "500GB"}
SYNERGY = {"jobs": 40, "rate": "30/h", "split": "50,0,50", "gpus": "multi"}


def _experiment(**tables: Any) -> Experiment:
    return toml.typed({"cluster": CLUSTER, **tables}, Experiment, "test")


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a trace that does not say what its jobs train."""
    rows = "".join(f"{60 * i},{600 + 97 * i % 5000},{1 + i % 2}\n" for i in range(60))
    (tmp_path / "jobs.csv").write_text(f"submit_s,work_s,gpus\n{rows}")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "jobs.csv"


def test_a_synergy_table_draws_the_jobs_that_the_generator_draws() -> None:
    scene = prepare(_experiment(trace={"synergy": SYNERGY}, run={"seed": 42}))
    assert scene.jobs == synergy_like(40, rate="30/h", split="50,0,50", gpus="multi", seed=42)
    plain = prepare(_experiment(trace={"synergy": {"jobs": 5}}))
    assert plain.jobs == synergy_like(5, rate="9/h", split="20,70,10", gpus="single", seed=0)
    faster = prepare(_experiment(trace={"synergy": SYNERGY, "load": 2}, run={"seed": 42}))
    assert [job.submit for job in faster.jobs] == [job.submit // 2 for job in scene.jobs]


def test_models_are_drawn_from_the_seed_for_a_trace_that_names_none(jobs: Path) -> None:
    scene = prepare(_experiment(trace={"path": str(jobs), "models": "20,70,10"}, run={"seed": 3}))
    assert scene.jobs == with_models(load(jobs).jobs, "20,70,10", seed=3)
    other = prepare(_experiment(trace={"path": str(jobs), "models": "20,70,10"}, run={"seed": 4}))
    assert [job.model for job in other.jobs] != [job.model for job in scene.jobs]
    named = prepare(_experiment(trace={"synergy": SYNERGY, "models": "0,100,0"}))
    assert named.jobs == prepare(_experiment(trace={"synergy": SYNERGY})).jobs


@pytest.mark.parametrize(
    ("trace", "line"),
    [
        ({}, "the experiment has no jobs: name a trace"),
        ({"path": "jobs.csv", "synergy": SYNERGY}, "both a path and a synergy table: give one"),
        ({"synthetic": {"jobs": 5}, "synergy": SYNERGY}, "both a synthetic table and a synergy table: give one"),
        ({"synergy": {**SYNERGY, "jobs": 0}}, "synergy jobs 0 must lie in 1 to 10,000,000"),
        ({"synergy": {**SYNERGY, "rate": "fast"}}, "rate 'fast' is not understood: write arrivals a time, like 9/h"),
        ({"synergy": {**SYNERGY, "split": "1,2"}}, "split '1,2' is not understood"),
        ({"synergy": {**SYNERGY, "gpus": "8"}}, "unknown GPUs of jobs '8'"),
        ({"synergy": SYNERGY, "models": "20,70"}, "models '20,70' is not understood: write percentages"),
    ],
)
def test_what_cannot_be_drawn_is_refused(trace: dict[str, Any], line: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        prepare(_experiment(trace=trace))
    assert line in str(caught.value)


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ({"rate": "9/h"}, "trace.synergy: key 'jobs' is missing"),
        ({"jobs": 5, "rat": "9/h"}, "unknown key of [trace.synergy] 'rat'; did you mean 'rate'?"),
        ({"jobs": 5, "rate": 9}, "trace.synergy.rate is 9: expected text, got a whole number"),
        ({"jobs": "many"}, "trace.synergy.jobs is 'many': expected a whole number"),
    ],
)
def test_a_wrong_key_or_type_is_named(table: dict[str, Any], line: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        _experiment(trace={"synergy": table})
    assert line in str(caught.value)


def test_the_seed_matters_where_jobs_models_or_profiles_are_drawn(jobs: Path) -> None:
    path = {"path": str(jobs)}
    assert not draws(_experiment(trace=path))
    assert not draws(_experiment(trace=path, speed={"model": "matrix"}))
    assert draws(_experiment(trace={"synergy": SYNERGY}))
    assert draws(_experiment(trace={**path, "models": "20,70,10"}))
    assert draws(_experiment(trace=path, speed={"model": "matrix", "error": 0.1}))


def _json(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    with pytest.raises(SystemExit) as ended:
        main([*map(str, arguments), "--json", "--confidence", "0"])
    out, err = capsys.readouterr()
    assert ended.value.code == 0, err
    return json.loads(out)


SIZE = ("--nodes", 2, "--gpus-per-node", 8, "--cpus-per-node", 24, "--memory-per-node", "500GB")


def storage(speed: str) -> tuple[str, str]:
    """The flags for so much bandwidth of storage a node."""
    return "--set", f"cluster.storage_per_node={speed}"


def test_models_and_storage_are_flags(jobs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Image models alone: twice the storage bandwidth, or as much as is wanted, and they are faster."""

    def jct(*more: object) -> float:
        row = _json(capsys, "jobs", "simulate", jobs, *SIZE, "--allocation", "tune", "--models", "100,0,0", *more)
        return float(row["jct_mean_s"])

    slow, fast, endless = jct(*storage("100MB/s")), jct(*storage("200MB")), jct()
    assert slow > fast > endless
    rows = _json(
        capsys, "jobs", "compare", jobs, "--policies", "fifo+tune,fifo+proportional", *SIZE, "--models", "100,0,0",
        *storage("100MB"),
    )  # fmt: skip
    assert next(row["jct_mean_s"] for row in rows) == slow


def test_a_sweep_takes_the_same_flags(jobs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shared = (jobs, *SIZE[2:], "--models", "100,0,0", *storage("200MB"), "--allocation", "tune", "--round", "60s",
              "--set", "run.completions=round", "--set", "speed.model=synergy-scalar")  # fmt: skip
    swept = _json(
        capsys, "jobs", "sweep", *shared, "--nodes", "2,3", "--policies", "fifo", "-o", "grid", "--processes", 1
    )
    alone = _json(capsys, "jobs", "simulate", *shared, "--nodes", 2, "--policy", "fifo")
    assert next(row["digest"] for row in swept) == alone["digest"]


# --- profiles that go with a run --------------------------------------------------------------------------------


def _mine(folder: Path, speed: float) -> Path:
    path = folder / "mine.toml"
    path.write_text(f'model = "gnmt"\ncpus = [1, 8]\nmemory = ["20GB"]\nthroughput = [[0.5], [{speed}]]\n')
    return path


def test_a_run_keeps_the_profiles_that_it_was_given(jobs: Path) -> None:
    mine = _mine(jobs.parent, 1.7)
    tables: dict[str, Any] = {
        "trace": {"path": "jobs.csv", "models": "0,100,0"},
        "policy": {"name": "srtf", "allocation": "tune"},
        "speed": {"profiles": ["mine.toml", str(SHIPPED / "lstm.toml")]},
    }
    before = measured(_experiment(**tables, run={"out": "kept"}))
    mine.unlink()
    stored = open_run("kept")
    assert stored.scene.speed().profiles["gnmt"].most_ppm == 1_700_000
    scene = stored.scene
    again = replay(scene.cluster, scene.jobs, stored.tape, scene.policy(), speed=scene.speed(), costs=scene.costs())
    assert first_difference(stored.tape, again) is None
    assert before.row["digest"] == again.digest
    with pytest.raises(ProfileError, match="there is no such file"):
        prepare(_experiment(**tables))


def test_profiles_alone_mean_that_they_count(jobs: Path) -> None:
    _mine(jobs.parent, 1.7)
    scene = prepare(_experiment(trace={"path": "jobs.csv"}, speed={"profiles": "mine.toml"}))
    assert scene.policy().name == "fifo+proportional+round(5m)"
    assert scene.speed().profiles["gnmt"].most_ppm == 1_700_000
    assert prepare(_experiment(trace={"path": "jobs.csv"})).policy().name == "fifo"


def test_a_profile_that_changes_is_read_again_and_is_another_cell_of_a_sweep(jobs: Path) -> None:
    each = identity.with_absolute_paths(_experiment(trace={"path": "jobs.csv"}, speed={"profiles": "mine.toml"}))
    _mine(jobs.parent, 1.7)
    before = identity.digest(each), prepare(each).speed().profiles["gnmt"].most_ppm
    _mine(jobs.parent, 1.25)
    after = identity.digest(each), prepare(each).speed().profiles["gnmt"].most_ppm
    assert before[0] != after[0]
    assert (before[1], after[1]) == (1_700_000, 1_250_000)
    (jobs.parent / "mine.toml").rename(jobs.parent / "moved.toml")
    moved = identity.with_absolute_paths(_experiment(trace={"path": "jobs.csv"}, speed={"profiles": ["moved.toml"]}))
    assert identity.digest(moved) == after[0], "what it is called does not matter"


def test_the_shipped_profiles_belong_to_the_code(tmp_path: Path) -> None:
    shipped = tmp_path / "jobs/profiling/shipped"
    shipped.mkdir(parents=True)
    (shipped / "a.toml").write_text("one")
    before = identity.code_of(tmp_path)
    (shipped / "a.toml").write_text("two")
    assert identity.code_of(tmp_path) != before
