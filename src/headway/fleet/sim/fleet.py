"""Simulated executor of a fleet: turns actions into future events, by expected run times and their spread.

The event queue holds ends of batches, loads, fetches, inputs on their way, faults and wake-ups. Arrivals are read from
the workload as time passes. An event whose worker has failed since is recognised as stale by its lease.
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from math import exp
from typing import Protocol

from headway.fleet.model.actions import (
    Action,
    FetchModel,
    MoveTask,
    PlaceRequest,
    RunBatch,
    StartInstance,
    StartWorker,
    WakeAt,
)
from headway.fleet.model.events import (
    BatchFinished,
    BatchLoaded,
    Event,
    InstanceStarted,
    ModelFetched,
    RequestArrived,
    Sent,
    Woke,
    WorkerFailed,
    WorkerRecovered,
    WorkerStarted,
)
from headway.fleet.model.request import Request
from headway.fleet.sim.engines import Engines
from headway.fleet.state.state import ServingState
from headway.streams import small_stream

_NEVER = 1 << 63
_WOKE = Woke.rank
_ARRIVED = RequestArrived.rank


class WorkerFaults(Protocol):
    """A source of worker failures and recoveries."""

    def first(self) -> Sequence[tuple[int, WorkerFailed | WorkerRecovered]]:
        """Return the first failure of each worker that fails."""

    def after(
        self, now: int, event: WorkerFailed | WorkerRecovered
    ) -> tuple[int, WorkerFailed | WorkerRecovered] | None:
        """Return the next failure or recovery of the same worker; None if there is none."""


class SimulatedFleet:
    """The executor of a simulated serving run, and its source of events."""

    def __init__(
        self, requests: Sequence[Request], state: ServingState, seed: int = 0, faults: WorkerFaults | None = None
    ) -> None:
        self.requests = requests
        self._state = state
        self._seed = seed
        self._faults = faults
        self._spreads = [function.profile.spread for function in state.catalogue.functions]
        self._cursor = 0
        self._arrival = requests[0].arrival if requests else _NEVER
        self._heap: list[tuple[int, int, int, Event]] = []
        """(time, rank, number, event)."""
        self._number = 0
        self._wakes: set[int] = set()
        generates = any(function.generate is not None for function in state.catalogue.functions)
        self._engines = Engines(state) if generates else None
        for time, event in faults.first() if faults is not None else ():
            self._push(time, event)

    def next(self) -> tuple[int, Sequence[Event]] | None:
        """Return the next instant and its events in rank order."""
        state, heap, arrival = self._state, self._heap, self._arrival
        if self._engines is not None:
            self._generate(self._engines)
        if not heap or arrival < heap[0][0]:
            return None if arrival == _NEVER else (arrival, self._arrivals())
        if arrival == _NEVER and state.over():
            return None
        now, rank, _, event = heap[0]
        events: list[Event] = []
        while rank < _ARRIVED:
            heappop(heap)
            events.append(event)
            if self._faults is not None:
                self._schedule_next_fault(now, event)
            if not heap or heap[0][0] != now:
                break
            _, rank, _, event = heap[0]
        if arrival == now:
            events += self._arrivals()
        while heap and heap[0][0] == now:
            heappop(heap)
            self._wakes.discard(now)
            events.append(Woke())
        return now, events

    def _arrivals(self) -> list[Event]:
        """Return the arrivals of the next instant that has any."""
        requests, cursor, now = self.requests, self._cursor, self._arrival
        events: list[Event] = []
        while self._arrival == now:
            events.append(RequestArrived(requests[cursor]))
            cursor += 1
            self._arrival = requests[cursor].arrival if cursor < len(requests) else _NEVER
        self._cursor = cursor
        return events

    def _schedule_next_fault(self, now: int, event: Event) -> None:
        """Schedule the next failure or recovery of the same worker after one of these."""
        if not isinstance(event, WorkerFailed | WorkerRecovered):
            return
        if self._engines is not None and isinstance(event, WorkerFailed):
            self._engines.fail(event.worker)
        assert self._faults is not None
        if (following := self._faults.after(now, event)) is not None:
            self._push(*following)

    def _generate(self, engines: Engines) -> None:
        """Schedule what engines do up to the next instant."""
        heap = self._heap
        while (caused := engines.step(min(heap[0][0] if heap else _NEVER, self._arrival))) is not None:
            for time, event in caused:
                self._push(time, event)

    def execute(self, now: int, action: Action) -> None:
        """Schedule what an action will cause."""
        if type(action) is RunBatch:
            lease, worker = self._state.leases, action.worker
            batch = self._state.workers[worker].running[lease]
            if batch.cache_bytes:
                assert self._engines is not None
                self._engines.run(now, batch, worker, self._state.requests[batch.tasks[0][0]].request)
                return
            if batch.start > now:
                self._push(batch.start, BatchLoaded(worker, lease))
            spread, end = self._spreads[batch.function], batch.end
            if spread:
                request, task = batch.tasks[0]
                draw = small_stream(self._seed, f"{request}:{task}").gauss(0.0, spread)
                end = batch.start + max(1, round((end - batch.start) * exp(draw)))
            self._push(end if end > now else now + 1, BatchFinished(worker, lease))
        elif type(action) is PlaceRequest or type(action) is MoveTask:
            return  # the inputs that they send come to ``follow``
        elif isinstance(action, WakeAt):
            time = max(action.time, now + 1)
            if time not in self._wakes and time < _NEVER:
                self._wakes.add(time)
                self._push(time, Woke())
        elif isinstance(action, FetchModel):
            memory = self._state.workers[action.worker].memory
            ready = max(memory.ready[action.model], now + 1)  # an instant is decided once
            self._push(ready, ModelFetched(action.worker, action.model, self._state.leases))
        elif isinstance(action, StartInstance):
            ready = now + self._state.catalogue.functions[action.function].cold_start
            self._push(ready, InstanceStarted(action.worker, action.function, self._state.leases))
        elif isinstance(action, StartWorker):
            ready = now + max(1, self._state.fleet.startup)
            self._push(ready, WorkerStarted(action.worker, self._state.leases))

    def follow(self, now: int, caused: list[Sent]) -> None:
        """Schedule the arrival of inputs that were sent."""
        for time, event in caused:
            self._push(time, event)

    def refused(self, now: int, action: Action) -> None:
        """Do nothing: a ``Controller`` decides again at once."""

    def _push(self, time: int, event: Event) -> None:
        self._number += 1
        heappush(self._heap, (time, event.rank, self._number, event))
