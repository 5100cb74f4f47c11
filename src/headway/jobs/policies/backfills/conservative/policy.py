"""Conservative backfilling: every job has a reservation, made in order, and no job starts that would delay one.

Feitelson and Weil, IPPS 1998; Mu'alem and Feitelson, TPDS 2001. A job starts when its reservation says now. As long as
jobs end when they were expected to, reservations stand and only new jobs are added to them; when something ended early
or late, was preempted or failed, all are made anew (the papers' compression), at most once every ``interval`` (Slurm's
bf_interval). In between, jobs whose reservation has begun start if they still fit, and so does the first job of the
queue.

Departures: only the first ``depth`` jobs are considered (Slurm's bf_max_job_test). Reservations are on nodes, not on a
pool of processors; a job takes the place that the policy's placement chooses if no reservation is touched, else the
reserved one. With ``window`` (Slurm's bf_window) a job that would start later than so long from now has no reservation
until it is nearer. A share of a GPU joins one that is used in part if it may do so now; for later it is planned as a
whole GPU. With ``slurm`` a reservation takes all of its nodes, as in Slurm: a job that would still run when it begins
does not start there, though it would leave enough; and the strict queue comes first at every decision, as Slurm's main
scheduler does. A job that its quota keeps out has no reservation. What preemption or a guaranteed quota admits starts
first, whatever was reserved.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from headway.errors import ExperimentError
from headway.jobs.model.actions import Action, PreemptJob, StartJob, WakeAt
from headway.jobs.model.resources import Placement
from headway.jobs.policies.backfills.conservative.availability import Parts
from headway.jobs.policies.backfills.conservative.last_plan import Slot
from headway.jobs.policies.backfills.conservative.plan import Plan
from headway.jobs.policies.backfills.conservative.queue_order import in_order, is_kept_out
from headway.jobs.policies.backfills.reservation import Future, reserved, run_time
from headway.jobs.policies.backfills.walk import Blocked, walk
from headway.jobs.policies.parts import Admission, Backfill, Reservation
from headway.jobs.state.feasible import quota_refusal
from headway.jobs.state.jobstate import JobState, Status
from headway.jobs.state.state import TrainingState
from headway.units import MINUTE, Duration

_TIDY = 8
"""After so many intervals what is past is dropped from the profile."""


class Conservative(Backfill):
    """Backfilling with a reservation for every job."""

    name = "conservative"
    ranks_ends = True
    reserves = True

    def __init__(
        self,
        depth: int = 100,
        interval: Duration = Duration(MINUTE),  # noqa: B008
        slurm: bool = False,
        window: Duration = Duration(0),  # noqa: B008
    ) -> None:
        if depth < 1:
            raise ExperimentError(f"conservative(depth={depth}): must be at least 1")
        for name, length in (("interval", interval), ("window", window)):
            if length < 0:
                raise ExperimentError(f"conservative({name}={length}ns): must not be negative")
        self.depth = depth
        self.interval = self.forgets = interval
        self.slurm = slurm
        self.window = window
        self.starves = window > 0
        self._plan = Plan(whole_nodes=slurm, window=window)
        self._promised: Mapping[int, Reservation] | None = None
        """What others say that it has promised."""
        self._future = Future()
        self._blocked = Blocked()
        self._broken = True
        self._planned = -1
        self._woken = -1
        self._forgotten = 0
        self._refreshed = 0

    @property
    def reservations(self) -> Mapping[int, Reservation]:
        """Return what it has promised, by job."""
        return self._plan.promised() if self._promised is None else self._promised

    @reservations.setter
    def reservations(self, promised: Mapping[int, Reservation]) -> None:
        self._promised = promised

    def decide(self, now: int, state: TrainingState, policy: Admission) -> Iterator[Action]:
        """Start jobs whose reservations have begun, and make the reservations that are missing."""
        if not self._stands(now, state) or (self.window and self._is_old(now, state)):
            self._broken = True
        if policy.preempts or state.quotas or self.slurm:
            yield from self._first_jobs(now, state, policy)
        if not self._broken and self._in_step(state, policy):
            if self._plan.jobs:
                yield from self._keep(now, state, policy)
            yield from self._go_on(now, state, policy)
        if self._broken:
            if self._planned < 0 or now >= self._planned + self.interval:
                yield from self._anew(now, state, policy)
            else:
                if policy.preempts or not self.slurm:
                    yield from self._first_jobs(now, state, policy)
                if self._plan.jobs:
                    yield from self._keep(now, state, policy)
                if state.queue.size and self._woken != self._planned + self.interval:
                    self._woken = self._planned + self.interval
                    yield WakeAt(self._woken)
        if policy.blocked is None and state.queue.size:
            policy.blocked = self._first_blocked(state, policy)
        self._refreshed = state.refreshed
        self._future.note(state)

    def leaves(self, js: JobState) -> None:
        """Take note that a job with a reservation starts elsewhere."""
        self._plan.leaves(js)

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
        return (
            all(slot.js.gpu_milli == 1000 for slot in self._plan.slots.by_job.values()) if state.pool.sharing else True
        )

    def _is_old(self, now: int, state: TrainingState) -> bool:
        """Return whether jobs that had no reservation, because they were to start too late, may get one now."""
        return now >= self._planned + self.interval or not self._future.same(state)

    def _in_step(self, state: TrainingState, policy: Admission) -> bool:
        """Return whether the jobs with reservations are the first of the queue; if not, reservations are made anew."""
        jobs = self._plan.jobs
        self._broken = (
            self._refreshed != state.refreshed
            or state.quotas
            or len(jobs) > state.queue.size
            or (len(jobs) > 0 and not jobs.issuperset([job for _, job in in_order(state, policy, len(jobs))]))
        )
        return not self._broken

    def _first_blocked(self, state: TrainingState, policy: Admission) -> JobState | None:
        if not state.quotas:
            return state.jobs[in_order(state, policy, 1)[0][1]]
        waiting = (state.jobs[job] for _, job in in_order(state, policy, state.queue.size))
        return next((js for js in waiting if quota_refusal(js) is None), None)

    # --- starting ---------------------------------------------------------------------------------------------

    def _first_jobs(self, now: int, state: TrainingState, policy: Admission) -> Iterator[Action]:
        """Admit jobs as a strict queue does, before any reservation."""
        for action in walk(now, state, policy, self._blocked, strict=True):
            if isinstance(action, StartJob):
                self._broken = self._broken or self.slurm  # it may hold what was reserved: planned anew at its turn
                self._plan.leaves(state.jobs[action.job])
            yield action
            if isinstance(action, PreemptJob):
                self._broken = True
            elif isinstance(action, StartJob):
                self._started(now, state, state.jobs[action.job])

    def _started(self, now: int, state: TrainingState, js: JobState) -> None:
        """Replace the reservation of a job that started by what it holds."""
        end = js.expected_end()
        slot = self._plan.started(js, end)
        if self._broken:
            return
        profile = self._plan.profile
        if slot is not None:
            as_reserved = (slot.start, slot.end, slot.parts) == (now, end, _parts(js.placement))
            if as_reserved and js.gpu_milli == 1000 and not self.slurm:
                return
            profile.reserve(js, slot.parts, max(now, slot.start), slot.end, sign=+1)
            if end < slot.end and not state.speed.constant:
                self._broken = True  # it is faster than planned: jobs after it can start sooner
        if not profile.hold(js, js.placement, now, end):
            self._broken = True

    def _keep(self, now: int, state: TrainingState, policy: Admission) -> Iterator[Action]:
        """Start the jobs whose reservations have begun."""
        for slot in self._plan.begun(now, state, policy):
            js = slot.js
            if state.jobs.get(js.id) is not js or js.status is Status.RUNNING:
                continue
            if js.id in policy.barred:
                self._plan.slots.again(slot)
            elif (placement := self._place_of(now, state, policy, slot)) is None:
                self._broken = True
                self._plan.slots.again(slot)
            else:
                yield StartJob(js.id, placement)
                self._started(now, state, js)

    def _place_of(self, now: int, state: TrainingState, policy: Admission, slot: Slot) -> Placement | None:
        """Return where a job starts whose reservation has begun: the placement's choice if that touches no other
        reservation, else the reserved nodes; None if these are not free."""
        js, profile = slot.js, self._plan.profile
        if is_kept_out(state, js):
            return None
        if not self._broken and (placement := policy.placement.place(state.pool, js)) is not None:
            if _parts(placement) == slot.parts:
                return placement
            profile.reserve(js, slot.parts, now, slot.end, sign=+1)
            fits = profile.fits(js, placement, now, run_time(state, js, placement))
            profile.reserve(js, slot.parts, now, slot.end)
            if fits:
                return placement
        return reserved(state, js, slot.parts, policy.placement)

    # --- reserving --------------------------------------------------------------------------------------------

    def _anew(self, now: int, state: TrainingState, policy: Admission) -> Iterator[Action]:
        """Make all reservations anew, in order; jobs whose reservation begins now start."""
        self._planned = now
        self._broken = False
        self._plan.renew(now, state, policy, self.depth)
        yield from self._extend(now, state, policy)

    def _go_on(self, now: int, state: TrainingState, policy: Admission) -> Iterator[Action]:
        """Make the reservations that are missing beside those that stand; jobs whose reservation begins now start."""
        plan = self._plan
        if state.queue.size <= len(plan.jobs):
            return
        if now >= self._forgotten + _TIDY * self.interval and plan.is_whole:
            self._forgotten = now
            plan.profile.forget(now)
        if (start := self._only_one(state, policy)) is not None:
            yield start
            self._started(now, state, state.jobs[start.job])
        else:
            yield from self._extend(now, state, policy)

    def _only_one(self, state: TrainingState, policy: Admission) -> StartJob | None:
        """Return the start of the only job that waits if it fits: nothing is reserved, and what is free stays so."""
        if self._plan.jobs or state.queue.size != 1 or not self._plan.lazy or state.pool.sharing:
            return None
        (lane,) = state.queue.lanes.values()
        js = state.jobs[lane.head[1]]
        if js.gpu_milli < 1000 or js.id in policy.barred:
            return None
        placement = policy.placement.place(state.pool, js)
        return None if placement is None else StartJob(js.id, placement)

    def _extend(self, now: int, state: TrainingState, policy: Admission) -> Iterator[Action]:
        """Make reservations for those of the first ``depth`` jobs that have none; start those that begin now."""
        plan = self._plan
        if len(plan.jobs) >= min(self.depth, state.queue.size):
            return
        for js, placement in plan.extend(now, state, policy, self.depth):
            yield StartJob(js.id, placement)
            self._started(now, state, js)


def _parts(placement: Placement) -> Parts:
    return tuple((node, mask.bit_count()) for node, mask in placement)
