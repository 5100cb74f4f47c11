"""aquatope: sizes by Bayesian optimisation before the load, one plan for each workflow; a forecast warm pool.

Zhou, Zhang and Delimitrou, "AQUATOPE: QoS-and-Uncertainty-Aware Resource Management for Multi-stage Serverless
Workflows", ASPLOS 2023. The search runs once for a graph and a target (its requests' time from arrival to deadline),
on the profiles alone: before the run, for the requests that are expected. It knows neither load nor queues. Its result
is the option ``plans``; online only the pool changes. Functions are dispatched as on OpenWhisk: first come, first
served, on an idle process from the function's home worker on. Where none is idle, one is started on the first worker
with room; the task waits beside it, or with ``hold`` keeps its CPUs and slices meanwhile.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, takewhile
from math import inf
from typing import Any, ClassVar

from headway.errors import ExperimentError
from headway.fleet.model.actions import Action, RunBatch, StartInstance
from headway.fleet.model.catalogue import Configuration
from headway.fleet.model.graph import Graph
from headway.fleet.model.request import Request
from headway.fleet.policies.aquatope.optimise import Effort, Workflow, optimise
from headway.fleet.policies.aquatope.plans import parsed, written
from headway.fleet.policies.aquatope.pool import WarmPool
from headway.fleet.policies.central.any_worker import SameSpeed, hosts_of, options_everywhere
from headway.fleet.policies.central.forming import Key, Wakes
from headway.fleet.policies.central.fronts import NEVER, Option
from headway.fleet.policies.central.locality import bytes_to_read
from headway.fleet.policies.central.pool import fits
from headway.fleet.policies.esg.esg_1q import within_batch
from headway.fleet.policies.options import check_least
from headway.fleet.policies.parts import ServingPolicy
from headway.fleet.state.state import ServingState

TARGETS = 4
"""For so many targets a graph is searched; a request with another one gets the plan of the next shorter."""
_MOST_SAMPLES = 1000


@dataclass(frozen=True, eq=False)
class Sizes:
    """The plan of a workflow: by task, its option and how long a batch may wait to fill."""

    options: tuple[Option, ...]
    waits: tuple[int, ...]


@dataclass(eq=False)
class Aquatope(ServingPolicy):
    """Fixes one size for each task of a workflow, and forecasts how many processes each function needs."""

    name = "aquatope"
    central = True
    authors: ClassVar[dict[str, Any]] = {"penalty": 100.0, "deviations": 0.0, "anew": False}
    """The published program: a finite penalty for late samples, outliers out for good, a pool without a reserve."""

    seed: int = 0
    initial: int = 10
    rounds: int = 20
    proposals: int = 3
    outliers: bool = field(default=True, kw_only=True)
    anew: bool = field(default=True, kw_only=True)
    penalty: float = field(default=inf, kw_only=True)
    batch: bool = field(default=False, kw_only=True)
    wait: bool = field(default=True, kw_only=True)
    hold: bool = field(default=False, kw_only=True)
    prewarm: bool = field(default=True, kw_only=True)
    locality: bool = field(default=False, kw_only=True)
    deviations: float = field(default=2.0, kw_only=True)
    shrink: bool = field(default=True, kw_only=True)
    plans: str = field(default="", kw_only=True)
    """What the search found, as ``plans.py`` says. What is missing is searched when the first such request arrives."""

    def __post_init__(self) -> None:
        """Raise for an option that makes no sense."""
        check_least(self, {"initial": 2, "rounds": 0, "proposals": 1, "deviations": 0})
        if not self.penalty >= 0:
            rule = "is not a number of 0 or more, nor inf"
            raise ExperimentError(f"policy {self.name}: option penalty={self.penalty} {rule}")
        if (samples := self.initial + self.rounds * self.proposals) > _MOST_SAMPLES:
            rule = f"at most {_MOST_SAMPLES} are allowed: lower initial, rounds or proposals"
            raise ExperimentError(f"policy {self.name}: {samples} samples of a workflow; {rule}")
        parsed(self.plans)

    def plans_for(self, state: ServingState, requests: Sequence[Request]) -> str:
        """Return the plans of all graphs and targets of these requests, unless some are given."""
        if self.plans:
            return ""
        self.bind(state)
        for request in requests:
            self.sizes(request)
        return written(
            {
                (graph, target): [option.configuration for option in sizes.options]
                for graph, known in enumerate(self._sizes)
                for target, sizes in known.items()
            }
        )

    def bind(self, state: ServingState) -> None:
        """Compute the options of each task, and take the plans that are given."""
        catalogue = state.catalogue
        count, functions = len(state.workers), len(catalogue.functions)
        self._orders = [
            [(function * count // functions + step) % count for step in range(count)] for function in range(functions)
        ]
        """By function: the workers from its home on."""
        self._options = [tuple(self._allowed(options_everywhere(state, function))) for function in range(functions)]
        self._workflows = [
            Workflow(
                graph,
                tuple(self._options[function] for function in graph.functions),
                tuple(catalogue.functions[function].profile.spread for function in graph.functions),
            )
            for graph in catalogue.graphs
        ]
        self._effort = Effort(self.initial, self.rounds, self.proposals, self.outliers, self.anew, self.penalty)
        self._sizes: list[dict[int, Sizes]] = [{} for _ in catalogue.graphs]
        for (graph, target), sizes in parsed(self.plans).items():
            options = self._given(graph, sizes)
            self._sizes[graph][target] = Sizes(options, fill_waits(catalogue.graphs[graph], options, target))
        self._partial: dict[tuple[int, Option, int], Configuration] = {}
        self._wakes: Wakes[Key] = Wakes()
        self._speeds = SameSpeed()
        self._pool = WarmPool(state, self._orders, self.deviations, shrink=self.shrink)

    def _allowed(self, options: Sequence[Option]) -> Sequence[Option]:
        return options if self.batch else within_batch(options, 1)

    def _given(self, graph: int, sizes: Sequence[Configuration]) -> tuple[Option, ...]:
        """Return the options of a plan that is given; raise where the graph has none such."""
        tasks = self._workflows[graph].tasks if graph < len(self._workflows) else ()
        known = [{option.configuration: option for option in options} for options in tasks]
        if len(known) != len(sizes) or not all(size in options for size, options in zip(sizes, known, strict=True)):
            rule = "were made for other graphs or profiles; leave plans out, and they are searched"
            raise ExperimentError(f"policy {self.name}: option plans: those of graph {graph} {rule}")
        return tuple(options[size] for size, options in zip(sizes, known, strict=True))

    def sizes(self, request: Request) -> Sizes:
        """Return the plan for a request: of its graph, and of the time from its arrival to its deadline."""
        target = request.deadline - request.arrival if request.deadline else NEVER
        known = self._sizes[request.graph]
        if (sizes := known.get(target)) is not None:
            return sizes
        if len(known) >= TARGETS:
            return known[max((other for other in known if other <= target), default=min(known))]
        workflow = self._workflows[request.graph]
        options = optimise(workflow, target, self.seed, self._effort).options
        sizes = known[target] = Sizes(options, fill_waits(workflow.graph, options, target))
        return sizes

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        """Run what is ready, first come, first served; then adjust the pool if a step has ended."""
        self._wakes.due(now)  # every queue is looked at anyway
        heads = [(next(iter(queue.values())), key) for key, queue in state.ready.items() if queue]
        for _, key in sorted(heads):
            yield from self._serve(now, state, key)
        if self.prewarm:
            yield from self._pool.on_step(now, state)

    def _serve(self, now: int, state: ServingState, key: Key) -> Iterator[Action]:
        """Run batches from the head of a queue, while they are full or have waited long enough, and fit."""
        queue, (graph, task) = state.ready[key], key
        function = state.catalogue.graphs[graph].functions[task]
        while queue:
            head, since = next(iter(queue.items()))
            sizes = self.sizes(state.requests[head].request)
            option = sizes.options[task]
            first = islice(queue, option.configuration.batch)
            plans = ((request, self.sizes(state.requests[request].request)) for request in first)
            same = [request for request, _ in takewhile(partial(_has_plan, sizes), plans)]
            due = since + sizes.waits[task]
            if len(same) < option.configuration.batch and self.wait and now < due:
                yield from self._wakes.hold(key, due)
                return
            size = self._size(state, function, option, len(same))
            if (action := self._dispatch(state, function, size, [(request, task) for request in same])) is None:
                if not self.hold:
                    yield from self._start_beside(state, function, size, len(queue))
                return
            yield action
            self._pool.use(state, function)

    def _size(self, state: ServingState, function: int, option: Option, count: int) -> Configuration:
        """Return what to give a batch of ``count`` tasks: the planned size, or the nearest that was measured for it."""
        planned = option.configuration
        if count == planned.batch:
            return planned
        if (known := self._partial.get((function, option, count))) is None:
            others = [other.configuration for other in self._options[function] if other.configuration.batch >= count]
            others.sort(key=lambda o: (o.batch, abs(o.slices - planned.slices), abs(o.cpus - planned.cpus), o))
            sizes = (Configuration(count, *size[1:]) for size in (planned, *others))
            known = next((size for size in sizes if hosts_of(state, function, size)), planned)
            self._partial[function, option, count] = known
        return known

    def _dispatch(
        self, state: ServingState, function: int, size: Configuration, tasks: Sequence[tuple[int, int]]
    ) -> RunBatch | None:
        """Return a batch on the first worker, from the function's home on, with an idle process and room.

        Else, where batches may start their own process, on the first worker with room; None: there is none.
        """
        cold = state.catalogue.functions[function].cold_start
        order = [state.workers[index] for index in self._orders[function] if state.workers[index].up]
        if self.locality:
            far = bytes_to_read(state, tasks)
            order.sort(key=lambda worker: far[worker.id])
        groups = [[worker for worker in order if not cold or worker.warm >> function & 1]]
        if cold and (self.hold or not any(worker.running or worker.starting for worker in order)):
            groups.append(order)
        for worker in (worker for group in groups for worker in group):
            _, cpus, slices = self._speeds.on(state, worker.id, function, size)
            if worker.slices_free >= slices and worker.cpus_free >= cpus:
                evict = fits(state, worker, function, len(tasks), cpus, slices)
                if evict is not None:
                    return RunBatch(worker.id, tuple(tasks), cpus, slices, evict)
        return None

    def _start_beside(self, state: ServingState, function: int, size: Configuration, waiting: int) -> Iterator[Action]:
        """Start a process for each waiting task, on the first workers with room."""
        _, cpus, slices = size
        if not state.catalogue.functions[function].cold_start:
            return
        workers = [state.workers[index] for index in self._orders[function] if state.workers[index].up]
        coming = sum(
            len(worker.idle.get(function, ())) + list(worker.starting.values()).count(function) for worker in workers
        )
        room = [worker for worker in workers if worker.slices_free >= slices and worker.cpus_free >= cpus]
        for worker in room[: max(0, waiting - coming)]:
            yield StartInstance(worker.id, function)


def _has_plan(sizes: Sizes, planned: tuple[int, Sizes]) -> bool:
    return planned[1] is sizes


def fill_waits(graph: Graph, options: Sequence[Option], target: int) -> tuple[int, ...]:
    """Return by task how long a batch may wait to fill: its share of the time that the plan leaves.

    Without a deadline as long as it runs.
    """
    if target >= NEVER:
        return tuple(option.time for option in options)
    spare = max(0, target - graph.critical_path([option.time for option in options]))
    stages = max(graph.lengths_to([1] * len(options)))
    return (spare // stages,) * len(options)
