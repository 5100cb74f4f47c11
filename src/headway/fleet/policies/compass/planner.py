"""Compass's planner: places all tasks of a request, or one task, from the rows that one worker sees.

The ``estimate`` says how long a worker is taken to be busy. ``queued`` counts the run times of queued tasks, as the
paper does. ``running`` adds what is left of the running task and the weights that placed tasks must fetch. ``reserved``
adds tasks that were placed there and have not arrived yet.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from headway.errors import ExperimentError
from headway.fleet.model.actions import NOWHERE
from headway.fleet.model.catalogue import models_in
from headway.fleet.model.graph import Graph
from headway.fleet.state.requeststate import RequestState, Stage
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import Row

QUEUED, RUNNING, RESERVED = "queued", "running", "reserved"
_NEVER = 1 << 62


@dataclass(slots=True)
class View:
    """The rows that one worker reads at one moment, as lists by worker."""

    up: list[bool] | None
    """None: all are."""
    taken_until: list[int]
    """When a task that arrived now would find the GPU free."""
    resident: list[int]
    """Models that are resident, or will be by then, as bits."""
    free: list[int]
    """Bytes."""


class Planner:
    """Plans whole requests and places single tasks."""

    def __init__(self, estimate: str, *, load: bool = True, cache: bool = True, ingress: bool = True) -> None:
        if estimate not in (QUEUED, RUNNING, RESERVED):
            raise ExperimentError(f"option estimate={estimate} is none of {QUEUED}, {RUNNING}, {RESERVED}")
        self.estimate = estimate
        self.load = load
        self.cache = cache
        self.ingress = ingress

    def bind(self, state: ServingState, hosts: Sequence[tuple[int, ...]]) -> None:
        """Compute ranks, run times and transfer times. ``hosts``: see ``LocalQueue``."""
        catalogue, fleet = state.catalogue, state.fleet
        self._fleet = fleet
        self._hosts = hosts
        self._workers = len(state.workers)
        functions = range(len(catalogue.functions))
        self.runs = [[row[function] for row in state.latency.base] for function in functions]
        """By function and worker: the run time of one task."""
        self._fetch_times = [fleet.fetch_time(model.weights_bytes) for model in catalogue.models]
        self._sizes = [model.size_bytes for model in catalogue.models]
        self._masks = [function.mask for function in catalogue.functions]
        self._models = [tuple(models_in(mask)) for mask in self._masks]
        self._fetch_cost = cache(self._time_and_bytes)
        self.transfer_times = cache(self._transfer_times)
        self._orders = [tuple(by_rank(self.ranks(graph), graph.order)) for graph in catalogue.graphs]
        self._inputs = [
            [
                sum(graph.tasks[before].output_bytes for before in graph.predecessors[task])
                or (0 if graph.predecessors[task] else graph.tasks[task].input_bytes)
                for task in range(len(graph.tasks))
            ]
            for graph in catalogue.graphs
        ]

    def ranks(self, graph: Graph) -> list[int]:
        """Return by task the longest path from its start to the end, with every edge between two workers."""
        times = [sum(self.runs[function]) // self._workers for function in graph.functions]
        sent = [self._host_to_host(task.output_bytes) for task in graph.tasks]
        return graph.lengths_from([time + sent[i] if graph.successors[i] else time for i, time in enumerate(times)])

    # --- what rows say ----------------------------------------------------------------------------------------

    def view(self, now: int, rows: Sequence[Row]) -> View:
        """Return rows as a view."""
        ups, queued, reserved, busy, residents, wanted, frees, *_ = zip(*rows, strict=True)
        up = list(ups) if False in ups else None
        resident, free = list(residents), list(frees)
        if not self.load:
            return View(up, [now] * len(rows), resident, free)
        if self.estimate == QUEUED:
            return View(up, [now + work for work in queued], resident, free)
        taken = [(until if until > now else now) + work for until, work in zip(busy, queued, strict=True)]
        if self.estimate == RESERVED:
            taken = [until + work for until, work in zip(taken, reserved, strict=True)]
        for index, (need_counts, there) in enumerate(zip(wanted, residents, strict=True)):
            if missing := need_counts & ~there:
                time, size = self._fetch_cost(missing)
                taken[index] += time
                free[index] -= size
                resident[index] |= missing
        return View(up, taken, resident, free)

    def taken_until(self, now: int, row: Row) -> int:
        """Return when a task that arrived at a worker now would find its GPU free."""
        if not self.load:
            return now
        if self.estimate == QUEUED:
            return now + row.queued
        until = max(now, row.busy_until) + row.queued
        if self.estimate == RESERVED:
            until += row.reserved
        if missing := row.wanted & ~row.resident:
            until += self._fetch_cost(missing)[0]
        return until

    # --- decisions --------------------------------------------------------------------------------------------

    def plan(self, now: int, view: View, rs: RequestState, ingress: int) -> tuple[int, ...]:
        """Return a worker for every task that has none and has not started, by decreasing rank; -1: none is up.

        The view is changed as if the tasks were placed.
        """
        graph, tasks = rs.request.graph, rs.graph.tasks
        placed = list(rs.worker)
        ends = [now] * len(tasks)
        predecessors = rs.graph.predecessors
        for task in self._orders[graph]:
            function = tasks[task].function
            where, stage = placed[task], rs.stage[task]
            if stage >= Stage.RUNNING:
                if stage == Stage.RUNNING:
                    ends[task] = now + self.runs[function][where]
                elif not rs.copies[task] >> where & 1:
                    placed[task] = (rs.copies[task] & -rs.copies[task]).bit_length() - 1
                continue
            if before := predecessors[task]:
                arrivals = self._inputs_arrive(now, [(placed[p], ends[p], tasks[p].output_bytes) for p in before])
            elif not self.ingress:
                arrivals = [now] * self._workers
            else:
                arrivals = [
                    now + transfer_times for transfer_times in self.transfer_times(ingress, tasks[task].input_bytes)
                ]
            where, start = self.earliest_finish(
                view, arrivals, function, (where,) if where >= 0 else self._hosts[function]
            )
            placed[task] = where
            if where >= 0:
                ends[task] = start + self._host_to_host(self._inputs[graph][task]) + self.runs[function][where]
                self._occupy(view, where, function, ends[task])
        return tuple(placed)

    def earliest_finish(
        self, view: View, arrivals: Sequence[int], function: int, candidates: Sequence[int]
    ) -> tuple[int, int]:
        """Return the worker where a task ends first, and when it starts there.

        ``arrivals``: by worker, when its inputs could be there.
        """
        least, best, begin = _NEVER, NOWHERE, 0
        taken, up, runs = view.taken_until, view.up, self.runs[function]
        models = self._models[function] if self.cache else ()
        single = len(models) == 1
        if single:
            model = models[0]
            bit, time, size = 1 << model, self._fetch_times[model], self._sizes[model]
            resident, free = view.resident, view.free
        for worker in candidates:
            start = taken[worker]
            if arrivals[worker] > start:
                start = arrivals[worker]
            end = start + runs[worker]
            if end >= least:
                continue
            if single:
                if not resident[worker] & bit:
                    fetch = time if free[worker] >= size else time + time
                    start += fetch
                    end += fetch
            elif models:
                fetch = self.fetch(view, worker, function)
                start += fetch
                end += fetch
            if end < least and (up is None or up[worker]):
                least, best, begin = end, worker, start
        return best, begin

    def place_one(self, view: View, rs: RequestState, task: int, here: int, candidates: Sequence[int]) -> int:
        """Return the worker for a task whose inputs are on ``here``: the least sum of queue, fetch and transfer time.

        -1: none is up.
        """
        size = self._inputs[rs.request.graph][task]
        arrivals = [until + time for until, time in zip(view.taken_until, self.transfer_times(here, size), strict=True)]
        return self.earliest_finish(view, arrivals, rs.graph.tasks[task].function, candidates)[0]

    def fetch(self, view: View, worker: int, function: int) -> int:
        """Return how long the missing models take to fetch; twice as long for one that needs an eviction."""
        missing, free = models_in(self._masks[function] & ~view.resident[worker]), view.free[worker]
        return sum(self._fetch_times[model] * (1 if free >= self._sizes[model] else 2) for model in missing)

    def _transfer_times(self, source: int, size_bytes: int) -> list[int]:
        """Return by worker how long bytes take from ``source``."""
        return [self._fleet.copy_time(source, target, size_bytes) for target in range(self._workers)]

    # --- parts ------------------------------------------------------------------------------------------------

    def _inputs_arrive(self, now: int, sources: Sequence[tuple[int, int, int]]) -> list[int]:
        """Return by worker when the results of all ``sources`` (worker, end, bytes) have arrived.

        Sources without a worker are not counted.
        """
        arrivals: list[int] = []
        for where, end, size in sources:
            if where < 0:
                continue
            transfer_times = self.transfer_times(where, size)
            if arrivals:
                arrivals = [max(other, end + time) for other, time in zip(arrivals, transfer_times, strict=True)]
            else:
                arrivals = [end + time for time in transfer_times]
        return arrivals or [now] * self._workers

    def _occupy(self, view: View, worker: int, function: int, until: int) -> None:
        """Change a view as if a task were placed on a worker."""
        view.taken_until[worker] = until
        missing = self._masks[function] & ~view.resident[worker]
        if missing:
            view.free[worker] -= self._fetch_cost(missing)[1]
            if self.estimate != QUEUED:
                view.resident[worker] |= missing

    def _time_and_bytes(self, mask: int) -> tuple[int, int]:
        """Return how long some models take to fetch, and their bytes."""
        models = models_in(mask)
        return sum(self._fetch_times[model] for model in models), sum(self._sizes[model] for model in models)

    def _host_to_host(self, size_bytes: int) -> int:
        """Return how long bytes take from one GPU to its host, to another host and to a GPU there."""
        return self._fleet.copy_time(NOWHERE, 0, size_bytes) + 2 * self._fleet.fetch_time(size_bytes)


def by_rank(ranks: Sequence[int], order: Sequence[int]) -> list[int]:
    """Return tasks by decreasing rank; ties in topological order, so that no task comes before its predecessors."""
    return sorted(order, key=lambda task: -ranks[task])
