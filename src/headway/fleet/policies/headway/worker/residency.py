"""Residency on one worker: which models are evicted, fetched ahead or replicated, and which processes are started.

A worker knows the tasks that were placed on it before they arrive, so that look-ahead covers the plan and not only the
queue. A model that no task here needs has the value that its absence would cost the fleet: its request rate, times its
fetch time, times the probability that every other copy is busy.

Processes start ahead of any batch, so that no GPU is held while one starts: one of each function that is requested
here, more for queued tasks, and for the worker's share of the fleet's requests.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import ceil, sqrt

from headway.fleet.model.actions import Action, FetchModel, StartInstance
from headway.fleet.model.catalogue import models_in
from headway.fleet.policies.compass.worker import LOOKAHEAD
from headway.fleet.policies.headway.worker.order import FleetTables, Mix
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import Row, TaskId, WorkerState
from headway.units import SECOND

BUSY = 0.3
"""Assumed probability that a copy on another worker is busy when it is needed."""
HORIZON_S = 600
"""An idle worker fetches a copy that is expected to save one fetch within this time."""
BETTER = 2.0
"""How many times the value of the evicted models a fetched one must have."""
RECONSIDER = SECOND // 5
"""How often an idle worker considers another copy."""
MOST = 4
"""The most processes of a function on a worker."""
SPARE = 2.0
"""Spare processes, in standard deviations of the number that is busy."""


class Residency:
    """Decides about the GPU memory of each worker, with that worker's view."""

    def __init__(self, evict: str, prefetch: int, tables: FleetTables, mixes: Sequence[Mix]) -> None:
        self._lookahead = evict == LOOKAHEAD
        self.prefetch = prefetch
        self._tables = tables
        self._mixes = mixes
        self._looked = [-RECONSIDER] * len(mixes)
        self._uses = [
            Counter(model for function in functions for model in models_in(tables.masks[function]))
            for functions in tables.functions
        ]
        """By graph: how many of its tasks use a model."""

    # --- what makes room --------------------------------------------------------------------------------------

    def room(
        self, now: int, state: ServingState, worker: WorkerState, need_bytes: int, keep: int, coming: Sequence[TaskId]
    ) -> tuple[int, ...] | None:
        """Return models to evict so that ``need_bytes`` are free; None: evicting does not free enough.

        ``keep``: models that stay, as bits. ``coming``: tasks in the order in which they will run.
        """
        short = need_bytes - worker.memory.free_bytes
        if short <= 0:
            return ()
        memory = worker.memory
        models = [model for model in memory.order if not keep >> model & 1 and memory.evictable(model)]
        if self._lookahead:
            worth = self.worth(now, worker, state.rows(worker.id, now))
            use = self._first_use(state, coming)
            sizes = self._tables.sizes
            models.sort(key=lambda model: (-use.get(model, len(coming)), worth[model] / max(1, sizes[model])))
        return memory.enough(models, short)

    def _first_use(self, state: ServingState, coming: Sequence[TaskId]) -> dict[int, int]:
        use: dict[int, int] = {}
        tables = self._tables
        for position, (request, task) in enumerate(coming):
            graph = state.requests[request].request.graph
            for model in models_in(tables.masks[tables.functions[graph][task]]):
                use.setdefault(model, position)
        return use

    # --- ahead of any batch -----------------------------------------------------------------------------------

    def ahead(
        self, now: int, state: ServingState, worker: WorkerState, coming: Callable[[], Sequence[TaskId]]
    ) -> Iterator[Action]:
        """Fetch one model: for a task that will run here or, on an idle worker, the most valuable copy."""
        if not self.prefetch or worker.fetches:
            return
        if worker.wanted & ~worker.memory.resident:
            fetch = self._for_tasks(now, state, worker, coming())
        elif self._lookahead and not worker.running and not worker.queue:
            fetch = self._for_anyone(now, state, worker)
        else:
            return
        if fetch is not None:
            yield fetch

    def _for_tasks(
        self, now: int, state: ServingState, worker: WorkerState, coming: Sequence[TaskId]
    ) -> FetchModel | None:
        """Return a fetch of the next missing model of a task; only models that no task here needs are evicted."""
        tables = self._tables
        for request, task in coming[: self.prefetch]:
            graph = state.requests[request].request.graph
            for model in models_in(tables.masks[tables.functions[graph][task]] & ~worker.memory.resident):
                keep = worker.wanted if self._lookahead else -1
                if (evict := self.room(now, state, worker, tables.sizes[model], keep, ())) is not None:
                    return FetchModel(worker.id, model, evict)
        return None

    def _for_anyone(self, now: int, state: ServingState, worker: WorkerState) -> FetchModel | None:
        """Return a fetch of the model whose next copy has most value, if that pays for the fetch and the evictions."""
        if now - self._looked[worker.id] < RECONSIDER:
            return None
        self._looked[worker.id] = now
        worth = self.worth(now, worker, state.rows(worker.id, now))
        tables, memory = self._tables, worker.memory
        others = [
            model
            for model in range(len(tables.sizes))
            if not memory.resident >> model & 1 and worth[model] * HORIZON_S >= tables.fetches[model] > 0
        ]
        for model in sorted(others, key=lambda model: (-worth[model], model)):
            if tables.sizes[model] > memory.capacity_bytes:
                continue
            evict = self.room(now, state, worker, tables.sizes[model], worker.wanted, ())
            if evict is not None and BETTER * sum(worth[other] for other in evict) < worth[model]:
                return FetchModel(worker.id, model, evict)
        return None

    def worth(self, now: int, worker: WorkerState, rows: Sequence[Row]) -> list[float]:
        """Return by model the value of a copy here: nanoseconds of fetching that it saves the fleet in a second."""
        tables = self._tables
        copies = [0] * len(tables.sizes)
        masks = Counter(row.resident for row in rows)
        masks[rows[worker.id].resident] -= 1
        for mask, count in masks.items():
            for model in models_in(mask):
                copies[model] += count
        rates = self._mixes[worker.id].rates_per_second(now, len(rows))
        worth = [0.0] * len(copies)
        for rate, uses in zip(rates, self._uses, strict=True):
            for model, count in uses.items():
                worth[model] += rate * count
        return [rate * fetch * BUSY**others for rate, fetch, others in zip(worth, tables.fetches, copies, strict=True)]


class Processes:
    """Starts processes on each worker, from that worker's state and request mix alone."""

    def __init__(self, tables: FleetTables, mixes: Sequence[Mix]) -> None:
        self._tables = tables
        self._mixes = mixes
        self._calls = [Counter(functions) for functions in tables.functions]
        """By graph: how many of its tasks call a function."""

    def on_request_arrived(self, now: int, worker: WorkerState, graph: int) -> Iterator[StartInstance]:
        """Start processes of the functions that a request calls, as many as this worker's share of them needs."""
        tables = self._tables
        if not tables.cold_functions:
            return
        rates = self._mixes[worker.id].rates_per_second(now, len(self._mixes))
        for function in self._calls[graph]:
            if tables.cold_starts[function] and tables.hosts[function] >> worker.id & 1:
                rate = sum(rate * calls[function] for rate, calls in zip(rates, self._calls, strict=True))
                busy = rate * tables.base[worker.id][function] / SECOND / tables.hosts[function].bit_count()
                yield from self.ensure(worker, function, ceil(busy + SPARE * sqrt(busy)))

    def waiting(self, state: ServingState, worker: WorkerState) -> Iterator[StartInstance]:
        """Start processes for queued tasks that have none."""
        tables = self._tables
        if not tables.cold_functions or not worker.queue:
            return
        tasks = Counter(tables.functions[state.requests[request].request.graph][task] for request, task in worker.queue)
        for function, count in tasks.items():
            if tables.cold_starts[function] and not worker.idle.get(function):
                yield from self.ensure(worker, function, count)

    def ensure(self, worker: WorkerState, function: int, wanted: int = 1) -> Iterator[StartInstance]:
        """Start processes until a worker has ``wanted``, within its limits; busy and starting ones count."""
        most = min(max(wanted, 1), MOST, self._tables.concurrency[worker.id])
        for _ in range(most - worker.processes(function)):
            yield StartInstance(worker.id, function)

    def ready(self, state: ServingState, worker: WorkerState, queue: Sequence[TaskId]) -> Sequence[TaskId]:
        """Return the queued tasks that have an idle process to run in, or need none."""
        tables = self._tables
        if not tables.cold_functions:
            return queue
        called = ((key, state.requests[key[0]].graph.functions[key[1]]) for key in queue)
        return [key for key, function in called if not tables.cold_starts[function] or worker.idle.get(function)]
