"""Live executor of a fleet: turns actions into orders to workers, and what workers answer into events.

The twin of ``fleet/sim/fleet.py``. It holds the values that travel through the graphs: inputs of requests and results
of tasks, each a ``Payload``, until the request ends. An instant is whatever has happened since the last one.
"""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from operator import attrgetter

from headway.fleet.live.workers.messages import (
    Answer,
    Beat,
    Evict,
    Fetch,
    Fetched,
    Finished,
    Hello,
    Loaded,
    Lost,
    Order,
    Rejected,
    Run,
)
from headway.fleet.live.workers.payload import Payload, release
from headway.fleet.model.actions import Action, DropRequest, EvictModel, FetchModel, RunBatch, WakeAt
from headway.fleet.model.events import (
    ActionRejected,
    BatchFinished,
    BatchLoaded,
    Event,
    ModelFetched,
    ModelLost,
    RequestArrived,
    RequestFailed,
    Sent,
    Woke,
    WorkerFailed,
)
from headway.fleet.model.graph import Graph
from headway.fleet.model.request import Request
from headway.fleet.state.feasible import KINDS
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import Batch
from headway.units import MILLISECOND

_RANK = attrgetter("rank")
REFUSAL_PAUSE = MILLISECOND
"""A policy is told of an action that did not happen after this time, if nothing happens before."""
MOST_LOST_WORKERS = 3
"""A request that so many workers had when they ended is taken for the cause, and fails."""
GIVEN_UP = "the policy gave it up: it cannot be answered in time"


class OpenRequest:
    """The values of one request, and whom to tell how it ends."""

    __slots__ = ("graph", "input", "lost_workers", "on_end", "results")

    def __init__(self, value: Payload, graph: Graph, on_end: "OnEnd") -> None:
        self.input = value
        self.graph = graph
        self.results: list[Payload | None] = [None] * len(graph.tasks)
        self.on_end = on_end
        self.lost_workers = 0


OnEnd = Callable[[list[Payload] | None, str], None]
"""Told the results of the last tasks, or None and why there are none. The payloads are removed when it returns."""
Send = Callable[[int, Order], None]
"""Sends an order to a worker by its number."""


class LiveFleet:
    """The executor of a live serving run, and its source of events."""

    def __init__(self, state: ServingState, clock: Callable[[], int], send: Send) -> None:
        self._state = state
        self._clock = clock
        self._send = send
        self._inbox: list[Event] = []
        self._later: list[Event] = []
        """Ends of batches whose load is still in the inbox: they come an instant after it."""
        self._wakes: list[int] = []
        self._wakes_at: set[int] = set()
        """What is in that heap: policies ask for one time again and again."""
        self._refusals: list[Event] = []
        """Actions that did not happen: the policy is told with what happens next, at the latest after a while."""
        self._last = -1
        self._settling: list[int] = []
        """Requests of batches that ended in the last instant: some are answered by now."""
        self.open: dict[int, OpenRequest] = {}
        self.moved_bytes = self.loads = self.hits = self.evictions = self.batches = self.tasks = self.rejected = 0
        """Counts for whoever watches: bytes of weights moved, models that were loaded, models that were there."""
        self.on_ran: Callable[[int, Batch, int], None] = lambda worker, batch, run_ns: None
        """Told how long the function of a batch took on a worker."""
        self._seen_loads: dict[tuple[int, int], int] = {}
        """By worker and model: how often it had come when that was looked at last."""
        self._named: dict[tuple[int, int], int] = {}
        """By worker and model: the lease of the last order that needs it."""

    # --- what happens -----------------------------------------------------------------------------------------

    def arrive(self, request: Request, value: Payload, on_end: OnEnd) -> None:
        """Let a request arrive with its input."""
        self.open[request.id] = OpenRequest(value, self._state.catalogue.graphs[request.graph], on_end)
        self._inbox.append(RequestArrived(request))

    def fail(self, request: int, reason: str, task: int = -1) -> None:
        """End a request without an answer, if it is still open."""
        if request in self.open:
            self._inbox.append(RequestFailed(request, task))
            self._close(request, reason)

    def lose(self, worker: int, why: str = "") -> None:
        """Let a worker fail; a request that several workers have ended with fails too, lest it ends one more.

        ``why``: for what it was killed; empty where it ended by itself.
        """
        for batch in self._state.workers[worker].running.values():
            for request, task in batch.tasks:
                if (open_request := self.open.get(request)) is not None:
                    open_request.lost_workers += 1
                    if open_request.lost_workers == MOST_LOST_WORKERS:
                        name, count = open_request.graph.tasks[task].name, MOST_LOST_WORKERS
                        last = f"; the last one was killed because it {why}" if why else ""
                        self.fail(request, f"task {name}: {count} workers ended while they had it{last}", task)
        self.happen(WorkerFailed(worker))

    def happen(self, event: Event) -> None:
        """Let something else happen: a worker fails or recovers."""
        self._inbox.append(event)

    def on_answer(self, worker: int, answer: Answer) -> None:
        """Turn what a worker answered into events."""
        if isinstance(answer, Finished):
            self._on_finished(worker, answer)
        elif isinstance(answer, Loaded):
            self._inbox.append(BatchLoaded(worker, answer.lease))
        elif isinstance(answer, Fetched):
            self._inbox.append(ModelFetched(worker, answer.model, answer.lease))
        elif isinstance(answer, Rejected):
            self._on_rejected(worker, answer)
        elif isinstance(answer, Lost):
            self._on_lost(worker, answer)
        else:
            assert isinstance(answer, Hello | Beat)  # the server's own concern

    def _on_rejected(self, worker: int, answer: Rejected) -> None:
        """End an order whose models could not be loaded: requests of a batch fail, a fetch is tried with its batch."""
        state = self._state.workers[worker]
        if (batch := state.running.get(answer.lease)) is not None:
            nothing = (Payload(b""),) * len(batch.tasks)
            failures = dict.fromkeys(range(len(batch.tasks)), answer.reason)
            if self._waits(batch):
                self._inbox.append(BatchLoaded(worker, answer.lease))
            self._on_finished(worker, Finished(answer.lease, nothing, failures, 0))
            ends = self._later if self._waits(batch) else self._inbox
            ends.extend(ModelLost(worker, model) for model in answer.missing)
        elif (model := state.fetches.get(answer.lease)) is not None:
            self._inbox.append(ModelFetched(worker, model, answer.lease))
            self._inbox.extend(ModelLost(worker, model) for model in answer.missing)

    def _on_lost(self, worker: int, answer: Lost) -> None:
        """Forget models that a worker evicted by itself, but for those that an order on its way brings again."""
        for model in answer.models:
            if self._named.get((worker, model), 0) <= answer.after:
                self._inbox.append(ModelLost(worker, model))
            else:
                self.hits -= 1
                self._count_load(model)
        self.evictions += len(answer.models)

    def _on_finished(self, worker: int, answer: Finished) -> None:
        batch = self._state.workers[worker].running.get(answer.lease)
        tasks = batch.tasks if batch is not None else ()
        for at, result in enumerate(answer.results):
            request, task = tasks[at] if at < len(tasks) else (-1, -1)
            if (open_request := self.open.get(request)) is None:
                release(result)
            elif at in answer.failures:
                self.fail(request, f"task {open_request.graph.tasks[task].name}: {answer.failures[at]}", task)
            else:
                if open_request.results[task] is None:
                    open_request.results[task] = result
                else:  # computed again for one successor: another may be about to read the first result
                    release(result)
        if batch is not None:
            self.tasks += len(tasks)
            if not answer.failures:
                self.on_ran(worker, batch, answer.run_ns)
        waits = batch is not None and self._waits(batch)
        (self._later if waits else self._inbox).append(BatchFinished(worker, answer.lease))

    def _waits(self, batch: Batch) -> bool:
        """Return whether the state still waits for what a batch has to load."""
        return batch.start > batch.began and not batch.loaded

    def next(self) -> tuple[int, Sequence[Event]] | None:
        """Return what has happened since the last instant, in rank order; None: nothing."""
        if self._settling:
            self._answer()
        now = max(self._clock(), self._last + 1)
        events, wakes = self._inbox, self._wakes
        if wakes and wakes[0] <= now:
            while wakes and wakes[0] <= now:
                self._wakes_at.discard(heappop(wakes))
            events.append(Woke())
        if not events:
            return None
        events += self._refusals
        self._refusals = []
        self._inbox, self._later, self._last = self._later, [], now
        self._settling = [request for event in events for request in self._ends(event)]
        if len(events) > 1:
            events.sort(key=_RANK)
        return now, events

    def _ends(self, event: Event) -> list[int]:
        """Return the requests whose tasks end with an event."""
        if type(event) is not BatchFinished:
            return []
        batch = self._state.workers[event.worker].running.get(event.lease)
        return [request for request, _ in batch.tasks] if batch is not None else []

    def _answer(self) -> None:
        """Tell the results of the requests whose last task has ended."""
        for request in dict.fromkeys(self._settling):
            if request not in self._state.requests and request in self.open:
                self._close(request, "")
        self._settling = []

    def _close(self, request: int, reason: str) -> None:
        """Tell how a request ended, and remove its values."""
        closed = self.open.pop(request)
        last = [result for result, after in zip(closed.results, closed.graph.successors, strict=True) if not after]
        closed.on_end(None if reason else [result for result in last if result is not None], reason)
        for payload in (closed.input, *closed.results):
            if payload is not None:
                release(payload)

    def blocks(self) -> set[str]:
        """Return the names of all blocks of shared memory that open requests need."""
        values = [value for each in self.open.values() for value in (each.input, *each.results) if value is not None]
        return {value.block for value in values if value.block}

    @property
    def due(self) -> int | None:
        """Return when the policy wants to be asked again; None: it did not say."""
        return self._wakes[0] if self._wakes else None

    def counts(self) -> dict[str, int]:
        """Return what was carried out so far, by name."""
        named = {"tasks": self.tasks, "batches": self.batches, "loads": self.loads, "cache_hits": self.hits}
        moved = {"evictions": self.evictions, "moved_bytes": self.moved_bytes}
        return {**named, **moved, "rejected_actions": self.rejected}

    # --- what is done -----------------------------------------------------------------------------------------

    def execute(self, now: int, action: Action) -> None:
        """Send the order that an action means."""
        if type(action) is RunBatch:
            self._run(action)
        elif isinstance(action, WakeAt):
            self._wake_at(max(action.time, now + 1))
        elif isinstance(action, FetchModel):
            self._count_loads(action.worker, (action.model,), action.evict)
            self._send(action.worker, Fetch(self._state.leases, action.model, action.evict))
        elif isinstance(action, EvictModel):
            self.evictions += 1
            self._send(action.worker, Evict(action.model))
        elif isinstance(action, DropRequest) and action.request in self.open:
            self._close(action.request, GIVEN_UP)

    def _run(self, action: RunBatch) -> None:
        state, lease = self._state, self._state.leases
        batch = state.workers[action.worker].running[lease]
        inputs = []
        for request, task in batch.tasks:
            open_request = self.open[request]
            if before := open_request.graph.predecessors[task]:
                found = tuple([result for other in before if (result := open_request.results[other]) is not None])
                assert len(found) == len(before), "a task is ready when the results of all its predecessors are there"
                inputs.append(found)
            else:
                inputs.append((open_request.input,))
        self.batches += 1
        self._count_loads(action.worker, batch.models, action.evict)
        loads = batch.start > batch.began
        order = Run(lease, batch.function, tuple(inputs), batch.models, action.evict, action.cpus, action.slices, loads)
        self._send(action.worker, order)

    def _count_loads(self, worker: int, models: Sequence[int], evict: Sequence[int]) -> None:
        """Count the models that an order needs by whether they were there."""
        self.evictions += len(evict)
        came, lease = self._state.workers[worker].memory.loads, self._state.leases
        for model in models:
            self._named[worker, model] = lease
            if self._seen_loads.get((worker, model)) == came.get(model):
                self.hits += 1
            else:
                self._seen_loads[worker, model] = came[model]
                self._count_load(model)

    def _count_load(self, model: int) -> None:
        self.loads += 1
        self.moved_bytes += self._state.catalogue.models[model].weights_bytes

    def follow(self, now: int, caused: list[Sent]) -> None:
        """Let inputs arrive at once: workers of one machine read them from shared memory."""
        self._inbox.extend(event for _, event in caused)

    def refused(self, now: int, action: Action) -> None:
        """Tell the policy later of an action that did not happen: told at once, it may ask for the same for ever."""
        self.rejected += 1
        request, worker = getattr(action, "request", -1), getattr(action, "worker", -1)
        self._refusals.append(ActionRejected(KINDS[type(action)], request, worker))
        self._wake_at(now + REFUSAL_PAUSE)

    def _wake_at(self, time: int) -> None:
        if time not in self._wakes_at:
            self._wakes_at.add(time)
            heappush(self._wakes, time)
