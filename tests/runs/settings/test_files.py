"""Wiring: tables become runs, runs become folders, folders become runs again."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.core.tape import TapeWriter, read as read_tape
from headway.errors import ExperimentError, HeadwayError, InfeasibleJobError, TapeError, TraceError
from headway.formats import toml
from headway.jobs.audit.audit import audit
from headway.jobs.audit.replay import replay
from headway.jobs.experiment.policy import costs_of, facts_of, policy_of
from headway.jobs.experiment.scene import prepare
from headway.jobs.model.job import Job
from headway.jobs.policies import registry
from headway.jobs.tables.settings import Experiment
from headway.runs import play
from headway.runs.folder.folder import open_run
from headway.runs.settings import files
from headway.units import DAY, SECOND
from tests.drive import first_difference


def described(**tables: Any) -> Experiment:
    """A small drawn workload on four nodes, with some tables changed."""
    document: dict[str, Any] = {
        "trace": {"synthetic": {"jobs": 200, "load": 1.2}},
        "cluster": {"nodes": 4, "gpus_per_node": 16},
    }
    for name, table in tables.items():
        document.setdefault(name, {}).update(table)
    return toml.typed(document, Experiment, "test")


def test_the_same_seed_gives_the_same_digest_and_another_seed_another() -> None:
    digests = [play.run(described(run={"seed": seed})).tape.digest for seed in (3, 3, 4)]
    assert digests[0] == digests[1] != digests[2]


def test_a_run_folder_gives_everything_back(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "run"
    tables = {"policy": {"name": "srtf+fit"}, "failures": {"mtbf": "2d", "repair": "1h"}}
    result = play.run(described(run={"out": str(folder)}, **tables))
    stored = open_run(folder)
    assert stored.tape.digest == result.tape.digest
    assert stored.scene.jobs == result.scene.jobs
    assert stored.scene.cluster == result.scene.cluster
    assert stored.scene.experiment == result.scene.experiment
    scene = stored.scene
    options = {"speed": scene.speed(), "costs": scene.costs()}
    again = replay(scene.cluster, scene.jobs, stored.tape, scene.policy(), **options)
    assert first_difference(stored.tape, again) is None
    assert audit(scene.cluster, scene.jobs, stored.tape, policy=scene.policy(), complete=True, **options) == []
    assert play.play(scene).tape.digest == result.tape.digest


def test_a_folder_that_holds_something_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    wanted = described(run={"out": str(tmp_path / "run")})
    play.run(wanted)
    with pytest.raises(TapeError, match="already holds a run"):
        play.run(wanted)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(TapeError, match="already holds files"):
        play.run(described(run={"out": str(tmp_path / "other")}))
    with pytest.raises(TapeError, match="is a file"):
        play.run(described(run={"out": str(tmp_path / "other" / "notes.txt")}))


def test_a_run_that_cannot_be_prepared_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InfeasibleJobError):
        play.run(described(cluster={"nodes": 1, "gpus_per_node": 1}, run={"out": str(tmp_path / "run")},
                                 trace={"synthetic": {"jobs": 50, "gpus": 64}}))  # fmt: skip
    assert not (tmp_path / "run").exists()


def test_ctrl_c_finishes_the_step_and_leaves_a_readable_tape(tmp_path: Path) -> None:
    wanted = described(trace={"synthetic": {"jobs": 4000}}, run={"out": str(tmp_path / "run")})
    before = signal.getsignal(signal.SIGINT)
    result = play.run(wanted, lambda *_: signal.raise_signal(signal.SIGINT))
    assert result.stopped
    assert signal.getsignal(signal.SIGINT) is before
    stored = open_run(tmp_path / "run")
    assert not stored.complete
    assert 0 < len(stored.tape) == len(result.tape)
    whole = play.run(described(trace={"synthetic": {"jobs": 4000}})).tape
    assert stored.tape.digest == whole.until(result.reached).digest


def test_a_killed_run_is_read_to_its_last_whole_batch(tmp_path: Path) -> None:
    play.run(described(run={"out": str(tmp_path / "run")}))
    whole = read_tape(tmp_path / "run")
    (tmp_path / "run" / "tape.parquet").unlink()
    writer = TapeWriter(tmp_path / "run", batch_rows=100)
    for row in whole:
        writer.append(tuple(row))
        if writer.pending >= writer.batch_rows:
            writer.flush()
    left = open_run(tmp_path / "run").tape
    assert len(left) == len(whole) // 100 * 100
    writer.close()


def test_variants_are_the_file_with_their_keys_set(tmp_path: Path) -> None:
    path = tmp_path / "e.toml"
    path.write_text(
        'scale = "jobs"\n[cluster]\nnodes = 4\ngpus_per_node = 8\n[[variants]]\nname = "a"\n[[variants]]\nname = "b"\n'
        'set.policy.name = "srtf"\nset."cluster.nodes" = 5\n'
    )
    (_, a), (name, b) = files.read(path, ["policy.backfill=fit", "run.seed=7"])
    assert (a.policy.name, a.cluster.nodes, a.policy.backfill, a.run.seed) == ("fifo", 4, "fit", 7)
    assert (name, b.policy.name, b.cluster.nodes, b.policy.backfill) == ("b", "srtf", 5, "fit")


def test_the_example_experiment_is_valid() -> None:
    path = Path(__file__).resolve().parents[3] / "experiments" / "example.toml"
    named = files.read(path, ["trace.synthetic.jobs=60"])
    assert len(named) == 4
    for _, each in named:
        assert not play.run(each).stopped


@pytest.mark.parametrize(
    ("tables", "line"),
    [
        ({"cluster": {"nodes": 0}}, "nodes 0 must lie in 1 to 50,000"),
        ({"cluster": {"nodes": 10**9}}, "nodes 1000000000 must lie in 1 to 50,000"),
        ({"cluster": {"gpus_per_node": -3}}, "gpus_per_node -3 must lie in"),
        ({"cluster": {"memory_per_node": "lots"}}, "memory_per_node 'lots' is not understood"),
        ({"cluster": {"tenancy": "wals"}}, "did you mean 'walls'?"),
        ({"cluster": {"levels": [{"name": "rack", "nodes_per_domain": 0}]}}, "level rack: nodes_per_domain 0"),
        ({"cluster": {"levels": [{"name": "rack", "nodes_per_domain": 2, "bandwidth": "3GB/h"}]}}, "like 25GB/s"),
        ({"cluster": {"gpu_speed": {"h100": 2.0}}}, "unknown GPU type in gpu_speed 'h100'"),
        ({"cluster": {"partitions": [{"name": "p", "nodes": "2-9"}]}}, "partition p: nodes 4 must lie in 0 to 3"),
        ({"cluster": {"tenants": [{"name": "t"}, {"name": "t"}]}}, "described twice"),
        ({"policy": {"name": "fifi"}}, "did you mean 'fifo'?"),
        ({"policy": {"preemption": "maybe"}}, "unknown preemption 'maybe' (valid: off, on)"),
        ({"policy": {"migration": "cost"}}, "did you mean 'costed'?"),
        ({"policy": {"quantum": "-5m"}}, "quantum '-5m' must not be negative"),
        ({"policy": {"round": "200y"}}, "round '200y' is not understood"),
        ({"costs": {"migration": "1e999"}}, "migration cost '1e999' is too large"),
        ({"costs": {"preemption": "5000w"}}, None),
        ({"costs": {"preemption": "50000w"}}, "must not be over 100 years"),
        ({"failures": {"mtbf": 0}}, "failures mtbf '0' must be above 0"),
        ({"failures": {"maintenance": [{"nodes": [9], "start": 0, "length": "1h"}]}}, "maintenance nodes 9 must lie"),
        ({"run": {"seed": -1}}, "seed -1 must lie in 0"),
        ({"trace": {"load": 0}}, "must be above 0"),
        ({"trace": {"load": "nan"}}, "is not a number"),
        ({"trace": {"load": 1e9}}, "must lie in 0.001 to 1,000"),
        ({"trace": {"estimates": "exct"}}, "did you mean 'exact'?"),
        ({"trace": {"synthetic": {"jobs": 0}}}, "synthetic jobs 0 must lie in 1"),
        ({"trace": {"path": "x.csv"}}, "both a path and a synthetic table"),
    ],
)
def test_a_wrong_value_is_one_line_that_names_it(tables: dict[str, Any], line: str | None) -> None:
    wanted = described(**tables)
    if line is None:
        prepare(wanted)
        return
    with pytest.raises(HeadwayError) as caught:
        prepare(wanted)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_skipped_jobs_are_counted_and_the_rest_begins_at_zero(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("submit_s,work_s,gpus,name\n0,60,999,big\n5,60,1,a\n9,60,2,b\n9,60,888,huge\n")
    given = {"synthetic": None, "path": str(path), "format": "headway"}
    with pytest.raises(InfeasibleJobError, match=r"job big can never run: .*has 64 \(2 such jobs in all\)"):
        prepare(described(trace=given))
    scene = prepare(described(trace={**given, "skip_infeasible": True}))
    assert len(scene.skipped) == 2
    assert [(job.id, job.name, job.submit) for job in scene.jobs] == [(0, "a", 0), (1, "b", 4 * SECOND)]
    path.write_text("submit_s,work_s,gpus\n0,60,999\n")
    with pytest.raises(InfeasibleJobError, match="no job of the trace could ever run"):
        prepare(described(trace={**given, "skip_infeasible": True}))


def test_time_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"submit_s,work_s,gpus\n0,60,1\n{120 * 365 * 86400},{100 * 365 * 86400},1\n")
    with pytest.raises(TraceError, match="time holds 146"):
        prepare(described(trace={"synthetic": None, "path": str(path)}))


@pytest.mark.parametrize("tenancy", ["pool", "walls", "quotas", "borrow"])
def test_every_tenancy_runs_is_stored_resolved_and_passes_the_audit(tmp_path: Path, tenancy: str) -> None:
    wanted = described(
        cluster={"tenancy": tenancy, "nodes": 16, "gpus_per_node": 8},
        trace={"skip_infeasible": True},
        run={"out": str(tmp_path / "run")},
    )
    result = play.run(wanted)
    stored = open_run(tmp_path / "run")
    scene = stored.scene
    assert scene.cluster == result.scene.cluster
    assert bool(scene.cluster.partitions) == (tenancy == "walls")
    assert bool(scene.cluster.tenants) == (tenancy in ("quotas", "borrow"))
    options = {"speed": scene.speed(), "costs": scene.costs()}
    assert audit(scene.cluster, scene.jobs, stored.tape, policy=scene.policy(), complete=True, **options) == []
    assert prepare(scene.experiment).cluster == scene.cluster


def test_maintenance_and_failures_are_drawn_from_the_seed_alone() -> None:
    tables = {
        "failures": {"mtbf": "5d", "maintenance": [{"nodes": "0-1", "start": "1h", "length": "2h", "lead": "30m"}]}
    }
    faults = [prepare(described(**tables)).faults() for _ in range(2)]
    first, second = (list(each.first()) if each is not None else [] for each in faults)
    assert first == second
    assert len(first) == 4 + 2 * 3
    assert prepare(described()).faults() is None


MINE = '''
from typing import ClassVar
from headway.jobs.policies.parts import Order

class Largest(Order):
    """Largest first."""
    name: ClassVar[str] = "{name}"
    def __init__(self, sign: int = -1) -> None:
        self.sign = sign
    def key(self, now, js):
        return self.sign * js.gpus

class Unfinished(Order):
    name: ClassVar[str] = "unfinished"
'''


@pytest.fixture
def registry_as_it_was() -> Iterator[None]:
    """What a test registers is gone after it."""
    taken = dict(registry.ORDERS)
    yield
    registry.ORDERS.clear()
    registry.ORDERS.update(taken)


@pytest.mark.usefixtures("registry_as_it_was")
def test_a_policy_from_the_users_own_file_runs_under_its_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(MINE.format(name="largest-for-test"))
    policy = policy_of(described(policy={"name": f"{path}:Largest(sign=1)+fit"}))
    assert policy.name == "largest-for-test(sign=1)+fit"
    result = play.run(described(policy={"name": f"{path}:Largest"}))
    assert result.policy == "largest-for-test"
    for spec, line in (
        (f"{path}:Larges", "did you mean 'Largest'?"),
        (f"{path}:Unfinished", "does not define key"),
        (f"{tmp_path}/absent.py:X", "there is no such file"),
    ):
        with pytest.raises(ExperimentError, match=line.replace("?", r"\?")):
            policy_of(described(policy={"name": spec}))
    (tmp_path / "broken.py").write_text("1 +")
    with pytest.raises(ExperimentError, match="cannot be loaded"):
        policy_of(described(policy={"name": f"{tmp_path}/broken.py:X"}))
    (tmp_path / "taken.py").write_text(MINE.format(name="fifo"))
    with pytest.raises(ExperimentError, match="'fifo' of class Largest is taken"):
        policy_of(described(policy={"name": f"{tmp_path}/taken.py:Largest"}))


def test_migration_costs_a_minute_unless_it_is_free_or_told_otherwise() -> None:
    job = Job(0, 0, DAY, checkpoint=5 * SECOND, restore=2 * SECOND)
    for tables, preemption, migration in (
        ({"policy": {"migration": "costed"}}, 7, 60),
        ({"policy": {"migration": "always"}, "costs": {"migration": "5s", "preemption": "1s"}}, 1, 5),
        ({"policy": {"migration": "free"}, "costs": {"migration": "5s"}}, 7, 0),
        ({"costs": {"migration": ""}}, 7, 7),
    ):
        wanted = described(**tables)
        costs = costs_of(wanted, facts_of(wanted))
        assert (costs.of_preemption(job), costs.of_migration(job)) == (preemption * SECOND, migration * SECOND)


def test_open_run_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(TapeError, match="there is no such folder"):
        open_run(tmp_path / "absent")
    with pytest.raises(TapeError, match="holds no run"):
        open_run(tmp_path)
    play.run(described(run={"out": str(tmp_path / "run")}))
    (tmp_path / "run" / "jobs.parquet").unlink()
    with pytest.raises(TapeError, match=r"jobs\.parquet is missing"):
        open_run(tmp_path / "run")
    (tmp_path / "run" / "tape.parquet").write_bytes(b"PAR1 no tape")
    with pytest.raises(TapeError, match="the tape cannot be read"):
        open_run(tmp_path / "run")


def test_placement_at_random_draws_from_the_seed_of_the_run() -> None:
    assert policy_of(described(policy={"name": "fifo+random"}, run={"seed": 7})).name == "fifo+random(seed=7)"
    chosen = described(policy={"name": "fifo", "placement": "random(seed=3)"}, run={"seed": 7})
    assert policy_of(chosen).name == "fifo+random(seed=3)"
    assert policy_of(described(policy={"name": "fifo+random"})).name == "fifo+random"


def test_a_damaged_result_is_said_and_not_taken_for_a_run_that_was_cut_short(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("submit_s,work_s,gpus\n0,60,1\n")
    document: toml.Document = {
        "trace": {"path": str(tmp_path / "jobs.csv")},
        "cluster": {"nodes": 1, "gpus_per_node": 1},
        "run": {"out": str(tmp_path / "run")},
    }
    play.run(toml.typed(document, Experiment, "test"))
    assert not open_run(tmp_path / "run").complete
    (tmp_path / "run" / "result.json").write_text("x")
    with pytest.raises(TapeError, match=r"result\.json cannot be read"):
        open_run(tmp_path / "run")
