"""Replay of a serving tape: read its events, and ask a policy again at each instant.

``replay_on`` shows a fresh policy the recorded events and returns the tape that it writes. It is identical if that is
the policy that was recorded. A state at T is the replay of the tape until T.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from headway.core.replay import decide_again, instants
from headway.core.tape import Tape
from headway.errors import TapeError
from headway.fleet.model.events import (
    ActionRejected,
    BatchFinished,
    BatchLoaded,
    Event,
    FirstToken,
    InstanceStarted,
    ModelFetched,
    ModelLost,
    RequestArrived,
    RequestFailed,
    TaskArrived,
    TimeMeasured,
    Woke,
    WorkerFailed,
    WorkerRecovered,
    WorkerStarted,
)
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind
from headway.fleet.policies.parts import ServingPolicy
from headway.fleet.state.state import ServingState

_STALE, _ARRIVED, _FINISHED = int(Kind.STALE), int(Kind.ARRIVED), int(Kind.FINISHED)
_TASK_ARRIVED, _LOADED = int(Kind.TASK_ARRIVED), int(Kind.LOADED)
_OF_WORKERS = (
    *(Kind.WORKER_FAILED, Kind.WORKER_RECOVERED, Kind.WORKER_STARTED),
    *(Kind.START_WORKER, Kind.DRAIN_WORKER, Kind.STOP_WORKER),
)


def events_of(requests: Sequence[Request], tape: Tape) -> Iterator[tuple[int, Sequence[Event]]]:
    """Return the instants of a tape, each with the events that happened then."""
    return instants(tape, int(Kind.PLACE), partial(_event, {request.id: request for request in requests}))


def _event(requests: dict[int, Request], row: list[int]) -> Event:
    time, kind, subject, lease, place, detail, value = row
    if kind == _STALE:
        kind = value
    if kind == _FINISHED:  # nearly all events are one of these, and matching enumerations is slow
        return BatchFinished(place, lease)
    if kind == _TASK_ARRIVED:
        return TaskArrived(subject, detail, lease)
    if kind == _LOADED:
        return BatchLoaded(place, lease, detail)
    if kind == _ARRIVED and subject in requests:
        return RequestArrived(requests[subject])
    match kind:
        case Kind.ARRIVED:
            raise TapeError(f"the tape has request {subject} arrive at {time} ns; the workload has no such request")
        case Kind.FIRST_TOKEN:
            return FirstToken(place, lease)
        case Kind.FETCHED:
            return ModelFetched(place, detail, lease)
        case Kind.INSTANCE_STARTED:
            return InstanceStarted(place, detail, lease)
        case Kind.WORKER_FAILED:
            return WorkerFailed(place)
        case Kind.WORKER_RECOVERED:
            return WorkerRecovered(place)
        case Kind.WORKER_STARTED:
            return WorkerStarted(place, lease)
        case Kind.WOKE:
            return Woke()
        case Kind.REQUEST_FAILED:
            return RequestFailed(subject, detail)
        case Kind.MODEL_LOST:
            return ModelLost(place, detail)
        case Kind.MEASURED:
            return TimeMeasured(place, detail & 0xFFFF, detail >> 16, value)
        case Kind.REJECTED:
            return ActionRejected(value, subject, place)
        case _:
            raise TapeError(f"the tape has a row of kind {kind} at {time} ns; no serving event has that number")


def replay_on(
    state: ServingState, requests: Sequence[Request], tape: Tape, policy: ServingPolicy, *, complete: bool = False
) -> Tape:
    """Return the tape that a policy writes when shown the recorded events; it is bound to the state, both fresh.

    ``complete``: the tape must be that of a whole run; a tape that ends early is refused.
    """
    again = decide_again(state, policy, events_of(requests, tape))
    if complete and not state.over() and again.digest == tape.digest:
        left = state.to_come + len(state.requests)
        raise TapeError(f"the tape ends before the run did: {left:,} requests are open at its last row")
    return again


def about(row: Sequence[int]) -> str:
    """Return what a row of the tape is about: a request or a worker."""
    _, kind, subject, _, place = row[:5]
    return f"request {subject}" if subject >= 0 else f"worker {place}" if kind in _OF_WORKERS else ""
