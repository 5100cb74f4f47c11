"""From a tape back to what happened: its events again, the state at any time, and the policy asked again.

``decode`` turns rows into events and actions, step by step. ``replay`` runs a policy over the recorded events and
gives the tape that it writes: identical, if it is the policy that was recorded. ``Walk`` applies the tape itself,
with no policy asked, so a state at T is the prefix applied. A policy's memory is rebuilt by asking it along the way.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from headway.core.replay import first_difference as differing
from headway.core.scheduler import Scheduler
from headway.core.tape import Tape, TapeWriter
from headway.errors import StalledRunError, TapeError
from headway.training.actions import Action, Grant, MigrateJob, Placement, PreemptJob, ReallocateJob, StartJob, WakeAt
from headway.training.cluster import Cluster
from headway.training.events import (
    Event,
    JobArrived,
    JobCancelled,
    JobFailed,
    JobFinished,
    NodeDrained,
    NodeFailed,
    NodeRecovered,
    Woke,
)
from headway.training.job import Job
from headway.training.policies.compose import ComposedPolicy
from headway.training.respeed import Respeeded
from headway.training.rows import WORD_BITS, Kind
from headway.training.speed import Costs, SpeedModel
from headway.training.state import TrainingState

CHUNK_ROWS = 65_536
_START, _MIGRATE, _PREEMPT, _PLACE = int(Kind.START), int(Kind.MIGRATE), int(Kind.PREEMPT), int(Kind.PLACE)
_GRANT, _STORAGE, _REALLOCATE = int(Kind.GRANT), int(Kind.STORAGE), int(Kind.REALLOCATE)
_OPENS, _CONTINUES = (_START, _MIGRATE, _REALLOCATE), (_PLACE, _GRANT, _STORAGE)
_STALE, _WAKE_AT, _FIRST_ACTION = int(Kind.STALE), int(Kind.WAKE_AT), int(Kind.START)
_ARRIVED, _FINISHED = int(Kind.ARRIVED), int(Kind.FINISHED)
_ENDS: dict[int, Callable[[int, int], Event]] = {
    Kind.FINISHED: JobFinished,
    Kind.FAILED: JobFailed,
    Kind.CANCELLED: JobCancelled,
}
_NODE_CHANGES: dict[int, Callable[[int], Event]] = {Kind.NODE_FAILED: NodeFailed, Kind.NODE_RECOVERED: NodeRecovered}
_OF_NODES = (Kind.NODE_FAILED, Kind.NODE_RECOVERED, Kind.NODE_DRAINED)


@dataclass(slots=True)
class Step:
    """One instant of a tape: what happened and what was done."""

    time: int
    events: list[Event] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)


def rows_of(tape: Tape) -> Iterator[list[int]]:
    """The rows as plain lists, a chunk of them in memory at a time."""
    for start in range(0, len(tape), CHUNK_ROWS):
        yield from tape.rows[start : start + CHUNK_ROWS].tolist()


def decode(jobs: Sequence[Job], tape: Tape) -> Iterator[Step]:
    """The steps of a tape; consequences and refusals are left out."""
    step: Step | None = None
    pending: list[list[int]] = []
    for row in rows_of(tape):
        time, kind = row[0], row[1]
        if pending and kind not in _CONTINUES:
            assert step is not None
            step.actions.append(_placed(pending))
            pending = []
        if step is None or time != step.time:
            if step is not None:
                yield step
            step = Step(time)
        if kind < _FIRST_ACTION:
            step.events.append(_event(jobs, row))
        elif kind in _OPENS or (kind in _CONTINUES and pending):
            pending.append(row)
        elif kind == _PREEMPT:
            step.actions.append(PreemptJob(row[2]))
        elif kind == _WAKE_AT:
            step.actions.append(WakeAt(row[6]))
    if step is not None:
        if pending:
            step.actions.append(_placed(pending))
        yield step


def placement_of(rows: Sequence[Sequence[int]]) -> Placement:
    """The placement that a START or MIGRATE row and the PLACE rows after it spell."""
    masks: dict[int, int] = {}
    for row in rows:
        if row[1] in (_GRANT, _STORAGE):
            continue
        word = row[6] if row[1] == _PLACE else 0
        masks[row[4]] = masks.get(row[4], 0) | row[5] << (WORD_BITS * word)
    return tuple(masks.items())


def grant_of(rows: Sequence[Sequence[int]]) -> Grant | None:
    """What the GRANT and STORAGE rows among these give; None where there are none."""
    given = next((row for row in rows if row[1] == _GRANT), None)
    if given is None:
        return None
    return Grant(given[6], given[5], sum(row[6] for row in rows if row[1] == _STORAGE))


def _placed(rows: list[list[int]]) -> StartJob | MigrateJob | ReallocateJob:
    kind, job = rows[0][1:3]
    if kind == _REALLOCATE:
        return ReallocateJob(job, grant_of(rows) or Grant(0, 0))
    action = StartJob if kind == _START else MigrateJob
    if len(rows) == 1:
        return action(job, ((rows[0][4], rows[0][5]),))
    return action(job, placement_of(rows), grant_of(rows))


def _event(jobs: Sequence[Job], row: list[int]) -> Event:
    time, kind, subject, lease, _, _, value = row
    if kind == _FINISHED:  # nearly all events are these two, and matching enumerations is slow
        return JobFinished(subject, lease)
    if kind == _ARRIVED and 0 <= subject < len(jobs):
        return JobArrived(jobs[subject])
    if kind == _STALE:
        kind = value
    if (ended := _ENDS.get(kind)) is not None:
        return ended(subject, lease)
    if (changed := _NODE_CHANGES.get(kind)) is not None:
        return changed(subject)
    match kind:
        case Kind.ARRIVED:
            raise TapeError(f"the tape has job {subject} arrive at {time} ns; the workload has {len(jobs)} jobs")
        case Kind.NODE_DRAINED:
            return NodeDrained(subject, evict=bool(value))
        case Kind.WOKE:
            return Woke()
        case _:
            raise TapeError(f"the tape has a row of kind {kind} at {time} ns; no training event has that number")


class RecordedEvents:
    """An executor whose events come from a tape and that carries nothing out: what was done is on the tape already."""

    def __init__(self, jobs: Sequence[Job], tape: Tape) -> None:
        self._steps = decode(jobs, tape)

    def next(self) -> tuple[int, Sequence[Event]] | None:
        """The next recorded instant."""
        step = next(self._steps, None)
        return None if step is None else (step.time, step.events)

    def execute(self, now: int, action: Action) -> None:
        """Nothing: its consequences are recorded."""

    def follow(self, now: int, caused: Respeeded) -> None:
        """Nothing: when jobs ended is recorded."""


def replay(
    cluster: Cluster,
    jobs: Sequence[Job],
    tape: Tape,
    policy: ComposedPolicy,
    *,
    speed: SpeedModel | None = None,
    costs: Costs | None = None,
    complete: bool = False,
) -> Tape:
    """The tape that a policy, fresh and not bound yet, writes when shown the recorded events.

    ``complete``: the tape is to be that of a whole run, and the same decisions up to an earlier end are refused.
    """
    state = _new_state(cluster, jobs, policy, speed, costs)
    writer = TapeWriter()
    with suppress(StalledRunError):  # a recording ends where it ends
        Scheduler(state, policy, RecordedEvents(jobs, tape), writer, exact=False).run()
    again = writer.close()
    if complete and not state.over() and again.digest == tape.digest:
        left = state.to_come + state.queue.size + len(state.running)
        raise TapeError(f"the tape ends before the run did: {left:,} jobs have not ended by its last row")
    return again


def about(row: Sequence[int]) -> str:
    """Return what a row of the tape is about: a job or a node."""
    _, kind, subject = row[:3]
    if subject < 0:
        return ""
    return f"{'node' if kind in _OF_NODES else 'job'} {subject}"


def first_difference(a: Tape, b: Tape) -> str | None:
    """Return where two tapes of jobs part, in one line; None when they are equal."""
    return differing(a, b, Kind, about)


def _new_state(
    cluster: Cluster, jobs: Sequence[Job], policy: ComposedPolicy, speed: SpeedModel | None, costs: Costs | None
) -> TrainingState:
    state = TrainingState(cluster, to_come=len(jobs), arrangement=policy, speed=speed, costs=costs)
    policy.bind(state)
    return state


class Walk:
    """A state led along a tape. While a step is handed out the state stands after its events; ``act`` does its actions.

    With ``asking`` the policy is asked at each step, which rebuilds its memory, and has to answer what the tape says.
    """

    def __init__(
        self,
        cluster: Cluster,
        jobs: Sequence[Job],
        tape: Tape,
        policy: ComposedPolicy,
        *,
        asking: bool = False,
        speed: SpeedModel | None = None,
        costs: Costs | None = None,
    ) -> None:
        self.policy = policy
        self.state = _new_state(cluster, jobs, policy, speed, costs)
        self.asking = asking
        self._steps = decode(jobs, tape)
        self._due: Step | None = None

    def __iter__(self) -> Iterator[Step]:
        state = self.state
        for step in self._steps:
            for event in step.events:
                state.apply(step.time, event)
            self._due = step
            yield step
            self.act()

    def act(self) -> None:
        """Do the actions of the step at hand, once; going on to the next step does so too."""
        step, self._due = self._due, None
        if step is None:
            return
        if self.asking:
            self._ask(step)
        else:
            for action in step.actions:
                self._commit(step.time, action)

    def _commit(self, now: int, action: Action) -> None:
        if (refusal := self.state.check(action)) is not None:
            raise TapeError(f"the tape has what cannot be at {now} ns: {refusal}")
        self.state.commit(now, action)

    def _ask(self, step: Step) -> None:
        recorded = iter(step.actions)
        for action in self.policy.decide(step.time, self.state):
            if self.state.check(action) is not None:
                continue  # refused, as it was when it was recorded
            if action != (then := next(recorded, None)):
                raise self._parted(step, action, then)
            self.state.commit(step.time, action)
        if (then := next(recorded, None)) is not None:
            raise self._parted(step, None, then)

    def _parted(self, step: Step, now: Action | None, then: Action | None) -> TapeError:
        decided, wrote = (action or "nothing more" for action in (now, then))
        return TapeError(
            f"another policy wrote this tape: at {step.time} ns {self.policy.name} decides {decided}, not {wrote}"
        )
