"""What a request must cost at least: the cheapest configurations that keep its deadline if nothing else takes time.

Every batch is full, every process warm, all weights there, nothing waits, and a run takes what its profile says; each
task runs on whichever worker is best for it. A policy pays more for all of that, so that what it paid, against this, is
its optimality gap: of the choice of configurations and of everything around it. Only luck can beat it, where run times
vary: the profile's time is their median.
"""

from collections import Counter
from itertools import pairwise
from math import prod

from headway.serving.catalogue import Configuration
from headway.serving.fleet import Fleet
from headway.serving.graph import Graph
from headway.serving.latency import LatencyModel
from headway.serving.policies.fronts import FEMTO_USD, Front, Option, can_hold, front_of, front_of_graph, options_of

_COMBINATIONS = 20_000
"""Of the points of all tasks' fronts, where the graph is not series-parallel: they are what takes time."""
_IN, _OUT = -1, -2
_WHATEVER = Configuration(1, 0, 0)


def least_cost(latency: LatencyModel, fleet: Fleet, graph: Graph, within: int) -> float | None:
    """US dollars a request, at least, to go through a graph in the time ``within``; None: no configuration is as fast.

    The optimum itself for series-parallel graphs, and for others of few configurations; else below it, and None only
    where that is certain.
    """
    front = _front(latency, fleet, graph, within)
    at = -1 if front is None else front.within(within)
    return None if front is None or at < 0 else int(front.costs[at]) / FEMTO_USD


def _front(latency: LatencyModel, fleet: Fleet, graph: Graph, within: int) -> Front | None:
    """Return what time costs for the whole graph, up to ``within``.

    None: a task has no configuration that fits anywhere.
    """
    options = {function: _options(latency, fleet, function) for function in set(graph.functions)}
    if not all(options.values()):
        return None
    fronts = {task: front_of(options[function]) for task, function in enumerate(graph.functions)}
    if prod(map(len, fronts.values())) > _COMBINATIONS and not _series_parallel(graph):
        most = max(2, int(_COMBINATIONS ** (1 / len(fronts))))
        fronts = {task: front_of(_optimistic(front, most)) for task, front in fronts.items()}
    return front_of_graph(graph, fronts, horizon=within)


def _options(latency: LatencyModel, fleet: Fleet, function: int) -> tuple[Option, ...]:
    """Return what a function can be given, each on the fastest worker that can hold it."""
    found: set[Option] = set()
    sorts = {(worker.gpu, worker.cpus): index for index, worker in enumerate(fleet.workers)}
    for index in sorts.values():
        worker, cells = fleet.workers[index], latency.cells(index, function)
        possible = {cell: time for cell, time in cells.items() if can_hold(worker, latency.catalogue, function, cell)}
        found.update(options_of(possible, fleet.prices))
    return tuple(sorted(found))


def _optimistic(front: Front, most: int) -> list[Option]:
    """Fewer points: neighbours become one that is as fast as the fastest and as cheap as the cheapest of them."""
    bounds = [round(step * len(front) / most) for step in range(most + 1)]
    return [
        Option(int(front.times[first]), int(front.costs[end - 1]), _WHATEVER)
        for first, end in pairwise(sorted(set(bounds)))
    ]


def _series_parallel(graph: Graph) -> bool:
    """Return whether taking out, one by one, what has one way in and one way out leaves nothing.

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
        edges.add((source, target))  # beside one that is there already it is the same way
    return True
