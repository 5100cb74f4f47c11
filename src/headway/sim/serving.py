"""A fleet in virtual time: a batch becomes the end it will have, by its expected time and its spread.

The queue of events holds ends, loads, fetches, inputs under way, faults and wake-ups; arrivals are read from the
workload as time passes. What was overtaken (its worker is gone) is recognised by its lease and dropped.
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from math import exp
from typing import Protocol

from headway.serving.actions import Action, FetchModel, RunBatch, StartInstance, WakeAt
from headway.serving.events import (
    BatchFinished,
    BatchLoaded,
    Event,
    InstanceStarted,
    ModelFetched,
    RequestArrived,
    TaskArrived,
    Woke,
    WorkerFailed,
    WorkerRecovered,
)
from headway.serving.request import Request
from headway.serving.state import ServingState
from headway.streams import small_stream

_NEVER = 1 << 63
_WOKE = Woke.rank
_ARRIVED = RequestArrived.rank


class WorkerFaults(Protocol):
    """What befalls workers."""

    def first(self) -> Sequence[tuple[int, WorkerFailed | WorkerRecovered]]:
        """What comes first, for each worker that something befalls."""

    def after(
        self, now: int, event: WorkerFailed | WorkerRecovered
    ) -> tuple[int, WorkerFailed | WorkerRecovered] | None:
        """What comes after an event of the same worker."""


class SimulatedFleet:
    """The executor of a simulated serving run, and its source of events."""

    def __init__(
        self, requests: Sequence[Request], state: ServingState, seed: int = 0, faults: WorkerFaults | None = None
    ) -> None:
        self.requests = requests
        self._state = state
        self._seed = seed
        self._faults = faults
        self._cursor = 0
        self._arrival = requests[0].arrival if requests else _NEVER
        self._heap: list[tuple[int, int, int, Event]] = []
        """(time, rank, number, event)."""
        self._number = 0
        self._wakes: set[int] = set()
        for time, event in faults.first() if faults is not None else ():
            self._push(time, event)

    def next(self) -> tuple[int, Sequence[Event]] | None:
        """The next instant and its events in rank order."""
        state = self._state
        if state.outbox:
            for due, request, task, moves in state.outbox:
                self._push(due, TaskArrived(request, task, moves))
            state.outbox.clear()
        heap = self._heap
        if self._arrival == _NEVER and (not heap or state.over()):
            return None
        now = min(self._arrival, heap[0][0]) if heap else self._arrival
        events: list[Event] = []
        while heap and heap[0][0] == now and heap[0][1] < _ARRIVED:
            event = heappop(heap)[3]
            events.append(event)
            if isinstance(event, WorkerFailed | WorkerRecovered):
                self._befall(now, event)
        while self._arrival == now:
            events.append(RequestArrived(self.requests[self._cursor]))
            self._cursor += 1
            self._arrival = self.requests[self._cursor].arrival if self._cursor < len(self.requests) else _NEVER
        while heap and heap[0][0] == now:
            heappop(heap)
            self._wakes.discard(now)
            events.append(Woke())
        return now, events

    def execute(self, now: int, action: Action) -> None:
        """Schedule what an action will cause."""
        if isinstance(action, RunBatch):
            lease = self._state.leases
            batch = self._state.workers[action.worker].running[lease]
            if batch.start > now:
                self._push(batch.start, BatchLoaded(action.worker, lease))
            spread = self._state.catalogue.functions[batch.function].profile.spread
            took = batch.end - batch.start
            if spread:
                request, task = batch.tasks[0]
                draw = small_stream(self._seed, f"{request}:{task}").gauss(0.0, spread)
                took = max(1, round(took * exp(draw)))
            self._push(max(batch.start + took, now + 1), BatchFinished(action.worker, lease))
        elif isinstance(action, WakeAt):
            time = max(action.time, now + 1)
            if time not in self._wakes and time < _NEVER:
                self._wakes.add(time)
                self._push(time, Woke())
        elif isinstance(action, FetchModel):
            worker = self._state.workers[action.worker]
            ready = max(worker.memory.ready[action.model], now + 1)  # an instant is decided once
            self._push(ready, ModelFetched(action.worker, action.model, self._state.leases))
        elif isinstance(action, StartInstance):
            ready = now + self._state.catalogue.functions[action.function].cold_start
            self._push(ready, InstanceStarted(action.worker, action.function, self._state.leases))

    def _push(self, time: int, event: Event) -> None:
        self._number += 1
        heappush(self._heap, (time, event.rank, self._number, event))

    def _befall(self, now: int, event: WorkerFailed | WorkerRecovered) -> None:
        assert self._faults is not None
        if (following := self._faults.after(now, event)) is not None:
            self._push(*following)
