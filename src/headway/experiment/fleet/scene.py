"""Prepare a run of a fleet: from the tables of an experiment to a catalogue, workers, requests and a policy."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import msgspec

from headway.core.audit import Finding
from headway.core.tape import Tape
from headway.experiment.domain import Begun, Scene
from headway.formats import pair_file, scenario_file
from headway.formats.cluster_table import within
from headway.formats.plugins import anchored, resolve
from headway.formats.scenario_file import Built
from headway.formats.serving_limits import check_rate
from headway.formats.serving_settings import ServingExperiment, check
from headway.formats.settings import span
from headway.live.tasks import Far
from headway.serving.audit import audit
from headway.serving.latency import LatencyModel
from headway.serving.policies.parts import ServingPolicy
from headway.serving.policies.registry import build, describe
from headway.serving.replay import replay_on
from headway.serving.request import Request
from headway.serving.state import ServingState
from headway.sim.serving import SimulatedFleet, WorkerFaults
from headway.sim.worker_faults import faults_of
from headway.traces import request_table, serving_arrivals

REQUESTS_NAME = "requests.parquet"
SCENARIO_NAME = "scenario"


@dataclass(frozen=True, slots=True)
class FleetScene(Scene):
    """A catalogue, a fleet and its requests, before the run."""

    experiment: ServingExperiment
    built: Built
    requests: tuple[Request, ...]
    notes: tuple[str, ...] = ()

    times_decisions = True

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

    def begin(self) -> Begun:
        """Make the fleet before anything has happened."""
        state, policy = self.state(), self.policy()
        policy.bind(state)
        return Begun(state, policy, SimulatedFleet(self.requests, state, self.experiment.run.seed, self.faults()))

    def far(self, state: ServingState, now: int) -> Far:
        """Count the requests that were answered, wait and run."""
        alive, total = len(state.requests), len(self.requests)
        running = sum(len(worker.running) for worker in state.workers)
        return Far(now, self.requests[-1].arrival, total, total - state.to_come - alive, alive, running)

    def replay(self, tape: Tape) -> Tape:
        """Show a fresh policy the recorded events."""
        begun = self.begin()
        return replay_on(begun.state, self.requests, tape, begun.policy)

    def audit(self, tape: Tape, *, complete: bool) -> Sequence[Finding]:
        """Check memory to the byte, slots, slices and that every request is answered once."""
        return audit(self.built.catalogue, self.built.fleet, self.requests, tape, complete=complete)

    def store(self, folder: Path) -> ServingExperiment:
        """Write the requests, and the scenario, profiles and table of pairs where they are files."""
        serving = self.experiment.serving
        scenario = scenario_file.path_of(serving.scenario)
        if serving.scenario not in scenario_file.SHIPPED:
            kept = SCENARIO_NAME + scenario.suffix
            text = scenario_file.written(self.experiment)
            (folder / kept).write_text(scenario.read_text(encoding="utf-8") if text is None else text, encoding="utf-8")
            serving = msgspec.structs.replace(serving, scenario=kept)
        for path in scenario_file.profile_paths(self.experiment):
            shutil.copyfile(path, folder / path.name)
        if Path(serving.profile).is_file():
            serving = msgspec.structs.replace(serving, profile=Path(serving.profile).name)
        if serving.interference:  # stores grow and shipped tables change
            shutil.copyfile(pair_file.path_of(serving.interference), folder / pair_file.NAME)
            serving = msgspec.structs.replace(serving, interference=pair_file.NAME)
        request_table.write(self.requests, folder / REQUESTS_NAME)
        return msgspec.structs.replace(self.experiment, serving=serving)


def policy_of(experiment: ServingExperiment) -> ServingPolicy:
    """The policy that an experiment names, with the options of its fidelity."""
    return build(resolve(experiment.policy.name), authors=experiment.serving.fidelity == "authors")


def prepare(experiment: ServingExperiment) -> FleetScene:
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
    scene = FleetScene(resolved, built, requests, (*built.notes, *([note] if note else ())))
    scene.faults()
    scene.state()
    return scene


def load(experiment: ServingExperiment, folder: Path) -> FleetScene:
    """Make the scene of a stored run from the files in its folder."""
    serving = experiment.serving
    own = {
        key: str(folder / value)
        for key in ("scenario", "profile", "interference")
        if (value := getattr(serving, key)) and (folder / value).is_file()
    }
    experiment = msgspec.structs.replace(experiment, serving=msgspec.structs.replace(serving, **own))
    requests = request_table.read(folder / REQUESTS_NAME)
    return FleetScene(experiment, scenario_file.load(experiment), requests)
