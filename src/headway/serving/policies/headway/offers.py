"""What a function may be given, and what the rest of a request then costs, by the time that is left.

An offer is one configuration of a function on one make of worker: its time, and what holding it costs. ``Outlook`` is
the dynamic programme over a graph, last task first: ``rest`` is what a task and all after it are expected to cost a
request that has so much time left, ``after`` the same for what follows a chosen offer. Both count what a missed
deadline forfeits, weighed with its probability under the spread of the profiles: so the margin before a deadline is
neither a rule nor an option, but what it is worth, stage by stage. For chains without spread this is the Pareto front
over time and cost, exact but for the points of the tables; docs/serving/headway.md says what is done at forks and
joins.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from headway.errors import ExperimentError
from headway.serving.catalogue import Function
from headway.serving.fleet import Gpu, Prices, Worker, places
from headway.serving.graph import Graph
from headway.serving.state import ServingState

Array = npt.NDArray[np.float64]

POINTS = 128
"""Points of a table for each time that the rest of a graph takes at the least configuration."""
LOW, HIGH = 0.5, 3.5
"""How far a table goes, as shares of that time: so much too late, so much left."""
TOLERATED = 1.15
"""Offers that cost more than this times a faster one are left out; those between may fit where the best does not."""
MISSED = 16.0
"""What a missed deadline costs, in worths: more than to be refused at once, which leaves time to go elsewhere."""
LATE = 0.5
"""What it costs more to be late by the length of the whole graph, in worths: late requests are still hurried a bit."""
_EDGES = np.array([-np.inf, -1.5, -0.5, 0.5, 1.2, 1.7, 2.1, 2.5, 2.9, 3.3, 3.8, np.inf])
"""How long a run may take, in spreads: bins that are finer where being late begins."""
_WEIGHTS = np.diff(ndtr(_EDGES))
_NODES = -np.diff(np.exp(-(_EDGES**2) / 2)) / np.sqrt(2 * np.pi) / _WEIGHTS  # the mean of each bin
_HOUR_NS = 3.6e12


class Menu:
    """The offers of one function for one size of batch, on all makes."""

    __slots__ = ("_hold", "cpus", "size", "slices", "times", "usd", "worker_types")

    def __init__(self, size: int, rows: Sequence[tuple[int, int, int, int, float]], prices: Prices) -> None:
        """``rows``: make, CPUs, slices, time, dollars for holding them that long."""
        self.size = size
        self.worker_types = [row[0] for row in rows]
        self.cpus = [row[1] for row in rows]
        self.slices = [row[2] for row in rows]
        self.times = np.array([row[3] for row in rows], dtype=np.float64)
        self.usd = np.array([row[4] for row in rows], dtype=np.float64)
        """What each costs to hold, while nothing is scarce."""
        self._hold = (
            self.times * np.array(self.cpus) * prices.cpu_hour / _HOUR_NS,
            self.times * np.array(self.slices) * prices.slice_hour / _HOUR_NS,
        )

    def priced(self, scarce: tuple[float, float]) -> Array:
        """Return what each costs where CPUs and slices are worth so many times their price."""
        found: Array = self._hold[0] * scarce[0] + self._hold[1] * scarce[1]
        return found


def worker_types_of(workers: Sequence[Worker]) -> list[int]:
    """Return which make each worker is: offers are the same on all workers of a make."""
    worker_types: dict[tuple[Gpu, int], int] = {}
    return [worker_types.setdefault((worker.gpu, worker.cpus), len(worker_types)) for worker in workers]


def menus_of(state: ServingState) -> tuple[tuple[Menu, ...], ...]:
    """Return by function a menu for each size of batch that some worker can run, smallest first."""
    which = worker_types_of(state.fleet.workers)
    examples = [which.index(worker_type) for worker_type in sorted(set(which))]
    used = {task.function for graph in state.catalogue.graphs for task in graph.tasks}
    found = []
    for index, function in enumerate(state.catalogue.functions):
        rows: dict[int, list[tuple[int, int, int, int, float]]] = {}
        for worker_type, worker in enumerate(examples):
            for size, more in _possible(state, worker, index).items():
                rows.setdefault(size, []).extend((worker_type, *row) for row in more)
        if not rows and index in used:
            raise ExperimentError(f"function {function.name}: no worker can hold any configuration of its profile")
        found.append(tuple(Menu(size, rows[size], state.fleet.prices) for size in sorted(rows)))
    return tuple(found)


def _possible(state: ServingState, worker: int, index: int) -> dict[int, list[tuple[int, int, int, float]]]:
    """Return what one worker can be given, by size: CPUs, slices, time, dollars.

    Fastest first, without what is too dear.
    """
    place, function = state.fleet.workers[worker], state.catalogue.functions[index]
    weights = state.catalogue.size_of(function.mask)
    rows: dict[int, list[tuple[int, int, int, float]]] = {}
    for (size, cpus, slices), time in state.latency.cells(worker, index).items():
        needs_bytes = weights + function.activation_bytes * size
        if cpus <= place.cpus and needs_bytes <= place.gpu.memory_bytes and places(place.gpu, slices, 0) is not None:
            usd = hold_usd(state.fleet.prices, cpus, slices) * time
            rows.setdefault(size, []).append((cpus, slices, time, usd))
    for size, found in rows.items():
        found.sort(key=lambda row: (row[2], row[3]))
        cheapest = accumulate((row[3] for row in found[:-1]), min, initial=float("inf"))
        rows[size] = [row for row, least in zip(found, cheapest, strict=True) if row[3] <= least * TOLERATED]
    return rows


def hold_usd(prices: Prices, cpus: int, slices: int) -> float:
    """Return what it costs to hold them for a nanosecond."""
    return (cpus * prices.cpu_hour + slices * prices.slice_hour) / _HOUR_NS


def idle_usd(prices: Prices, function: Function) -> float:
    """Return what it costs to keep an idle process for a nanosecond."""
    return prices.memory_gib_hour * function.instance_bytes / (1 << 30) / _HOUR_NS


class Table:
    """What depends on the time left: ``rest`` over a grid, and a row of offers for each point of the grid and size."""

    __slots__ = ("_sharp", "after", "last", "low", "rest", "step")

    def __init__(self, length: float, *, sharp: bool = False) -> None:
        """``sharp``: nothing from here on has any spread. Being late is then a step and not a chance, and a time left
        is rounded down: what is a hair too late must not count as in time."""
        self._sharp = sharp
        self.step = max(length / POINTS, 1.0)
        self.low = -LOW * length
        self.last = int(POINTS * (LOW + HIGH))
        self.rest: Array = np.zeros(self.last + 1)
        self.after: list[npt.NDArray[np.float32]] = []

    @property
    def grid(self) -> Array:
        """Return the times left that the table has points for."""
        return self.low + self.step * np.arange(self.last + 1, dtype=np.float64)

    def index(self, left: float) -> int:
        """Return the point nearest to a time left; where being late is a step, the one before it."""
        at = int((left - self.low) / self.step + (0.0 if self._sharp else 0.5))
        return 0 if at < 0 else at if at < self.last else self.last

    def at(self, left: Array) -> Array:
        """``rest`` for many times left, between the points on straight lines, or as at the one before."""
        place = np.clip((left - self.low) / self.step, 0.0, self.last - 1e-9)
        below = place.astype(np.intp)
        here: Array = self.rest[below]
        if self._sharp:
            return here
        found: Array = here + (place - below) * (self.rest[below + 1] - here)
        return found


class CostTables:
    """The tables of all tasks, for one set of waits."""

    def __init__(
        self,
        state: ServingState,
        menus: tuple[tuple[Menu, ...], ...],
        worths: Sequence[float],
        waits: Mapping[tuple[int, int], float],
        drop: bool,
        scarce: tuple[float, float] = (1.0, 1.0),
    ) -> None:
        """``worths``: dollars, by graph. ``waits``: (function, size) to how long a request waits for such a batch.
        ``scarce``: what CPUs and slices are worth, in prices."""
        self._functions = state.catalogue.functions
        self._menus = menus
        self.usd = [[menu.priced(scarce) for menu in offers] for offers in menus]
        """By function and size: what the offers cost to hold."""
        self._waits = waits
        self._drop = drop
        least = [min(times) for times in zip(*state.latency.base, strict=True)]
        graphs = zip(state.catalogue.graphs, worths, strict=True)
        self.tables = [
            self._graph(graph, [least[index] for index in graph.functions], worth) for graph, worth in graphs
        ]

    def _graph(self, graph: Graph, base: Sequence[int], worth: float) -> list[Table]:
        lengths = graph.lengths_from(base)
        shares = shares_of(graph, base)
        sharp = [False] * len(lengths)
        for task in reversed(graph.order):
            certain = not self._functions[graph.tasks[task].function].profile.spread
            sharp[task] = certain and all(sharp[after] for after in graph.successors[task])
        tables = [Table(length, sharp=each) for length, each in zip(lengths, sharp, strict=True)]
        for task in reversed(graph.order):
            table, function = tables[task], self._functions[graph.tasks[task].function]
            following = [(tables[after], shares[task, after]) for after in graph.successors[task]]
            best: Array | None = None
            called = graph.tasks[task].function
            for menu, usd in zip(self._menus[called], self.usd[called], strict=True):
                if following:
                    after = _expected(table.grid, menu.times, function.profile.spread, following)
                else:
                    after = _forfeit(table.grid, menu.times, function.profile.spread, worth, max(lengths))
                table.after.append(after.astype(np.float32))
                table.rest = (after + usd / menu.size).min(axis=1)
                waited = table.at(table.grid - self._waits.get((called, menu.size), 0.0))
                best = waited if best is None else np.minimum(best, waited)
            assert best is not None
            if self._drop:  # who has not begun may be refused; who has is as good as late
                best = np.minimum(best, MISSED * worth if graph.predecessors[task] else worth)
            table.rest = best
        return tables


def _expected(grid: Array, times: Array, spread: float, following: Sequence[tuple[Table, float]]) -> Array:
    """Return what follows each offer at each time left, over how long the offer may take."""
    found = np.zeros((len(grid), len(times)))
    nodes, weights = (_NODES, _WEIGHTS) if spread else (np.zeros(1), np.ones(1))
    for node, weight in zip(nodes, weights, strict=True):
        left = grid[:, None] - times[None, :] * np.exp(spread * node)
        for table, share in following:
            found += weight * share * table.at(left)
    return found


def _forfeit(grid: Array, times: Array, spread: float, worth: float, length: float) -> Array:
    """Return what a missed deadline costs after the last task, times how likely that is, and a little for how late."""
    left = grid[:, None]
    late = np.maximum(times[None, :] - left, 0.0) / length
    if spread:
        ratio = np.maximum(left, 1.0) / times[None, :]
        missed = np.where(left > 0, ndtr(-np.log(ratio) / spread), 1.0)
    else:
        missed = (times[None, :] > left).astype(np.float64)
    found: Array = worth * (MISSED * missed + LATE * late)
    return found


def shares_of(graph: Graph, times: Sequence[int]) -> dict[tuple[int, int], float]:
    """Return by edge how much of what follows a join depends on this one of its predecessors.

    All of it for the one that is done last; for the others less, as they are shorter: their cost falls about with
    the square root of their time, so what an hour saved on them is worth goes with the power 1.5 of their length.
    """
    done = [0] * len(graph.tasks)
    shares = {}
    for task in graph.order:
        before = graph.predecessors[task]
        latest = max((done[other] for other in before), default=0)
        for other in before:
            shares[other, task] = (done[other] / latest) ** 1.5 if latest else 1.0
        done[task] = latest + times[task]
    return shares
