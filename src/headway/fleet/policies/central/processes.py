"""Processes of functions: how many are needed, from arrivals, and where to start them.

ESG's pre-warming as we read it: an exponentially weighted moving average of the inter-arrival times of each graph.
"""

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from math import ceil, sqrt

from headway.fleet.model.actions import Action, FetchModel, StartInstance, WakeAt
from headway.fleet.model.catalogue import models_in
from headway.fleet.policies.central.fronts import Option, most_processes
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import WorkerState
from headway.units import MILLISECOND

_EVERY = 200 * MILLISECOND
"""How often the number of processes is compared with the forecast."""
_WEIGHT = 0.1
"""Weight of the latest inter-arrival time in the moving average."""


class ProcessForecast:
    """Forecasts the processes that each function needs from arrivals of its graphs, and starts missing ones."""

    def __init__(self, state: ServingState, times: Sequence[int]) -> None:
        """Start the averages. ``times``: by function, the approximate run time of one task."""
        self._times = times
        self._checked = -_EVERY
        self._last: dict[int, int] = {}
        self._gaps: dict[int, float] = {}
        """By graph: the moving average of its inter-arrival times."""
        self._due: list[tuple[int, int]] = []
        """(when, graph): when to start processes that will have expired by the graph's next arrival."""
        cold = [index for index, kind in enumerate(state.catalogue.functions) if kind.cold_start]
        self._calls = {
            function: [
                (index, calls)
                for index, graph in enumerate(state.catalogue.graphs)
                if (calls := sum(task.function == function for task in graph.tasks))
            ]
            for function in cold
        }

    def wanted(self, function: int) -> int:
        """Return how many processes a function needs: the mean number of busy ones, and a reserve for chance."""
        busy = 0.0
        for graph, calls in self._calls[function]:
            if gap := self._gaps.get(graph):
                busy += calls * self._times[function] / gap
        return ceil(busy + 2.0 * sqrt(busy)) + 1 if busy else 0

    def on_arrivals(self, now: int, state: ServingState) -> Iterator[Action]:
        """Update the averages; wake before the next arrival where processes will have expired by then."""
        for request in state.landed if self._calls else ():
            if (rs := state.requests.get(request)) is None:
                continue
            graph = rs.request.graph
            last, known = self._last.get(graph), self._gaps.get(graph)
            self._last[graph] = now
            if last is None:
                continue
            if known is None:
                self._checked = now - _EVERY  # the first forecast is acted upon at once
            gap = float(now - last)
            self._gaps[graph] = known = gap if known is None else known + _WEIGHT * (gap - known)
            if known > state.fleet.keep_alive:
                functions = [state.catalogue.functions[task.function] for task in rs.graph.tasks]
                due = now + int(known) - max(function.cold_start for function in functions)
                heappush(self._due, (due, graph))
                yield WakeAt(due)

    def start_forecast(self, now: int, state: ServingState) -> Iterator[Action]:
        """Start missing processes: every ``_EVERY``, and ahead of an arrival after a long gap."""
        while self._due and self._due[0][0] <= now:
            graph = heappop(self._due)[1]
            for function in {task.function for task in state.catalogue.graphs[graph].tasks} & self._calls.keys():
                yield from self._fill(state, function, 1)
        if now - self._checked >= _EVERY:
            self._checked = now
            for function in self._calls:
                if wanted := self.wanted(function):
                    yield from self._fill(state, function, wanted)

    def start_for_waiting(
        self, state: ServingState, function: int, options: Sequence[Option], count: int
    ) -> Iterator[Action]:
        """Start processes for waiting tasks where an option fits, unless as many are starting already."""
        if function not in self._calls:
            return
        starting = sum(list(w.starting.values()).count(function) for w in state.workers if w.starting)
        if starting >= count:
            return
        cpus = min(option.configuration.cpus for option in options)
        slices = min(option.configuration.slices for option in options)
        room = [
            w
            for w in state.workers
            if w.up and w.slices_free >= slices and w.cpus_free >= cpus and not w.warm >> function & 1
        ]
        have = sum(w.processes(function) for w in state.workers if w.up) if room else 0
        most = max(1, 2 * self.wanted(function))
        if have >= most and not any(w.running or w.starting for w in state.workers):
            most = have + 1  # none of them is where the task fits, and nothing will ever happen
        if have < most:
            for worker in least_loaded(state, room, function, min(count - starting, most - have)):
                yield from start(state, worker, function)

    def _fill(self, state: ServingState, function: int, wanted: int) -> Iterator[Action]:
        up = [worker for worker in state.workers if worker.up]
        short = wanted - sum(worker.processes(function) for worker in up)
        for worker in least_loaded(state, up, function, short):
            yield from start(state, worker, function)


def least_loaded(state: ServingState, workers: Sequence[WorkerState], function: int, count: int) -> list[WorkerState]:
    """Return workers for ``count`` new processes: each time the one with the fewest, within ``most_processes``."""
    kind = state.catalogue.functions[function]
    heap = [(w.processes(function), -w.slices_free, w.id, w) for w in workers] if count > 0 else []
    chosen: list[WorkerState] = []
    heap.sort(key=lambda entry: entry[:3])
    while heap and len(chosen) < count:
        have, free, index, worker = heappop(heap)
        if have < most_processes(worker.worker, kind):
            chosen.append(worker)
            heappush(heap, (have + 1, free, index, worker))
    return chosen


def start(state: ServingState, worker: WorkerState, function: int) -> Iterator[Action]:
    """Start a process, and fetch its weights into free memory."""
    yield StartInstance(worker.id, function)
    for model in models_in(state.catalogue.functions[function].mask & ~worker.memory.resident):
        if 0 < state.catalogue.models[model].size_bytes <= worker.memory.free_bytes:
            yield FetchModel(worker.id, model)
