"""Simple records for the serving audit: what each worker holds, and how far each request is.

They share no code with ``state``, ``memory`` and ``batches``, which are optimised: bytes, CPUs and slices are added up
again each time. What both agree on is likely to be right.
"""

from collections.abc import Iterator, Sequence

from headway.fleet.model.catalogue import Catalogue, Configuration
from headway.fleet.model.fleet import FIXED, FREE, MIG, MIG_PLACES, MIG_SPAN, Fleet, Worker
from headway.fleet.model.graph import Graph
from headway.fleet.model.request import Request
from headway.fleet.state.workerstate import Power

Violation = tuple[str, str]
"""A rule that is broken, and how."""


class RequestRecord:
    """How far a request is, task by task."""

    __slots__ = ("finished", "graph", "moves", "placed", "placed_at", "queued", "request", "running", "where")

    def __init__(self, request: Request, graph: Graph) -> None:
        count = len(graph.tasks)
        self.request = request
        self.graph = graph
        self.placed = [-1] * count
        self.placed_at = [0] * count
        self.queued = [False] * count
        self.moves = [0] * count
        self.running = [0] * count
        """The lease that a task runs under; 0: none."""
        self.finished = [-1] * count
        self.where = [-1] * count
        """The worker where a task ran, or runs."""

    def begun(self, task: int) -> bool:
        """Return whether a task runs or is done."""
        return bool(self.running[task]) or self.finished[task] >= 0

    def unmet(self, task: int) -> list[int]:
        """Return the predecessors that are not done."""
        return [before for before in self.graph.predecessors[task] if self.finished[before] < 0]


class BatchRecord:
    """A batch that runs, and what it holds."""

    __slots__ = (
        *("activation_bytes", "began", "cache_bytes", "cpus", "earliest", "first", "first_token", "function"),
        *("loaded", "output_tokens", "slices", "tasks"),
    )

    def __init__(self, began: int, function: int, tasks: Sequence[tuple[int, int]]) -> None:
        self.began = began
        self.function = function
        self.tasks = tasks
        self.cpus = self.slices = self.first = self.activation_bytes = 0
        self.earliest = began
        """It cannot compute before this: inputs, process or weights are missing."""
        self.loaded = -1
        """When it began to compute; -1: not yet, or at once."""
        self.cache_bytes = 0
        """Keys and values that it holds once it is loaded."""
        self.output_tokens = 0
        self.first_token = -1
        """When it had its first token; -1: not yet, or its function does not generate."""


class WorkerRecord:
    """Everything that is on one worker."""

    def __init__(self, worker: Worker, catalogue: Catalogue) -> None:
        self.worker = worker
        self.catalogue = catalogue
        self.up = True
        self.failed_at = -1
        self.power = Power.ON
        self.start_lease, self.starts_by = 0, 0
        """The lease of its last start, and when it can have started at the earliest."""
        self.drained_at = self.started_at = -1
        self.sharing: list[WorkerRecord] = [self]
        """The workers that share its link to host memory, itself among them."""
        self.link_free = 0
        """When that link is free."""
        self._known: dict[int, dict[Configuration, int]] = {}
        self.empty()

    def empty(self) -> None:
        """Forget everything that is on the worker."""
        self.batches: dict[int, BatchRecord] = {}
        self.resident: dict[int, int] = {}
        """Models in GPU memory, or being fetched: when they can be used."""
        self.fetches: dict[int, tuple[int, int]] = {}
        """Fetches ahead of any task, by lease: the model, and when it can arrive at the earliest."""
        self.starting: dict[int, tuple[int, int]] = {}
        """Starting processes, by lease: the function, and when it can be ready at the earliest."""
        self.idle: list[tuple[int, int]] = []
        """(function, since) of idle processes."""
        self.tasks: dict[tuple[int, int], None] = {}
        """Tasks placed or running here."""
        self.prefixes: dict[tuple[int, int], int] = {}
        """By function and group: the longest shared prefix that was computed here since the weights came."""

    def hold_link(self, until: int) -> None:
        """Occupy the link to host memory."""
        for near in self.sharing:
            near.link_free = until

    def free_link(self, now: int) -> None:
        """Note that nothing of an empty worker is on its way; what others fetch over the same link still is."""
        if len(self.sharing) == 1:
            self.link_free = now

    def pinned(self, model: int) -> bool:
        """Return whether a batch or a fetch uses a model."""
        functions = self.catalogue.functions
        used = any(model in functions[batch.function].models for batch in self.batches.values())
        return used or any(model == fetched for fetched, _ in self.fetches.values())

    def overbooked(self) -> Iterator[Violation]:
        """Yield a violation for each resource of which more is held than the worker has."""
        gpu, batches = self.worker.gpu, self.batches.values()
        held = sum(self.catalogue.models[model].size_bytes for model in self.resident)
        held += sum(batch.activation_bytes for batch in batches)
        if held > gpu.memory_bytes:
            yield "memory", f"{held} bytes of GPU memory are held, worker {self.worker.name} has {gpu.memory_bytes}"
        if (cpus := sum(batch.cpus for batch in batches)) > self.worker.cpus:
            yield "cpus", f"{cpus} CPUs are held, worker {self.worker.name} has {self.worker.cpus}"
        if (slices := sum(batch.slices for batch in batches)) > gpu.slices:
            yield "slices", f"{slices} slices are held, worker {self.worker.name} has {gpu.slices}"
        if gpu.geometry == FIXED and any(batch.slices not in (0, gpu.slices) for batch in batches):
            yield "slices", f"a batch has another share than worker {self.worker.name}, which has {gpu.slices} slices"
        if gpu.geometry == MIG:
            yield from self._places()
            yield from self._instances()

    def _places(self) -> Iterator[Violation]:
        taken: dict[int, int] = {}
        for lease, batch in self.batches.items():
            if not batch.slices:
                continue
            if batch.first not in MIG_PLACES.get(batch.slices, ()):
                yield "slices", f"an instance of {batch.slices} slices cannot begin at place {batch.first}"
            for place in range(batch.first, batch.first + MIG_SPAN.get(batch.slices, batch.slices)):
                if place in taken:
                    yield "slices", f"place {place} of worker {self.worker.name} is held by {taken[place]} and {lease}"
                taken[place] = lease

    def _instances(self) -> Iterator[Violation]:
        for lease, batch in self.batches.items():
            needs = self._weights(batch.function) + batch.activation_bytes
            if batch.slices and 8 * needs > MIG_SPAN.get(batch.slices, 0) * self.worker.gpu.memory_bytes:
                where = f"its instance of {batch.slices} slices on {self.worker.name}"
                yield "memory", f"batch {lease} needs {needs} bytes of GPU memory, more than {where} has"

    def _weights(self, function: int) -> int:
        return sum(self.catalogue.models[model].size_bytes for model in self.catalogue.functions[function].models)

    def evicted(self, model: int) -> Iterator[Violation]:
        """Take weights off the GPU; yield the rules that this breaks."""
        if model not in self.resident:
            yield "evict", f"model {model} is evicted from worker {self.worker.name}, where it is not"
        elif self.pinned(model):
            yield "evict", f"model {model} is evicted from worker {self.worker.name}, where it is in use"
        self.resident.pop(model, None)
        for function, group in [*self.prefixes]:
            if model in self.catalogue.functions[function].models:
                del self.prefixes[function, group]

    def profiled(self, batch: BatchRecord) -> int | None:
        """Return the run time of a batch by its profile; None: the profile has no such cell."""
        cells = self._cells(batch.function)
        size = min((cell.batch for cell in cells if cell.batch >= len(batch.tasks)), default=0)
        return next((time for cell, time in cells.items() if cell == (size, batch.cpus, batch.slices)), None)

    def _cells(self, function: int) -> dict[Configuration, int]:
        """Return the configurations of a function on this worker; with MIG those that fit into their instance."""
        if function not in self._known:
            kind, gpu = self.catalogue.functions[function], self.worker.gpu
            needs, activation_bytes = self._weights(function), kind.activation_bytes
            self._known[function] = {
                cell: time
                for cell, time in kind.profile.on(gpu.type).items()
                if gpu.geometry == FREE
                or not cell.slices
                or (gpu.geometry == FIXED and cell.slices == gpu.slices)
                or (
                    gpu.geometry == MIG
                    and 8 * (needs + activation_bytes * cell.batch) <= MIG_SPAN.get(cell.slices, 0) * gpu.memory_bytes
                )
            }
        return self._known[function]


def least_transfer_time(fleet: Fleet, source: int, target: int, size_bytes: int) -> int:
    """Return the least time that bytes take from one worker to another, even over a third one."""
    links = fleet.links
    if source == target or not (0 <= source < len(fleet.workers) and 0 <= target < len(fleet.workers)):
        return 0
    if (
        fleet.store is not None or links.within_host >= links.within_rack >= links.between_racks
    ):  # no way round is shorter
        return fleet.copy_time(source, target, size_bytes)
    rate = max(links.within_host, links.within_rack, links.between_racks)
    return links.latency + size_bytes * 1_000_000_000 // rate
