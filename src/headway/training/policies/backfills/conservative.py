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

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush, merge
from itertools import chain, islice

from headway.errors import ExperimentError
from headway.training.actions import Action, PreemptJob, StartJob, WakeAt
from headway.training.feasible import quota_refusal
from headway.training.jobstate import JobState, Status
from headway.training.policies.backfills.held import NEVER, Held
from headway.training.policies.backfills.hopes import Hopes, Waiting, length_of
from headway.training.policies.backfills.profile import Parts, Profile
from headway.training.policies.backfills.reservation import Future, run_time
from headway.training.policies.backfills.walk import Blocked, guaranteed, walk
from headway.training.policies.parts import Admission, Backfill, Order, PlacementRule, Reservation
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


_Todo = tuple[int, Entry, JobState]
"""A reservation that is to be made as of a time, of a job with its place in the order."""


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
        self._reservations: dict[int, Reservation] = {}
        self._slots: dict[int, _Slot] = {}
        self._todo: dict[int, _Todo] = {}
        """Jobs that cannot start now and whose reservations are not made yet, in order."""
        self._due = 0
        """No reservation of those begins before this time."""
        self._sound: tuple[int, int, list[int]] = (-1, 0, [])
        """``changes`` of the state, its nodes and the jobs in order when nobody more could start as planned last."""
        self._waiting = Waiting()
        self._held: Held | None = None
        self._starts: list[tuple[int, Entry]] = []
        self._future = Future()
        self._blocked = Blocked()
        self._broken = True
        self._planned = -1
        self._woken = -1
        self._forgotten = 0
        self._refreshed = 0

    @property
    def reservations(self) -> Mapping[int, Reservation]:  # type: ignore[override]
        """Return what it has promised, by job; what was put off is worked out now."""
        self._finish()
        return self._reservations

    @reservations.setter
    def reservations(self, promised: dict[int, Reservation]) -> None:
        self._reservations, self._todo = promised, {}

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
        slots, todo = self._slots, self._todo
        count = len(slots) + len(todo)
        self._broken = (
            self._refreshed != state.refreshed
            or state.quotas
            or count > state.queue.size
            or any(job not in slots and job not in todo for _, job in _in_order(state, policy, count))
        )
        return not self._broken

    def _first_blocked(self, state: TrainingState, policy: Admission) -> JobState | None:
        if not state.quotas:
            return state.jobs[_in_order(state, policy, 1)[0][1]]
        waiting = (state.jobs[job] for _, job in _in_order(state, policy, state.queue.size))
        return next((js for js in waiting if quota_refusal(js) is None), None)

    # --- starting ---------------------------------------------------------------------------------------------

    def _first_jobs(self, now: int, state: TrainingState, policy: Admission) -> Iterator[Action]:
        """Admit jobs as a strict queue does, before any reservation."""
        for action in walk(now, state, policy, self._blocked, strict=True):
            self._finish()
            yield action
            if isinstance(action, PreemptJob):
                self._broken = True
            elif isinstance(action, StartJob):
                self._started(now, state, state.jobs[action.job])

    def _started(self, now: int, state: TrainingState, js: JobState) -> None:
        """Replace the reservation of a job that started by what it holds."""
        self._reservations.pop(js.id, None)
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
        if now >= self._due:
            self._finish()
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
        if state.quotas and quota_refusal(js) is not None:
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
        ends = state.ends.of_rate(0)
        first = [job for _, job in _in_order(state, policy, self.depth)]
        if self._sound == (state.changes, state.pool.schedulable, first) and not (ends and ends[0][0] <= now):
            return  # time alone lets nobody start before one of those that run is to end, and moves no reservation
        if self._held is None or not state.speed.constant or state.divides:
            self._held = Held(state)
        self._held.follow(now, state)
        self._profile = Profile(self._held, state.pool.schedulable)
        self._slots.clear()
        self._starts.clear()
        self._todo = {}
        self._reservations = {}
        yield from self._extend(now, state, policy)

    def _may_put_off(self, state: TrainingState, policy: Admission) -> bool:
        """Return whether reservations can be made later than planned: jobs start here alone, and each fits somewhere."""
        pool, ends = state.pool, state.ends.of_rate(0)
        plain = state.speed.constant and not (policy.preempts or state.quotas or state.divides)
        last = ends[-1][0] if ends else 0
        return (
            plain
            and policy.migration is None
            and type(policy.order).lane is Order.lane
            and pool.schedulable == pool.everywhere
            and not self._waiting.shares
            and last + self._waiting.longest * self.depth < NEVER
        )

    def _extend(self, now: int, state: TrainingState, policy: Admission) -> Iterator[Action]:
        """Plan those of the first ``depth`` jobs that are not planned yet; start those that begin now."""
        planned = len(self._slots) + len(self._todo)
        if planned >= self.depth or planned == state.queue.size:
            return
        self._waiting.follow(now, state)
        lazy = self._may_put_off(state, policy)
        if not lazy:
            self._finish()
        if not self._todo and now >= self._forgotten + self.interval:
            self._forgotten = now
            self._profile.forget(now)
        jobs = state.jobs
        added = _in_order(state, policy, self.depth)[planned:]
        self._todo |= {entry[1]: (now, entry, jobs[entry[1]]) for entry in added}
        self._seen = state, policy.placement
        hopes = None
        if lazy:
            among = {job for _, job in added}
            hopes = Hopes(now, state, policy.placement, self._waiting, among, self._profile)
        yield from self._go_through(now, state, policy, hopes)
        ends = state.ends.of_rate(0)
        self._due = max(ends[0][0], now + 1) if ends else now + 1
        self._sound = (-1, 0, [])
        if lazy and not self._broken:
            first = [job for _, job in _in_order(state, policy, self.depth)]
            self._sound = state.changes, state.pool.schedulable, first

    def _go_through(self, now: int, state: TrainingState, policy: Admission, hopes: Hopes | None) -> Iterator[Action]:
        """Plan jobs in order as long as one of them could start now (None: nobody knows), and start those that do."""
        while self._todo and (hopes is None or hopes):
            todo = time, _, js = self._todo.pop(next(iter(self._todo)))
            if state.quotas and quota_refusal(js) is not None:
                continue
            if time < now or (hopes is not None and js.id not in hopes):
                self._reserve(todo)
            elif (placement := self._place_now(todo, policy)) is not None:
                yield StartJob(js.id, placement)
                self._started(now, state, js)
            if hopes is not None:
                parts = self._slots[js.id].parts if js.id in self._slots else js.placement
                hopes.planned(js.id, [node for node, _ in parts])

    def _finish(self) -> None:
        """Make the reservations that were put off."""
        while self._todo:
            self._reserve(self._todo.pop(next(iter(self._todo))))

    def _place_now(self, todo: _Todo, policy: Admission) -> Placement | None:
        """Return where a job starts now; None when its reservation, made here, is for later."""
        (now, _, js), (state, rule) = todo, self._seen
        fresh = js.id in policy.stopped  # it starts at the next decision at the earliest
        placement = None if fresh else rule.place(state.pool, js)
        if placement is not None and self._profile.fits(js, placement, now, run_time(state, js, placement)):
            return placement
        return self._reserve(todo, start_now=not fresh)

    def _reserve(self, todo: _Todo, *, start_now: bool = False) -> Placement | None:
        """Make the reservation of a job; return where it starts at once, where it may and that is its time."""
        (now, entry, js), (state, rule) = todo, self._seen
        start, length, parts = self._earliest(now, state, js, rule)
        if start >= NEVER:
            return None
        if start == now and start_now and (placement := _reserved(state, js, parts, rule)) is not None:
            return placement
        slot = _Slot(js, start, start + length, parts)
        self._profile.reserve(js, parts, slot.start, slot.end)
        self._slots[js.id] = slot
        heappush(self._starts, (start, entry))
        self._reservations[js.id] = Reservation(js.id, start, js.gpus, tuple([node for node, _ in parts]))
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

        length = length_of(js, now)
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


def _in_order(state: TrainingState, policy: Admission, count: int) -> list[Entry]:
    """Return the first ``count`` waiting jobs in the policy's current order."""
    lanes = state.queue.lanes.values()
    if len(lanes) == 1:
        return list(next(iter(lanes)))[:count]
    if not state.quotas and type(policy.order).lane is Order.lane:
        if count == 1:
            return [min(lane.head for lane in lanes)]
        return sorted(chain.from_iterable([list(lane)[:count] for lane in lanes]))[:count]
    ordered = merge(*(_keyed(state, policy, lane) for lane in lanes))
    return [entry for _, _, entry in islice(ordered, count)]


def _keyed(state: TrainingState, policy: Admission, lane: Lane) -> Iterable[tuple[bool, object, Entry]]:
    first = state.jobs[lane.head[1]]
    later = state.quotas and not guaranteed(first)
    key = policy.order.lane_key(state, first)
    return ((later, key, entry) for entry in lane)
