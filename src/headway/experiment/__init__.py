"""Wiring, in one place: from the tables of an experiment to a trace, a cluster, a policy and a run.

``run`` plays one experiment out. With ``run.out`` it leaves a folder: ``experiment.toml`` (every value resolved),
``jobs.parquet`` (the workload as it was played), the tape, and ``result.json``. ``open_run`` gives all of it back.
"""

import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec

from headway import traces
from headway.core.scheduler import Scheduler
from headway.core.tape import Tape, TapeWriter
from headway.errors import ExperimentError, TapeError
from headway.experiment.arrivals import anywhere, arrivals, check_span, feasible, source, without
from headway.experiment.division import (
    check_division,
    completions_of,
    keep_profiles,
    kept_profiles,
    speed_of,
    unknown_models,
)
from headway.experiment.folder import EXPERIMENT_NAME, check_rows, claimed, whole_or_nothing
from headway.experiment.folder import read as read_folder
from headway.experiment.interference import unknown_programs
from headway.experiment.parts import PARTS, PolicyFacts, costs_of, facts_of
from headway.experiment.parts import policy_of as policy_of
from headway.experiment.stopping import stops_on_interrupt
from headway.experiment.unchanged import unchanged
from headway.files import write_whole
from headway.formats import cluster_file, cluster_table, toml
from headway.formats.plugins import anchored, is_disarmed, of_run
from headway.formats.settings import LEAST_MTBF, Experiment, FailuresTable, PolicyTable, span
from headway.live.tasks import Far
from headway.sim.faults import FailureModel, Faults, Maintenance
from headway.sim.resume import Moment
from headway.sim.training import SimulatedCluster
from headway.traces.build import no_collection
from headway.training.cluster import Cluster
from headway.training.job import Job
from headway.training.policies.compose import ComposedPolicy
from headway.training.policies.registry import describe
from headway.training.rows import JOB_KINDS, PLACED_KINDS, Kind
from headway.training.speed import Costs, SpeedModel
from headway.training.state import TrainingState
from headway.training.tenancy import divide

JOBS_NAME = "jobs.parquet"
POLICY_NAME = "policy.json"
"""In the folder of a run whose policy comes from a file: what can be known of it without the file."""
REQUESTS_NAME = "requests.parquet"
"""In the folder of a fleet's run."""

Progress = Callable[[Far], None]
"""Told how far a run is, now and then."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything about a run but its outcome: what replay, audit and story need besides the tape."""

    experiment: Experiment
    cluster: Cluster
    jobs: tuple[Job, ...]
    notes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    """Jobs left out because they could never run, by name."""
    kept_facts: PolicyFacts | None = None
    """Of a policy whose file is not trusted."""

    def facts(self) -> PolicyFacts:
        """What books need to know of its policy; without its file where that is not trusted."""
        return self.kept_facts or facts_of(self.experiment)

    def policy(self) -> ComposedPolicy:
        """A fresh policy, as it was at the beginning."""
        return policy_of(self.experiment)

    def policy_name(self) -> str:
        """What the policy is called in full."""
        return self.facts().name

    def policy_if_trusted(self) -> ComposedPolicy | None:
        """The same; None where it is a file that is not trusted, and what is known of it is enough to go on."""
        return None if self.kept_facts is not None else self.policy()

    def speed(self) -> SpeedModel:
        """How fast jobs run where."""
        return speed_of(self.experiment, self.cluster, self.facts())

    def completions(self) -> int:
        """Ends are noticed at multiples of this; 0: at once."""
        return completions_of(self.experiment, self.facts())

    def costs(self) -> Costs:
        """What stopping and moving cost."""
        return costs_of(self.experiment, self.facts())

    def faults(self) -> Faults | None:
        """What will befall the nodes; drawn anew from the seed, so the same each time."""
        return faults_of(self.experiment, len(self.cluster.nodes))


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run that ended, or was stopped: its tape and what it took."""

    scene: Scene
    policy: str
    tape: Tape
    stopped: bool
    wall_s: float
    peak_rss_bytes: int
    folder: Path | None = None
    notes: tuple[str, ...] = field(default=())
    allocation: str = ""
    """As it is written; empty where jobs hold what they ask for."""
    decide_ns: Sequence[int] = ()
    """How long each decision took; measured with an allocation only, where they take long enough for a clock."""
    bounds: Sequence[tuple[int, int]] = ()
    """(throughput reached, the most there could have been) of each division, where the allocation knows."""

    @property
    def reached(self) -> int:
        """The time of the last step on the tape."""
        return int(self.tape.column("time")[-1]) if len(self.tape) else 0


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run folder that was read back."""

    folder: Path
    scene: Scene
    tape: Tape
    complete: bool
    """Whether the run went to its end."""
    result: dict[str, Any] = field(default_factory=dict)
    """Its numbers; empty for a run that was killed."""


# --- from tables to things ------------------------------------------------------------------------------------


def read(path: str | Path, overrides: Sequence[str] = ()) -> list[tuple[str, Experiment]]:
    """The experiments of a TOML file by name: one, or one for each of its variants."""
    document = toml.read(Path(path))
    for assignment in overrides:
        toml.override(document, assignment)
    return list(variants(document, str(path)))


def variants(document: toml.Document, where: str) -> Iterator[tuple[str, Experiment]]:
    """A document as experiments: itself, or itself with the keys that each variant sets."""
    whole = toml.typed(document, Experiment, where)
    if not whole.variants:
        yield "", whole
    for variant in whole.variants:
        changed: toml.Document = msgspec.convert(msgspec.to_builtins(document), dict[str, Any])
        del changed["variants"]
        for key, value in toml.leaves(variant.set):
            toml.put(changed, key, value)
        yield variant.name, toml.typed(changed, Experiment, f"{where}, variant {variant.name!r}")


def failure_model(table: FailuresTable) -> FailureModel | None:
    """How often nodes fail and for how long; None where they do not."""
    if table.mtbf == "":
        return None
    mtbf = span(table.mtbf, "failures mtbf", least=LEAST_MTBF)
    return FailureModel(mtbf, span(table.repair, "failures repair", least=1))


def faults_of(experiment: Experiment, nodes: int) -> Faults | None:
    """Failures and maintenance, or None where nothing was asked for."""
    table = experiment.failures
    model = failure_model(table)
    works = []
    for work in table.maintenance:
        listed = cluster_table.positions(work.nodes, "maintenance nodes") if isinstance(work.nodes, str) else work.nodes
        for node in listed:
            cluster_table.within("maintenance nodes", node, 0, nodes - 1)
        start, length = span(work.start, "maintenance start"), span(work.length, "maintenance length", least=1)
        works.append(Maintenance(tuple(listed), start, length, span(work.lead, "maintenance lead")))
    return Faults(nodes, experiment.run.seed, model, works) if model is not None or works else None


# --- the scene ----------------------------------------------------------------------------------------------


def prepare(experiment: Experiment) -> Scene:
    """Everything before the run: the cluster, the jobs that fit it, and notes on what was left out."""
    experiment, about = _from_files(experiment)
    cluster = cluster_table.build(experiment.cluster)
    cluster_table.within("seed", experiment.run.seed, 0, 2**63 - 1)
    policy = policy_of(experiment)
    costs_of(experiment, facts_of(experiment))
    check_division(experiment, cluster, policy)
    faults_of(experiment, len(cluster.nodes))
    table = experiment.trace
    made = arrivals(*source(table, cluster.gpus), table.load, table.estimates, table.models, experiment.run.seed)
    jobs, notes = made[0], [*about, *made[1]]
    if table.leave_out:
        jobs = without(jobs, set(table.leave_out))
        notes.append(f"{len(made[0]) - len(jobs):,} jobs left out by name")
    cluster, jobs = divide(cluster, jobs, experiment.cluster.tenancy, experiment.cluster.sizing)
    jobs = anywhere(cluster, jobs, notes)
    jobs, skipped = feasible(cluster, jobs, policy, table.skip_infeasible)
    if skipped:
        notes.append(f"{len(skipped):,} job{'s' if len(skipped) > 1 else ''} skipped that could never run")
    check_span(jobs, cluster)
    notes += [*unknown_models(experiment, jobs), *unknown_programs(experiment, jobs)]
    path = str(Path(table.path).expanduser().resolve()) if table.path else ""
    resolved = msgspec.structs.replace(
        experiment,
        trace=msgspec.structs.replace(table, path=path),
        cluster=cluster_table.described(experiment.cluster, cluster),
        policy=with_paths(experiment.policy, anchored),
        variants=[],
    )
    return Scene(resolved, cluster, jobs, tuple(notes), skipped)


def with_paths(table: PolicyTable, way: Callable[[str], str]) -> PolicyTable:
    """A policy's table with each part that may name a file put another way."""
    return msgspec.structs.replace(table, **{key: way(getattr(table, key)) for key in PARTS})


def _from_files(experiment: Experiment) -> tuple[Experiment, tuple[str, ...]]:
    """The experiment with its cluster written out where files describe it, and notes on them."""
    table = experiment.cluster
    if not table.file:
        return experiment, ()
    given = "nodes" if table.nodes is not None else "node_groups" if table.node_groups else ""
    if given:
        raise ExperimentError(f"the cluster has both files and {given}: give one")
    found, notes = cluster_file.read([table.file] if isinstance(table.file, str) else table.file)
    own = {key: value for key in table.__struct_fields__ if (value := getattr(table, key)) != _PLAIN[key]}
    written = msgspec.structs.replace(found, **{**own, "file": ""})
    return msgspec.structs.replace(experiment, cluster=written), notes


_PLAIN = {key: getattr(cluster_table.ClusterTable(), key) for key in cluster_table.ClusterTable.__struct_fields__}


def same_jobs(experiments: Sequence[tuple[str, Experiment]]) -> list[tuple[str, Experiment]]:
    """Variants that are to serve the same jobs: what one of them could never run is left out of all."""
    if not all(each.trace.same_jobs for _, each in experiments):
        return list(experiments)
    hopeless = {name for _, each in experiments for name in prepare(each).skipped}
    changed = []
    for name, each in experiments:
        trace = msgspec.structs.replace(each.trace, leave_out=sorted({*each.trace.leave_out, *hopeless}))
        changed.append((name, msgspec.structs.replace(each, trace=trace)))
    return changed


# --- the run --------------------------------------------------------------------------------------------------


def run(experiment: Experiment, progress: Progress | None = None) -> RunResult:
    """Play an experiment out. Ctrl-C ends it after the step in progress; what was done is then on the tape."""
    folder = Path(experiment.run.out) if experiment.run.out else None
    with claimed(folder):
        return play(prepare(experiment), folder, progress)


def far(jobs: Sequence[Job], state: TrainingState, now: int) -> Far:
    """How far a run is that has come to this state."""
    waiting, running = state.queue.size, len(state.running)
    return Far(now, jobs[-1].submit, len(jobs), len(jobs) - state.to_come - waiting - running, waiting, running)


def beginning(scene: Scene) -> Moment:
    """A scene before anything has happened."""
    policy = scene.policy()
    state = TrainingState(
        scene.cluster, to_come=len(scene.jobs), arrangement=policy, speed=scene.speed(), costs=scene.costs()
    )
    policy.bind(state)
    return Moment(
        -1, state, policy, SimulatedCluster(scene.jobs, state, scene.faults(), completions=scene.completions())
    )


def play(
    scene: Scene,
    folder: Path | None = None,
    progress: Progress | None = None,
    begin: Callable[[TapeWriter], Moment] | None = None,
) -> RunResult:
    """Run a prepared scene, in memory or into a folder; from its beginning, or from where ``begin`` has led it.

    The folder is one that whoever calls this has claimed.
    """
    if folder is not None:
        with whole_or_nothing(folder):
            _store(scene, folder)
    with no_collection():  # a run makes no cycles, and the collector would walk all jobs again and again
        started = perf_counter()
        tape = TapeWriter(folder)
        moment = beginning(scene) if begin is None else begin(tape)
        state, policy = moment.state, moment.policy
        scheduler = Scheduler(state, policy, moment.executor, tape)
        scheduler.decide_ns = None if policy.allocation is None else []
        parts = (policy.named_order, policy.backfill, policy.rule, policy.migration, policy.allocation)
        with unchanged(policy.name, parts, {"job": scene.jobs, "node": scene.cluster.nodes}):
            try:
                with stops_on_interrupt(scheduler.stop):
                    scheduler.run(None if progress is None else lambda now: progress(far(scene.jobs, state, now)))
            finally:
                closed = tape.close()
        wall_s = perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    allocation = "" if policy.allocation is None else describe(policy.allocation)
    took = (scheduler.stopped, wall_s, peak, folder, scene.notes, allocation, scheduler.decide_ns or ())
    bounds = () if policy.allocation is None else tuple(policy.allocation.bounds)
    return RunResult(scene, policy.name, closed, *took, bounds)


# --- the folder of a run --------------------------------------------------------------------------------------


def _store(scene: Scene, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    keep_profiles(scene.experiment, folder)
    if any(".py:" in getattr(scene.experiment.policy, key) for key in PARTS):
        write_whole(folder / POLICY_NAME, msgspec.json.encode(scene.facts()))
    traces.write(scene.jobs, folder / JOBS_NAME)
    write_whole(folder / EXPERIMENT_NAME, toml.write(msgspec.to_builtins(scene.experiment)))


def open_run(folder: str | Path, *, trust: bool = False) -> StoredRun:
    """A run folder as it was left: closed, stopped, or killed in the middle.

    It is data: a Python file that it names is not imported, now or later, unless ``trust`` says so.
    """
    folder = Path(folder)
    kept = read_folder(folder)
    for name in (EXPERIMENT_NAME, JOBS_NAME):
        if not (folder / name).is_file():
            raise TapeError(f"run folder {folder}: {name} is missing beside the tape")
    path = folder / EXPERIMENT_NAME
    experiment = kept_profiles(toml.typed(toml.read(path), Experiment, str(path)), folder)
    policy = with_paths(experiment.policy, lambda spec: of_run(spec, folder, trust=trust))
    experiment = msgspec.structs.replace(experiment, policy=policy)
    jobs = traces.load(folder / JOBS_NAME, "headway", strict=True).jobs
    cluster = cluster_table.build(experiment.cluster)
    limits = {"subject": (len(jobs), JOB_KINDS), "place": (len(cluster.nodes), PLACED_KINDS)}
    check_rows(folder, kept.tape, Kind, limits)
    disarmed = any(is_disarmed(getattr(policy, key)) for key in PARTS)
    scene = Scene(experiment, cluster, jobs, kept_facts=_kept_facts(folder) if disarmed else None)
    return StoredRun(folder, scene, kept.tape, kept.complete, kept.result)


def _kept_facts(folder: Path) -> PolicyFacts | None:
    path = folder / POLICY_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=PolicyFacts)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as problem:
        raise TapeError(f"{path}: cannot be read ({problem})") from None


def is_serving(folder: str | Path) -> bool:
    """Whether a folder holds a run of a fleet; not so for anything that is no run at all."""
    return (Path(folder) / REQUESTS_NAME).is_file()
