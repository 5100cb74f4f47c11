"""What a policy may ask for on a fleet, in the imperative. Structs for their speed: see ``events``."""

from typing import TypeAlias

from msgspec import Struct

NOWHERE = -1


class PlaceRequest(Struct, frozen=True, gc=False):
    """Say where the tasks of a request are to run, a worker a task; -1 leaves one open. The plan it carries."""

    request: int
    workers: tuple[int, ...]


class MoveTask(Struct, frozen=True, gc=False):
    """Place one task, or place it elsewhere; its inputs are sent there. It must not have begun."""

    request: int
    task: int
    worker: int


class RunBatch(Struct, frozen=True, gc=False):
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


class FetchModel(Struct, frozen=True, gc=False):
    """Bring weights into a worker's GPU ahead of any task; ``evict`` makes room."""

    worker: int
    model: int
    evict: tuple[int, ...] = ()


class EvictModel(Struct, frozen=True, gc=False):
    """Take weights that nobody uses out of a worker's GPU."""

    worker: int
    model: int


class StartInstance(Struct, frozen=True, gc=False):
    """Have a process of a function on a worker ahead of any task."""

    worker: int
    function: int


class StopInstance(Struct, frozen=True, gc=False):
    """Let an idle process of a function go before its time."""

    worker: int
    function: int


class DropRequest(Struct, frozen=True, gc=False):
    """Give a request up: none of its tasks will be started any more."""

    request: int


class WakeAt(Struct, frozen=True, gc=False):
    """Ask again at this time, even if nothing happens until then."""

    time: int


Action: TypeAlias = (
    PlaceRequest | MoveTask | RunBatch | FetchModel | EvictModel | StartInstance | StopInstance | DropRequest | WakeAt
)
