"""Which requests are given up: those that cannot be answered in time any more, whatever they are given."""

from collections.abc import Sequence
from math import exp

from headway.serving.policies.headway.offers import Menu, rest_lengths
from headway.serving.state import ServingState

LUCK = 2.0
"""A run may be shorter than expected: so many of its spreads are counted in its favour before all hope is lost."""
NEVER = 1 << 62


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
