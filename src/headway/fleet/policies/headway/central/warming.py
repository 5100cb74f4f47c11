"""Warm processes: how many of each function are kept, where they start, when an idle one is stopped.

The number follows Little's law: arrival rate times the time that a process is busy for each request. A reserve covers
chance, and the recent peak covers bursts. A surplus process is stopped once the memory of its idle time has cost as
much as a cold start would: the classic ski-rental rule, at most twice the cost of knowing the future.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import ceil, exp, sqrt

from headway.fleet.model.actions import Action, FetchModel, StartInstance, StopInstance
from headway.fleet.model.catalogue import models_in
from headway.fleet.policies.central.fronts import most_processes
from headway.fleet.policies.headway.central.offers import MISSED, idle_usd
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import WorkerState
from headway.units import MILLISECOND, SECOND

UPDATE_INTERVAL = 500 * MILLISECOND
"""How often processes are compared with the target, once requests have come for so long."""
EARLIEST = 50 * MILLISECOND
"""The same until then, because a cold start that begins later ends later. Also the least time to take a rate over."""
CLUMP = 3
"""At most so many processes are kept for each request seen: a few that came together at the beginning are no rate."""
STUCK = 4
"""After this many adjustments in a row at which tasks wait though processes are idle, one is started elsewhere."""
MEMORY = 20 * SECOND
"""Time constant of the averages of arrival rates."""
WAITED = 1.0
"""Cost of waiting for one of several processes, as a multiple of the value of an answer: as much as a refusal."""
NEVER = 1 << 62
Rank = tuple[int, bool, int]


@dataclass(slots=True)
class Rate:
    """Exponentially averaged rate: events a nanosecond, over about the last ``memory``."""

    memory: int
    _began: int = -1
    _last: int = -1
    _weight: float = 0.0
    count: int = 0

    def note(self, now: int) -> None:
        """Count one more event."""
        self.count += 1
        if self._began < 0:
            self._began = self._last = now
        self._weight = self._weight * exp((self._last - now) / self.memory) + 1.0
        self._last = now

    def value(self, now: int) -> float:
        """Return the rate, corrected for a short history."""
        if self._began < 0:
            return 0.0
        seen = 1.0 - exp((self._began - now) / self.memory)
        # the first event opens the window and is not in it
        weight = self._weight * exp((self._last - now) / self.memory) - exp((self._began - now) / self.memory)
        return max(weight, 0.0) / max(self.memory * seen, EARLIEST)


@dataclass(slots=True)
class Peak:
    """The recent peak of concurrent demand: of the last ``memory``, and at most twice as long ago."""

    memory: int
    _before: int = 0
    _lately: int = 0
    _turned: int = 0

    def note(self, now: int, wanted: int) -> None:
        """Note how many were wanted at once."""
        if now - self._turned >= self.memory:
            self._before = self._lately if now - self._turned < 2 * self.memory else 0
            self._lately, self._turned = 0, now
        self._lately = max(self._lately, wanted)

    @property
    def value(self) -> int:
        """Return the peak as of the last note."""
        return max(self._before, self._lately)


class Warming:
    """Starts and stops the processes of all functions."""

    def __init__(
        self, state: ServingState, capable: Sequence[Sequence[int]], worths: Sequence[float], spare: float
    ) -> None:
        """Start the averages.

        ``capable``: by function, the workers that can run it. ``worths``: by graph, the value of an answer.
        ``spare``: size of the reserve, in standard deviations.
        """
        self.spare = spare
        self._capable = capable
        functions = state.catalogue.functions
        self._calls = [
            [sum(task.function == index for task in graph.tasks) for graph in state.catalogue.graphs]
            for index in range(len(functions))
        ]
        self._rates = [Rate(MEMORY) for _ in state.catalogue.graphs]
        base = [min(row[index] for row in state.latency.base) for index in range(len(functions))]
        self._busy = [float(time) for time in base]
        """By function: how long a process is busy for one request."""
        self._ends: list[list[int]] = [[] for _ in functions]
        """By function: when its batches are expected to end."""
        self._begun, _, _ = self._counts(state)
        """By function: the processes that a warm fleet begins with."""
        self.ready_from = [
            NEVER if function.cold_start and not self._begun[at] else 0 for at, function in enumerate(functions)
        ]
        """By function: the time from which some worker has a process of it."""
        self._patience = [self._break_even(state, index, MISSED, worths) for index in range(len(functions))]
        """By function: how long its last process is kept idle. Without it the next request misses its deadline."""
        self._peaks = [Peak(self._break_even(state, index, WAITED, worths)) for index in range(len(functions))]
        """By function: the peak number of processes; with one fewer a request would have waited."""
        self._most = [
            sum(most_processes(state.fleet.workers[index], kind) for index in workers)
            for kind, workers in zip(state.catalogue.functions, capable, strict=True)
        ]
        """By function: how many processes can be busy at once."""
        self._looked = -UPDATE_INTERVAL
        self._began = -1
        """When the first request came."""
        self._stuck = [0] * len(functions)
        """By function: adjustments in a row at which its tasks waited though processes were idle."""

    def _break_even(self, state: ServingState, function: int, lost: float, worths: Sequence[float]) -> int:
        """Return how long a process may be idle before that costs as much as doing without it.

        ``lost``: what a request loses without it, as a multiple of the value of an answer.
        """
        kind = state.catalogue.functions[function]
        if not (usd := idle_usd(state.fleet.prices, kind)) or not kind.cold_start:
            return NEVER
        worth = max((worth for worth, calls in zip(worths, self._calls[function], strict=True) if calls), default=0.0)
        return kind.cold_start + round(lost * worth / usd)

    def on_request_arrived(self, now: int, graph: int) -> None:
        """Count a request for a graph."""
        if self._began < 0:
            self._began = now
        self._rates[graph].note(now)

    def on_batch_started(self, now: int, function: int, end: int, requests: int) -> None:
        """Note a batch of so many requests that was started, and when it ends."""
        self._busy[function] += 0.05 * ((end - now) / requests - self._busy[function])
        heappush(self._ends[function], end)
        self.note_demand(now, function, 0)

    def note_demand(self, now: int, function: int, waiting: int) -> None:
        """Note how many tasks wait for a process, besides those that run."""
        ends = self._ends[function]
        while ends and ends[0] <= now:
            heappop(ends)
        self._peaks[function].note(now, min(len(ends) + waiting, self._most[function]))

    def rate(self, now: int, function: int) -> float:
        """Return how many tasks of a function arrive in a nanosecond."""
        calls = self._calls[function]
        return sum(rate.value(now) * count for rate, count in zip(self._rates, calls, strict=True) if count)

    def target(self, now: int, function: int) -> int:
        """Return how many processes of a function there should be."""
        if not (rate := self.rate(now, function)) or rate * self._patience[function] < 1.0:
            return 0
        busy = rate * self._busy[function]
        calls = sum(rate.count * count for rate, count in zip(self._rates, self._calls[function], strict=True))
        most = min(self._most[function], CLUMP * calls)
        self._peaks[function].note(now, min(ceil(busy + self.spare * sqrt(busy)), most))
        return self._peaks[function].value

    def ensure_one(self, now: int, state: ServingState, graph: int) -> Iterator[Action]:
        """Start a process of each function of a graph that has none anywhere."""
        for task in state.catalogue.graphs[graph].tasks:
            if self.ready_from[task.function] == NEVER and (where := self._where(state, task.function)) is not None:
                yield StartInstance(where, task.function)
                self.ready_from[task.function] = now + state.catalogue.functions[task.function].cold_start

    def adjust(self, now: int, state: ServingState, waiting: Collection[int]) -> Iterator[Action]:
        """Start missing processes and stop surplus ones, at intervals. ``waiting``: queued functions."""
        if now - self._looked < (EARLIEST if now - self._began < UPDATE_INTERVAL else UPDATE_INTERVAL):
            return
        self._looked = now
        idle, running, starting = self._counts(state)
        for index, function in enumerate(state.catalogue.functions):
            if not self._capable[index]:
                continue
            if function.cold_start:
                if idle[index] or running[index]:
                    self.ready_from[index] = 0
                elif not starting[index]:
                    self.ready_from[index] = NEVER
                have = idle[index] + running[index] + starting[index]
                wanted = max(self.target(now, index), int(index in waiting))
                if now < self._peaks[index].memory:  # too early to tell that they are not needed
                    wanted = max(wanted, min(have, self._begun[index]))
                stuck = index in waiting and idle[index] and not running[index] and not starting[index]
                self._stuck[index] = self._stuck[index] + 1 if stuck else 0
                if self._stuck[index] >= STUCK:  # none of them is where the tasks fit, and nothing would ever happen
                    wanted = max(wanted, have + 1)
                yield from self._scale(now, state, index, have, wanted)
            if function.mask:
                yield from self._fetch(state, index)

    def _scale(self, now: int, state: ServingState, function: int, have: int, wanted: int) -> Iterator[Action]:
        """Start or stop processes of a function to get from ``have`` to ``wanted``."""
        ranks: dict[int, Rank] = {}
        for _ in range(wanted - have):
            if (worker := self._where(state, function, ranks)) is not None:
                yield StartInstance(worker, function)
                ranks[worker] = self._rank(state, function, worker)
                ready = now + state.catalogue.functions[function].cold_start
                self.ready_from[function] = min(self.ready_from[function], ready)
        if have > wanted:
            yield from self._stop_idle(now, state, function, have, wanted)

    def _counts(self, state: ServingState) -> tuple[Counter[int], Counter[int], Counter[int]]:
        """Return by function the numbers of idle, busy and starting processes."""
        return (
            Counter(function for worker in state.workers for function, since in worker.idle.items() for _ in since),
            Counter(batch.function for worker in state.workers for batch in worker.running.values()),
            Counter(function for worker in state.workers for function in worker.starting.values()),
        )

    def _where(self, state: ServingState, function: int, ranks: dict[int, Rank] | None = None) -> int | None:
        """Return the worker for a new process; None: no worker that can run the function is up.

        It has the fewest processes of the function, then its weights, then the fewest processes of any. ``ranks``
        caches the workers' ranks and is filled where it is empty.
        """
        ranks = {} if ranks is None else ranks
        if not ranks:
            up = (index for index in self._capable[function] if state.workers[index].up)
            ranks.update((index, self._rank(state, function, index)) for index in up)
        return min(ranks, key=ranks.__getitem__, default=None)

    def _rank(self, state: ServingState, function: int, index: int) -> Rank:
        worker = state.workers[index]
        missing = state.catalogue.functions[function].mask & ~worker.memory.resident
        everything = sum(map(len, worker.idle.values())) + len(worker.starting) + len(worker.running)
        return worker.processes(function), bool(missing), everything

    def _stop_idle(self, now: int, state: ServingState, function: int, have: int, wanted: int) -> Iterator[Action]:
        """Stop surplus idle processes; the last one of a function only after a longer time."""
        for index in self._capable[function]:
            worker = state.workers[index]
            while have > wanted and (idle := worker.idle.get(function)):
                if have == 1 and now - idle[0] <= self._patience[function]:
                    return
                yield StopInstance(index, function)
                have -= 1

    def _fetch(self, state: ServingState, function: int) -> Iterator[Action]:
        """Fetch weights to workers with an idle process, into free memory only."""
        mask = state.catalogue.functions[function].mask
        for index in self._capable[function]:
            worker = state.workers[index]
            ready = worker.idle.get(function) or not state.catalogue.functions[function].cold_start
            if worker.up and ready and not worker.fetches:
                for model in models_in(mask & ~worker.memory.resident):
                    if state.catalogue.models[model].size_bytes <= worker.memory.free_bytes:
                        yield FetchModel(index, model)
                        break

    def victims(
        self, now: int, state: ServingState, worker: WorkerState, function: int, count: int
    ) -> tuple[int, ...] | None:
        """Return models to evict for a batch's weights and activations, the least requested first.

        None: evicting does not free enough.
        """
        kind, memory = state.catalogue.functions[function], worker.memory
        need = state.catalogue.size_of(kind.mask & ~memory.resident) + kind.activation_bytes * count
        need -= memory.free_bytes
        if need <= 0:
            return ()
        asked = dict.fromkeys(
            (model for model in memory.order if not kind.mask >> model & 1 and memory.evictable(model)), 0.0
        )
        for other, user in enumerate(state.catalogue.functions):
            for model in user.models:
                if model in asked:
                    asked[model] += self.rate(now, other)
        return memory.enough(sorted(asked, key=lambda model: (asked[model], memory.order[model])), need)


def carried(state: ServingState, graph: int, task: int) -> bool:
    """Return whether a task has inputs of any size."""
    plan = state.catalogue.graphs[graph]
    before = plan.predecessors[task]
    return any(plan.tasks[other].output_bytes for other in before) or bool(not before and plan.tasks[task].input_bytes)


def inputs_of(state: ServingState, request: int, task: int) -> list[tuple[int, int, int]]:
    """Return a task's inputs: for each the workers that hold it (bits), the one that sends it, its bytes."""
    rs = state.requests[request]
    if not (before := rs.graph.predecessors[task]):
        ingress = rs.request.ingress
        return [(1 << ingress if ingress >= 0 else 0, ingress, rs.graph.tasks[task].input_bytes)]
    copies = [rs.copies[other] for other in before]
    sizes = [rs.graph.tasks[other].output_bytes for other in before]
    return [(held, (held & -held).bit_length() - 1, size) for held, size in zip(copies, sizes, strict=True)]


def inputs_take(state: ServingState, inputs: Iterable[tuple[int, int, int]], target: int) -> int:
    """Return how long it takes until all inputs are on a worker."""
    absent = ((source, size) for held, source, size in inputs if not held >> target & 1)
    return max((state.fleet.copy_time(source, target, size) for source, size in absent), default=0)


def weights_take(now: int, state: ServingState, worker: WorkerState, mask: int) -> int:
    """Return how long it takes until weights are in a worker's GPU memory."""
    memory = worker.memory
    ready = max((memory.ready[model] for model in models_in(mask) if model in memory.ready), default=now)
    if missing := models_in(mask & ~memory.resident):
        ready = max(ready, worker.link_free)
        for model in missing:
            size = state.catalogue.models[model].size_bytes
            ready += state.fleet.fetch_time(size, from_disk=model not in worker.host)
    return max(ready - now, 0)
