"""Prepare a run of a fleet: from the tables of an experiment to a catalogue, workers, requests and a policy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import Any

import msgspec

from headway.core.audit import Finding
from headway.core.tape import Tape
from headway.core.tasks import Far
from headway.errors import ExperimentError, TapeError
from headway.files import write_whole
from headway.fleet.audit.audit import audit
from headway.fleet.audit.replay import about, replay_on
from headway.fleet.experiment import initial
from headway.fleet.experiment.calibration import calibrate
from headway.fleet.model.decision_time import DecisionTime
from headway.fleet.model.latency import LatencyModel
from headway.fleet.model.request import NO_GROUPS, Groups, Request
from headway.fleet.model.rows import PLACED_KINDS, REQUEST_KINDS, Kind
from headway.fleet.policies.central.controller import Controller
from headway.fleet.policies.parts import ServingPolicy
from headway.fleet.policies.registry import build, describe
from headway.fleet.policies.scalers.registry import build as build_scaler
from headway.fleet.policies.scalers.wrapper import Autoscaled
from headway.fleet.scenarios import file as scenario_file
from headway.fleet.scenarios.file import Built
from headway.fleet.scenarios.limits import check_rate
from headway.fleet.scenarios.tables.controller import CALIBRATED, parse_controller
from headway.fleet.scenarios.tables.settings import COLD, ServingExperiment, check
from headway.fleet.scenarios.tokens import tokens_of
from headway.fleet.sim.fleet import SimulatedFleet, WorkerFaults
from headway.fleet.sim.worker_faults import faults_of
from headway.fleet.state.state import ServingState
from headway.fleet.traces import draw as serving_arrivals, stored as request_table
from headway.jobs.tables.cluster import within
from headway.jobs.tables.settings import span
from headway.plugins import anchored, as_named, is_from_outside, is_untrusted, marked_untrusted, of_run, resolve
from headway.profiling import pairs as pair_file
from headway.runs.domain import RunParts, Scene, with_table
from headway.runs.folder.folder import Limits, kept_file
from headway.units import exact_duration

REQUESTS_NAME = "requests.parquet"
IF_FAR_OFF = (
    "the profile may lack what a batch takes besides its function (headway profile model APP.py --overhead), or be of "
    "another machine"
)
"""What to do where a simulation by a profile is far from its live run."""
SCENARIO_NAME = "scenario"


@dataclass(frozen=True, slots=True)
class FleetScene(Scene):
    """A catalogue, a fleet and its requests, before the run."""

    experiment: ServingExperiment
    built: Built
    requests: tuple[Request, ...]
    notes: tuple[str, ...] = ()
    groups: Groups = NO_GROUPS
    """Names of the requests' classes and tenants."""

    def policy(self) -> ServingPolicy:
        """Return a new policy in its initial state."""
        return policy_of(self.experiment)

    def policy_name(self) -> str:
        """Return the policy as it was written; one from a file by its own name."""
        return policy_name(self.experiment)

    def inputs(self) -> Mapping[str, Sequence[Any]]:
        """Return graphs, functions, models, workers and requests."""
        catalogue = self.built.catalogue
        parts = {"graph": catalogue.graphs, "function": catalogue.functions, "model": catalogue.models}
        return {**parts, "worker": self.built.fleet.workers, "request": self.requests}

    def row_kinds(self) -> tuple[type[IntEnum], Limits]:
        """Return the kinds of rows about requests and workers, and how many there are of both."""
        known = max((request.id for request in self.requests), default=-1) + 1
        workers = len(self.built.fleet.workers)
        return Kind, {"subject": (known, REQUEST_KINDS), "place": (workers, PLACED_KINDS)}

    def latency(self) -> LatencyModel:
        """Return the latency model."""
        built = self.built
        return LatencyModel(built.catalogue, built.fleet, built.interference, built.by_share)

    def central(self) -> bool:
        """Return whether control is central: as the experiment says, else the scenario, else the policy."""
        asked = self.experiment.serving.control
        if asked:
            return asked == "central"
        return self.policy().central if self.built.central is None else self.built.central

    def state(self) -> ServingState:
        """Return the initial state of the fleet."""
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
        """Return the worker failures; drawn anew from the seed, so the same each time."""
        last = self.requests[-1].arrival if self.requests else 0
        return faults_of(self.experiment, len(self.built.fleet.workers), last)

    def decision_time(self) -> DecisionTime | None:
        """Return how long a decision takes; None: no time."""
        return parse_controller(self.experiment.serving.controller)

    def bound(self) -> tuple[ServingState, ServingPolicy]:
        """Return the initial state and what decides, bound to it: the policy, behind its controller and its scaler."""
        state, deciding, decision_time = self.state(), self.policy(), self.decision_time()
        if decision_time is not None:
            deciding = Controller(deciding, decision_time)
        if (scaler := build_scaler(self.experiment.serving.autoscale)) is not None:
            deciding = Autoscaled(deciding, scaler)
        deciding.bind(state)
        return state, deciding

    def simulated(self, tape: Tape | None = None) -> "FleetScene | None":
        """Return the requests of a live run in virtual time."""
        if not self.experiment.serving.engine:
            return None
        notes = self.built.guesses or (IF_FAR_OFF,)
        return replace(self, experiment=with_table(self.experiment, "serving", engine=""), notes=notes)

    def policy_parts(self, policy: ServingPolicy) -> Sequence[object]:
        """Return the policy itself, without its controller and its scaler."""
        if isinstance(policy, Autoscaled):
            policy = policy.policy
        return (policy.inner if isinstance(policy, Controller) else policy,)

    def begin(self) -> RunParts:
        """Return state, policy and executor before the first event."""
        state, policy = self.bound()
        return RunParts(state, policy, self.executor(state), exact=self.decision_time() is None)

    def executor(self, state: ServingState) -> SimulatedFleet:
        """Return the executor of a run from this state on."""
        return SimulatedFleet(self.requests, state, self.experiment.run.seed, self.faults())

    def progress(self, state: ServingState, now: int) -> Far:
        """Count the requests that were answered, wait and run."""
        alive, total = len(state.requests), len(self.requests)
        running = sum(len(worker.running) for worker in state.workers)
        return Far(now, self.requests[-1].arrival, total, total - state.to_come - alive, alive, running)

    def subjects(self) -> str:
        """Return the numbers of its requests."""
        return f"0 to {len(self.requests) - 1}"

    def unfinished(self, state: ServingState) -> list[str]:
        """Return the requests that are not answered."""
        return [f"request {number}" for number in state.requests]

    def alive(self, state: ServingState, now: int) -> int:
        """Count the requests that are not answered; several tasks of one may run at a time."""
        return len(state.requests)

    def row_subject(self, row: Sequence[int]) -> str:
        """Return the request or worker of a row."""
        return about(row)

    def replay(self, tape: Tape, *, complete: bool) -> Tape:
        """Show a fresh policy the recorded events."""
        state, policy = self.bound()
        return replay_on(state, self.requests, tape, policy, complete=complete)

    def audit(self, tape: Tape, *, complete: bool) -> Sequence[Finding]:
        """Return the findings of the audit: memory in bytes, CPUs, slices, and that every request is answered once."""
        simulated = not self.experiment.serving.engine
        return audit(self.built.catalogue, self.built.fleet, self.requests, tape, complete=complete, punctual=simulated)

    def store(self, folder: Path) -> ServingExperiment:
        """Write the requests, and the scenario, profiles and table of pairs where they are files."""
        serving = self.experiment.serving
        if serving.scenario not in scenario_file.SHIPPED:
            scenario = scenario_file.path_of(serving.scenario)
            text = scenario_file.written(self.experiment)
            kept = SCENARIO_NAME + (scenario.suffix if text is None else ".toml")
            write_whole(folder / kept, scenario.read_bytes() if text is None else text)
            serving = msgspec.structs.replace(serving, scenario=kept, slices="", devices=0, shared_cpus=0)
        for path in scenario_file.profile_paths(self.experiment):
            write_whole(folder / path.name, path.read_bytes())
        if profile := scenario_file.profile_file(self.experiment):
            serving = msgspec.structs.replace(serving, profile=profile.name)
        if serving.interference:  # stores grow and shipped tables change
            write_whole(folder / pair_file.NAME, pair_file.path_of(serving.interference).read_bytes())
            serving = msgspec.structs.replace(serving, interference=pair_file.NAME)
        request_table.write(self.requests, folder / REQUESTS_NAME, self.groups)
        return msgspec.structs.replace(self.experiment, serving=serving)


def policy_of(experiment: ServingExperiment) -> ServingPolicy:
    """Return the policy that an experiment names, with the options of its fidelity and the plans that were searched."""
    name, plans = resolve(experiment.policy.name, "fleet"), experiment.policy.plans
    return build(name, authors=experiment.serving.fidelity == "authors", defaults={"plans": plans} if plans else None)


def prepare(experiment: ServingExperiment) -> FleetScene:
    """Return the scene of an experiment: its catalogue, fleet and requests."""
    check(experiment)
    within("seed", experiment.run.seed, 0, 2**63 - 1)
    built = scenario_file.load(experiment)
    policy = policy_of(experiment)
    notes = [*built.notes]
    requests, groups = serving_arrivals.draw_named(experiment, built, notes)
    policy.check_requests(requests, built.catalogue.graphs)
    named = with_table(experiment, "policy", name=anchored(experiment.policy.name))
    rate, load = serving_arrivals.chosen(experiment, built, requests).rate, experiment.workload.load
    if rate and load:
        notes.append(load_note(load, rate))
    note = check_rate(experiment, built, rate, tokens_of(requests)) if rate else ""
    resolved = msgspec.structs.replace(named, variants=[])
    built = initial.scaled(experiment, built, requests)
    scene = FleetScene(resolved, built, requests, (*notes, *([note] if note else ())), groups)
    scene.faults()
    return with_decision_time(with_plans(scene))


def with_plans(scene: FleetScene) -> FleetScene:
    """Return the scene with what its policy finds before the run; raise where no run can begin."""
    asked = with_table(scene.experiment, "policy", plans="")
    plans = policy_of(asked).plans_for(scene.state(), scene.requests)
    return replace(scene, experiment=with_table(asked, "policy", plans=plans))


def with_decision_time(scene: FleetScene) -> FleetScene:
    """Return the scene with its decision time in numbers, where that is to be measured on this machine."""
    controller, decision_time = scene.experiment.serving.controller, scene.decision_time()
    if controller == CALIBRATED:
        state, policy = scene.bound()
        decision_time = calibrate(policy, state, scene.executor(state))
        resolved = with_table(scene.experiment, "serving", controller=str(decision_time))
        note = f"controller, measured on this machine: {decision_time}"
        scene = replace(scene, experiment=resolved, notes=(*scene.notes, note))
    kept = scene.built.fleet.keep_alive
    if (
        decision_time is not None
        and decision_time.fixed >= kept
        and any(each.cold_start for each in scene.built.catalogue.functions)
    ):
        rule = f"a process that is idle for {exact_duration(kept)} stops before a decision can use it"
        raise ExperimentError(f"controller {controller}: {rule}; take a shorter time, or a longer keep-alive")
    return scene


def to_measure(experiment: ServingExperiment) -> ServingExperiment | None:
    """Return what a measured decision time depends on: policy and fleet, not what arrives or how the run begins."""
    if experiment.serving.controller != CALIBRATED:
        return None
    fleet = msgspec.structs.replace(experiment.serving, setting="", start=COLD)
    return ServingExperiment(serving=fleet, policy=experiment.policy)


def load_note(load: float, rate: float) -> str:
    """Return a line on the rate that a load means."""
    return f"load {load:g}: {rate:.6g} requests a second"


def policy_name(experiment: ServingExperiment) -> str:
    """Return the policy of an experiment as it was written; one from a file by its own name."""
    spec = experiment.policy.name
    return describe(policy_of(experiment)) if is_from_outside(spec) and not is_untrusted(spec) else as_named(spec)


def load(experiment: ServingExperiment, folder: Path, *, trust: bool) -> FleetScene:
    """Make the scene of a stored run from the files in its folder."""
    requests = kept_file(folder, REQUESTS_NAME)
    experiment = with_table(experiment, "serving", **_files_in_folder(experiment, folder, trust))
    experiment = with_table(experiment, "policy", name=of_run(experiment.policy.name, folder, trust=trust))
    groups, drawn = request_table.read_groups(requests), request_table.read(requests)
    built = initial.scaled(experiment, scenario_file.load(experiment), drawn)
    return FleetScene(experiment, built, drawn, groups=groups)


def _files_in_folder(experiment: ServingExperiment, folder: Path, trust: bool) -> dict[str, str]:
    """Return the files of a run folder by key; names that are not files stay. No other folder is searched."""
    serving, files = experiment.serving, {}
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
        files[key] = marked_untrusted(file) if file.endswith(scenario_file.PYTHON) and not trust else file
    return files
