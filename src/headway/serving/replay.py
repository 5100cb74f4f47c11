"""From a serving tape back to what happened: its events again, and the policy asked again at each instant.

``replay`` shows a fresh policy the recorded events and gives the tape that it writes: identical, if it is the policy
that was recorded. A state at T is the replay of the tape until T.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from headway.core.replay import first_difference as differing
from headway.core.scheduler import Scheduler
from headway.core.tape import Tape, TapeWriter
from headway.errors import StalledRunError, TapeError
from headway.serving.actions import Action
from headway.serving.catalogue import Catalogue
from headway.serving.events import (
    BatchFinished,
    BatchLoaded,
    Event,
    InstanceStarted,
    ModelFetched,
    RequestArrived,
    Sent,
    TaskArrived,
    Woke,
    WorkerFailed,
    WorkerRecovered,
)
from headway.serving.fleet import Fleet
from headway.serving.latency import LatencyModel
from headway.serving.policies.parts import ServingPolicy
from headway.serving.request import Request
from headway.serving.rows import Kind
from headway.serving.state import ServingState

CHUNK_ROWS = 65_536
_STALE, _ARRIVED, _FINISHED, _FIRST_ACTION = int(Kind.STALE), int(Kind.ARRIVED), int(Kind.FINISHED), int(Kind.PLACE)
_TASK_ARRIVED, _LOADED = int(Kind.TASK_ARRIVED), int(Kind.LOADED)
_OF_WORKERS = (Kind.WORKER_FAILED, Kind.WORKER_RECOVERED)


def rows_of(tape: Tape) -> Iterator[list[int]]:
    """The rows as plain lists, a chunk of them in memory at a time."""
    for start in range(0, len(tape), CHUNK_ROWS):
        yield from tape.rows[start : start + CHUNK_ROWS].tolist()


def events_of(requests: Sequence[Request], tape: Tape) -> Iterator[tuple[int, list[Event]]]:
    """The instants of a tape, each with the events that happened then."""
    known = {request.id: request for request in requests}
    now, events = -1, list[Event]()
    for row in rows_of(tape):
        if row[0] != now:
            if now >= 0:
                yield now, events
            now, events = row[0], []
        if row[1] < _FIRST_ACTION:
            events.append(_event(known, row))
    if now >= 0:
        yield now, events


def _event(requests: dict[int, Request], row: list[int]) -> Event:
    time, kind, subject, lease, place, detail, value = row
    if kind == _STALE:
        kind = value
    if kind == _FINISHED:  # nearly all events are one of these, and matching enumerations is slow
        return BatchFinished(place, lease)
    if kind == _TASK_ARRIVED:
        return TaskArrived(subject, detail, lease)
    if kind == _LOADED:
        return BatchLoaded(place, lease)
    if kind == _ARRIVED and subject in requests:
        return RequestArrived(requests[subject])
    match kind:
        case Kind.ARRIVED:
            raise TapeError(f"the tape has request {subject} arrive at {time} ns; the workload has no such request")
        case Kind.FETCHED:
            return ModelFetched(place, detail, lease)
        case Kind.INSTANCE_STARTED:
            return InstanceStarted(place, detail, lease)
        case Kind.WORKER_FAILED:
            return WorkerFailed(place)
        case Kind.WORKER_RECOVERED:
            return WorkerRecovered(place)
        case Kind.WOKE:
            return Woke()
        case _:
            raise TapeError(f"the tape has a row of kind {kind} at {time} ns; no serving event has that number")


class RecordedEvents:
    """An executor whose events come from a tape and that carries nothing out: what was done is on the tape already."""

    def __init__(self, requests: Sequence[Request], tape: Tape) -> None:
        self._steps = events_of(requests, tape)

    def next(self) -> tuple[int, Sequence[Event]] | None:
        """The next recorded instant."""
        return next(self._steps, None)

    def execute(self, now: int, action: Action) -> None:
        """Nothing: its consequences are recorded."""

    def follow(self, now: int, caused: list[Sent]) -> None:
        """Nothing: when inputs came is recorded."""


def replay(
    catalogue: Catalogue,
    fleet: Fleet,
    requests: Sequence[Request],
    tape: Tape,
    policy: ServingPolicy,
    *,
    latency: LatencyModel | None = None,
    push_interval: int = 0,
    central: bool | None = None,
    preloaded: bool = True,
) -> Tape:
    """The tape that a policy, fresh and not bound yet, writes when shown the recorded events.

    ``central`` None: as the policy is.
    """
    state = ServingState(
        catalogue,
        fleet,
        latency,
        to_come=len(requests),
        push_interval=push_interval,
        central=policy.central if central is None else central,
        preloaded=preloaded,
    )
    policy.bind(state)
    return replay_on(state, requests, tape, policy)


def replay_on(
    state: ServingState, requests: Sequence[Request], tape: Tape, policy: ServingPolicy, *, complete: bool = False
) -> Tape:
    """The same with a state and a bound policy that are at their beginning.

    ``complete``: the tape is to be that of a whole run, and the same decisions up to an earlier end are refused.
    """
    writer = TapeWriter()
    with suppress(StalledRunError):  # a recording ends where it ends
        Scheduler(state, policy, RecordedEvents(requests, tape), writer, exact=False).run()
    again = writer.close()
    if complete and not state.over() and again.digest == tape.digest:
        left = state.to_come + len(state.requests)
        raise TapeError(f"the tape ends before the run did: {left:,} requests are open at its last row")
    return again


def about(row: Sequence[int]) -> str:
    """Return what a row of the tape is about: a request or a worker."""
    _, kind, subject, _, place = row[:5]
    return f"request {subject}" if subject >= 0 else f"worker {place}" if kind in _OF_WORKERS else ""


def first_difference(a: Tape, b: Tape) -> str | None:
    """Return where two tapes of requests part, in one line; None when they are equal."""
    return differing(a, b, Kind, about)
