"""Wiring of a serving run: from the tables of an experiment to a catalogue, a fleet, requests, a policy and a tape.

The twin of the package's own functions for training: ``prepare``, ``play``, ``open_run``. A run folder holds
``experiment.toml``, ``requests.parquet``, the scenario where it was a file, the tape and ``result.json``.
"""

import resource
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec

from headway.core.scheduler import Scheduler
from headway.core.tape import Tape, TapeWriter
from headway.errors import TapeError
from headway.experiment import REQUESTS_NAME, Progress
from headway.experiment.folder import EXPERIMENT_NAME, check_rows, claimed, whole_or_nothing
from headway.experiment.folder import read as read_folder
from headway.experiment.stopping import stops_on_interrupt
from headway.experiment.unchanged import unchanged
from headway.files import write_whole
from headway.formats import pair_file, scenario_file, toml
from headway.formats.cluster_table import within
from headway.formats.plugins import anchored, disarmed, of_run, resolve
from headway.formats.scenario_file import Built
from headway.formats.serving_limits import check_rate
from headway.formats.serving_settings import ServingExperiment, check
from headway.formats.settings import span
from headway.live.tasks import Far
from headway.serving.latency import LatencyModel
from headway.serving.policies.parts import ServingPolicy
from headway.serving.policies.registry import build, describe
from headway.serving.request import Request
from headway.serving.rows import PLACED_KINDS, REQUEST_KINDS, Kind
from headway.serving.state import ServingState
from headway.sim.serving import SimulatedFleet, WorkerFaults
from headway.sim.worker_faults import faults_of
from headway.traces import request_table, serving_arrivals
from headway.traces.build import no_collection

SCENARIO_NAME = "scenario"


@dataclass(frozen=True, slots=True)
class ServingScene:
    """Everything about a run but its outcome: what replay, audit and story need besides the tape."""

    experiment: ServingExperiment
    built: Built
    requests: tuple[Request, ...]
    notes: tuple[str, ...] = ()

    def policy(self) -> ServingPolicy:
        """A fresh policy, as it was at the beginning."""
        return policy_of(self.experiment)

    def name(self) -> str:
        """Its policy as it was written; one from a file by its own name."""
        spec = self.experiment.policy.name
        return describe(policy_of(self.experiment)) if ".py:" in spec else spec

    def latency(self) -> LatencyModel:
        """How long things take."""
        built = self.built
        return LatencyModel(built.catalogue, built.fleet, built.interference, built.by_share)

    def central(self) -> bool:
        """Whether every row is read as it is: as the experiment says, else the scenario, else the policy."""
        asked = self.experiment.serving.control
        if asked:
            return asked == "central"
        return self.policy().central if self.built.central is None else self.built.central

    def state(self) -> ServingState:
        """The fleet before anything has happened."""
        return ServingState(
            self.built.catalogue,
            self.built.fleet,
            self.latency(),
            to_come=len(self.requests),
            push_interval=span(self.experiment.serving.push_interval, "serving push_interval"),
            central=self.central(),
            preloaded=self.built.preloaded,
        )

    def faults(self) -> WorkerFaults | None:
        """What will befall the workers; drawn anew from the seed, so the same each time."""
        last = self.requests[-1].arrival if self.requests else 0
        return faults_of(self.experiment, len(self.built.fleet.workers), last)


@dataclass(frozen=True, slots=True)
class ServingResult:
    """A run that ended, or was stopped: its tape and what it took."""

    scene: ServingScene
    policy: str
    tape: Tape
    stopped: bool
    wall_s: float
    peak_rss_bytes: int
    folder: Path | None
    decide_ns: Sequence[int]
    pushes: int
    reads: int
    stale_ns: int
    """How old the rows were that were read and had changed since, in all."""

    @property
    def reached(self) -> int:
        """The time of the last step on the tape."""
        return int(self.tape.column("time")[-1]) if len(self.tape) else 0


@dataclass(frozen=True, slots=True)
class StoredServing:
    """A run folder that was read back."""

    folder: Path
    scene: ServingScene
    tape: Tape
    complete: bool
    result: dict[str, Any] = field(default_factory=dict)
    """Its numbers; empty for a run that was killed."""


def policy_of(experiment: ServingExperiment) -> ServingPolicy:
    """The policy that an experiment names, with the options of its fidelity."""
    return build(resolve(experiment.policy.name), authors=experiment.serving.fidelity == "authors")


def prepare(experiment: ServingExperiment) -> ServingScene:
    """Everything before the run: the catalogue, the fleet, the requests."""
    check(experiment)
    within("seed", experiment.run.seed, 0, 2**63 - 1)
    built = scenario_file.load(experiment)
    policy_of(experiment)
    requests = serving_arrivals.draw(experiment, built)
    named = msgspec.structs.replace(experiment.policy, name=anchored(experiment.policy.name))
    resolved = msgspec.structs.replace(experiment, policy=named, variants=[])
    rate = serving_arrivals.chosen(experiment, built).rate
    note = check_rate(experiment, built, rate) if rate else ""
    scene = ServingScene(resolved, built, requests, (*built.notes, *([note] if note else ())))
    scene.faults()
    scene.state()
    return scene


def play(scene: ServingScene, folder: Path | None = None, progress: Progress | None = None) -> ServingResult:
    """Run a prepared scene, in memory or into a folder that whoever calls this has claimed."""
    if folder is not None:
        with whole_or_nothing(folder):
            _store(scene, folder)
    state, policy = scene.state(), scene.policy()
    with no_collection():  # a run makes no cycles, and the collector would walk all requests again and again
        tape = TapeWriter(folder)
        started = perf_counter()
        policy.bind(state)
        executor = SimulatedFleet(scene.requests, state, scene.experiment.run.seed, scene.faults())
        scheduler = Scheduler(state, policy, executor, tape)
        scheduler.decide_ns = []
        catalogue, fleet = scene.built.catalogue, scene.built.fleet
        given = {"graph": catalogue.graphs, "function": catalogue.functions, "model": catalogue.models}
        with unchanged(policy.name, (policy,), {**given, "worker": fleet.workers, "request": scene.requests}):
            try:
                with stops_on_interrupt(scheduler.stop):
                    scheduler.run(None if progress is None else lambda now: progress(_far(scene, state, now)))
            finally:
                closed = tape.close()
        wall_s = perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    took = (scheduler.stopped, wall_s, peak, folder, scheduler.decide_ns)
    return ServingResult(scene, scene.name(), closed, *took, state.pushes, state.reads, state.stale_ns)


def _far(scene: ServingScene, state: ServingState, now: int) -> Far:
    alive = len(state.requests)
    running = sum(len(worker.running) for worker in state.workers)
    total = len(scene.requests)
    return Far(now, scene.requests[-1].arrival, total, total - state.to_come - alive, alive, running)


def run(experiment: ServingExperiment, progress: Progress | None = None) -> ServingResult:
    """Play an experiment out. Ctrl-C ends it after the step in progress; what was done is then on the tape."""
    folder = Path(experiment.run.out) if experiment.run.out else None
    with claimed(folder):
        return play(prepare(experiment), folder, progress)


# --- the folder of a run --------------------------------------------------------------------------------------


def _store(scene: ServingScene, folder: Path) -> None:
    experiment = scene.experiment
    folder.mkdir(parents=True, exist_ok=True)
    serving = experiment.serving
    scenario = scenario_file.path_of(serving.scenario)
    if serving.scenario not in scenario_file.SHIPPED:
        text = scenario_file.written(experiment)
        kept = SCENARIO_NAME + (scenario.suffix if text is None else ".toml")
        write_whole(folder / kept, scenario.read_bytes() if text is None else text)
        serving = msgspec.structs.replace(serving, scenario=kept)
    for path in scenario_file.profile_paths(experiment):
        write_whole(folder / path.name, path.read_bytes())
    if profile := scenario_file.profile_file(experiment):
        serving = msgspec.structs.replace(serving, profile=profile.name)
    if serving.interference:  # stores grow and shipped tables change
        write_whole(folder / pair_file.NAME, pair_file.path_of(serving.interference).read_bytes())
        serving = msgspec.structs.replace(serving, interference=pair_file.NAME)
    request_table.write(scene.requests, folder / REQUESTS_NAME)
    kept_experiment = msgspec.structs.replace(experiment, serving=serving)
    write_whole(folder / EXPERIMENT_NAME, toml.write(msgspec.to_builtins(kept_experiment)))


def open_run(folder: str | Path, *, trust: bool = False) -> StoredServing:
    """A run folder as it was left: closed, stopped, or killed in the middle.

    It is data: a Python file that it names or holds is not run unless ``trust`` says so.
    """
    folder = Path(folder)
    kept = read_folder(folder)
    path = folder / EXPERIMENT_NAME
    if not path.is_file():
        raise TapeError(f"run folder {folder}: {EXPERIMENT_NAME} is missing beside the tape")
    experiment = toml.typed(toml.read(path), ServingExperiment, str(path))
    serving = msgspec.structs.replace(experiment.serving, **_own_files(experiment, folder, trust))
    policy = msgspec.structs.replace(experiment.policy, name=of_run(experiment.policy.name, folder, trust=trust))
    experiment = msgspec.structs.replace(experiment, serving=serving, policy=policy)
    requests = request_table.read(folder / REQUESTS_NAME)
    scene = ServingScene(experiment, scenario_file.load(experiment), requests)
    known = (max((request.id for request in requests), default=-1) + 1, REQUEST_KINDS)
    check_rows(folder, kept.tape, Kind, {"subject": known, "place": (len(scene.built.fleet.workers), PLACED_KINDS)})
    return StoredServing(folder, scene, kept.tape, kept.complete, kept.result)


def _own_files(experiment: ServingExperiment, folder: Path, trust: bool) -> dict[str, str]:
    """Files that a run folder holds, by key; names that are no files stay. None is looked for anywhere else."""
    serving, found = experiment.serving, {}
    for key, named in (
        ("scenario", scenario_file.SHIPPED),
        ("profile", scenario_file.NAMED_PROFILES),
        ("interference", ()),
    ):
        value = getattr(serving, key)
        if not value or value in named:
            continue
        if not (folder / value).is_file() or (folder / value).resolve().parent != folder.resolve():
            raise TapeError(f"run folder {folder}: {value} is missing beside the tape")
        file = str(folder / value)
        found[key] = disarmed(file) if file.endswith(scenario_file.PYTHON) and not trust else file
    return found
