"""orion-dag: one plan for a graph and its deadline from latency distributions, and processes started ahead.

After Orion (Mahgoub and others, "ORION and the Three Rights: Sizing, Bundling, and Prewarming for Serverless DAGs",
OSDI 2022). Orion sizes memory of CPU functions; here a size is a number of CPUs and slices.
docs/reference/policies/fleet/orion-dag.md says what was adapted and what is our reading.

- Right size: ``planning`` and ``distributions``, once for each graph and target. Queues are not looked at.
- Right bundle: calls of one function that start together share a batch. Requests are never batched with each other.
- Right pre-warming: the process of a task is started at its expected start less its cold start. Expected starts are
  sums of median run times from the arrival on. A process that is late is waited for.

Placement and queues are those of a plain provider: ``dispatch``.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from headway.errors import ExperimentError
from headway.fleet.model.actions import Action, WakeAt
from headway.fleet.policies.central.any_worker import options_everywhere
from headway.fleet.policies.central.fronts import NEVER
from headway.fleet.policies.options import check_choice, check_durations, check_least
from headway.fleet.policies.orion_dag.dispatch import Kind, Queues, kind_of
from headway.fleet.policies.orion_dag.planner import Planner, Rules
from headway.fleet.policies.orion_dag.planning import COST, LATENCY, Plan
from headway.fleet.policies.parts import ServingPolicy
from headway.fleet.state.requeststate import READY, WAITING, RequestState
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import TaskId
from headway.units import MILLISECOND, Duration

GRID = Duration(MILLISECOND)


@dataclass(eq=False)
class OrionDag(ServingPolicy):
    """Plans each graph once for each target, and follows the plan whatever happens."""

    name = "orion-dag"
    central = True
    percentile: float = 95.0
    cutoff: int = 1000
    key: str = LATENCY
    grid: Duration = GRID
    bundle: bool = True
    prewarm: bool = True
    locality: bool = False
    states_evaluated: int = field(default=0, init=False)
    """States whose latency was computed since ``bind``, over all searches."""

    def __post_init__(self) -> None:
        """Raise for an option that makes no sense."""
        if not 0.0 < self.percentile < 100.0:
            told = f"option percentile={self.percentile} is not between 0 and 100"
            raise ExperimentError(f"policy {self.name}: {told}")
        check_least(self, {"cutoff": 1})
        check_choice(self, "key", LATENCY, COST)
        check_durations(self, "grid", least=1)

    def bind(self, state: ServingState) -> None:
        """Prepare a planner for each graph; begin without plans."""
        functions = range(len(state.catalogue.functions))
        options = [options_everywhere(state, function) for function in functions]
        spreads = [function.profile.spread for function in state.catalogue.functions]
        rules = Rules(self.percentile, self.cutoff, self.key, self.grid, self.bundle)
        self._planners = [Planner(graph, options, spreads, rules) for graph in state.catalogue.graphs]
        self.states_evaluated = 0
        self._queues = Queues(locality=self.locality)
        self._due: list[tuple[int, int, int]] = []
        """(when, request, position of the bundle in its plan): processes to start ahead."""
        self._wake = -1
        """The wake-up that was asked for last."""
        self._expected: dict[TaskId, Kind] = {}
        """First tasks of the bundles for which a process was wanted ahead and that are not ready yet."""
        self._counts: Counter[Kind] = Counter()
        """How many of them there are."""

    def plan(self, rs: RequestState) -> Plan:
        """Return the plan of a request: that of its graph for the time between its arrival and its deadline."""
        request = rs.request
        target = request.deadline - request.arrival if request.deadline else NEVER
        plan, evaluated = self._planners[request.graph].plan(target)
        self.states_evaluated += evaluated
        return plan

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        """Queue what became ready, run what fits, and start processes that are due."""
        for request in state.landed:
            rs = state.requests[request]
            self._join(now, rs, rs.graph.entries)
            if self.prewarm:
                self._schedule(state, rs)
        for request, task in state.ended:
            if (open_request := state.requests.get(request)) is not None:
                self._join(now, open_request, open_request.graph.successors[task])
        for request in state.displaced:
            if (open_request := state.requests.get(request)) is not None:
                self._join(now, open_request, range(len(open_request.stage)))
        yield from self._queues.serve(now, state)
        yield from self._start_ahead(now, state)

    def _join(self, now: int, rs: RequestState, tasks: Sequence[int]) -> None:
        """Queue those of the tasks that are ready."""
        for task in tasks:
            if rs.stage[task] is READY and (kind := self._expected.pop((rs.request.id, task), None)) is not None:
                self._counts[kind] -= 1
        self._queues.add(now, rs, self.plan(rs), tasks)

    def _schedule(self, state: ServingState, rs: RequestState) -> None:
        """Note when the processes of a request's later bundles must start to be ready in time."""
        bundles = self.plan(rs).bundles
        times = dict(sorted((task, bundle.option.time) for bundle in bundles for task in bundle.tasks))
        ends = rs.graph.lengths_to(list(times.values()))
        for number, (tasks, option) in enumerate(bundles):
            first = tasks[0]
            init = state.catalogue.functions[rs.graph.functions[first]].cold_start
            if rs.waits[first] and init:
                when = rs.request.arrival + ends[first] - option.time - init
                heappush(self._due, (when, rs.request.id, number))

    def _start_ahead(self, now: int, state: ServingState) -> Iterator[Action]:
        """Start the processes that are due and missing; ask to be woken for the next."""
        kinds: dict[Kind, None] = {}
        while self._due and self._due[0][0] <= now:
            _, request, number = heappop(self._due)
            if (rs := state.requests.get(request)) is None:
                continue
            bundle = self.plan(rs).bundles[number]
            if rs.stage[bundle.tasks[0]] is WAITING:
                kind = self._expected[request, bundle.tasks[0]] = kind_of(rs.graph, bundle)
                self._counts[kind] += 1
                kinds[kind] = None
        for kind in kinds:
            yield from self._queues.start_ahead(state, kind, self._counts[kind])
        if self._due and self._due[0][0] != self._wake:
            self._wake = self._due[0][0]
            yield WakeAt(self._wake)
