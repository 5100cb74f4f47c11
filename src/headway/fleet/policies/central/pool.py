"""Base of policies with central control and a pool of tasks (esg and its relatives): queues, dispatch, warm processes.

There is one queue for each (graph, task), oldest first. A policy returns configurations to try for its head, in order.
The first that fits is run: where the predecessor ran, if it is warm there; else on a warm worker with the fewest free
slices, then with the weights. A queue whose head fits nowhere is on the recheck list, which is served first next time.
After repeated failures the least configuration is tried too.

Where ESG's paper is silent, our reading:
- Cold starts take seconds, so no batch holds slices meanwhile: a process is started ahead, and the task runs wherever
  one is free first. Their number follows a moving average of inter-arrival times, by Little's law, with a reserve.
- Run times vary. Plans keep a reserve of ``deviations`` standard deviations of the time ahead.
- Requests that are late even with the fastest configurations are served at least cost, while an eighth of the fleet
  stays free (``late=last``). ``late=plan`` gives them the fastest, as in the paper: a backlog then never ends.
- ``--fidelity authors`` turns the last two off.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from math import sqrt
from typing import Any, ClassVar

from headway.fleet.model.actions import Action, RunBatch
from headway.fleet.model.fleet import FREE, find_slices
from headway.fleet.model.graph import Graph
from headway.fleet.model.request import Request
from headway.fleet.policies.central import forming as holding
from headway.fleet.policies.central.forming import Key
from headway.fleet.policies.central.fronts import NEVER, Option, options_on
from headway.fleet.policies.central.locality import bytes_to_read
from headway.fleet.policies.central.processes import ProcessForecast
from headway.fleet.policies.central.ready import new_tasks
from headway.fleet.policies.options import check_choice, check_least
from headway.fleet.policies.parts import ServingPolicy
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import WorkerState

LAST, PLAN = "last", "plan"


@dataclass(eq=False)
class PoolPolicy(ServingPolicy):
    """Serves all queues centrally; subclasses choose configurations in ``choices``."""

    central = True
    authors: ClassVar[dict[str, Any]] = {"late": PLAN, "deviations": 0.0}
    """The search as in the paper: the fastest configurations where none is in time, and no reserve."""
    least_options: ClassVar[dict[str, int]] = {}
    """The least value of each option that a policy adds."""
    deviations: float = field(default=2.0, kw_only=True)
    late: str = field(default=LAST, kw_only=True)
    patience: int = field(default=3, kw_only=True)
    prewarm: bool = field(default=True, kw_only=True)
    max_delay: str = field(default=holding.OFF, kw_only=True)
    insist: bool = field(default=False, kw_only=True)
    locality: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        """Raise for an option that makes no sense."""
        holding.check_options(self.name, self.max_delay, self.insist)
        check_least(self, {**self.least_options, "patience": 0, "deviations": 0})
        check_choice(self, "late", LAST, PLAN)

    def check_requests(self, requests: Sequence[Request], graphs: Sequence[Graph]) -> None:
        """Raise where batches may wait beyond a deadline."""
        if delay := holding.parse_delay(self.name, self.max_delay):
            holding.check_delay(self.name, delay, requests, graphs, remedy="give a shorter one, or max_delay=slack")

    def time_ahead(self, key: Key, request: int) -> int:
        """Return what a plan that is fixed takes from a task on; 0: plans are made anew at each stage."""
        return 0

    @abstractmethod
    def choices(
        self, now: int, state: ServingState, key: Key, requests: Sequence[int], slack: int, queue: int
    ) -> Sequence[Option]:
        """Return the options to try for the tasks at the head of a queue, in order.

        ``slack``: time to the earliest of their deadlines, less the reserve for run times that vary. ``queue``: the
        largest batch to plan for; more than there are requests where the batch may wait.
        """

    def bind(self, state: ServingState) -> None:
        """Compute options by function and times by task; start with empty queues."""
        self.follow(state)
        self._live: dict[Key, dict[int, None]] = {}
        self._late: dict[Key, dict[int, None]] = {}
        self._waiting: dict[Key, int] = {}
        """The recheck list: queues whose head fitted on no worker, and how often."""
        self._reserve = sum(worker.worker.gpu.slices for worker in state.workers) // 8
        self._processes = ProcessForecast(state, [option.time for option in self.least])
        self.holding = holding.holding_of(self, state.catalogue.graphs) if self.max_delay != holding.OFF else None
        self.formed: holding.FormedBatches | None = None
        """What came of planned batches, where a policy learns from it."""

    def follow(self, state: ServingState) -> None:
        """Compute what depends on expected times; again when they change."""
        functions = range(len(state.catalogue.functions))
        self.options = [options_on(state, function) for function in functions]
        """By function: what some worker can hold, fastest first."""
        self.least = [min(options, key=lambda option: option.configuration) for options in self.options]
        self._most = [max(option.configuration.batch for option in options) for options in self.options]
        self._compute_rest(state)
        self._version = state.latency.version

    def _compute_rest(self, state: ServingState) -> None:
        """Compute for each task the least time of it and its successors, and the factor of the reserve."""
        self.rest: list[list[int]] = []
        self.slower: list[list[float]] = []
        for graph in state.catalogue.graphs:
            mean, variance = ([0.0] * len(graph.tasks) for _ in range(2))
            for task in reversed(graph.order):
                function = graph.tasks[task].function
                after = max(graph.successors[task], key=lambda other: mean[other], default=None)
                time, spread = self.least[function].time, state.catalogue.functions[function].profile.spread
                mean[task] = time + (mean[after] if after is not None else 0.0)
                variance[task] = (time * spread) ** 2 + (variance[after] if after is not None else 0.0)
            self.rest.append(graph.lengths_from([self.options[function][0].time for function in graph.functions]))
            self.slower.append([1.0 + self.deviations * sqrt(v) / m for m, v in zip(mean, variance, strict=True)])

    # --- queues -----------------------------------------------------------------------------------------------

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        """Serve the recheck list, then queues with new tasks, then late requests; then start processes."""
        if self._version != state.latency.version:
            self.follow(state)
        fresh = self._collect(state)
        keys: dict[Key, None] = dict.fromkeys(self._waiting) if state.touched else {}
        keys.update(fresh)
        if self.holding is not None:
            keys.update(dict.fromkeys(self.holding.wakes.due(now)))
        for key in self.ordered(state, keys):
            yield from self._serve(now, state, key)
        if self._late and (keys or state.touched):
            for key in list(self._late):
                if not self._has_spare(state):
                    break
                yield from self._serve_late(now, state, key)
        yield from self._processes.on_arrivals(now, state)
        if self.prewarm:
            yield from self._processes.start_forecast(now, state)

    def ordered(self, state: ServingState, keys: dict[Key, None]) -> Iterable[Key]:
        """Return the queues that may be served now in the order in which they are: the recheck list first."""
        return keys

    def _collect(self, state: ServingState) -> dict[Key, None]:
        """Append new tasks to their queues; return the queues that got some."""
        fresh: dict[Key, None] = {}
        for rs, task in new_tasks(state):
            key = (rs.request.graph, task)
            if rs.request.id not in self._late.get(key, ()):
                self._live.setdefault(key, {})[rs.request.id] = None
                fresh[key] = None
        return fresh

    def _serve(self, now: int, state: ServingState, key: Key) -> Iterator[Action]:
        """Run batches from the head of a queue while they fit."""
        queue, (graph, task) = self._live[key], key
        function = state.catalogue.graphs[graph].tasks[task].function
        while heads := self._heads(state, key, queue, function):
            left = [holding.time_left(now, state, request) for request in heads]
            lost = [request for request, time in zip(heads, left, strict=True) if time < self.rest[graph][task]]
            if lost and self.late == LAST:
                for request in lost:
                    del queue[request]
                    self._late.setdefault(key, {})[request] = None
                continue
            # late requests do not shorten the slack of the others; where all are late, the plan is the fastest
            slack = min((time for time in left if time >= self.rest[graph][task]), default=min(left))
            planned = slack if slack >= NEVER else int(slack / self.slower[graph][task])
            if self.holding is not None:
                plan = partial(self.choices, now, state, key, heads, planned)
                if (until := self.holding.until(state, key, heads, plan, self.time_ahead(key, heads[0]))) > now:
                    self._waiting.pop(key, None)
                    yield from self.holding.wakes.hold(key, until)
                    return
            options = self.choices(now, state, key, heads, planned, len(heads))
            if self._waiting.get(key, 0) >= self.patience:
                options = [*options, self.least[function]]
            if (action := self._dispatch(state, function, heads, task, options)) is None:
                self._waiting[key] = self._waiting.get(key, 0) + 1
                yield from self._processes.start_for_waiting(state, function, options, len(queue))
                return
            for request, _ in action.tasks:
                del queue[request]
            if self.formed is not None:
                self.formed.on_formed(key, len(action.tasks), len(action.tasks))
            self._waiting.pop(key, None)
            yield action
        self._waiting.pop(key, None)

    def _serve_late(self, now: int, state: ServingState, key: Key) -> Iterator[Action]:
        """Run requests that miss their deadline anyway: at least cost, and only while slices are spare."""
        queue, (graph, task) = self._late[key], key
        function = state.catalogue.graphs[graph].tasks[task].function
        while heads := self._heads(state, key, queue, function):
            if not self._has_spare(state):
                return
            options = [*self.choices(now, state, key, heads, NEVER, len(heads)), self.least[function]]
            if (action := self._dispatch(state, function, heads, task, options)) is None:
                yield from self._processes.start_for_waiting(state, function, options, 1)
                return
            for request, _ in action.tasks:
                del queue[request]
            yield action
        del self._late[key]

    def _has_spare(self, state: ServingState) -> bool:
        """Return whether more slices are free than the reserve for requests in time."""
        free = 0
        for worker in state.workers:
            free += worker.slices_free
            if free > self._reserve:
                return True
        return not any(worker.running for worker in state.workers)

    def _heads(self, state: ServingState, key: Key, queue: dict[int, None], function: int) -> list[int]:
        """Return the first requests of a queue, as many as the largest batch holds; drop those no longer ready."""
        ready = state.ready.get(key, {})
        while True:
            heads = list(islice(queue, self._most[function]))
            gone = [request for request in heads if request not in ready]
            if not gone:
                return heads
            for request in gone:
                del queue[request]

    # --- dispatch ---------------------------------------------------------------------------------------------

    def _dispatch(
        self, state: ServingState, function: int, heads: Sequence[int], task: int, options: Sequence[Option]
    ) -> RunBatch | None:
        """Return a batch with the first option that fits on a worker with an idle process; None: none fits."""
        kind = state.catalogue.functions[function]
        bit = 1 << function if kind.cold_start else 0
        room = [w for w in state.workers if (w.slices_free or kind.on_cpus) and w.up and (not bit or w.warm & bit)]
        if not room:
            return None
        rs = state.requests[heads[0]]
        before = rs.graph.predecessors[task]
        near = rs.worker[before[0]] if before else -1
        for option in options:
            batch, cpus, slices = option.configuration
            count = min(batch, len(heads))
            far = bytes_to_read(state, [(request, task) for request in heads[:count]]) if self.locality else None
            best: tuple[tuple[int, ...], WorkerState, tuple[int, ...]] | None = None
            for worker in room:
                if worker.slices_free < slices or worker.cpus_free < cpus:
                    continue
                absent = (kind.mask & ~worker.memory.resident).bit_count()
                away = far[worker.id] if far else worker.id != near
                rank = (away, worker.slices_free, worker.cpus_free, absent, worker.id)
                if best is not None and rank >= best[0]:
                    continue
                if (evict := fits(state, worker, function, count, cpus, slices)) is not None:
                    best = rank, worker, evict
            if best is not None:
                tasks = tuple((request, task) for request in heads[:count])
                return RunBatch(best[1].id, tasks, cpus, slices, best[2])
        return None


def fits(
    state: ServingState, worker: WorkerState, function: int, batch: int, cpus: int, slices: int
) -> tuple[int, ...] | None:
    """Return the models to evict to run a batch on a worker with enough CPUs and slices; None: it does not fit."""
    if state.latency.run_time(worker.id, function, batch, cpus, slices) is None:
        return None
    if worker.worker.gpu.geometry != FREE and find_slices(worker.worker.gpu, slices, worker.taken) is None:
        return None
    return make_room(state, worker, function, batch)


def make_room(state: ServingState, worker: WorkerState, function: int, batch: int) -> tuple[int, ...] | None:
    """Return the models to evict, least recently used first, so that a batch fits into memory; None: it does not."""
    kind, memory = state.catalogue.functions[function], worker.memory
    weights = state.catalogue.size_of(kind.mask & ~memory.resident)
    need = weights + kind.activation_bytes * batch - memory.free_bytes
    if need <= 0:
        return ()
    oldest = sorted(memory.order, key=memory.order.__getitem__)
    return memory.enough((m for m in oldest if not kind.mask >> m & 1 and memory.evictable(m)), need)
