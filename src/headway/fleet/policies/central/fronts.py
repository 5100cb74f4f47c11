"""Pareto fronts over time and cost: of a function's configurations, of their combinations, and of a whole graph.

An ``Option`` is one configuration with its time and its cost for a request. A ``Front`` holds the options that no other
one beats in both, fastest first: times rise, costs fall. Fronts are combined as graphs are: ``series`` (times and costs
add), ``parallel`` (the longer time, costs add), ``best_of`` (either of them). ``front.within(time)`` is the cheapest
point that takes no longer, ``front.picks(point)`` the options that make it. No Pareto-optimal point is lost, so that
what is read off a front is exact.

``front_of_graph`` merges fronts in series and in parallel until one is left. Where neither is possible (the graph is
not series-parallel) a front that is the only edge into a node, or out of it, is fixed to each of its points in turn and
merged into its neighbours (De, Dunne, Ghosh and Wells, 1995). That may take as many merges as those fronts have
combinations. ``effort`` bounds it, at first by leaving out points in between.

Costs are whole femtodollars: sums do not depend on their order, and ties are exact. ``options_of`` turns a profile and
prices into options; ``options_on`` does so for what the workers of a fleet can hold.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isqrt
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headway.errors import ExperimentError
from headway.fleet.model.catalogue import Catalogue, Configuration, Function
from headway.fleet.model.fleet import Prices, Worker, find_slices
from headway.fleet.model.graph import Graph
from headway.fleet.state.state import ServingState
from headway.units import SECOND

Numbers = npt.NDArray[np.int64]

FEMTO_USD = 10**15
"""Units of cost in a dollar."""
_HOUR = 3600 * SECOND
NEVER = 1 << 61
"""Infinity for costs and times; two of them still add up to an integer of 64 bits."""


class Option(NamedTuple):
    """One configuration of a function; sorts by time, then by cost."""

    time: int
    cost: int
    """Femtodollars for each request of a full batch."""
    configuration: Configuration


def cost_of(configuration: Configuration, time: int, prices: Prices) -> int:
    """Return the cost of a request's share of a full batch, in femtodollars."""
    usd_hour = configuration.cpus * prices.cpu_hour + configuration.slices * prices.slice_hour
    return round(usd_hour * FEMTO_USD) * time // (_HOUR * configuration.batch)


def options_of(cells: Mapping[Configuration, int], prices: Prices) -> tuple[Option, ...]:
    """Return the cells of a profile as options, fastest first."""
    return tuple(sorted(Option(time, cost_of(cell, time, prices), cell) for cell, time in cells.items()))


def cells_on(state: ServingState, function: int) -> dict[Configuration, int]:
    """Return a function's profile on a fleet; where types of GPU differ, with the times of the slowest."""
    cells: dict[Configuration, int] = {}
    for worker in {worker.worker.gpu: worker.id for worker in state.workers}.values():
        for configuration, time in state.latency.cells(worker, function).items():
            cells[configuration] = max(time, cells.get(configuration, 0))
    return cells


def options_on(state: ServingState, function: int) -> tuple[Option, ...]:
    """Return the options of a function that some worker of a fleet can hold, fastest first."""
    catalogue = state.catalogue
    kinds = {(worker.worker.gpu, worker.worker.cpus): worker.worker for worker in state.workers}.values()
    cells = cells_on(state, function).items()
    held = {cell: time for cell, time in cells if any(can_hold(worker, catalogue, function, cell) for worker in kinds)}
    if not held:
        name = catalogue.functions[function].name
        raise ExperimentError(f"function {name}: no worker can hold any of its configurations")
    return options_of(held, state.fleet.prices)


def can_hold(worker: Worker, catalogue: Catalogue, function: int, configuration: Configuration) -> bool:
    """Return whether an empty worker can run a full batch of a function in a configuration."""
    kind = catalogue.functions[function]
    need = catalogue.size_of(kind.mask) + kind.activation_bytes * configuration.batch
    fits = configuration.cpus <= worker.cpus and need <= worker.gpu.memory_bytes
    return fits and find_slices(worker.gpu, configuration.slices, 0) is not None


def most_processes(worker: Worker, function: Function) -> int:
    """Return how many processes of a function are of use on a worker: one a slice; without slices one a CPU."""
    return worker.cpus if function.on_cpus else worker.gpu.slices


def skyband(options: Iterable[Option], ranks: int = 1) -> tuple[Option, ...]:
    """Return the options that fewer than ``ranks`` others beat in time and cost, fastest first.

    An option with K dominators is in none of the K best paths: each dominator makes a better path in its place. With
    fewer it may be. Of options with the same time and cost the smaller configuration counts as better.
    """
    kept: list[Option] = []
    lowest: list[int] = []  # the costs of the ``ranks`` cheapest so far, least first
    for option in sorted(options):
        if len(lowest) == ranks and lowest[-1] <= option.cost:
            continue
        kept.append(option)
        lowest.append(option.cost)
        lowest.sort()
        del lowest[ranks:]
    return tuple(kept)


@dataclass(slots=True, eq=False)
class Front:
    """Points that no other point beats in both time and cost, fastest first."""

    times: Numbers
    costs: Numbers
    parts: tuple[Any, ...]
    """How the points were made: see ``picks``."""
    _costs_within: Numbers | None = None

    def __len__(self) -> int:
        return len(self.times)

    @property
    def fastest(self) -> int:
        """Return the least time."""
        return int(self.times[0])

    def within(self, time: int) -> int:
        """Return the cheapest point that takes no longer; -1: there is none."""
        return int(self.times.searchsorted(time, side="right")) - 1

    def costs_within(self, times: Numbers) -> Numbers:
        """Return for each time the least cost of a point that takes no longer; NEVER where there is none."""
        if self._costs_within is None:
            self._costs_within = np.concatenate((np.array([NEVER], dtype=np.int64), self.costs))
        costs: Numbers = self._costs_within[self.times.searchsorted(times, side="right")]
        return costs

    def at(self, point: int, *, paid: bool = True) -> "Front":
        """Return a front of one of the points; not ``paid``: at no cost, because that is counted elsewhere."""
        cost = self.costs[point : point + 1] if paid else np.zeros(1, dtype=np.int64)
        return Front(self.times[point : point + 1], cost, ("either", (self,), (0,), (point,)))

    def picks(self, point: int) -> dict[Hashable, Option]:
        """Return the options that make a point, by the labels that their fronts were made with."""
        options_by_label: dict[Hashable, Option] = {}
        stack: list[tuple[Front, int]] = [(self, point)]
        while stack:
            front, at = stack.pop()
            kind, *parts = front.parts
            if kind == "options":
                label, options = parts
                if label is not None:
                    options_by_label[label] = min(options[at], options_by_label.get(label, options[at]))
            elif kind == "either":
                fronts, which, where = parts
                stack.append((fronts[which[at]], int(where[at])))
            else:
                first, first_at, second, second_at = parts
                stack += [(first, int(first_at[at])), (second, int(second_at[at]))]
        return options_by_label


def front_of(options: Iterable[Option], label: Hashable = None) -> Front:
    """Return the front of one function's options; ``label`` names it in ``picks``."""
    kept = skyband(options)
    times = np.array([option.time for option in kept], dtype=np.int64)
    costs = np.array([option.cost for option in kept], dtype=np.int64)
    return Front(times, costs, ("options", label, kept))


def single_point(time: int, cost: int = 0) -> Front:
    """Return a front of one point: for a task that is decided already, or takes no time."""
    return Front(np.array([time], dtype=np.int64), np.array([cost], dtype=np.int64), ("options", None, ()))


def series(first: Front, second: Front, horizon: int | None = None) -> Front:
    """Return the front of two in series; points that take longer than ``horizon`` may be left out."""
    times = np.add.outer(first.times, second.times).ravel()
    costs = np.add.outer(first.costs, second.costs).ravel()
    if horizon is not None:
        near = np.flatnonzero(times <= max(horizon, first.fastest + second.fastest))
        kept = near[_best(times[near], costs[near])]
    else:
        kept = _best(times, costs)
    width = len(second)
    return Front(times[kept], costs[kept], ("both", first, kept // width, second, kept % width))


def parallel(first: Front, second: Front) -> Front:
    """Return the front of two in parallel: done when both are."""
    times = np.union1d(first.times, second.times)
    times = times[times >= max(first.fastest, second.fastest)]
    first_at = first.times.searchsorted(times, side="right") - 1
    second_at = second.times.searchsorted(times, side="right") - 1
    return Front(times, first.costs[first_at] + second.costs[second_at], ("both", first, first_at, second, second_at))


def best_of(fronts: Sequence[Front]) -> Front:
    """Return the front of a choice among several: for each time the cheapest."""
    times = np.concatenate([front.times for front in fronts])
    costs = np.concatenate([front.costs for front in fronts])
    which = np.concatenate([np.full(len(front), index) for index, front in enumerate(fronts)])
    where = np.concatenate([np.arange(len(front)) for front in fronts])
    kept = _best(times, costs)
    return Front(times[kept], costs[kept], ("either", fronts, which[kept], where[kept]))


def _best(times: Numbers, costs: Numbers) -> npt.NDArray[np.intp]:
    """Return the positions of the points that no other beats, fastest first; of equal ones the first."""
    order = np.lexsort((costs, times))
    sorted_costs = costs[order]
    lowest = np.minimum.accumulate(sorted_costs)
    kept = np.ones(len(order), dtype=np.bool_)
    kept[1:] = sorted_costs[1:] < lowest[:-1]
    return order[kept]


_Node = tuple[int, int]
_Edge = tuple[_Node, _Node, Front]
_IN, _OUT = (-1, 0), (-2, 0)
"""Before the first and after the last task."""


def front_of_graph(graph: Graph, fronts: Mapping[int, Front], horizon: int | None = None, effort: int = NEVER) -> Front:
    """Return the front of a whole graph, or of those of its tasks that have a front.

    It is exact for series-parallel graphs, and for others where ``effort`` suffices. Else the picks of a point take no
    longer and cost no more than it says, but cheaper points may be missing.
    """
    edges: list[_Edge] = []
    for task, front in fronts.items():
        before = [other for other in graph.predecessors[task] if other in fronts]
        edges.append(((task, 0), (task, 1), front))
        edges += [((other, 1), (task, 0), single_point(0)) for other in before] or [(_IN, (task, 0), single_point(0))]
        if not any(after in fronts for after in graph.successors[task]):
            edges.append(((task, 1), _OUT, single_point(0)))
    return _merge(edges, horizon, effort)


def _merge(edges: list[_Edge], horizon: int | None, effort: int) -> Front:
    """Return the front of a network with one source and one sink."""
    while True:
        pairs: dict[tuple[_Node, _Node], Front] = {}
        for source, target, front in edges:
            known = pairs.get((source, target))
            pairs[source, target] = front if known is None else parallel(known, front)
        edges = [(source, target, front) for (source, target), front in pairs.items()]
        if len(edges) == 1:
            return edges[0][2]
        into: dict[_Node, list[_Edge]] = {}
        out: dict[_Node, list[_Edge]] = {}
        for edge in edges:
            out.setdefault(edge[0], []).append(edge)
            into.setdefault(edge[1], []).append(edge)
        inner = [node for node in out if node in into]
        single = next((node for node in inner if len(into[node]) == 1 and len(out[node]) == 1), None)
        if single is None:
            return _condition(edges, inner, into, out, horizon, effort)
        first, second = into[single][0], out[single][0]
        merged = (first[0], second[1], series(first[2], second[2], horizon))
        edges = [edge for edge in edges if edge is not first and edge is not second] + [merged]


def _condition(
    edges: list[_Edge],
    inner: Sequence[_Node],
    into: Mapping[_Node, list[_Edge]],
    out: Mapping[_Node, list[_Edge]],
    horizon: int | None,
    effort: int,
) -> Front:
    """Return the best front over all points of an edge that is the only one into, or out of, some node."""
    ends = [(into[node][0], out[node]) for node in inner if len(into[node]) == 1]
    ends += [(out[node][0], into[node]) for node in inner if len(out[node]) == 1]
    alone, others = min(ends, key=lambda end: len(end[0][2]))  # the first node after the source has one way in
    source, target, front = alone

    def merged(chosen: Callable[[int], Front]) -> Front:
        kept = [edge for edge in edges if edge is not alone and edge not in others]
        for index, (tail, head, other) in enumerate(others):
            if head == source:
                kept.append((tail, target, series(other, chosen(index), horizon)))
            else:
                kept.append((source, head, series(chosen(index), other, horizon)))
        return _merge(kept, horizon, effort // max(1, len(points)))

    points = _spaced(len(front), max(isqrt(effort), min(effort, 3)))
    if len(points) < min(2, len(front)):  # no effort is left: one a neighbour, the fastest is run
        return merged(lambda _: front)
    return best_of([merged(partial(_fixed_to, front, point)) for point in points])


def _fixed_to(front: Front, point: int, copy: int) -> Front:
    return front.at(point, paid=copy == 0)


def _spaced(count: int, most: int) -> Sequence[int]:
    """Return the first and the last of ``count`` positions and some in between, ``most`` in all."""
    if count <= most:
        return range(count)
    if most < 2:
        return range(most)
    return [round(step * (count - 1) / (most - 1)) for step in range(most)]
