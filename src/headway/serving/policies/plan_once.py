"""plan-once: one plan for the whole graph when a request arrives, kept to the end. What Orion does, by class.

Best-first search by cost: from the cheapest configuration of every task, each step takes one task to its next faster one
on its front; the first state that keeps the deadline is the plan. The search ends after ``cutoff`` states; the rest of
the way is then taken greedily from the state that was nearest to the deadline, by time gained for the money. Batches are
no larger than the queue was on arrival. Queues, dispatch and warm processes are as with ``esg``: only the choice differs.
"""

from collections.abc import Sequence
from heapq import heappop, heappush

from headway.serving.graph import Graph
from headway.serving.policies.fronts import Option, skyband
from headway.serving.policies.pool import LAST, Key, PoolPolicy
from headway.serving.state import ServingState
from headway.units import MILLISECOND

_BUCKET = MILLISECOND
Plan = tuple[Option, ...]


class PlanOnce(PoolPolicy):
    """A configuration a task, fixed on arrival."""

    name = "plan-once"

    def __init__(
        self, cutoff: int = 500, margin: float = 0.1, late: str = LAST, patience: int = 3, prewarm: bool = True
    ) -> None:
        self.cutoff = cutoff
        self.margin = margin
        self.late = late
        self.patience = patience
        self.prewarm = prewarm
        self.ranks = 1

    def bind(self, state: ServingState) -> None:
        """No plans yet."""
        super().bind(state)
        self._plans: dict[int, Plan] = {}
        self._known: dict[tuple[int, int, int], Plan] = {}
        self._slowest = [
            sum(self.options[task.function][-1].time for task in graph.tasks) for graph in state.catalogue.graphs
        ]

    def choices(self, now: int, state: ServingState, key: Key, requests: Sequence[int], slack: int) -> Sequence[Option]:
        """What the plan of the first of them says."""
        first = requests[0]
        plan = self._plans.get(first)
        if plan is None or slack > self._slowest[key[0]]:  # who is late is served as cheaply as can be
            plan = self._plan(state.catalogue.graphs[key[0]], key[0], slack, len(requests))
            for request in requests[: plan[key[1]].configuration.batch]:
                self._plans.setdefault(request, plan)
        if not state.catalogue.graphs[key[0]].successors[key[1]]:
            self._plans.pop(first, None)
        return (plan[key[1]],)

    def _plan(self, graph: Graph, index: int, slack: int, queue: int) -> Plan:
        rounded = max(0, min(slack, self._slowest[index] + _BUCKET)) // _BUCKET * _BUCKET
        plan = self._known.get((index, rounded, queue))
        if plan is None:
            fronts = []
            for task in graph.tasks:
                options = self.options[task.function]
                least = min(option.configuration.batch for option in options)
                fronts.append(skyband(option for option in options if option.configuration.batch <= max(queue, least)))
            plan = self._known[index, rounded, queue] = best_first(graph, fronts, rounded, self.cutoff)
        return plan


def best_first(graph: Graph, fronts: Sequence[Sequence[Option]], deadline: int, cutoff: int) -> Plan:
    """The cheapest way to keep a deadline, as far as ``cutoff`` states show it. Fronts: fastest first, by task."""
    start = tuple(len(front) - 1 for front in fronts)
    heap = [(sum(front[-1].cost for front in fronts), start)]
    seen = {start}
    nearest: tuple[int, tuple[int, ...]] | None = None
    for _ in range(cutoff):
        if not heap:
            break
        cost, state = heappop(heap)
        time = graph.critical_path([front[at].time for front, at in zip(fronts, state, strict=True)])
        if time <= deadline:
            return _options(fronts, state)
        if nearest is None or time < nearest[0]:
            nearest = time, state
        for task, at in enumerate(state):
            if at and (step := (*state[:task], at - 1, *state[task + 1 :])) not in seen:
                seen.add(step)
                heappush(heap, (cost - fronts[task][at].cost + fronts[task][at - 1].cost, step))
    return _options(fronts, _greedy(graph, fronts, deadline, nearest[1] if nearest is not None else start))


def _greedy(
    graph: Graph, fronts: Sequence[Sequence[Option]], deadline: int, state: tuple[int, ...]
) -> tuple[int, ...]:
    """Faster and faster until the deadline is kept, or nothing is gained any more."""
    times = [front[at].time for front, at in zip(fronts, state, strict=True)]
    now = graph.critical_path(times)
    while now > deadline:
        best: tuple[float, int, int] | None = None
        for task, at in enumerate(state):
            if at:
                faster, slower = fronts[task][at - 1], fronts[task][at]
                time = graph.critical_path([*times[:task], faster.time, *times[task + 1 :]])
                rank = (now - time) / max(1, faster.cost - slower.cost)
                if time < now and (best is None or rank > best[0]):
                    best = rank, task, time
        if best is None:
            break
        _, task, now = best
        state = (*state[:task], state[task] - 1, *state[task + 1 :])
        times[task] = fronts[task][state[task]].time
    return state


def _options(fronts: Sequence[Sequence[Option]], state: Sequence[int]) -> Plan:
    return tuple(front[at] for front, at in zip(fronts, state, strict=True))
