"""What a policy may ask for on a fleet, in the imperative."""

from dataclasses import dataclass
from typing import TypeAlias

NOWHERE = -1


@dataclass(frozen=True, slots=True)
class PlaceRequest:
    """Say where the tasks of a request are to run, a worker a task; -1 leaves one open. The plan it carries."""

    request: int
    workers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MoveTask:
    """Place one task, or place it elsewhere; its inputs are sent there. It must not have begun."""

    request: int
    task: int
    worker: int


@dataclass(frozen=True, slots=True)
class RunBatch:
    """Run tasks of one function together on a worker: those queued there, or ready ones that are placed nowhere.

    What is missing is fetched first, while the batch holds its CPUs and slices: inputs, a process, weights.
    """

    worker: int
    tasks: tuple[tuple[int, int], ...]
    """(request, task)."""
    cpus: int = 1
    slices: int = 1
    evict: tuple[int, ...] = ()
    """Models that make room."""


@dataclass(frozen=True, slots=True)
class FetchModel:
    """Bring weights into a worker's GPU ahead of any task; ``evict`` makes room."""

    worker: int
    model: int
    evict: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EvictModel:
    """Take weights that nobody uses out of a worker's GPU."""

    worker: int
    model: int


@dataclass(frozen=True, slots=True)
class StartInstance:
    """Have a process of a function on a worker ahead of any task."""

    worker: int
    function: int


@dataclass(frozen=True, slots=True)
class StopInstance:
    """Let an idle process of a function go before its time."""

    worker: int
    function: int


@dataclass(frozen=True, slots=True)
class DropRequest:
    """Give a request up: none of its tasks will be started any more."""

    request: int


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Ask again at this time, even if nothing happens until then."""

    time: int


Action: TypeAlias = (
    PlaceRequest | MoveTask | RunBatch | FetchModel | EvictModel | StartInstance | StopInstance | DropRequest | WakeAt
)
