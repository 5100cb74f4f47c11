"""Which requests are given up, and what CPUs and slices are worth while there are too few of them.

Given up are those that cannot be answered in time any more, whatever they are given. While more is asked for than the
fleet has, its CPUs or slices are counted at a multiple of their price: offers that need much of what is scarce are then
taken by those alone who cannot do without, and a request that would cost more than its answer is worth does not begin.
"""

from collections.abc import Sequence
from math import exp

from headway.serving.policies.headway.offers import Menu, rest_lengths
from headway.serving.state import ServingState
from headway.units import MILLISECOND

LUCK = 2.0
"""A run may be shorter than expected: so many of its spreads are counted in its favour before all hope is lost."""
LOOK_EVERY = 250 * MILLISECOND
STEP = 1.5
SMOOTH = 0.5
BACKLOG = 0.1
EASY, CROWDED = 0.7, 0.85
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
        self._rest = [
            rest_lengths(graph, [self._fastest[task.function] for task in graph.tasks]) for graph in self._graphs
        ]

    def least(self, graph: int, task: int) -> int:
        """What a task and all after it take at least, where every process that they need is there."""
        return self._rest[graph][task]

    def earliest(self, now: int, graph: int, task: int, there: Sequence[int]) -> int:
        """When a request can be answered at the earliest if this task starts now; ``there``: by function, from when
        on a process of it is somewhere."""
        if all(there[other.function] <= now for other in self._graphs[graph].tasks):
            return now + self._rest[graph][task]
        plan = self._graphs[graph]
        ends = [0] * len(plan.tasks)
        ends[task] = now
        for other in plan.order:
            begin = max((ends[before] for before in plan.predecessors[other]), default=0)
            if other == task or begin:
                function = plan.tasks[other].function
                ends[other] = max(begin, now, there[function]) + self._fastest[function]
        return max(ends)

    def hopeless(self, now: int, graph: int, task: int, deadline: int, there: Sequence[int]) -> bool:
        """Whether a request misses its deadline whatever this task and those after it are given."""
        return self.earliest(now, graph, task, there) > deadline


class Scarcity:
    """What CPUs and slices are worth, in prices: dearer while they are taken and tasks wait for room."""

    def __init__(self, dearest: float) -> None:
        self.dearest = dearest
        self.steps = (0, 0)
        self._used = [0.0, 0.0]
        self._seen = 0

    @property
    def worth(self) -> tuple[float, float]:
        """CPUs, slices."""
        return STEP ** self.steps[0], STEP ** self.steps[1]

    def look(self, now: int, state: ServingState, waiting: int) -> bool:
        """See how much is in use and how many tasks found no room, now and then; whether that changed anything."""
        if now - self._seen < LOOK_EVERY:
            return False
        self._seen = now
        all_of, free, running = [0, 0], [0, 0], 0
        for worker in state.workers:
            if worker.up:
                all_of[0] += worker.worker.cpus
                all_of[1] += worker.worker.gpu.slices
                free[0] += worker.cpus_free
                free[1] += worker.slices_free
                running += len(worker.running)
        steps = list(self.steps)
        for kind in (0, 1):
            used = 1.0 - free[kind] / all_of[kind] if all_of[kind] else 0.0
            self._used[kind] += SMOOTH * (used - self._used[kind])
            if self._used[kind] > CROWDED and waiting > BACKLOG * running:
                steps[kind] += STEP ** (steps[kind] + 1) <= self.dearest
            elif self._used[kind] < EASY:
                steps[kind] -= steps[kind] > 0
        changed = self.steps != (steps[0], steps[1])
        self.steps = steps[0], steps[1]
        return changed
