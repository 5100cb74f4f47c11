"""State of one worker: its GPU memory, queue and batches, and the status row that it publishes to other workers.

A row is pushed at most once an interval. Others read it as of its last push; the worker itself reads it as it is. No
events are needed for that: on its first change in an interval, the row as of the beginning of the interval is kept.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from headway.fleet.model.catalogue import Catalogue
from headway.fleet.model.fleet import Worker
from headway.fleet.model.memory import GpuMemory

TaskId = tuple[int, int]
"""(request, task)."""


class Power(IntEnum):
    """Whether a worker is rented, and what for."""

    ON = 0
    """It can be used, unless it has failed."""
    STARTING = 1
    DRAINING = 2
    """What runs there ends; nothing new begins."""
    OFF = 3
    """It is not rented."""


class Row(NamedTuple):
    """What a worker publishes to the others."""

    up: bool
    queued: int
    """Run time of the tasks that are queued."""
    reserved: int
    """Run time of the tasks that were placed here and are not queued yet: planned, or their inputs are on the way."""
    busy_until: int
    """When what runs is expected to have ended; in the past when nothing runs."""
    resident: int
    """Models in GPU memory, as bits."""
    wanted: int
    """Models that tasks placed here need, as bits."""
    free_bytes: int
    cpus_free: int
    slices_free: int
    warm: int
    """Functions with an idle process, as bits."""
    line: int = 0
    """Run time of the tasks in the lines of its engines, each as if alone."""


@dataclass(slots=True, eq=False)
class Batch:
    """Tasks that run together."""

    lease: int
    tasks: tuple[TaskId, ...]
    function: int
    models: tuple[int, ...]
    cpus: int = 0
    slices: int = 0
    began: int = 0
    first: int = 0
    """The first place on the GPU that it holds, as ``find_slices`` counts them."""
    mask: int = 0
    """The places on the GPU that it holds, as bits."""
    activation_bytes: int = 0
    cache_bytes: int = 0
    """Bytes of keys and values that it holds, from when it is loaded."""
    start: int = 0
    """When everything it needs will have arrived."""
    waking: int = 0
    """What it takes more because its worker was idle."""
    end: int = 0
    """When it is expected to have ended."""
    loaded: bool = False
    """Whether ``BatchLoaded`` was applied."""
    instance: bool = False
    """Whether it runs in a process of its function."""


class WorkerState:
    """One worker as it is now."""

    __slots__ = (
        *("busy_until", "cpus_free", "epoch", "host", "host_free_bytes", "id", "idle", "link_free"),
        *("memory", "published", "pushes", "queue", "queued", "reserved", "running", "sent", "slices_free"),
        *("starting", "taken", "up", "need_counts", "warm", "wanted", "worker", "current_row", "fetches"),
        *("power", "start_lease", "cached", "line"),
    )

    def __init__(self, id: int, worker: Worker, catalogue: Catalogue) -> None:
        self.id = id
        self.worker = worker
        self.up = True
        self.power = Power.ON
        self.start_lease = 0
        """The lease of the start in progress."""
        self.memory = GpuMemory(worker.gpu.memory_bytes, catalogue)
        self.cpus_free = worker.cpus
        self.slices_free = worker.gpu.slices
        self.taken = 0
        """Places on the GPU that are held, as bits."""
        self.queue: dict[TaskId, int] = {}
        """Tasks whose inputs are here, in order of arrival; the value is when."""
        self.sent: dict[TaskId, None] = {}
        """Tasks placed here that are not queued yet."""
        self.running: dict[int, Batch] = {}
        self.queued = 0
        self.reserved = 0
        self.busy_until = 0
        self.need_counts: dict[int, int] = {}
        """How many tasks placed here need a model."""
        self.wanted = 0
        self.link_free = 0
        """When the link from host to GPU memory is free."""
        self.fetches: dict[int, int] = {}
        """Fetches ahead of any task: model by lease."""
        self.host: dict[int, None] = {}
        """Weights in host memory, least recently used first."""
        self.host_free_bytes = worker.host_bytes
        self.idle: dict[int, list[int]] = {}
        """Idle processes by function: since when, oldest first."""
        self.starting: dict[int, int] = {}
        """Starting processes: function by lease."""
        self.warm = 0
        self.cached: dict[int, int] = {}
        """Bytes of keys and values in use, by generating function."""
        self.line = 0
        self.epoch = -1
        self.pushes = 0
        self.current_row: Row | None = None
        """Its row, cached since the last change; None: not computed yet."""
        self.published = self.row()

    def touch(self, epoch: int) -> None:
        """Publish the row as it was, before the first change in the interval ``epoch``."""
        if epoch != self.epoch:
            self.published = self.current_row or self.row()
            self.epoch = epoch
            self.pushes += 1
        self.current_row = None

    def row(self) -> Row:
        """Return the row as it is now."""
        row = self.current_row
        if row is None:
            memory = self.memory
            fields = (
                self.up,
                self.queued,
                self.reserved,
                self.busy_until,
                memory.resident,
                self.wanted,
                memory.free_bytes,
                self.cpus_free,
                self.slices_free,
                self.warm,
                self.line,
            )
            row = self.current_row = tuple.__new__(Row, fields)  # one a push: half of what Row(...) takes
        return row

    def processes(self, function: int) -> int:
        """Return how many processes of a function are here: idle, busy and starting ones."""
        busy = sum(batch.function == function for batch in self.running.values())
        return len(self.idle.get(function, ())) + busy + list(self.starting.values()).count(function)

    def add_need(self, models: tuple[int, ...]) -> None:
        """Count a task placed here that needs these models."""
        for model in models:
            count = self.need_counts.get(model, 0)
            self.need_counts[model] = count + 1
            if not count:
                self.wanted |= 1 << model

    def remove_need(self, models: tuple[int, ...]) -> None:
        """Count one task fewer that needs these models."""
        for model in models:
            count = self.need_counts[model] - 1
            if count:
                self.need_counts[model] = count
            else:
                del self.need_counts[model]
                self.wanted &= ~(1 << model)


def sharing(workers: list[WorkerState]) -> list[list[WorkerState]]:
    """Return by worker those that compute on its device, itself among them."""
    on: dict[int, list[WorkerState]] = {}
    for worker in workers:
        on.setdefault(worker.worker.device, []).append(worker)
    return [on[worker.worker.device] if worker.worker.device >= 0 else [worker] for worker in workers]
