"""plan-once: an ablation of ``esg``: one plan for the whole graph when a request arrives, kept to the end.

Best-first search by cost: from the cheapest configuration of every task, each step moves one task to its next faster
configuration on its front. The first state that keeps the deadline is the plan. The search ends after ``cutoff``
states; then a greedy descent goes on from the state nearest to the deadline, by time gained for the cost. Batches are
no larger than the queue was on arrival. Queues, dispatch and warm processes are those of ``esg``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from heapq import heappop, heappush
from typing import ClassVar

from headway.fleet.model.actions import Action
from headway.fleet.model.graph import Graph
from headway.fleet.policies.central.forming import FormedBatches, Key, batch_sizes
from headway.fleet.policies.central.fronts import NEVER, Option, skyband
from headway.fleet.policies.central.pool import PoolPolicy
from headway.fleet.policies.esg.esg_1q import within_batch
from headway.fleet.state.state import ServingState
from headway.units import MILLISECOND

_BUCKET = MILLISECOND
Plan = tuple[Option, ...]


@dataclass(eq=False)
class PlanOnce(PoolPolicy):
    """Fixes the configuration of each task on arrival."""

    name = "plan-once"

    least_options: ClassVar[dict[str, int]] = {"cutoff": 0}
    cutoff: int = 500
    feedback: bool = field(default=False, kw_only=True)
    states_evaluated: int = field(default=0, init=False)
    """Plans whose time was computed by best-first search since ``bind``."""

    def bind(self, state: ServingState) -> None:
        """Begin without plans."""
        super().bind(state)
        self._plans: dict[int, Plan] = {}
        self._graphs = state.catalogue.graphs
        self.formed = FormedBatches(self._graphs, batch_sizes(self.options)) if self.feedback else None
        self._known = cache(self._search)
        self.states_evaluated = 0
        self._slowest = [sum(self.options[task.function][-1].time for task in graph.tasks) for graph in self._graphs]

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        """Yield the actions of ``PoolPolicy``; forget the plans of requests that have ended."""
        for request, _ in state.ended:
            if request not in state.requests:
                self._plans.pop(request, None)
        yield from super().decide(now, state)

    def choices(
        self, now: int, state: ServingState, key: Key, requests: Sequence[int], slack: int, queue: int
    ) -> Sequence[Option]:
        """Return the option that the plan of the first request has for this task."""
        (graph, task), first = key, requests[0]
        if slack >= NEVER:  # no deadline, or it is lost: as cheap as can be
            return (self._plan(graph, task, NEVER, queue)[task],)
        if (plan := self._plans.get(first)) is None:
            request = state.requests[first].request
            began = request.arrival if self.holding is None else now  # its batch may have waited
            whole = int((request.deadline - began) / max(self.slower[graph]))
            if self.insist and self.holding is not None:
                whole = self.holding.time_to_run(graph, whole)
            plan = self._plan(graph, task, whole, queue)
            if self.formed is not None:
                self.formed.on_planned(graph, task, [option.configuration.batch for option in plan[task + 1 :]])
            for other in requests[: plan[task].configuration.batch]:
                self._plans.setdefault(other, plan)
        return (plan[task],)

    def time_ahead(self, key: Key, request: int) -> int:
        """Return what the plan of a request takes from a task on; 0 where it has none yet."""
        if (plan := self._plans.get(request)) is None:
            return 0
        return self._graphs[key[0]].lengths_from([option.time for option in plan])[key[1]]

    def _plan(self, graph: int, task: int, slack: int, queue: int) -> Plan:
        limits = (queue,) * len(self._graphs[graph].tasks)
        if self.formed is not None:
            counted_on = self.formed.limits(graph, task)
            limits = tuple(queue if other == task else most for other, most in enumerate(counted_on))
        return self._known(graph, min(slack, self._slowest[graph] + _BUCKET) // _BUCKET * _BUCKET, limits)

    def _search(self, graph: int, slack: int, limits: tuple[int, ...]) -> Plan:
        """Return the plan where the batch of each task is at most its limit."""
        functions = zip(self._graphs[graph].functions, limits, strict=True)
        fronts = [skyband(within_batch(self.options[function], most)) for function, most in functions]
        plan, evaluated = best_first(self._graphs[graph], fronts, slack, self.cutoff)
        self.states_evaluated += evaluated
        return plan


def best_first(graph: Graph, fronts: Sequence[Sequence[Option]], deadline: int, cutoff: int) -> tuple[Plan, int]:
    """Return the cheapest plan that keeps a deadline, as far as ``cutoff`` states show it, and how many it took.

    ``fronts``: by task, fastest first.
    """
    start = tuple(len(front) - 1 for front in fronts)
    heap = [(sum(front[-1].cost for front in fronts), start)]
    seen = {start}
    nearest: tuple[int, tuple[int, ...]] | None = None
    evaluated = 0
    while heap and evaluated < cutoff:
        evaluated += 1
        cost, state = heappop(heap)
        time = graph.critical_path([front[at].time for front, at in zip(fronts, state, strict=True)])
        if time <= deadline:
            return _options(fronts, state), evaluated
        if nearest is None or time < nearest[0]:
            nearest = time, state
        for task, at in enumerate(state):
            if at and (step := (*state[:task], at - 1, *state[task + 1 :])) not in seen:
                seen.add(step)
                heappush(heap, (cost - fronts[task][at].cost + fronts[task][at - 1].cost, step))
    last = _greedy(graph, fronts, deadline, nearest[1] if nearest is not None else start)
    return _options(fronts, last), evaluated


def _greedy(graph: Graph, fronts: Sequence[Sequence[Option]], deadline: int, state: tuple[int, ...]) -> tuple[int, ...]:
    """Return a state with tasks on the critical path made faster, until it keeps the deadline or none can be."""
    while True:
        times = [front[at].time for front, at in zip(fronts, state, strict=True)]
        to, onward = graph.lengths_to(times), graph.lengths_from(times)
        longest = max(to)
        critical = [t for t, at in enumerate(state) if at and to[t] + onward[t] - times[t] == longest]
        if longest <= deadline or not critical:
            return state
        steps = {task: (fronts[task][state[task] - 1], fronts[task][state[task]]) for task in critical}
        chosen = max(steps, key=lambda t: (steps[t][1].time - steps[t][0].time) / (steps[t][0].cost - steps[t][1].cost))
        state = (*state[:chosen], state[chosen] - 1, *state[chosen + 1 :])


def _options(fronts: Sequence[Sequence[Option]], state: Sequence[int]) -> Plan:
    return tuple(front[at] for front, at in zip(fronts, state, strict=True))
