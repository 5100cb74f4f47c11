"""Replays a tape: decodes its events and actions, rebuilds the state at any time, and lets a policy decide again.

``decode`` turns rows into events and actions, step by step. ``replay`` runs a policy over the recorded events and
returns the tape that it writes: identical, if it is the policy that was recorded. ``Walk`` applies the recorded actions
without a policy, so a state at T is the prefix applied. With ``asking`` the policy decides too, which rebuilds its
memory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import itemgetter

from headway.core.replay import decide_again, instants, rows_of
from headway.core.tape import Tape
from headway.errors import TapeError
from headway.jobs.model.actions import (
    Action,
    KillJob,
    MigrateJob,
    PreemptJob,
    ReallocateJob,
    RequeueJob,
    StartJob,
    WakeAt,
    WarnJob,
)
from headway.jobs.model.cluster import Cluster
from headway.jobs.model.events import (
    Event,
    JobArrived,
    JobCancelled,
    JobFailed,
    JobFinished,
    JobInterrupted,
    JobProgressed,
    JobWithdrawn,
    NodeDrained,
    NodeFailed,
    NodeRecovered,
    Woke,
)
from headway.jobs.model.job import Job
from headway.jobs.model.resources import Grant, Placement
from headway.jobs.model.rows import PLACED_KINDS, WORD_BITS, Kind
from headway.jobs.model.speed import Costs, SpeedModel
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.state.state import TrainingState

_START, _MIGRATE, _PREEMPT, _PLACE = int(Kind.START), int(Kind.MIGRATE), int(Kind.PREEMPT), int(Kind.PLACE)
_GRANT, _STORAGE, _REALLOCATE = int(Kind.GRANT), int(Kind.STORAGE), int(Kind.REALLOCATE)
_WAKE_AT, _STALE = int(Kind.WAKE_AT), int(Kind.STALE)
_REQUEUE, _KILL, _WARN = int(Kind.REQUEUE), int(Kind.KILL), int(Kind.WARN)
_ACTIONS = (_START, _MIGRATE, _REALLOCATE, _PREEMPT, _REQUEUE, _KILL, _WARN, _WAKE_AT)
_CONTINUES = (_PLACE, _GRANT, _STORAGE)
_ARRIVED, _FINISHED = int(Kind.ARRIVED), int(Kind.FINISHED)
_OF_NODES = (Kind.NODE_FAILED, Kind.NODE_RECOVERED, Kind.NODE_DRAINED)


@dataclass(slots=True)
class Step:
    """One instant of a tape: its events and actions."""

    time: int
    events: list[Event] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)


def decode(jobs: Sequence[Job], tape: Tape) -> Iterator[Step]:
    """Yield the steps of a tape; consequences and refusals are left out."""
    for time, rows in groupby(rows_of(tape), key=itemgetter(0)):
        step = Step(time)
        actions: list[list[list[int]]] = []
        for row in rows:
            kind = row[1]
            if kind < _START:
                step.events.append(_event(jobs, row))
            elif kind in _ACTIONS:
                actions.append([row])
            elif kind in _CONTINUES and actions:
                actions[-1].append(row)
        step.actions.extend(map(_action, actions))
        yield step


def placement_of(rows: Sequence[Sequence[int]]) -> Placement:
    """Return the placement that a START or MIGRATE row and the PLACE rows after it record."""
    masks: dict[int, int] = {}
    for row in rows:
        if row[1] in PLACED_KINDS:
            word = row[6] if row[1] == _PLACE else 0
            masks[row[4]] = masks.get(row[4], 0) | row[5] << (WORD_BITS * word)
    return tuple(masks.items())


def grant_of(rows: Sequence[Sequence[int]]) -> Grant | None:
    """Return the grant that the GRANT and STORAGE rows among these record; None where there are none."""
    grant_row = next((row for row in rows if row[1] == _GRANT), None)
    if grant_row is None:
        return None
    return Grant(grant_row[6], grant_row[5], sum(row[6] for row in rows if row[1] == _STORAGE))


def _action(rows: list[list[int]]) -> Action:
    """Return the action that a row and those that continue it record."""
    _, kind, job, _, node, mask, _ = rows[0]
    if kind == _START and len(rows) == 1:  # the most frequent case
        return StartJob(job, ((node, mask),))
    if kind == _PREEMPT:
        return PreemptJob(job)
    if kind in (_REQUEUE, _KILL):
        return (RequeueJob if kind == _REQUEUE else KillJob)(job, mask)
    if kind == _WARN:
        return WarnJob(job, mask, rows[0][6])
    if kind == _WAKE_AT:
        return WakeAt(rows[0][6])
    if kind == _REALLOCATE:
        return ReallocateJob(job, grant_of(rows) or Grant(0, 0))
    action = StartJob if kind == _START else MigrateJob
    return action(job, placement_of(rows), grant_of(rows))


def _event(jobs: Sequence[Job], row: list[int]) -> Event:
    time, kind, subject, lease, _, _, value = row
    if kind == _ARRIVED and 0 <= subject < len(jobs):
        return JobArrived(jobs[subject])
    if kind == _STALE:
        kind = value
    if kind == _FINISHED:  # nearly all events are these two, and matching enumerations is slow
        return JobFinished(subject, lease)
    match kind:
        case Kind.FAILED:
            return JobFailed(subject, lease)
        case Kind.CANCELLED:
            return JobCancelled(subject, lease)
        case Kind.WITHDRAWN:
            return JobWithdrawn(subject)
        case Kind.INTERRUPTED:
            return JobInterrupted(subject, lease, bool(value))
        case Kind.PROGRESSED:
            return JobProgressed(subject, lease, value)
        case Kind.NODE_FAILED:
            return NodeFailed(subject)
        case Kind.NODE_RECOVERED:
            return NodeRecovered(subject)
        case Kind.ARRIVED:
            raise TapeError(f"the tape has job {subject} arrive at {time} ns; the workload has {len(jobs)} jobs")
        case Kind.NODE_DRAINED:
            return NodeDrained(subject, evict=bool(value))
        case Kind.WOKE:
            return Woke()
        case _:
            raise TapeError(f"the tape has a row of kind {kind} at {time} ns; no training event has that number")


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
    """Return the tape that a policy, fresh and not bound yet, writes for the recorded events.

    ``complete``: the tape has to be that of a whole run; one that ends earlier is refused.
    """
    state = _new_state(cluster, jobs, policy, speed, costs)
    again = decide_again(state, policy, instants(tape, _START, partial(_event, jobs)))
    if complete and not state.over() and again.digest == tape.digest:
        left = state.to_come + len(state.jobs)
        raise TapeError(f"the tape ends before the run did: {left:,} jobs have not ended by its last row")
    return again


def about(row: Sequence[int]) -> str:
    """Return the subject of a row of the tape as text: a job or a node."""
    _, kind, subject = row[:3]
    if subject < 0:
        return ""
    return f"{'node' if kind in _OF_NODES else 'job'} {subject}"


def _new_state(
    cluster: Cluster, jobs: Sequence[Job], policy: ComposedPolicy, speed: SpeedModel | None, costs: Costs | None
) -> TrainingState:
    state = TrainingState(cluster, to_come=len(jobs), arrangement=policy, speed=speed, costs=costs)
    policy.bind(state)
    return state


class Walk:
    """Walks a state along a tape. When a step is yielded its events are applied; ``act`` carries out its actions.

    With ``asking`` the policy decides at each step, which rebuilds its memory, and has to decide what the tape says.
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
        self._current: Step | None = None

    def __iter__(self) -> Iterator[Step]:
        state = self.state
        for step in self._steps:
            for event in step.events:
                state.apply(step.time, event)
            self._current = step
            yield step
            self.act()

    def act(self) -> None:
        """Carry out the actions of the current step, once; going on to the next step does so too."""
        step, self._current = self._current, None
        if step is None:
            return
        if self.asking:
            self._ask(step)
        else:
            for action in step.actions:
                if (refusal := self.state.check(action)) is not None:
                    raise TapeError(f"the tape has an impossible action at {step.time} ns: {refusal}")
                self.state.commit(step.time, action)

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
