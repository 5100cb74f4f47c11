"""What happens on a fleet, in the past tense. ``rank`` is the order in which events of one instant are applied."""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from headway.serving.request import Request


@dataclass(frozen=True, slots=True)
class BatchFinished:
    """A batch delivered the results of all its tasks."""

    worker: int
    lease: int
    rank: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class BatchLoaded:
    """Inputs, process and weights of a batch are there; it computes from now on."""

    worker: int
    lease: int
    rank: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class ModelFetched:
    """Weights that were asked for ahead of any task have come."""

    worker: int
    model: int
    lease: int
    """The number of the fetch."""
    rank: ClassVar[int] = 2


@dataclass(frozen=True, slots=True)
class InstanceStarted:
    """A process that was asked for ahead of any task can run tasks."""

    worker: int
    function: int
    lease: int
    rank: ClassVar[int] = 3


@dataclass(frozen=True, slots=True)
class WorkerFailed:
    """A worker is gone with its batches, queue, processes, weights on the GPU, and results that nobody fetched yet."""

    worker: int
    rank: ClassVar[int] = 4


@dataclass(frozen=True, slots=True)
class WorkerRecovered:
    """A worker is back: nothing is on its GPU; its host memory holds the weights that it held."""

    worker: int
    rank: ClassVar[int] = 5


@dataclass(frozen=True, slots=True)
class TaskArrived:
    """All inputs of a task have come to the worker where it was placed."""

    request: int
    task: int
    lease: int
    """How often it had been placed when they were sent."""
    rank: ClassVar[int] = 6


@dataclass(frozen=True, slots=True)
class RequestArrived:
    """A request reached its first worker."""

    request: Request
    rank: ClassVar[int] = 7


@dataclass(frozen=True, slots=True)
class Woke:
    """The time that a policy asked for with ``WakeAt`` has come."""

    rank: ClassVar[int] = 8


Event: TypeAlias = (
    BatchFinished
    | BatchLoaded
    | ModelFetched
    | InstanceStarted
    | WorkerFailed
    | WorkerRecovered
    | TaskArrived
    | RequestArrived
    | Woke
)
