"""The walk over the queue that strict and skipping backfills share: take the first job of all lanes, start it or close
its lane.

Where partitions share nodes, a blocked job closes the nodes of its partition to all that come after it, as Slurm's main
scheduler does; they may start on other nodes. A job that its quota keeps out closes only its own lane: it holds nothing
back that others could use. Nor does a job of another tenant hold back one that is first of its tenant and within its
guarantee. A job that is barred in this decision, because it was stopped or because room is kept, keeps its place in the
queue.
"""

from collections.abc import Container, Hashable, Iterable, Iterator

from headway.jobs.model.actions import Action, StartJob
from headway.jobs.model.resources import Grant, Placement
from headway.jobs.policies.parts import Admission
from headway.jobs.rules.reservations.engine import is_inside
from headway.jobs.state.feasible import quota_refusal
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.queue import Lane
from headway.jobs.state.state import TrainingState
from headway.jobs.state.tentative_demand import TentativeDemand
from headway.units import WHOLE_GPU_MILLI

_NEVER_BLOCKED = (-1, -1)


class Blocked:
    """Remembers which lanes were found blocked, so that they are tried again only when that may have changed."""

    __slots__ = ("_any_head", "_until")

    def __init__(self, *, any_head: bool = False) -> None:
        """``any_head``: the jobs of a lane are alike, so what keeps one out keeps all out."""
        self._any_head = any_head
        self._until: dict[Hashable, tuple[int, int]] = {}
        """By lane: the version from which on it is to be tried again, and the job that was its head."""

    def still(self, lane: Lane, version: int) -> bool:
        """Return whether this lane was blocked already, and what has changed since cannot help it."""
        until, head = self._until.get(lane.name, _NEVER_BLOCKED)
        return 0 <= version < until and (self._any_head or head == lane.head[1])

    def note(self, lane: Lane, version: int, shortfall: int) -> None:
        """Remember that the head of this lane cannot start before the version has grown by the shortfall."""
        if version >= 0:
            self._until[lane.name] = version + shortfall, lane.head[1]


def walk(now: int, state: TrainingState, policy: Admission, memory: Blocked, strict: bool) -> Iterable[Action]:
    """Start what may start, first jobs first; ``strict`` lets a blocked job hold back all that come after it."""
    lanes = state.queue.lanes
    if len(lanes) == 1:
        (lane,) = lanes.values()
        if memory.still(lane, policy.version(now, state)):
            js = state.jobs[lane.head[1]]
            policy.blocked = js if not state.quotas or quota_refusal(js) is None else None
            return ()
        if not state.quotas:
            return _one_lane(now, state, policy, memory, strict, lane)
    return _many_lanes(now, state, policy, memory, strict)


def _one_lane(
    now: int, state: TrainingState, policy: Admission, memory: Blocked, strict: bool, lane: Lane
) -> Iterator[Action]:
    """With one lane and no quotas strict and skipping are the same: if one is blocked, all are."""
    lanes, pool, admit, preempts = state.queue.lanes, state.pool, policy.admit, policy.preempts
    while True:
        js = state.jobs[lane.head[1]]
        if js.gpus > pool.free_gpus and not preempts and js.gpu_milli == WHOLE_GPU_MILLI:  # wherever these are
            memory.note(lane, policy.version(now, state), js.gpus - pool.free_gpus)
            policy.blocked = js
            return
        actions = admit(now, state, js)
        if actions is None:
            if js.id not in policy.barred:
                memory.note(lane, policy.version(now, state), policy.shortfall)
            policy.blocked = js
            return
        yield from actions
        if len(lanes) != 1:
            break
        if preempts:
            (lane,) = lanes.values()
    if lanes:  # a job that was preempted waits in another one
        yield from _many_lanes(now, state, policy, memory, strict)


def open_lanes(state: TrainingState, policy: Admission, closed: Container[Hashable]) -> Iterator[Lane]:
    """Yield the open lane whose head comes first, until all are closed.

    Whoever asks closes the lane, or starts its head: then the heads are put in order anew.
    """
    while True:
        tenures = state.tenures
        for lane in policy.lanes_in_order(state):
            if lane.name not in closed:
                yield lane
                if state.tenures != tenures:
                    break
        else:
            return


def _many_lanes(now: int, state: TrainingState, policy: Admission, memory: Blocked, strict: bool) -> Iterator[Action]:
    closed: set[Hashable] = set()
    territory = 0
    """Nodes of partitions whose first job could not start: who comes after it does without them."""
    jobs, admit = state.jobs, policy.admit
    version = policy.version(now, state)
    for lane in open_lanes(state, policy, closed):
        js = jobs[lane.head[1]]
        shared = territory and territory & state.eligible(js.job.partition, ())
        if shared and not (state.quotas and guaranteed(js)) and not is_inside(state, js):
            if (placement := _elsewhere(state, policy, js, territory)) is not None:
                yield StartJob(js.id, placement)
                version = policy.version(now, state)
                continue
            closed.add(lane.name)
            territory |= state.eligible(js.job.partition, ())
            continue
        if not memory.still(lane, version):
            actions = admit(now, state, js)
            if actions is not None:
                yield from actions
                version = policy.version(now, state)
                continue
            if js.id not in policy.barred:
                memory.note(lane, version, policy.shortfall)
        closed.add(lane.name)
        if not state.quotas or quota_refusal(js) is None:
            policy.blocked = policy.blocked or js
            if strict and not is_inside(state, js):
                territory |= state.eligible(js.job.partition, ())


def _elsewhere(state: TrainingState, policy: Admission, js: JobState, territory: int) -> Placement | None:
    """Return where a job fits beside nodes that others wait for; None where it needs some of these."""
    rest = js.eligible & ~territory
    if not rest or js.id in policy.barred or state.quotas or state.divides:
        return None
    return policy.placement.place(
        state.pool, TentativeDemand(js, Grant(js.cpu_milli, js.memory_bytes, js.storage), rest)
    )


def guaranteed(js: JobState) -> bool:
    """Return whether a job is within what its tenant was promised."""
    return js.account.held + js.width <= js.account.guaranteed
