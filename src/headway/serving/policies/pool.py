"""What policies share that decide in one place and pull tasks from a pool: queues, dispatch, warm processes.

One queue a (graph, task), oldest first. A policy says which configurations to try for the head of a queue, in order;
the first that fits somewhere is run with as many tasks as it holds: where the predecessor ran, if it is warm there; else
on a warm worker; else anywhere; of several where the fewest slices stay free. What fits nowhere goes on the recheck
list, which is served first next time, and after repeated failures the least configuration is tried too.

Where the sheet of the paper is silent (our reading): a task never waits *inside* a batch for a process to start, holding
slices for seconds; a process is started ahead, and the task runs there or wherever one is free sooner. Requests that
can no longer keep their deadline even with the fastest configurations are set apart and served at least cost when
nobody else waits for room (``late=last``), or treated as the policy says (``late=plan``). Processes are kept for what
the moving average of inter-arrival times forecasts, by Little's law with a reserve for chance.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import islice
from math import ceil, sqrt

from headway.errors import ExperimentError
from headway.serving.actions import Action, FetchModel, RunBatch, StartInstance, WakeAt
from headway.serving.catalogue import Configuration, models_in
from headway.serving.fleet import FREE, Worker, places
from headway.serving.policies.fronts import NEVER, Option, options_of
from headway.serving.policies.parts import ServingPolicy
from headway.serving.requeststate import RequestState, Stage
from headway.serving.state import ServingState
from headway.serving.workerstate import WorkerState
from headway.units import MILLISECOND

Key = tuple[int, int]
"""(graph, task): a queue."""
LAST, PLAN = "last", "plan"


class PoolPolicy(ServingPolicy):
    """Decides in one place; what a queue's head is given is for ``choices`` to say."""

    central = True
    ranks: int
    margin: float
    late: str
    patience: int
    prewarm: bool

    @abstractmethod
    def choices(self, now: int, state: ServingState, key: Key, requests: Sequence[int], slack: int) -> Sequence[Option]:
        """What to try for the tasks at the head of a queue, in order.

        ``slack``: time to the earliest of their deadlines, less the margin; negative when it has passed.
        """

    def bind(self, state: ServingState) -> None:
        """Options by function, and the queues."""
        if self.late not in (LAST, PLAN):
            raise ExperimentError(f"policy {self.name}: option late={self.late} is neither {LAST} nor {PLAN}")
        catalogue = state.catalogue
        self.options = [_options(state, function) for function in range(len(catalogue.functions))]
        self._most = [max(option.configuration.batch for option in options) for options in self.options]
        self._least = [min(options, key=lambda option: option.configuration) for options in self.options]
        self.rest: list[list[int]] = []
        """By graph and task: the least time from a task to the end of its graph."""
        for graph in catalogue.graphs:
            rest = [0] * len(graph.tasks)
            for task in reversed(graph.order):
                fastest = self.options[graph.tasks[task].function][0].time
                rest[task] = fastest + max((rest[after] for after in graph.successors[task]), default=0)
            self.rest.append(rest)
        self._live: dict[Key, dict[int, None]] = {}
        self._late: dict[Key, dict[int, None]] = {}
        self._waiting: dict[Key, int] = {}
        """The recheck list: queues whose head fitted nowhere, and how often."""
        self._warmth = Warmth(state, [option.time for option in self._least])

    # --- queues -----------------------------------------------------------------------------------------------

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        """Serve the recheck list, then queues with something new, then who is late; then see to warm processes."""
        fresh = self._collect(state)
        keys: dict[Key, None] = dict.fromkeys(self._waiting) if state.touched else {}
        keys.update(fresh)
        for key in keys:
            yield from self._serve(now, state, key)
        if self._late and not self._waiting:
            for key in list(self._late):
                yield from self._serve_late(now, state, key)
        if self.prewarm:
            yield from self._warmth.ahead(now, state)

    def _collect(self, state: ServingState) -> dict[Key, None]:
        """Queues with something new in them; new tasks join their queue's end."""
        fresh: dict[Key, None] = {}
        for request in state.landed:
            rs = state.requests[request]
            for task in rs.graph.entries:
                self._join(rs, task, fresh)
        for request, task in state.ended:
            if (found := state.requests.get(request)) is not None:
                for after in found.graph.successors[task]:
                    if found.stage[after] == Stage.READY:
                        self._join(found, after, fresh)
        for request in state.displaced:
            if (found := state.requests.get(request)) is not None:
                for task, stage in enumerate(found.stage):
                    if stage == Stage.READY:
                        self._join(found, task, fresh)
        return fresh

    def _join(self, rs: RequestState, task: int, fresh: dict[Key, None]) -> None:
        key = (rs.request.graph, task)
        if rs.request.id not in self._late.get(key, ()):
            self._live.setdefault(key, {})[rs.request.id] = None
            fresh[key] = None

    def _serve(self, now: int, state: ServingState, key: Key) -> Iterator[Action]:
        """Run what fits of a queue, from its head on."""
        queue, ready = self._live[key], state.ready.get(key, {})
        function = state.catalogue.graphs[key[0]].tasks[key[1]].function
        while queue:
            heads = [request for request in islice(queue, self._most[function])]
            slack = min(_time_left(now, state, request) for request in heads)
            gone = [r for r in heads if r not in ready]
            for request in gone:
                del queue[request]
            if gone:
                continue
            if self.late == LAST and _time_left(now, state, heads[0]) < self.rest[key[0]][key[1]]:
                del queue[heads[0]]
                self._late.setdefault(key, {})[heads[0]] = None
                continue
            planned = slack if slack >= NEVER else int(slack / (1.0 + self.margin))
            options = self.choices(now, state, key, heads, planned)
            if self._waiting.get(key, 0) >= self.patience:
                options = [*options, self._least[function]]
            action = self._dispatch(state, function, heads, key[1], options)
            if action is None:
                self._waiting[key] = self._waiting.get(key, 0) + 1
                yield from self._warmth.wanted(state, function, options, len(queue))
                return
            for request, _ in action.tasks:
                del queue[request]
            self._waiting.pop(key, None)
            yield action
        self._waiting.pop(key, None)

    def _serve_late(self, now: int, state: ServingState, key: Key) -> Iterator[Action]:
        """The same for those whose deadline is lost: as cheap as can be."""
        queue, ready = self._late[key], state.ready.get(key, {})
        function = state.catalogue.graphs[key[0]].tasks[key[1]].function
        while queue:
            heads = [request for request in islice(queue, self._most[function])]
            gone = [request for request in heads if request not in ready]
            for request in gone:
                del queue[request]
            if gone:
                continue
            options = [*self.choices(now, state, key, heads, NEVER), self._least[function]]
            action = self._dispatch(state, function, heads, key[1], options)
            if action is None:
                yield from self._warmth.wanted(state, function, options, len(queue))
                return
            for request, _ in action.tasks:
                del queue[request]
            yield action
        del self._late[key]

    # --- dispatch ---------------------------------------------------------------------------------------------

    def _dispatch(
        self, state: ServingState, function: int, heads: Sequence[int], task: int, options: Sequence[Option]
    ) -> RunBatch | None:
        """The first option that fits on a worker where it can start at once, and where that is."""
        before = state.requests[heads[0]].graph.predecessors[task]
        near = state.requests[heads[0]].worker[before[0]] if before else -1
        kind = state.catalogue.functions[function]
        room = [worker for worker in state.workers if worker.slices_free and worker.up]
        if kind.cold_start:
            room = [worker for worker in room if worker.warm >> function & 1]
        if not room:
            return None
        for option in options:
            batch, cpus, slices = option.configuration
            tasks = tuple((request, task) for request in heads[:batch])
            best: tuple[tuple[int, ...], WorkerState, tuple[int, ...]] | None = None
            for worker in room:
                if worker.slices_free < slices or worker.cpus_free < cpus:
                    continue
                missing = kind.mask & ~worker.memory.resident
                rank = (missing.bit_count(), worker.id != near, worker.slices_free, worker.cpus_free, worker.id)
                if best is not None and rank >= best[0]:
                    continue
                if worker.worker.gpu.geometry != FREE and places(worker.worker.gpu, slices, worker.taken) is None:
                    continue
                if (evict := make_room(state, worker, function, len(tasks))) is not None:
                    best = rank, worker, evict
            if best is not None:
                return RunBatch(best[1].id, tasks, cpus, slices, best[2])
        return None


def make_room(state: ServingState, worker: WorkerState, function: int, batch: int) -> tuple[int, ...] | None:
    """What must go so that a batch fits into a worker's memory, least recently used first; None: it does not fit."""
    kind, memory = state.catalogue.functions[function], worker.memory
    need = kind.activation_bytes * batch - memory.free_bytes
    if missing := kind.mask & ~memory.resident:
        need += state.catalogue.size_of(missing)
    if need <= 0:
        return ()
    evict = []
    for model in sorted(memory.order, key=memory.order.__getitem__):
        if not kind.mask >> model & 1 and memory.evictable(model):
            evict.append(model)
            need -= memory.size_of((model,))
            if need <= 0:
                return tuple(evict)
    return None


def _time_left(now: int, state: ServingState, request: int) -> int:
    deadline = state.requests[request].request.deadline
    return deadline - now if deadline else NEVER


def _options(state: ServingState, function: int) -> tuple[Option, ...]:
    """What a function can be given on some worker; of GPUs of several types the first one's times."""
    kind = state.catalogue.functions[function]
    weights = state.catalogue.size_of(kind.mask)
    workers = [worker.worker for worker in state.workers]

    def possible(configuration: Configuration) -> bool:
        need = weights + kind.activation_bytes * configuration.batch
        return any(_holds(worker, configuration, need) for worker in workers)

    found = options_of(state.latency.cells(0, function), state.fleet.prices, possible)
    if not found:
        raise ExperimentError(f"function {kind.name}: no worker can hold any of its configurations")
    return found


def _holds(worker: Worker, configuration: Configuration, need: int) -> bool:
    return (
        configuration.cpus <= worker.cpus
        and need <= worker.gpu.memory_bytes
        and configuration.slices <= worker.gpu.slices
        and places(worker.gpu, configuration.slices, 0) is not None
    )


class Warmth:
    """Processes that are started before anybody waits for them."""

    def __init__(self, state: ServingState, times: Sequence[int], every: int = 200 * MILLISECOND) -> None:
        """``times``: what one task of a function takes, about."""
        self._times = times
        self._every = every
        self._checked = -every
        self._last: dict[int, int] = {}
        self._gaps: dict[int, float] = {}
        self._cold = [index for index, kind in enumerate(state.catalogue.functions) if kind.cold_start]

    def ahead(self, now: int, state: ServingState) -> Iterator[Action]:
        """Learn from arrivals; every now and then start what is missing."""
        for request in state.landed:
            rs = state.requests.get(request)
            if rs is not None:
                graph = rs.request.graph
                if graph in self._last:
                    gap = float(now - self._last[graph])
                    known = self._gaps.get(graph)
                    self._gaps[graph] = gap if known is None else known + 0.1 * (gap - known)
                self._last[graph] = now
        if not self._cold or now - self._checked < self._every:
            return
        self._checked = now
        for function in self._cold:
            load = 0.0
            for graph, gap in self._gaps.items():
                calls = sum(task.function == function for task in state.catalogue.graphs[graph].tasks)
                load += calls * self._times[function] / max(gap, 1.0)
            if load:
                yield from self._fill(state, function, ceil(load + 2 * sqrt(load)) + 1)

    def _fill(self, state: ServingState, function: int, wanted: int) -> Iterator[Action]:
        up = [worker for worker in state.workers if worker.up]
        have = {worker.id: processes(worker, function) for worker in up}
        for _ in range(wanted - sum(have.values())):
            worker = min(up, key=lambda w: (have[w.id], -w.slices_free, w.id))
            if have[worker.id] >= worker.worker.gpu.slices:
                return
            have[worker.id] += 1
            yield StartInstance(worker.id, function)

    def wanted(self, state: ServingState, function: int, options: Sequence[Option], count: int) -> Iterator[Action]:
        """Tasks wait: start a process where they would fit, unless enough are being started."""
        if not state.catalogue.functions[function].cold_start:
            return
        starting = sum(list(worker.starting.values()).count(function) for worker in state.workers)
        slices = min(option.configuration.slices for option in options)
        while starting < count:
            room = [w for w in state.workers if w.up and w.slices_free >= slices and not w.warm >> function & 1]
            room = [w for w in room if processes(w, function) < w.worker.gpu.slices]
            if not room:
                return
            worker = min(room, key=lambda w: (processes(w, function), -w.slices_free, w.id))
            starting += 1
            yield StartInstance(worker.id, function)


def processes(worker: WorkerState, function: int) -> int:
    """How many of a function's a worker has: idle, running, starting."""
    count = len(worker.idle.get(function, ()))
    count += sum(batch.function == function for batch in worker.running.values())
    return count + list(worker.starting.values()).count(function)
