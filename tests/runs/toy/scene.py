"""Prepare runs of the toy scale: typed tables, drawn tasks, and what a run folder holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from msgspec import Struct, field, json

from headway.core.audit import Finding
from headway.core.named import chosen
from headway.core.tape import Tape
from headway.core.tasks import Far
from headway.errors import ExperimentError
from headway.files import write_whole
from headway.runs.domain import RunParts, Scene
from headway.runs.folder.folder import Limits
from headway.runs.settings.tables import MeasureTable, RunTable, Variant
from headway.streams import stream
from headway.units import SECOND
from tests.runs.toy.server import POLICIES, Kind, Policy, Server, ServerState, Task, audit, replay

TASKS_NAME = "tasks.json"


class ToyTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """How many tasks, and how busy they keep the server."""

    tasks: str = "10"
    busy: float = 0.7


class ToyPolicyTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """Who decides."""

    name: str = "in-order"


class ToyExperiment(Struct, kw_only=True, forbid_unknown_fields=True):
    """One experiment."""

    scale: str = "toy"
    toy: ToyTable = field(default_factory=ToyTable)
    policy: ToyPolicyTable = field(default_factory=ToyPolicyTable)
    run: RunTable = field(default_factory=RunTable)
    measure: MeasureTable = field(default_factory=MeasureTable)
    variants: list[Variant] = field(default_factory=list)


def policy_of(experiment: ToyExperiment) -> Policy:
    """Make the policy that an experiment names."""
    return chosen(experiment.policy.name, POLICIES, kind="policy of a toy", example="shortest")[0]()


def drawn(experiment: ToyExperiment) -> tuple[Task, ...]:
    """Draw tasks from the seed."""
    if not experiment.toy.tasks.isdecimal() or not 0 < experiment.toy.busy < 1:
        raise ExperimentError(f"toy: {experiment.toy.tasks} tasks, busy {experiment.toy.busy:g}: not understood")
    draw, count = stream(experiment.run.seed, "toy"), int(experiment.toy.tasks)
    arrivals = (draw.exponential(SECOND / experiment.toy.busy, count).cumsum()).astype(int).tolist()
    lengths = (draw.exponential(SECOND, count) + 1).astype(int).tolist()
    return tuple(Task(number, *both) for number, both in enumerate(zip(arrivals, lengths, strict=True)))


def stored_tasks(folder: Path) -> tuple[Task, ...]:
    """Read the tasks of a run folder."""
    return tuple(json.decode((folder / TASKS_NAME).read_bytes(), type=list[Task]))


@dataclass(frozen=True, slots=True)
class ToyScene(Scene):
    """Tasks before the run."""

    experiment: ToyExperiment
    tasks: tuple[Task, ...]
    notes: tuple[str, ...] = ("everything here is made up",)

    def policy(self) -> Policy:
        """Make the policy anew."""
        return policy_of(self.experiment)

    def policy_name(self) -> str:
        """Return its name."""
        return self.policy().name

    def inputs(self) -> Mapping[str, Sequence[Any]]:
        """Return the tasks."""
        return {"task": self.tasks}

    def begin(self) -> RunParts:
        """Make an idle server."""
        return RunParts(ServerState(len(self.tasks)), self.policy(), Server(self.tasks))

    def store(self, folder: Path) -> ToyExperiment:
        """Write the tasks."""
        write_whole(folder / TASKS_NAME, json.encode(self.tasks))
        return self.experiment

    def progress(self, state: ServerState, now: int) -> Far:
        """Count tasks."""
        waiting, running, total = len(state.waiting), int(state.running is not None), len(self.tasks)
        return Far(now, self.tasks[-1].arrival, total, total - state.to_come - waiting - running, waiting, running)

    def row_kinds(self) -> tuple[type[IntEnum], Limits]:
        """Return the kinds of rows, all of them about tasks."""
        return Kind, {"subject": (len(self.tasks), tuple(int(kind) for kind in Kind))}

    def row_subject(self, row: Sequence[int]) -> str:
        """Return the task of a row."""
        return f"task {row[2]}"

    def replay(self, tape: Tape, *, complete: bool) -> Tape:
        """Show a fresh policy the recorded events."""
        return replay(self.tasks, tape, self.policy(), complete=complete)

    def audit(self, tape: Tape, *, complete: bool) -> Sequence[Finding]:
        """Check that the server serves one task at a time."""
        return audit(self.tasks, tape)
