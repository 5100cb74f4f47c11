"""Offers (configurations with time and cost), and tables of the expected cost of the rest of a request by time left.

An offer is one configuration of a function on one type of worker: its time, and what holding it costs. ``CostTables``
is a dynamic programme over a graph, last task first. ``rest`` is the expected cost of a task and its successors by the
time left; ``after`` is the same for what follows a chosen offer. Both include the cost of a missed deadline, times its
probability under the spread of the profiles. The margin before a deadline thus follows from its value, stage by stage.
For chains without spread this is the Pareto front over time and cost, exact but for the grid of the tables.
docs/reference/policies/fleet/headway.md says what is done at forks and joins.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from headway.errors import ExperimentError
from headway.fleet.model.catalogue import Function
from headway.fleet.model.fleet import Gpu, Prices, Worker, find_slices
from headway.fleet.model.graph import Graph
from headway.fleet.state.state import ServingState

Array = npt.NDArray[np.float64]

POINTS = 128
"""Grid points of a table for each time that the rest of a graph takes at the least configuration."""
LOW, HIGH = 0.5, 3.5
"""Range of a table as multiples of that time: how late, and how much time left."""
TOLERATED = 1.15
"""Offers that cost more than this times a faster one are left out; the others may fit where the best does not."""
MISSED = 16.0
"""Cost of a missed deadline, as a multiple of the value of an answer: more than an early refusal, which costs one."""
LATE = 0.5
"""Further cost of being late by the length of the whole graph, in the same unit, so that late requests still hurry."""
_EDGES = np.array([-np.inf, -1.5, -0.5, 0.5, 1.2, 1.7, 2.1, 2.5, 2.9, 3.3, 3.8, np.inf])
"""Bins of the run time, in standard deviations of its logarithm; finer in the upper tail."""
_WEIGHTS = np.diff(ndtr(_EDGES))
_NODES = -np.diff(np.exp(-(_EDGES**2) / 2)) / np.sqrt(2 * np.pi) / _WEIGHTS  # the mean of each bin
_HOUR_NS = 3.6e12


class Menu:
    """The offers of one function for one batch size, on all types of worker."""

    __slots__ = ("_hold", "cpus", "size", "slices", "times", "usd", "worker_types")

    def __init__(self, size: int, rows: Sequence[tuple[int, int, int, int, float]], prices: Prices) -> None:
        """Store the columns. ``rows``: worker type, CPUs, slices, time, dollars for holding them that long."""
        self.size = size
        self.worker_types = [row[0] for row in rows]
        self.cpus = [row[1] for row in rows]
        self.slices = [row[2] for row in rows]
        self.times = np.array([row[3] for row in rows], dtype=np.float64)
        self.usd = np.array([row[4] for row in rows], dtype=np.float64)
        """Cost of holding each offer at list prices."""
        self._hold = (
            self.times * np.array(self.cpus) * prices.cpu_hour / _HOUR_NS,
            self.times * np.array(self.slices) * prices.slice_hour / _HOUR_NS,
        )

    def priced(self, scarce: tuple[float, float]) -> Array:
        """Return the cost of each offer where CPUs and slices count at these multiples of their price."""
        costs: Array = self._hold[0] * scarce[0] + self._hold[1] * scarce[1]
        return costs


def worker_types_of(workers: Sequence[Worker]) -> list[int]:
    """Return the type of each worker, as a number; workers with equal GPU and CPUs have the same type."""
    worker_types: dict[tuple[Gpu, int], int] = {}
    return [worker_types.setdefault((worker.gpu, worker.cpus), len(worker_types)) for worker in workers]


def menus_of(state: ServingState) -> tuple[tuple[Menu, ...], ...]:
    """Return by function a menu for each size of batch that some worker can run, smallest first."""
    which = worker_types_of(state.fleet.workers)
    examples = [which.index(worker_type) for worker_type in sorted(set(which))]
    used = {task.function for graph in state.catalogue.graphs for task in graph.tasks}
    menus = []
    for index, function in enumerate(state.catalogue.functions):
        rows: dict[int, list[tuple[int, int, int, int, float]]] = {}
        for worker_type, worker in enumerate(examples):
            for size, offers in _possible(state, worker, index).items():
                rows.setdefault(size, []).extend((worker_type, *row) for row in offers)
        if not rows and index in used:
            raise ExperimentError(f"function {function.name}: no worker can hold any configuration of its profile")
        menus.append(tuple(Menu(size, rows[size], state.fleet.prices) for size in sorted(rows)))
    return tuple(menus)


def _possible(state: ServingState, worker: int, index: int) -> dict[int, list[tuple[int, int, int, float]]]:
    """Return by batch size the offers of a function on a worker: CPUs, slices, time, dollars.

    They are in order of time; those above ``TOLERATED`` are left out.
    """
    place, function = state.fleet.workers[worker], state.catalogue.functions[index]
    weights = state.catalogue.size_of(function.mask)
    rows: dict[int, list[tuple[int, int, int, float]]] = {}
    for (size, cpus, slices), time in state.latency.cells(worker, index).items():
        needs_bytes = weights + function.activation_bytes * size
        if (
            cpus <= place.cpus
            and needs_bytes <= place.gpu.memory_bytes
            and find_slices(place.gpu, slices, 0) is not None
        ):
            usd = hold_usd(state.fleet.prices, cpus, slices) * time
            rows.setdefault(size, []).append((cpus, slices, time, usd))
    for size, offers in rows.items():
        offers.sort(key=lambda row: (row[2], row[3]))
        cheapest = accumulate((row[3] for row in offers[:-1]), min, initial=float("inf"))
        rows[size] = [row for row, least in zip(offers, cheapest, strict=True) if row[3] <= least * TOLERATED]
    return rows


def hold_usd(prices: Prices, cpus: int, slices: int) -> float:
    """Return what it costs to hold CPUs and slices for a nanosecond."""
    return (cpus * prices.cpu_hour + slices * prices.slice_hour) / _HOUR_NS


def idle_usd(prices: Prices, function: Function) -> float:
    """Return what it costs to keep an idle process for a nanosecond."""
    return prices.memory_gib_hour * function.instance_bytes / (1 << 30) / _HOUR_NS


class Table:
    """Expected costs by time left: ``rest`` over a grid, and ``after`` by batch size, grid point and offer."""

    __slots__ = ("_sharp", "after", "last", "low", "rest", "step")

    def __init__(self, length: float, *, sharp: bool = False) -> None:
        """Build an empty grid.

        ``sharp``: nothing from here on has any spread. Being late is then a step function, and a time left is rounded
        down: what is slightly late must not count as in time.
        """
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
        """Return the grid point nearest to a time left; in a sharp table the one before it."""
        at = int((left - self.low) / self.step + (0.0 if self._sharp else 0.5))
        return 0 if at < 0 else at if at < self.last else self.last

    def at(self, left: Array) -> Array:
        """Return ``rest`` for an array of times left, interpolated linearly; in a sharp table the point before."""
        place = np.clip((left - self.low) / self.step, 0.0, self.last - 1e-9)
        below = place.astype(np.intp)
        here: Array = self.rest[below]
        if self._sharp:
            return here
        interpolated: Array = here + (place - below) * (self.rest[below + 1] - here)
        return interpolated


class CostTables:
    """The tables of all tasks, for given arrival rates and prices."""

    def __init__(
        self,
        state: ServingState,
        menus: tuple[tuple[Menu, ...], ...],
        worths: Sequence[float],
        waits: Mapping[tuple[int, int], float],
        drop: bool,
        scarce: tuple[float, float] = (1.0, 1.0),
    ) -> None:
        """Compute the tables.

        ``worths``: by graph, the value of an answer in dollars. ``waits``: (function, batch size) to how long a request
        waits until such a batch is full. ``scarce``: prices of CPUs and slices as multiples of the list price.
        """
        self._functions = state.catalogue.functions
        self._menus = menus
        self.usd = [[menu.priced(scarce) for menu in offers] for offers in menus]
        """By function and batch size: the cost of holding each offer."""
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
        tables = [Table(length, sharp=is_sharp) for length, is_sharp in zip(lengths, sharp, strict=True)]
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
    """Return the expected cost of what follows, by time left and offer, over the spread of the offer's run time."""
    expected = np.zeros((len(grid), len(times)))
    nodes, weights = (_NODES, _WEIGHTS) if spread else (np.zeros(1), np.ones(1))
    for node, weight in zip(nodes, weights, strict=True):
        left = grid[:, None] - times[None, :] * np.exp(spread * node)
        for table, share in following:
            expected += weight * share * table.at(left)
    return expected


def _forfeit(grid: Array, times: Array, spread: float, worth: float, length: float) -> Array:
    """Return the expected cost of a missed deadline after the last task, by time left and offer."""
    left = grid[:, None]
    late = np.maximum(times[None, :] - left, 0.0) / length
    if spread:
        ratio = np.maximum(left, 1.0) / times[None, :]
        missed = np.where(left > 0, ndtr(-np.log(ratio) / spread), 1.0)
    else:
        missed = (times[None, :] > left).astype(np.float64)
    forfeit: Array = worth * (MISSED * missed + LATE * late)
    return forfeit


def shares_of(graph: Graph, times: Sequence[int]) -> dict[tuple[int, int], float]:
    """Return by edge which share of the cost after a join is charged to this predecessor.

    All of it for the one that ends last, less for shorter ones. Their cost falls about with the square root of their
    time, so that the value of saving time on them goes with the power 1.5 of their length.
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
