"""Conservative backfilling: every job has a reservation, made in order, and no job starts that would delay one.

Feitelson and Weil, IPPS 1998; Mu'alem and Feitelson, TPDS 2001. A job starts when its reservation says now. As long
as jobs end when they were expected to, reservations stand and only new jobs are added to them; when something ended
early or late, was preempted or failed, all are made anew (the papers' compression), at most once every ``interval``
(Slurm's bf_interval). In between, jobs whose reservation has begun start if they still fit, and so does the first job
of the queue.

Departures: only the first ``depth`` jobs are considered (Slurm's bf_max_job_test). Reservations are on nodes, not on
a pool of processors; a job takes the place that the policy's placement chooses if no reservation is touched, else the
reserved one. A share of a GPU joins one that is used in part if it may do so now; for later it is planned as a whole
GPU. A job that its quota keeps out has no reservation. What preemption or a guaranteed quota admits starts first,
whatever was reserved.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush, merge
from itertools import islice

from headway.errors import ExperimentError
from headway.training.actions import Action, PreemptJob, StartJob, WakeAt
from headway.training.feasible import quota_refusal
from headway.training.jobstate import JobState, Status
from headway.training.policies.backfills.profile import NEVER, Parts, Profile
from headway.training.policies.backfills.reservation import Future, run_time
from headway.training.policies.backfills.walk import Blocked, guaranteed, walk
from headway.training.policies.parts import Admission, Backfill, PlacementRule, Reservation
from headway.training.policies.placements.pick import gpus_of
from headway.training.queue import Entry, Lane
from headway.training.resources import Placement
from headway.training.state import TrainingState
from headway.units import MINUTE, Duration


@dataclass(frozen=True, slots=True)
class _Slot:
    """The reservation of a job: time, nodes and GPUs."""

    js: JobState
    start: int
    end: int
    parts: Parts


class Conservative(Backfill):
    """Backfilling with a reservation for every job."""

    name = "conservative"
    ranks_ends = True
    reserves = True

    def __init__(self, depth: int = 100, interval: Duration = Duration(MINUTE)) -> None:  # noqa: B008
        if depth < 1:
            raise ExperimentError(f"conservative(depth={depth}): must be at least 1")
        if interval < 0:
            raise ExperimentError(f"conservative(interval={interval}ns): must not be negative")
        self.depth = depth
        self.interval = interval
        self.reservations: dict[int, Reservation] = {}
        self._slots: dict[int, _Slot] = {}
        self._starts: list[tuple[int, Entry]] = []
        self._future = Future()
        self._blocked = Blocked()
        self._broken = True
        self._planned = -1
        self._woken = -1
        self._forgotten = 0
        self._refreshed = 0

    def decide(self, now: int, state: TrainingState, policy: Admission) -> Iterator[Action]:
        """Start jobs whose reservations have begun, and make the reservations that are missing."""
        if not self._stands(now, state):
            self._broken = True
        if policy.preempts or state.quotas:
            yield from self._first_jobs(now, state, policy)
        if not self._broken and self._in_step(state, policy):
            yield from self._keep(now, state, policy)
            yield from self._extend(now, state, policy)
        if self._broken:
            if self._planned < 0 or now >= self._planned + self.interval:
                yield from self._plan(now, state, policy)
            else:
                yield from self._first_jobs(now, state, policy)
                yield from self._keep(now, state, policy)
                if state.queue.size and self._woken != self._planned + self.interval:
                    self._woken = self._planned + self.interval
                    yield WakeAt(self._woken)
        if policy.blocked is None and state.queue.size:
            policy.blocked = self._first_blocked(state, policy)
        self._refreshed = state.refreshed
        self._future.note(state)

    def would_promise(self, now: int, state: TrainingState, policy: Admission) -> Iterable[int]:
        """Return the first ``depth`` jobs of the queue."""
        return [job for _, job in islice(state.queue.in_order(), self.depth)]

    # --- whether the reservations are valid -------------------------------------------------------------------

    def _stands(self, now: int, state: TrainingState) -> bool:
        """Return whether everything went as expected since the last decision."""
        if self._future.same(state):
            return True
        if not self._future.holds(now, state):
            return False
        return all(slot.js.gpu_milli == 1000 for slot in self._slots.values()) if state.pool.sharing else True

    def _in_step(self, state: TrainingState, policy: Admission) -> bool:
        """Return whether the jobs with reservations are the first of the queue; if not, reservations are made anew."""
        first = islice(_in_order(state, policy), len(self._slots))
        self._broken = (
            self._refreshed != state.refreshed
            or state.quotas
            or len(self._slots) > state.queue.size
            or any(job not in self._slots for _, job in first)
        )
        return not self._broken

    def _first_blocked(self, state: TrainingState, policy: Admission) -> JobState | None:
        for _, job in _in_order(state, policy):
            js = state.jobs[job]
            if not state.quotas or quota_refusal(js) is None:
                return js
        return None

    # --- starting ---------------------------------------------------------------------------------------------

    def _first_jobs(self, now: int, state: TrainingState, policy: Admission) -> Iterator[Action]:
        """Admit jobs as a strict queue does, before any reservation."""
        for action in walk(now, state, policy, self._blocked, strict=True):
            yield action
            if isinstance(action, PreemptJob):
                self._broken = True
            elif isinstance(action, StartJob):
                self._started(now, state, state.jobs[action.job])

    def _started(self, now: int, state: TrainingState, js: JobState) -> None:
        """Replace the reservation of a job that started by what it holds."""
        self.reservations.pop(js.id, None)
        slot = self._slots.pop(js.id, None)
        if self._broken:
            return
        profile = self._profile
        end = js.expected_end()
        if slot is not None:
            if js.gpu_milli == 1000 and (slot.start, slot.end, slot.parts) == (now, end, _parts(js.placement)):
                return
            profile.reserve(js, slot.parts, max(now, slot.start), slot.end, sign=+1)
            if end < slot.end and not state.speed.constant:
                self._broken = True  # it is faster than planned: jobs after it can start sooner
        if not profile.hold(js, js.placement, now, end):
            self._broken = True

    def _keep(self, now: int, state: TrainingState, policy: Admission) -> Iterator[Action]:
        """Start the jobs whose reservations have begun."""
        starts = self._starts
        late: list[tuple[int, Entry]] = []
        while starts and starts[0][0] <= now:
            time, entry = heappop(starts)
            slot = self._slots.get(entry[1])
            if slot is None or slot.start != time:
                continue
            if state.jobs.get(entry[1]) is not slot.js or slot.js.status is Status.RUNNING:
                continue
            if slot.js.id in policy.stopped:
                late.append((time, entry))
                continue
            placement = self._place_of(now, state, policy, slot)
            if placement is None:
                self._broken = True
                late.append((time, entry))
                continue
            yield StartJob(slot.js.id, placement)
            self._started(now, state, slot.js)
        for item in late:
            heappush(starts, item)

    def _place_of(self, now: int, state: TrainingState, policy: Admission, slot: _Slot) -> Placement | None:
        """Return where a job starts whose reservation has begun: the placement's choice if that touches no other
        reservation, else the reserved nodes; None if these are not free."""
        js, profile = slot.js, self._profile
        if js.lane in state.queue.aside or (state.quotas and quota_refusal(js) is not None):
            return None
        if not self._broken and (placement := policy.placement.place(state.pool, js)) is not None:
            if _parts(placement) == slot.parts:
                return placement
            profile.reserve(js, slot.parts, now, slot.end, sign=+1)
            fits = profile.fits(js, placement, now, run_time(state, js, placement))
            profile.reserve(js, slot.parts, now, slot.end)
            if fits:
                return placement
        return _reserved(state, js, slot.parts, policy.placement)

    # --- reserving --------------------------------------------------------------------------------------------

    def _plan(self, now: int, state: TrainingState, policy: Admission) -> Iterator[Action]:
        """Make all reservations anew, in order; jobs whose reservation begins now start."""
        self._planned = now
        self._broken = False
        self._profile = Profile(now, state)
        self._slots.clear()
        self._starts.clear()
        self.reservations.clear()
        yield from self._extend(now, state, policy)

    def _extend(self, now: int, state: TrainingState, policy: Admission) -> Iterator[Action]:
        """Make reservations for those of the first ``depth`` jobs that have none; start those that begin now."""
        missing = self.depth - len(self._slots)
        if missing <= 0 or len(self._slots) == state.queue.size:
            return
        profile = self._profile
        if now >= self._forgotten + self.interval:
            self._forgotten = now
            profile.forget(now)
        for entry in list(islice(_in_order(state, policy), len(self._slots), len(self._slots) + missing)):
            js = state.jobs[entry[1]]
            if js.lane in state.queue.aside or (state.quotas and quota_refusal(js) is not None):
                continue  # one that has just started may have used up a limit
            placement = self._reserve(now, state, policy, entry, js)
            if placement is not None:
                yield StartJob(js.id, placement)
                self._started(now, state, js)

    def _reserve(
        self, now: int, state: TrainingState, policy: Admission, entry: Entry, js: JobState
    ) -> Placement | None:
        """Return where a job starts now; None when its reservation, made here, is for later."""
        profile = self._profile
        fresh = js.id in policy.stopped  # it starts at the next decision at the earliest
        placement = None if fresh else policy.placement.place(state.pool, js)
        if placement is not None and profile.fits(js, placement, now, run_time(state, js, placement)):
            return placement
        start, length, parts = self._earliest(now, state, js, policy.placement)
        if start >= NEVER:
            return None
        if start == now and not fresh and (placement := _reserved(state, js, parts, policy.placement)) is not None:
            return placement
        slot = _Slot(js, start, start + length, parts)
        profile.reserve(js, parts, slot.start, slot.end)
        self._slots[js.id] = slot
        heappush(self._starts, (start, entry))
        self.reservations[js.id] = Reservation(js.id, start, js.gpus, tuple(node for node, _ in parts))
        return None

    def _earliest(self, now: int, state: TrainingState, js: JobState, rule: PlacementRule) -> tuple[int, int, Parts]:
        """Return (start, length, parts) of the earliest reservation. The length depends on the nodes, so the search
        may be repeated once."""
        profile = self._profile
        single = js.gpu_milli < 1000 or rule.needs_one_node(state.pool, js)
        domains = () if single else rule.domains(state.pool, js)

        def search(length: int) -> tuple[int, Parts]:
            if single:
                return profile.on_one_node(js, now, length)
            return min((profile.on_nodes(js, now, length, domain) for domain in domains), key=lambda found: found[0])

        length = js.debt + js.remaining(now)
        start, parts = search(length)
        if not state.speed.constant and start < NEVER:
            there = run_time(state, js, tuple((node, (1 << count) - 1) for node, count in parts))
            if there != length:
                length = there
                start, parts = search(length)
        return start, length, parts


def _reserved(state: TrainingState, js: JobState, parts: Parts, rule: PlacementRule) -> Placement | None:
    """Return the placement of a reservation; None when its GPUs are not free."""
    pool = state.pool
    for node, count in parts:
        if not pool.schedulable >> node & 1 or pool.free_count[node] < count or not pool.host_fits(js, node, count):
            return None
    placement = tuple((node, gpus_of(pool, node, count)) for node, count in parts)
    return placement if rule.allows(js, placement) else None


def _parts(placement: Placement) -> Parts:
    return tuple((node, mask.bit_count()) for node, mask in placement)


def _in_order(state: TrainingState, policy: Admission) -> Iterator[Entry]:
    """Return all waiting jobs in the policy's current order."""
    lanes = state.queue.lanes.values()
    if len(lanes) == 1:
        return iter(next(iter(lanes)))
    return (entry for _, _, entry in merge(*(_keyed(state, policy, lane) for lane in lanes)))


def _keyed(state: TrainingState, policy: Admission, lane: Lane) -> Iterable[tuple[bool, object, Entry]]:
    first = state.jobs[lane.head[1]]
    later = state.quotas and not guaranteed(first)
    key = policy.order.lane_key(state, first)
    return ((later, key, entry) for entry in lane)
