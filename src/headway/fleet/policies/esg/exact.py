"""exact: the cheapest configurations for the whole rest of a graph, planned again at each stage; the reference policy.

There is no split and no group. Pareto fronts over (time, cost) give the optimum for the whole rest of the graph; where
that is not series-parallel, within 64 combinations. Where the rest is a chain the K cheapest paths are searched as in
``esg``, through all of it. In graphs that fork, running tasks count with the time that they still need, and a task's
alternatives are its own cheapest options within the time that the optimum gives it. Queues, dispatch and warm processes
are those of ``esg``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import ClassVar

from headway.fleet.model.graph import Graph
from headway.fleet.policies.central.forming import FormedBatches, Key, batch_sizes
from headway.fleet.policies.central.fronts import Front, Option, front_of, front_of_graph, single_point, skyband
from headway.fleet.policies.central.pool import PoolPolicy
from headway.fleet.policies.esg.esg_1q import Search, within_batch
from headway.fleet.state.requeststate import RequestState, Stage
from headway.fleet.state.state import ServingState
from headway.units import MILLISECOND

_BUCKET = 10 * MILLISECOND
"""The remaining time of running tasks is rounded up to multiples of this."""
_DONE, _OPEN = -2, -1
_EFFORT = 64
"""For graphs that are not series-parallel: see ``central/fronts.py``."""
_KEPT = 256
"""How many fronts are cached: they may have thousands of points."""


@dataclass(eq=False)
class Exact(PoolPolicy):
    """Optimises the whole rest of a request."""

    name = "exact"

    least_options: ClassVar[dict[str, int]] = {"ranks": 1}
    ranks: int = 5
    together: bool = False
    feedback: bool = field(default=False, kw_only=True)

    def bind(self, state: ServingState) -> None:
        """Prepare searches where the rest is a chain; fronts are made when they are needed."""
        super().bind(state)
        self._graphs = state.catalogue.graphs
        self.formed = FormedBatches(self._graphs, batch_sizes(self.options)) if self.feedback else None
        self._chains = {
            (index, task): chain
            for index, graph in enumerate(self._graphs)
            for task in graph.order
            if (chain := _chain(graph, task))
        }
        self._searches = cache(self._search)
        self._made: list[Search] = []
        """All searches so far."""
        self._whole = lru_cache(_KEPT)(self._front)
        self._points = 0
        """Configurations that went into fronts."""

    @property
    def states_evaluated(self) -> int:
        """Return how many configurations searches have looked at, or fronts were made of."""
        return self._points + sum(search.states for search in self._made)

    def choices(
        self, now: int, state: ServingState, key: Key, requests: Sequence[int], slack: int, queue: int
    ) -> Sequence[Option]:
        """Return the first stages of the K cheapest paths, or the K cheapest within the time the optimum gives."""
        limits = self.formed.limits(*key) if self.formed is not None else None
        if key in self._chains:
            paths = self._searches(key, limits).rounded_paths(slack, queue)
            if self.formed is not None:
                self.formed.on_planned(*key, [option.configuration.batch for option in paths[0].options[1:]])
            return list(dict.fromkeys(path.options[0] for path in paths))
        graph, task = self._graphs[key[0]], key[1]
        left = _left(now, state, state.requests[requests[0]])
        front = self._whole(key, left, queue, limits)
        picks = front.picks(max(0, front.within(slack)))
        times = [picks[other].time if other in picks else max(0, time) for other, time in enumerate(left)]
        after = graph.lengths_from(times)[task] - times[task]
        options = within_batch(self.options[graph.tasks[task].function], queue)
        feasible = [option for option in skyband(options, self.ranks) if option.time <= slack - after]
        return sorted(feasible, key=lambda option: (option.cost, option.time))[: self.ranks] or [min(options)]

    def _search(self, key: Key, limits: tuple[int, ...] | None) -> Search:
        """Return the search through a task and the chain that follows it."""
        stages = [self._counted_on(key[0], task, limits) for task in self._chains[key]]
        self._made.append(Search(stages, self.ranks, together=self.together))
        return self._made[-1]

    def _counted_on(self, graph: int, task: int, limits: tuple[int, ...] | None) -> tuple[Option, ...]:
        """Return a task's options with the batches that plans may count on; None: with all."""
        options = self.options[self._graphs[graph].functions[task]]
        return options if limits is None else tuple(within_batch(options, limits[task]))

    def _front(self, key: Key, left: tuple[int, ...], queue: int, limits: tuple[int, ...] | None) -> Front:
        """Return the front of the tasks not done, with batches of ``key``'s task that its queue can fill."""
        graph = self._graphs[key[0]]
        fronts: dict[int, Front] = {}
        for task, time in enumerate(left):
            options = self._counted_on(key[0], task, limits)
            if task == key[1] or self.together:
                options = tuple(within_batch(options, queue))
            if time != _DONE:
                fronts[task] = front_of(options, task) if time == _OPEN else single_point(time)
                self._points += len(options)
        return front_of_graph(graph, fronts, effort=_EFFORT)


def _chain(graph: Graph, task: int) -> list[int]:
    """Return a task and all that follow it, if they are a chain and nothing else leads into it; else nothing."""
    chain = [task]
    while graph.successors[chain[-1]]:
        after = graph.successors[chain[-1]]
        if len(after) > 1 or len(graph.predecessors[after[0]]) > 1:
            return []
        chain.append(after[0])
    return chain


def _left(now: int, state: ServingState, rs: RequestState) -> tuple[int, ...]:
    """Return by task ``_DONE``, ``_OPEN`` or the time that it still runs, rounded up."""
    remaining = []
    for task, stage in enumerate(rs.stage):
        time = _DONE if stage == Stage.DONE else _OPEN
        if stage == Stage.RUNNING:
            running = state.workers[rs.worker[task]].running.values()
            end = next(batch.end for batch in running if (rs.request.id, task) in batch.tasks)
            time = -(-max(0, end - now) // _BUCKET) * _BUCKET
        remaining.append(time)
    return tuple(remaining)
