"""Lower bound of the cost of a request: the cheapest configurations that keep its deadline in an ideal run.

In an ideal run every batch is full, every process warm, all weights are resident, nothing waits, and a run takes what
its profile says. Each task runs on the worker that is best for it. The cost of a policy over this bound is its
optimality gap. Where run times vary a policy may beat the bound by chance: the profile's time is their median.
"""

from collections import Counter
from itertools import pairwise
from math import prod

from headway.fleet.model.catalogue import Configuration
from headway.fleet.model.fleet import Fleet
from headway.fleet.model.graph import Graph
from headway.fleet.model.latency import LatencyModel
from headway.fleet.policies.central.fronts import (
    FEMTO_USD,
    Front,
    Option,
    can_hold,
    front_of,
    front_of_graph,
    options_of,
)

_COMBINATIONS = 20_000
"""Most combinations of points of all tasks' fronts, where the graph is not series-parallel, to bound the run time."""
_IN, _OUT = -1, -2
_ANY = Configuration(1, 0, 0)


def least_cost(latency: LatencyModel, fleet: Fleet, graph: Graph, within: int) -> float | None:
    """Return the least cost of a request in US dollars, if it must take at most ``within``; None: none is as fast.

    This is the optimum for series-parallel graphs, and for others with few configurations. Else it is below the
    optimum, and None only where that is certain.
    """
    front = _front(latency, fleet, graph, within)
    at = -1 if front is None else front.within(within)
    return None if front is None or at < 0 else int(front.costs[at]) / FEMTO_USD


def _front(latency: LatencyModel, fleet: Fleet, graph: Graph, within: int) -> Front | None:
    """Return the Pareto front of the whole graph, up to ``within``; None: a task fits on no worker."""
    options = {function: _options(latency, fleet, function) for function in set(graph.functions)}
    if not all(options.values()):
        return None
    fronts = {task: front_of(options[function]) for task, function in enumerate(graph.functions)}
    if prod(map(len, fronts.values())) > _COMBINATIONS and not _series_parallel(graph):
        most = max(2, int(_COMBINATIONS ** (1 / len(fronts))))
        fronts = {task: front_of(_optimistic(front, most)) for task, front in fronts.items()}
    return front_of_graph(graph, fronts, horizon=within)


def _options(latency: LatencyModel, fleet: Fleet, function: int) -> tuple[Option, ...]:
    """Return the options of a function on all workers that can hold them."""
    options: set[Option] = set()
    kinds = {(worker.gpu, worker.cpus): index for index, worker in enumerate(fleet.workers)}
    for index in kinds.values():
        worker, cells = fleet.workers[index], latency.cells(index, function)
        possible = {cell: time for cell, time in cells.items() if can_hold(worker, latency.catalogue, function, cell)}
        options.update(options_of(possible, fleet.prices))
    return tuple(sorted(options))


def _optimistic(front: Front, most: int) -> list[Option]:
    """Return ``most`` points: neighbours become one, as fast as the fastest and as cheap as the cheapest of them."""
    bounds = [round(step * len(front) / most) for step in range(most + 1)]
    return [
        Option(int(front.times[first]), int(front.costs[end - 1]), _ANY) for first, end in pairwise(sorted(set(bounds)))
    ]


def _series_parallel(graph: Graph) -> bool:
    """Return whether a graph is series-parallel: contracting nodes with one edge in and one out leaves one edge.

    Tasks are edges here.
    """
    count = len(graph.tasks)
    edges = {(a + count, b) for a, b in graph.edges} | {(task, task + count) for task in range(count)}
    edges |= {(_IN, task) for task in graph.entries}
    edges |= {(task + count, _OUT) for task, after in enumerate(graph.successors) if not after}
    while len(edges) > 1:
        into, out = Counter(target for _, target in edges), Counter(source for source, _ in edges)
        node = next((node for node in out if out[node] == 1 and into[node] == 1), None)
        if node is None:
            return False
        source, target = next(a for a, b in edges if b == node), next(b for a, b in edges if a == node)
        edges -= {(source, node), (node, target)}
        edges.add((source, target))  # a parallel edge merges into the one that is there
    return True
