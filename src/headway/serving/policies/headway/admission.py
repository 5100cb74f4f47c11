"""Which requests are given up, and what CPUs and slices are worth while there are too few of them.

Given up are those that cannot be answered in time any more, whatever they are given. While more is asked for than the
fleet has, its CPUs or slices are counted at a multiple of their price: offers that need much of what is scarce are then
taken by those alone who cannot do without, and a request that would cost more than its answer is worth does not begin.
"""

from collections.abc import Sequence
from math import exp

from headway.serving.policies.headway.offers import Menu
from headway.serving.state import ServingState
from headway.units import MILLISECOND

LUCK = 2.0
"""A run may be shorter than expected: so many of its spreads are counted in its favour before all hope is lost."""
LOOK_EVERY = 500 * MILLISECOND
EASY, CROWDED = 0.6, 0.75
"""Shares in use below which what is scarce becomes cheaper, and above which it becomes dearer."""


class Admission:
    """The least time that the rest of a request takes: every task with its fastest offer, at once."""

    def __init__(self, state: ServingState, menus: Sequence[Sequence[Menu]]) -> None:
        functions = state.catalogue.functions
        self._fastest = [
            round(min((menu.times.min() for menu in offers), default=0) * exp(-LUCK * functions[index].profile.spread))
            for index, offers in enumerate(menus)
        ]
        self._graphs = state.catalogue.graphs
        self._called = [sorted({task.function for task in graph.tasks}) for graph in self._graphs]
        self._rest = [
            graph.lengths_from([self._fastest[task.function] for task in graph.tasks]) for graph in self._graphs
        ]

    def earliest(self, now: int, graph: int, task: int, ready_from: Sequence[int]) -> int:
        """When a request can be answered at the earliest if this task starts now; ``there``: by function, from when
        on a process of it is somewhere."""
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
        """Return whether a request misses its deadline whatever this task and those after it are given."""
        return self.earliest(now, graph, task, ready_from) > deadline


class Scarcity:
    """What CPUs and slices are worth, in prices: doubled while hardly any is left, halved when there is enough."""

    def __init__(self, worth: float) -> None:
        """``worth``: what an answer is worth, in costs; slices do not become so dear that no request is begun."""
        self.multipliers = (1.0, 1.0)
        self._highest = (1.6 * worth, 0.8 * worth)
        self._used = [0.0, 0.0]
        self._seen = 0

    @property
    def is_scarce(self) -> bool:
        """Return whether there is too little of anything."""
        return self.multipliers != (1.0, 1.0)

    def update(self, now: int, state: ServingState) -> bool:
        """See how much is in use, now and then; whether that changed anything."""
        if now - self._seen < LOOK_EVERY:
            return False
        self._seen = now
        before = self.multipliers
        self.multipliers = (
            self._next(0, [(worker.cpus_free, worker.worker.cpus) for worker in state.workers if worker.up]),
            self._next(1, [(worker.slices_free, worker.worker.gpu.slices) for worker in state.workers if worker.up]),
        )
        return self.multipliers != before

    def _next(self, kind: int, workers: Sequence[tuple[int, int]]) -> float:
        """Return what one kind is worth from now on; ``workers``: what is free on each, of how much."""
        total = sum(of for _, of in workers)
        used = 1.0 - sum(free for free, _ in workers) / total if total else 0.0
        self._used[kind] += 0.5 * (used - self._used[kind])
        worth = self.multipliers[kind]
        if self._used[kind] > CROWDED and 2.0 * worth <= self._highest[kind]:
            return 2.0 * worth
        return worth / 2.0 if self._used[kind] < EASY and worth > 1.0 else worth
