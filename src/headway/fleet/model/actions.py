"""Actions of serving policies, named in the imperative. They are structs for speed: see ``events``."""

from typing import TypeAlias

from msgspec import Struct

NOWHERE = -1


class PlaceRequest(Struct, frozen=True, gc=False):
    """Place the tasks of a request: a worker for each task; -1 leaves it open. This is the plan that it carries."""

    request: int
    workers: tuple[int, ...]


class MoveTask(Struct, frozen=True, gc=False):
    """Place one task, or move it to another worker; its inputs are sent there. It must not have started."""

    request: int
    task: int
    worker: int


class RunBatch(Struct, frozen=True, gc=False):
    """Run tasks of one function together on a worker: queued ones, or ready ones that are placed nowhere.

    Missing inputs, a missing process and missing weights come first, while the batch holds its CPUs and slices.
    """

    worker: int
    tasks: tuple[tuple[int, int], ...]
    """(request, task)."""
    cpus: int = 1
    slices: int = 1
    evict: tuple[int, ...] = ()
    """Models to evict first."""


class FetchModel(Struct, frozen=True, gc=False):
    """Fetch weights into a worker's GPU memory ahead of any task; ``evict``: models to evict first."""

    worker: int
    model: int
    evict: tuple[int, ...] = ()


class EvictModel(Struct, frozen=True, gc=False):
    """Remove weights that no batch uses from a worker's GPU memory."""

    worker: int
    model: int


class StartInstance(Struct, frozen=True, gc=False):
    """Start a process of a function on a worker ahead of any task."""

    worker: int
    function: int


class StopInstance(Struct, frozen=True, gc=False):
    """Stop an idle process of a function before its keep-alive ends."""

    worker: int
    function: int


class DropRequest(Struct, frozen=True, gc=False):
    """Drop a request: none of its tasks will be started any more."""

    request: int


class StartWorker(Struct, frozen=True, gc=False):
    """Start a worker that is off: it is rented from now on, and can be used after its start-up time.

    A worker that drains can be used again at once.
    """

    worker: int


class DrainWorker(Struct, frozen=True, gc=False):
    """Take a worker out of use: what runs there ends, tasks that wait there are placed elsewhere."""

    worker: int


class StopWorker(Struct, frozen=True, gc=False):
    """Stop a worker: its rent ends. Nothing may run there, and no other worker may need a result that it holds."""

    worker: int


class WakeAt(Struct, frozen=True, gc=False):
    """Ask the policy again at this time, even if nothing happens before."""

    time: int


class DecideUntil(WakeAt, frozen=True, gc=False):
    """Be busy with a decision until this time; only a ``Controller`` asks for it."""

    controller: int
    """The worker whose controller it is; -1: that of the whole fleet."""
    states: int
    """States that the policy evaluated for it."""
    waited: int
    """How long what is decided about has waited for it."""


Action: TypeAlias = (
    PlaceRequest
    | MoveTask
    | RunBatch
    | FetchModel
    | EvictModel
    | StartInstance
    | StopInstance
    | DropRequest
    | StartWorker
    | DrainWorker
    | StopWorker
    | WakeAt
)
