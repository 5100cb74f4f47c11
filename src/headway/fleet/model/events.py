"""Events of a fleet, named in the past tense. ``rank`` is the order in which events of one instant are applied.

They are structs for speed: a run makes several for each task, and a frozen dataclass takes six times as long to make.
"""

from typing import ClassVar, TypeAlias

from msgspec import Struct

from headway.fleet.model.request import Request


class BatchFinished(Struct, frozen=True, gc=False):
    """A batch ended; the results of all its tasks are there."""

    worker: int
    lease: int
    rank: ClassVar[int] = 0


class BatchLoaded(Struct, frozen=True, gc=False):
    """Inputs, process and weights of a batch have arrived; it computes from now on."""

    worker: int
    lease: int
    cached: int = 0
    """Of a batch that generates: the tokens of its prompt whose keys and values were in the cache."""
    rank: ClassVar[int] = 1


class FirstToken(Struct, frozen=True, gc=False):
    """A request of a generating function has its prompt computed, and its first token."""

    worker: int
    lease: int
    rank: ClassVar[int] = -1
    """Before the end of its batch, which may be in the same instant."""


class ModelFetched(Struct, frozen=True, gc=False):
    """Weights that were fetched ahead of any task have arrived."""

    worker: int
    model: int
    lease: int
    """The lease of the fetch."""
    rank: ClassVar[int] = 2


class ModelLost(Struct, frozen=True, gc=False):
    """Weights that were to come did not: they are not on the GPU. Only a run outside the simulator has these."""

    worker: int
    model: int
    rank: ClassVar[int] = 3
    """After the end of the batch that they were for."""


class InstanceStarted(Struct, frozen=True, gc=False):
    """A process that was started ahead of any task can run tasks."""

    worker: int
    function: int
    lease: int
    rank: ClassVar[int] = 3


class WorkerFailed(Struct, frozen=True, gc=False):
    """A worker failed; its batches, queue, processes, GPU memory and results not yet sent on are lost."""

    worker: int
    rank: ClassVar[int] = 4


class WorkerRecovered(Struct, frozen=True, gc=False):
    """A worker recovered; its GPU is empty, its host memory holds the weights that it held."""

    worker: int
    rank: ClassVar[int] = 5


class WorkerStarted(Struct, frozen=True, gc=False):
    """A worker that was started can be used; its GPU is empty."""

    worker: int
    lease: int
    """The lease of the start."""
    rank: ClassVar[int] = 5


class TaskArrived(Struct, frozen=True, gc=False):
    """All inputs of a task have arrived at the worker where it was placed."""

    request: int
    task: int
    lease: int
    """How often it had been placed when they were sent."""
    rank: ClassVar[int] = 6


class RequestArrived(Struct, frozen=True, gc=False):
    """A request reached its first worker."""

    request: Request
    rank: ClassVar[int] = 7


class RequestFailed(Struct, frozen=True, gc=False):
    """A request cannot be answered: one of its tasks failed, it is too late, or nobody waits for it any more."""

    request: int
    task: int = -1
    """The task that failed; -1: none did."""
    rank: ClassVar[int] = -2
    """Before the end of the batch of that task."""


class ActionRejected(Struct, frozen=True, gc=False):
    """An action was stale when it was committed: nothing of it happened. Only a run outside the simulator has these."""

    kind: int
    """The kind of row that the action would have had."""
    request: int = -1
    worker: int = -1
    rank: ClassVar[int] = 8


class TimeMeasured(Struct, frozen=True, gc=False):
    """A configuration takes another time than was expected. Only a run outside the simulator has these."""

    worker: int
    """One of the workers with the GPU that it was measured on."""
    function: int
    cell: int
    """The position of the configuration among those of the function there, smallest first."""
    time: int
    rank: ClassVar[int] = 8


class Woke(Struct, frozen=True, gc=False):
    """The time that a policy asked for with ``WakeAt`` has come."""

    rank: ClassVar[int] = 8


Event: TypeAlias = (
    BatchFinished
    | BatchLoaded
    | FirstToken
    | ModelFetched
    | ModelLost
    | InstanceStarted
    | WorkerFailed
    | WorkerRecovered
    | WorkerStarted
    | TaskArrived
    | RequestArrived
    | RequestFailed
    | ActionRejected
    | TimeMeasured
    | Woke
)
FromOutside: TypeAlias = RequestFailed | ActionRejected | ModelLost | TimeMeasured
"""What only runs outside the simulator have."""
Sent: TypeAlias = tuple[int, TaskArrived]
"""Inputs on their way to a worker: when they arrive, and the event of their arrival."""
