"""Queue order of a worker, the share of a backlog that goes before a task, and tables of the fleet for both.

The order is Smith's rule for the mean slow-down: a task that takes ``p`` and whose request would take ``L`` at best has
priority ``1 / (p · L)``. Weights that must be fetched count as run time, so that tasks whose models are resident go
first. Waiting makes a task more urgent, so that none starves; a level of a request's own priority counts as much as
having waited ``AGEING`` times its best time. A task with a distant deadline waits for those with none or a near one.
"""

from collections.abc import Sequence
from functools import cache
from math import exp

from headway.errors import ExperimentError
from headway.fleet.model.catalogue import models_in
from headway.fleet.model.fleet import find_slices
from headway.fleet.policies.compass.planner import by_rank
from headway.fleet.policies.headway.worker.cells import CellTable
from headway.fleet.policies.headway.worker.crowding import by_free_slices
from headway.fleet.state.requeststate import RequestState
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import TaskId, WorkerState

AGEING = 5.0
"""A task that waited this multiple of its request's best time is twice as urgent."""
LATE = 0.25
"""Factor of the urgency of a request that misses its deadline anyway."""
_FAR = 5.0
"""Slack counts up to this multiple of a request's best time, so that ageing still works."""
_FIRST, _LEAST = 8, 64
"""Requests after which a worker first uses its counts, and the number after which it halves them."""


class FleetTables:
    """Tables computed from catalogue and fleet: times, sizes, ranks, and the workers that can run a function."""

    def __init__(self, state: ServingState) -> None:
        catalogue, fleet = state.catalogue, state.fleet
        self.functions = [[task.function for task in graph.tasks] for graph in catalogue.graphs]
        self.masks = [function.mask for function in catalogue.functions]
        self.on_cpus = sum(1 << index for index, function in enumerate(catalogue.functions) if function.on_cpus)
        """Functions that can run without a slice, as bits."""
        self.cold_starts = [function.cold_start for function in catalogue.functions]
        self.cold_functions = [index for index, cold in enumerate(self.cold_starts) if cold]
        """Functions that need a process."""
        self.sizes = [model.size_bytes for model in catalogue.models]
        self.fetches = [fleet.fetch_time(size) for size in self.sizes]
        self.write_back = 2 if fleet.links.write_back else 1
        self.weights = cache(self._weights)
        self.follow(state)

    def follow(self, state: ServingState) -> None:
        """Compute what goes by times, from those that are expected now: a server refines them."""
        catalogue, self.version = state.catalogue, state.latency.version
        self.base = state.latency.base
        """By worker and function: the run time that a task counts for in queues."""
        self.run_times = [
            [_fastest(state, worker.id, index) for index in range(len(catalogue.functions))] for worker in state.workers
        ]
        """By worker and function: run time with the whole worker; 0: it cannot run there."""
        self.hosts = [self._hosts(state, index) for index in range(len(catalogue.functions))]
        """By function: the workers that can run it, as bits."""
        self.concurrency = [_concurrency(state, worker.id) for worker in state.workers]
        """By worker: how many tasks may run at once."""
        self.within = [self._within(state, worker.id) for worker in state.workers]
        """By worker, function and number of free slices: run time in them; empty where one task runs at a time."""
        self.cells_of = CellTable(state)
        """The configurations of each function on each worker."""
        self.mean, best = self._times(state)
        self.ranks = [graph.lengths_from([self.mean[index] for index in graph.functions]) for graph in catalogue.graphs]
        """By graph and task: the longest path from the task to the end, with mean run times."""
        self.tails = [graph.lengths_from([best[index] for index in graph.functions]) for graph in catalogue.graphs]
        """The same with the best run times: a lower bound of what is left."""
        self.best_times = [max(1, *tails) for tails in self.tails]
        """By graph: the least time that a request takes."""
        self.sequences = [by_rank(rank, graph.order) for graph, rank in zip(catalogue.graphs, self.ranks, strict=True)]
        """Tasks by decreasing rank, predecessors first."""

    def _within(self, state: ServingState, index: int) -> list[list[int]]:
        if self.concurrency[index] == 1:
            return []
        by_function = []
        for function, fastest in enumerate(self.run_times[index]):
            cells = state.latency.cells(index, function)
            if (kind := state.catalogue.functions[function].generate) is not None:
                by_function.append(by_free_slices(kind, state.fleet.workers[index], min(cells).slices))
                continue
            by_slices = [fastest]
            for free in range(1, state.fleet.workers[index].gpu.slices + 1):
                times = [time for cell, time in cells.items() if cell.slices <= free]
                by_slices.append(max(fastest, min(times)) if times else fastest)
            by_function.append(by_slices)
        return by_function

    def _weights(self, mask: int) -> tuple[int, int]:
        """Return the bytes of some models, and how long fetching them takes."""
        models = models_in(int(mask))  # arrays hold other integers
        return sum(self.sizes[model] for model in models), sum(self.fetches[model] for model in models)

    def _hosts(self, state: ServingState, index: int) -> int:
        function = state.catalogue.functions[index]
        need = state.catalogue.size_of(function.mask) + function.activation_bytes
        capable = [w.id for w in state.workers if self.run_times[w.id][index] and need <= w.memory.capacity_bytes]
        if not capable:
            raise ExperimentError(f"function {function.name}: no worker can run it, it needs {need} bytes on a GPU")
        return sum(1 << worker for worker in capable)

    def _times(self, state: ServingState) -> tuple[list[int], list[int]]:
        """Return by function the mean run time over the workers that can run it, and the least."""
        times = [
            [self.run_times[worker.id][index] for worker in state.workers if hosts >> worker.id & 1]
            for index, hosts in enumerate(self.hosts)
        ]
        return [sum(by_worker) // len(by_worker) for by_worker in times], [min(by_worker) for by_worker in times]


class Mix:
    """Request mix as one worker has seen it: how often each graph is requested."""

    def __init__(self, tables: FleetTables) -> None:
        self._tables = tables
        self._seen = [1.0] * len(tables.functions)
        self._count = 0
        self._next = _FIRST
        self.ahead = cache(self._ahead)

    def note(self, graph: int) -> None:
        """Count a request that arrived."""
        self._seen[graph] += 1.0
        self._count += 1
        if self._count == self._next:
            self.ahead.cache_clear()
            self._next += min(self._count, _LEAST)
            if self._count > _LEAST:
                self._seen = [seen / 2 for seen in self._seen]

    def rates_per_second(self, now: int, workers: int) -> list[float]:
        """Return the arrival rate of each graph in the whole fleet, if other workers see the same mix."""
        if self._count < _FIRST:
            return [0.0] * len(self._seen)
        total = sum(self._seen) * max(now, 1)
        return [seen * self._count * workers * 1e9 / total for seen in self._seen]

    def _ahead(self, graph: int, task: int) -> "Shares":
        """Return the share of a worker's backlog that goes before a task, by the models that the backlog needs."""
        return Shares(self._tables, self._seen, graph, task)


class Shares(dict[int, float]):
    """Share of a worker's backlog that goes before a task in queue order, by the models that the backlog needs (bits).

    A row says which models the queued tasks need, not which tasks they are. The backlog is taken to hold all functions
    that need no other models, each as often as it is requested.
    """

    def __init__(self, tables: FleetTables, seen: Sequence[float], graph: int, task: int) -> None:
        super().__init__()
        self._tables = tables
        self._seen = tuple(seen)
        self._index = tables.mean[tables.functions[graph][task]] * tables.best_times[graph]

    def __missing__(self, wanted: int) -> float:
        tables = self._tables
        before = total = 0.0
        for graph, functions in enumerate(tables.functions):
            low, seen = tables.best_times[graph], self._seen[graph]
            for function in functions:
                if not tables.masks[function] & ~wanted:
                    work = tables.mean[function]
                    total += seen * work
                    if work * low <= self._index:
                        before += seen * work
        share = self[wanted] = before / total if total else 1.0
        return share


class Order:
    """Orders the queue of one worker."""

    def __init__(self, tables: FleetTables) -> None:
        self._tables = tables

    def urgency(self, now: int, worker: WorkerState, rs: RequestState, task: int) -> float:
        """Return how urgent a task is: the largest runs first."""
        tables = self._tables
        graph = rs.request.graph
        function = tables.functions[graph][task]
        missing = tables.masks[function] & ~worker.memory.resident
        takes = tables.run_times[worker.id][function]
        if missing:
            takes += tables.weights(missing)[1] * tables.write_back
        low = tables.best_times[graph]
        waited = (now - rs.since[task]) / (AGEING * low)
        worth = (1.0 + rs.request.priority + waited) / (takes * low)
        deadline = rs.request.deadline
        if deadline:
            slack = deadline - now - tables.ranks[graph][task]
            worth *= exp(-min(slack / low, _FAR)) if slack >= 0 else LATE
        return worth

    def queue(self, now: int, state: ServingState, worker: WorkerState) -> Sequence[TaskId]:
        """Return the queued tasks of a worker, the most urgent first."""
        if len(worker.queue) < 2:
            return list(worker.queue)
        requests = state.requests
        return sorted(worker.queue, key=lambda key: -self.urgency(now, worker, requests[key[0]], key[1]))


def _fastest(state: ServingState, index: int, function: int) -> int:
    cells = state.latency.cells(index, function)
    worker = state.fleet.workers[index]
    times = [
        time
        for cell, time in cells.items()
        if cell.cpus <= worker.cpus and cell.slices <= worker.gpu.slices and find_slices(worker.gpu, cell.slices, 0)
    ]
    return max(1, min(times)) if times else 0


def _concurrency(state: ServingState, index: int) -> int:
    worker = state.fleet.workers[index]
    least = [state.latency.least(index, function) for function in range(len(state.catalogue.functions))]
    cpus = max(1, min(cell.cpus for cell in least))
    slices = max(1, min(cell.slices for cell in least))
    return max(1, min(worker.cpus // cpus, worker.gpu.slices // slices))
