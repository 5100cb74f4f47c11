"""Jobs and batches on one GPU read what they cost each other in a table of pairs: by exactly its factors."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from headway.cli import main
from headway.errors import ExperimentError, ProfileError
from headway.fleet import domain as fleet
from headway.fleet.model.rows import Kind as ServingKind
from headway.fleet.scenarios.tables.settings import ServingExperiment
from headway.formats import toml
from headway.jobs.audit.audit import audit
from headway.jobs.experiment.scene import prepare
from headway.jobs.model.cluster import uniform
from headway.jobs.model.job import Job, workload
from headway.jobs.model.rows import Kind
from headway.jobs.model.speed import SpeedModel
from headway.jobs.policies.registry import build
from headway.jobs.tables.settings import Experiment
from headway.profiling.interference import PairTable
from headway.runs import identity, play
from headway.runs.domain import RunResult
from headway.runs.folder.folder import open_run
from headway.runs.settings import files
from headway.runs.settings.tables import RunTable
from headway.units import MILLISECOND, SECOND
from tests.docs.pages import ROOT
from tests.drive import World, drive
from tests.strategies import specs, worlds

EXPERIMENTS = ROOT / "experiments"


def pair(program: str, co_runner: str, slower: float, share: int = 500_000, harvest: float = 0) -> dict[str, Any]:
    """One row of a table."""
    return {
        "program": program,
        "co_runner": co_runner,
        "sm_share_ppm": share,
        "slowdown_ppm": round(slower * 1_000_000),
        "harvest_ppm": round(harvest * 1_000_000),
        "measured": True,
    }


TABLE = PairTable.from_rows([pair("a", "b", 1.25), pair("b", "a", 2), pair("a", "a", 1.6), pair("b", "b", 4)])


@dataclass(frozen=True)
class Felt(World):
    """A world whose jobs on one GPU feel each other."""

    def speed(self) -> SpeedModel:
        """How fast jobs run."""
        return SpeedModel(self.cluster, interference=TABLE)


def share(model: str, submit_s: float = 0, work_s: float = 100, milli: int = 500) -> Job:
    """A job on part of a GPU."""
    return Job(0, round(submit_s * SECOND), round(work_s * SECOND), gpu_milli=milli, model=model)


# --- training -------------------------------------------------------------------------------------------------


def test_two_jobs_on_one_gpu_take_longer_by_exactly_their_factors() -> None:
    made = drive("fifo", Felt(uniform(1, 1), workload([share("a"), share("b", work_s=200)])))
    assert made.ends == {0: 125 * SECOND, 1: 125 * SECOND + 200 * SECOND - 125 * SECOND // 2}
    assert [(row.time, row.subject, row.value) for row in made.rows(Kind.RESPEED)] == [
        (0, 0, 800_000),
        (125 * SECOND, 1, 1_000_000),
    ]


def test_two_neighbours_multiply() -> None:
    jobs = workload([share("a", milli=300), share("b", milli=300, work_s=10_000), share("b", milli=300, work_s=10_000)])
    assert drive("fifo", Felt(uniform(1, 1), jobs)).ends[0] == 100 * 1.25 * 1.25 * SECOND


def test_a_job_with_a_gpu_of_its_own_feels_nobody() -> None:
    jobs = workload([share("a"), share("b"), Job(0, 0, 100 * SECOND, model="a"), share("b", milli=200)])
    made = drive("fifo+spread", Felt(uniform(1, 4), jobs))
    assert set(made.ends.values()) == {100 * SECOND}
    assert made.rows(Kind.RESPEED) == []


@settings(max_examples=60, deadline=None)
@given(worlds(), specs(), st.randoms(use_true_random=False))
def test_what_a_run_with_a_table_writes_is_sound(world: World, spec: str, random: Any) -> None:
    jobs = workload([replace(job, model=random.choice("abc")) for job in world.jobs])
    felt = Felt(world.cluster, jobs, world.faults, world.costs)
    tape = drive(spec, felt).tape
    found = audit(felt.cluster, jobs, tape, policy=build(spec), speed=felt.speed(), costs=felt.costs, complete=True)
    assert found == []


def test_the_audit_finds_a_neighbour_that_was_not_felt() -> None:
    jobs = workload([share("a"), share("b")])
    tape = drive("fifo", World(uniform(1, 1), jobs)).tape
    found = audit(uniform(1, 1), jobs, tape, speed=Felt(uniform(1, 1), jobs).speed())
    assert {finding.rule for finding in found} >= {"speed"}


# --- an experiment --------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a trace of two jobs and a table."""
    (tmp_path / "jobs.csv").write_text(
        "name,submit_s,work_s,gpus,gpu_milli,model\none,0,1000,1,500,left\ntwo,0,5000,1,500,right\n"
    )
    rows = [pair("left", "right", 1.25, harvest=0.5), pair("x", "y", 1.5)]
    (tmp_path / "mine.json").write_text(json.dumps(rows))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def asked(out: str = "", **cluster: Any) -> Experiment:
    """The experiment of that trace on one GPU."""
    document = {"trace": {"path": "jobs.csv"}, "cluster": {"nodes": 1, "gpus_per_node": 1, **cluster}}
    return toml.typed(document | {"run": {"out": out}}, Experiment, "test")


def ends(found: RunResult) -> list[float]:
    """When jobs finished, in seconds."""
    tape = found.tape
    return [int(row[0]) / SECOND for row in tape.rows[tape.column("kind") == int(Kind.FINISHED)].tolist()]


def test_an_experiment_reads_a_table_and_its_run_keeps_it(folder: Path) -> None:
    assert ends(play.run(asked())) == [1000, 5000]
    found = play.run(asked(out="run", interference="mine.json"))
    assert ends(found) == [1250, 5000 + 1250 / 2]
    (folder / "mine.json").unlink()
    stored = open_run(folder / "run")
    scene = stored.scene
    assert audit(scene.cluster, scene.jobs, stored.tape, speed=scene.speed(), costs=scene.costs(), complete=True) == []
    assert scene.speed().interference is not None


def test_jobs_of_which_the_table_knows_nothing_are_reported_and_count_with_its_median(folder: Path) -> None:
    (folder / "mine.json").write_text(json.dumps([pair("x", "y", 1.5)]))
    found = play.run(asked(interference="mine.json"))
    assert found.scene.notes[-1] == (
        "2 of 2 jobs on parts of a GPU train what no pair is of (left, right): beside each, 1.5× as long"
    )
    assert ends(found)[0] == pytest.approx(1500, abs=0.01)
    named = play.run(asked(interference="mine.json", programs={"le*": "x", "*": "y"}))
    assert not named.scene.notes
    assert ends(named) == ends(found)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"interference": "none.json"}, "none.json: there is no such file"),
        ({"interference": "h100"}, "unknown interference 'h100'; did you mean 'h200'"),
        ({"interference": "mine.json", "sharing_penalty": 0.1}, "both interference and sharing_penalty: give one"),
        ({"programs": {"*": "left"}}, "cluster.programs needs a table of pairs: give cluster.interference"),
        ({"interference": "mine.json", "programs": {"*": "lefty"}}, "unknown program 'lefty'; did you mean 'left'"),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_runs(folder: Path, keys: dict[str, Any], told: str) -> None:
    with pytest.raises((ExperimentError, ProfileError), match=told):
        prepare(asked(**keys))


def test_what_a_result_depends_on_includes_the_rows_of_the_table_but_not_its_place(folder: Path) -> None:
    first = identity.with_absolute_paths(asked(interference="mine.json"))
    assert first.cluster.interference == str(folder / "mine.json")
    (folder / "other.json").write_bytes((folder / "mine.json").read_bytes())
    same = identity.with_absolute_paths(asked(interference="other.json"))
    assert identity.digest(first) == identity.digest(same) != identity.digest(identity.with_absolute_paths(asked()))
    (folder / "other.json").write_text(json.dumps([pair("x", "y", 2)]))
    assert identity.digest(first) != identity.digest(same)


# --- a fleet --------------------------------------------------------------------------------------------------

SCENARIO = {
    "functions": {
        "look": {"cells": [[1, 1, 1, 100], [1, 1, 3, 100]]},
        "read": {"cells": [[1, 1, 1, 100]]},
    },
    "graphs": {"both": {"tasks": [{"function": "look"}, {"function": "read"}]}},
    "fleet": {"workers": [{"gpu": "H200", "memory": "10GB", "slices": 4, "cpus": 4}]},
    "workload": {"rate": 1, "requests": 1},
}


def asked_fleet(folder: Path, scenario: dict[str, Any] | None = None, **keys: Any) -> ServingExperiment:
    """One worker with two functions that start together."""
    (folder / "fleet.toml").write_text(toml.write(scenario or SCENARIO))
    given = {"serving": {"scenario": "fleet.toml", **keys}, "policy": {"name": "esg"}}
    return toml.typed(given, ServingExperiment, "test")


def test_batches_on_one_gpu_take_longer_by_exactly_the_factor_of_their_share(folder: Path) -> None:
    rows = [pair("read", "look", 1.25, 250_000), pair("read", "look", 2, 1_000_000), pair("look", "read", 1.5, 750_000)]
    (folder / "mine.json").write_text(json.dumps(rows))
    latency = fleet.DOMAIN.prepare(asked_fleet(folder, interference="mine.json")).latency()
    look, read = range(2)
    assert latency.beside(read, [look], 0, 1) == 1_250_000
    assert latency.beside(read, [look], 0, 4) == 2_000_000
    assert latency.beside(look, [read, read], 0, 3) == 2_250_000
    assert latency.beside(look, [], 0, 3) == 1_000_000


def test_a_run_of_a_fleet_reads_a_table_and_keeps_it(folder: Path) -> None:
    (folder / "mine.json").write_text(json.dumps([pair("look", "read", 1.25), pair("read", "look", 1.25)]))
    took = {}
    for name in ("", "mine.json"):
        each = asked_fleet(folder, interference=name)
        found = play.run(msgspec.structs.replace(each, run=RunTable(out="felt" if name else "alone")))
        tape = found.tape
        kinds, times = tape.column("kind"), tape.column("time")
        begun = times[kinds == int(ServingKind.RUN)].tolist()
        took[name] = [time - begun[0] for time in times[kinds == int(ServingKind.FINISHED)].tolist()]
    assert took[""] == [100 * MILLISECOND, 100 * MILLISECOND]
    assert took["mine.json"] == [100 * MILLISECOND, 125 * MILLISECOND]
    (folder / "mine.json").unlink()
    assert open_run(folder / "felt").scene.latency().beside(0, [1], 0, 1) == 1_250_000
    assert open_run(folder / "alone").scene.latency().beside(0, [1], 0, 1) == 1_000_000


def test_what_a_scenario_says_itself_comes_before_the_table(folder: Path) -> None:
    (folder / "mine.json").write_text(json.dumps([pair("look", "read", 1.5), pair("read", "look", 1.5)]))
    own = SCENARIO | {"interference": [{"function": "look", "beside": "read", "slower": 3}]}
    latency = fleet.DOMAIN.prepare(asked_fleet(folder, own, interference="mine.json")).latency()
    assert (latency.beside(0, [1], 0, 1), latency.beside(1, [0], 0, 1)) == (3_000_000, 1_500_000)


def test_functions_of_which_the_table_knows_nothing_are_reported(folder: Path) -> None:
    scene = fleet.DOMAIN.prepare(asked_fleet(folder, interference="mine.json", programs={"look": "left"}))
    (note,) = scene.notes
    assert note.startswith("4 pairs are not in the interference table (look beside look, look beside read, ")
    assert note.endswith(", …): 1.38× as long")


def test_names_without_a_table_are_refused(folder: Path) -> None:
    with pytest.raises(ExperimentError, match=r"serving\.programs needs a table of pairs"):
        fleet.DOMAIN.prepare(asked_fleet(folder, programs={"look": "left"}))


# --- the experiments of the repository --------------------------------------------------------------------------


def test_the_experiment_with_jobs_shows_what_neighbours_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    means = {}
    for name, each in files.read(EXPERIMENTS / "kernels-training.toml"):
        found = play.run(each)
        assert found.scene.notes == ()
        submitted = {job.id: job.submit for job in found.scene.jobs}
        rows = found.tape.rows[found.tape.column("kind") == int(Kind.FINISHED)].tolist()
        assert len(rows) == len(submitted) == 240
        means[name] = sum(row[0] - submitted[row[2]] for row in rows) / len(rows)
    packed = means["packed, as measured"] / means["packed, not felt"]
    spread = means["spread, as measured"] / means["spread, not felt"]
    assert 1.02 < spread < packed < 1.2


def test_the_experiment_with_a_fleet_shows_what_neighbours_cost() -> None:
    document = toml.read(EXPERIMENTS / "kernels-serving.toml")
    toml.put(document, "workload.requests", 300)
    means = {}
    for name, each in files.variants(document, "kernels-serving.toml"):
        if not name.startswith("esg"):
            continue
        tape = play.run(each).tape
        done = tape.column("kind") == int(ServingKind.DONE)
        means[name] = float(tape.column("value")[done].mean())
        assert done.sum() == 300
    assert means["esg, as measured"] > 1.02 * means["esg, not felt"]


def test_a_wrong_table_ends_the_program_with_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "mine.json").write_text("{}")
    (folder / "mine.toml").write_text(toml.write(msgspec.to_builtins(asked(interference="mine.json"))))
    with pytest.raises(SystemExit) as ended:
        main(["run", "mine.toml"])
    assert ended.value.code == 2
    told = capsys.readouterr().err.strip()
    assert "interference mine.json: must be a list of pairs, not dict" in told
    assert len(told.splitlines()) == 1
