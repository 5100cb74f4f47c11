"""Split of a deadline over the tasks of a graph by dominators, as in ESG (the details are our reading of the paper).

The weight of a function is its average normalised latency (ANL): the mean over configurations of its share of the time
of all functions. The tasks that every path through the graph passes, the dominators of its end, form a chain. What lies
between two of them is one stage of that chain: as long as its longest branch, at the cost of all its branches. The next
three stages are a group that is searched together. A group's share of the time left is its share of the weights left.
In a stage of several branches each branch gets the time of the stage, and is divided in the same way.

An exact plan needs no split: see ``central/fronts.py``.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import networkx as nx

from headway.fleet.model.catalogue import Configuration
from headway.fleet.model.graph import Graph
from headway.fleet.policies.central.fronts import NEVER, Option, front_of, front_of_graph
from headway.fleet.policies.esg.esg_1q import Path, Search
from headway.units import MILLISECOND

GROUP = 3
"""How many stages are searched together."""
_IN, _OUT = -1, -2
"""Before the first and after the last task."""
_ANY = Configuration(1, 0, 0)
_EFFORT = 64
"""For what lies between dominators and is not series-parallel: see ``central/fronts.py``."""

Stage = tuple[int, ...]
"""One task, or several that lie between two dominators."""


class Level(NamedTuple):
    """What is planned together, within the graph or within a branch of it."""

    stages: tuple[Stage, ...]
    """The first one is, or holds, the task that is planned."""
    fraction: float
    """Their part of the time there is."""


def average_latencies(profiles: Sequence[Mapping[Configuration, int]]) -> list[float]:
    """Return the ANL of functions: the mean over their common configurations of each one's share of the sum."""
    if not (common := set(profiles[0]).intersection(*profiles[1:])):
        means = [sum(cells.values()) / len(cells) for cells in profiles]
        return [mean / sum(means) for mean in means]
    sums = [0.0] * len(profiles)
    for configuration in sorted(common):
        times = [cells[configuration] for cells in profiles]
        total = sum(times)
        for index, time in enumerate(times):
            sums[index] += time / total
    return [value / len(common) for value in sums]


def levels(graph: Graph, weights: Sequence[float], size: int = GROUP) -> list[tuple[Level, ...]]:
    """Return by task the levels to plan when it is reached, from the whole graph inwards to its own branch."""
    by_task = _divide(graph, frozenset(graph.order), weights, size)
    return [by_task[task] for task in range(len(graph.tasks))]


def _divide(graph: Graph, tasks: frozenset[int], weights: Sequence[float], size: int) -> dict[int, tuple[Level, ...]]:
    """Return by task its levels within ``tasks``, without outer ones."""
    levels_of: dict[int, tuple[Level, ...]] = {}
    chain = stages_of(graph, tasks)
    lengths = [longest(graph, stage, weights) for stage in chain]
    for at, stage in enumerate(chain):
        after = chain[at + 1 : at + size]
        ahead, total = sum(lengths[at + 1 : at + size]), sum(lengths[at + 1 :])
        if len(stage) == 1:
            length = lengths[at]
            levels_of[stage[0]] = (Level((stage, *after), (length + ahead) / (length + total)),)
            continue
        for branch in branches_of(graph, stage):
            if branch == tasks:  # neither a chain nor branches: no dominator helps, each task by its longest way
                for task in branch:
                    fraction = weights[task] / longest(graph, _from(graph, branch, task), weights)
                    levels_of[task] = (Level(((task,),), fraction),)
                continue
            inside = _divide(graph, branch, weights, size)
            for task in branch:
                # who begins a stage weighs all its branches; who is further on, what is left of its own
                begins = not any(other in branch for other in graph.predecessors[task])
                rest = stage if begins else _from(graph, branch, task)
                length = longest(graph, rest, weights)
                level = Level((rest, *after), (length + ahead) / (length + total))
                levels_of[task] = (level, *inside[task])
    return levels_of


def stages_of(graph: Graph, tasks: frozenset[int]) -> list[Stage]:
    """Return the chain of stages of some tasks: the dominators of their end, and the tasks between two of them."""
    above = nx.immediate_dominators(_net(graph, tasks), _IN)
    chain: list[int] = []
    node = above[_OUT]
    while node != _IN:
        chain.append(node)
        node = above[node]
    chain.reverse()
    place = {task: index for index, task in enumerate(chain)}
    gaps: dict[int, list[int]] = {}
    behind: dict[int, int] = {}
    for task in graph.order:
        if task in tasks:
            before = (other for other in graph.predecessors[task] if other in tasks)
            behind[task] = place.get(task, max((behind[other] for other in before), default=-1))
            if task not in place:
                gaps.setdefault(behind[task], []).append(task)
    stages: list[Stage] = [tuple(sorted(gaps[-1]))] if -1 in gaps else []
    for index, task in enumerate(chain):
        stages.append((task,))
        if index in gaps:
            stages.append(tuple(sorted(gaps[index])))
    return stages


def branches_of(graph: Graph, stage: Stage) -> list[frozenset[int]]:
    """Return the connected components of a stage."""
    net = nx.Graph()
    net.add_nodes_from(stage)
    net.add_edges_from((a, b) for a, b in graph.edges if a in stage and b in stage)
    return [frozenset(branch) for branch in sorted(map(sorted, nx.connected_components(net)))]


def longest(graph: Graph, tasks: Iterable[int], weights: Sequence[float]) -> float:
    """Return the weight of the heaviest path through some tasks."""
    inside = set(tasks)
    lengths: dict[int, float] = {}
    for task in graph.order:
        if task in inside:
            before = (lengths[other] for other in graph.predecessors[task] if other in inside)
            lengths[task] = weights[task] + max(before, default=0.0)
    return max(lengths.values())


def _net(graph: Graph, tasks: frozenset[int]) -> nx.DiGraph:
    """Return the subgraph of some tasks, with a source before the first and a sink after the last."""
    net = nx.DiGraph()
    for task in sorted(tasks):
        before = [other for other in graph.predecessors[task] if other in tasks]
        net.add_edges_from((other, task) for other in before or (_IN,))
        if not any(after in tasks for after in graph.successors[task]):
            net.add_edge(task, _OUT)
    return net


def _from(graph: Graph, tasks: frozenset[int], first: int) -> Stage:
    """Return a task and its descendants among some tasks."""
    inside = {first}
    for task in graph.order:
        if task in tasks and any(other in inside for other in graph.predecessors[task]):
            inside.add(task)
    return tuple(sorted(inside))


class Split:
    """Plans any task of one graph: the K cheapest paths through its group, within its share of the time left."""

    def __init__(
        self,
        graph: Graph,
        options: Sequence[Sequence[Option]],
        weights: Sequence[float],
        *,
        size: int = GROUP,
        ranks: int = 5,
        bucket: int = MILLISECOND,
        together: bool = False,
    ) -> None:
        """``options`` and ``weights`` by task; the rest as in ``Search``."""
        self.graph = graph
        self._options = options
        self._bucket = bucket
        self._together = together
        self._choices = cache(self._options_of)
        self._search = cache(self._search_for)
        self._plans: list[list[tuple[Search, float]]] = [
            [(self._search(level.stages, ranks if level is inmost[-1] else 1), level.fraction) for level in inmost]
            for inmost in levels(graph, weights, size)
        ]
        self._searches = list(dict.fromkeys(search for plans in self._plans for search, _ in plans))

    @property
    def states(self) -> int:
        """Return how many configurations were looked at, over all searches."""
        return sum(search.states for search in self._searches)

    def plan(self, task: int, slack: int, queue: int) -> tuple[Path, ...]:
        """Return the paths from a task on, cheapest first.

        The fastest one alone, if none keeps to the time there is.
        """
        *outer, (inmost, fraction) = self._plans[task]
        for search, part in outer:
            path = search.rounded_paths(int(slack * part), queue)[0]
            slack = int(slack * part) - path.time + path.options[0].time
        return inmost.rounded_paths(int(slack * fraction), queue)

    def _search_for(self, stages: tuple[Stage, ...], ranks: int) -> Search:
        return Search([self._choices(stage) for stage in stages], ranks, self._bucket, together=self._together)

    def _options_of(self, stage: Stage) -> Sequence[Option]:
        """Return a task's options; for several tasks the points of their front."""
        if len(stage) == 1:
            return self._options[stage[0]]
        front = front_of_graph(self.graph, {task: front_of(self._options[task]) for task in stage}, effort=_EFFORT)
        points = zip(front.times.tolist(), front.costs.tolist(), strict=True)
        return [Option(time, cost, _ANY) for time, cost in points]


def split_cost(split: Split, deadline: int) -> int | None:
    """Return the cost of a graph under a split in an ideal run, in femtodollars; None: it misses the deadline.

    Nothing waits, nothing varies, and every batch is full. Each task is planned with the time that is left then.
    """
    graph = split.graph
    ends = [0] * len(graph.tasks)
    cost = 0
    for task in graph.order:
        begin = max((ends[other] for other in graph.predecessors[task]), default=0)
        option = split.plan(task, deadline - begin, NEVER)[0].options[0]
        cost += option.cost
        ends[task] = begin + option.time
    return cost if max(ends) <= deadline else None
