"""Admission control: which requests are hopeless, and shadow prices of CPUs and slices under overload.

A request is hopeless when it misses its deadline whatever it is given. While demand exceeds the fleet, CPUs or slices
are counted at a multiple of their price. Offers that need much of what is scarce are then taken only where nothing else
will do, and a request that would cost more than its answer is worth is not started.
"""

from collections.abc import Sequence
from math import exp, log2

from headway.fleet.policies.headway.central.offers import Menu
from headway.fleet.state.state import ServingState
from headway.units import MILLISECOND

SHORTEST_RUN_DEVIATIONS = 2.0
"""A request is hopeless only if even runs so many deviations shorter than expected would end after its deadline."""
UPDATE_INTERVAL = 500 * MILLISECOND
PLENTIFUL = 0.65
"""Utilisation up to which CPUs and slices count at their list price."""
DOUBLING = 0.15
"""So much utilisation more doubles a shadow price."""
STEPS = 2
"""Shadow prices are powers of two to whole multiples of 1 / ``STEPS``, so that cost tables can be used again."""
SLACK = 0.75
"""How far, in steps, the price that follows from the utilisation must be from the present one to replace it."""


class Admission:
    """Bounds from below the time that the rest of a request takes: each task at once, in its fastest configuration."""

    def __init__(self, state: ServingState, menus: Sequence[Sequence[Menu]]) -> None:
        functions = state.catalogue.functions
        spreads = [SHORTEST_RUN_DEVIATIONS * function.profile.spread for function in functions]
        self._fastest = [
            round(min((menu.times.min() for menu in offers), default=0) * exp(-spreads[index]))
            for index, offers in enumerate(menus)
        ]
        self._graphs = state.catalogue.graphs
        self._called = [sorted({task.function for task in graph.tasks}) for graph in self._graphs]
        self._rest = [
            graph.lengths_from([self._fastest[task.function] for task in graph.tasks]) for graph in self._graphs
        ]

    def earliest(self, now: int, graph: int, task: int, ready_from: Sequence[int]) -> int:
        """Return the earliest time at which a request can be answered if this task starts now.

        ``ready_from``: by function, the time from which some worker has a process of it.
        """
        if max(map(ready_from.__getitem__, self._called[graph])) <= now:
            return now + self._rest[graph][task]
        plan = self._graphs[graph]
        ends = [0] * len(plan.tasks)
        ends[task] = now
        for other in plan.order:
            begin = max((ends[before] for before in plan.predecessors[other]), default=0)
            if other == task or begin:
                function = plan.tasks[other].function
                ends[other] = max(begin, now, ready_from[function]) + self._fastest[function]
        return max(ends)

    def is_hopeless(self, now: int, graph: int, task: int, deadline: int, ready_from: Sequence[int]) -> bool:
        """Return whether a request misses its deadline whatever this task and its successors are given."""
        return self.earliest(now, graph, task, ready_from) > deadline


class ShadowPrices:
    """Shadow prices of CPUs and slices, as multiples of their price: the higher the utilisation, the higher.

    A price depends on the utilisation alone. Prices that rose for as long as the fleet was busy would reach a height at
    which nothing is started, and fall only when the fleet is half empty.
    """

    def __init__(self, worth: float) -> None:
        """Start at list prices. ``worth``: the value of an answer as a multiple of its cost; it caps the prices."""
        self._highest = [int(STEPS * log2(cap)) for cap in (1.6 * worth, 0.8 * worth)]
        self._levels = [0, 0]
        self._used = [0.0, 0.0]
        self._updated = 0

    @property
    def multipliers(self) -> tuple[float, float]:
        """Return the prices of CPUs and slices as multiples of their list price."""
        return 2.0 ** (self._levels[0] / STEPS), 2.0 ** (self._levels[1] / STEPS)

    @property
    def are_raised(self) -> bool:
        """Return whether CPUs or slices count at more than their list price: they are scarce."""
        return any(self._levels)

    def update(self, now: int, state: ServingState) -> bool:
        """Update the prices from the utilisation, at most every ``UPDATE_INTERVAL``; return whether they changed."""
        if now - self._updated < UPDATE_INTERVAL:
            return False
        self._updated = now
        before = [*self._levels]
        up = [worker for worker in state.workers if worker.up]
        self._follow(0, [(worker.cpus_free, worker.worker.cpus) for worker in up])
        self._follow(1, [(worker.slices_free, worker.worker.gpu.slices) for worker in up])
        return self._levels != before

    def _follow(self, resource: int, workers: Sequence[tuple[int, int]]) -> None:
        """Set the price of one resource; ``workers``: (free, total) of each worker."""
        total = sum(of for _, of in workers)
        used = 1.0 - sum(free for free, _ in workers) / total if total else 0.0
        self._used[resource] += 0.5 * (used - self._used[resource])
        level = (self._used[resource] - PLENTIFUL) / DOUBLING * STEPS
        if abs(level - self._levels[resource]) > SLACK:
            self._levels[resource] = max(0, min(round(level), self._highest[resource]))
