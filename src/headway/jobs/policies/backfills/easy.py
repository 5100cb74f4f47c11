"""EASY backfilling: only the first blocked job has a reservation; jobs that do not delay it may overtake.

Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995; Mu'alem and Feitelson, TPDS 2001. The shadow time is when the
first blocked job can start if running jobs end as expected. A later job starts now if it is expected to end by then,
or if the first one still finds a place at the shadow time with the later one running on.

Departures: the papers count processors of one pool; here a place is found on nodes, by the policy's own placement,
both now and at the shadow time. When the place that the placement chooses would delay the first job, one off its
reserved nodes is tried. There is one reservation for each set of partitions that share nodes. A job that its quota
or a limit keeps out has none; one within its tenant's guarantee is not held back. Only the job that comes first may
preempt.
"""

from collections.abc import Hashable, Iterable, Iterator
from functools import reduce
from heapq import heappop, heappush
from operator import or_
from typing import NamedTuple

from headway.jobs.model.actions import Action, StartJob
from headway.jobs.model.resources import Placement
from headway.jobs.policies.backfills.reservation import Future, Shadow, run_time, shadow_of, without
from headway.jobs.policies.backfills.walk import guaranteed, open_lanes
from headway.jobs.policies.parts import Admission, Backfill, Order, Reservation
from headway.jobs.policies.preemption.victims import fits
from headway.jobs.state.feasible import quota_refusal
from headway.jobs.state.jobstate import JobState, Status
from headway.jobs.state.queue import Key, tier_of
from headway.jobs.state.state import TrainingState

FOR_EVER = 1 << 62


class _Candidate(NamedTuple):
    """A job that may overtake, and where."""

    order: Key
    js: JobState
    placement: Placement
    spared: tuple[tuple[Shadow, Placement], ...]
    """Shadow times at which it still runs, and where their jobs then start."""


class Easy(Backfill):
    """Backfilling with a reservation for the first blocked job."""

    name = "easy"
    by_shape = True
    ranks_ends = True
    reserves = True

    def __init__(self) -> None:
        self.reservations: dict[int, Reservation] = {}
        self._future = Future()
        self._heads: list[Head] = []
        self._newest = -1
        self._refreshed = 0

    def decide(self, now: int, state: TrainingState, policy: Admission) -> Iterator[Action]:
        """Start jobs in order until one is blocked, then jobs that do not delay it."""
        arrived = self._only_arrivals(now, state, policy)
        if arrived is None:
            yield from self._walk(now, state, policy)
        else:
            policy.blocked = self._heads[0].js
            for js in arrived:
                found = None if js.lane in state.queue.aside else self._overtake(now, state, policy, js)
                if found is not None:
                    yield self._start(found)
        self._newest = max(self._newest, next(reversed(state.jobs), -1))
        self._refreshed = state.refreshed
        self._future.note(state)
        self.reservations = {
            head.js.id: Reservation(head.js.id, shadow.start, head.js.gpus, tuple(n for n, _ in shadow.placement))
            for head in self._heads
            if (shadow := head.shadow) is not None
        }

    def would_promise(self, now: int, state: TrainingState, policy: Admission) -> Iterable[int]:
        """Return the first blocked job, one for each set of partitions that share nodes."""
        fresh = type(self)()
        for _ in fresh.decide(now, state, policy):
            break  # it would start one more, which it did not when it was asked
        return fresh.reservations

    # --- what can be skipped ----------------------------------------------------------------------------------

    def _only_arrivals(self, now: int, state: TrainingState, policy: Admission) -> list[JobState] | None:
        """Return the jobs that arrived since the last decision, in order; None if anything else happened."""
        if not self._heads or policy.preempts or state.quotas or not self._future.same(state):
            return None
        if self._refreshed != state.refreshed or _has_lanes(policy):
            return None
        for head in self._heads:
            if head.shadow is None or state.jobs.get(head.js.id) is not head.js or head.js.status is Status.RUNNING:
                return None
        arrived = []
        for job in reversed(state.jobs):
            if job <= self._newest:
                break
            js = state.jobs[job]
            if js.lane in state.queue.aside:
                continue
            against = self._against(state, js)
            if not against or any((js.key, js.id) < (head.js.key, head.js.id) for head in against):
                return None
            arrived.append(js)
        arrived.sort(key=lambda js: (js.key, js.id))
        return arrived

    # --- the walk ---------------------------------------------------------------------------------------------

    def _walk(self, now: int, state: TrainingState, policy: Admission) -> Iterator[Action]:
        known = {head.js.id: head for head in self._heads if head.holds(now)} if self._future.holds(now, state) else {}
        self._heads = []
        closed: set[Hashable] = set()
        later: list[Hashable] = []
        for lane in open_lanes(state, policy, closed):
            js = state.jobs[lane.head[1]]
            against = self._against(state, js)
            if against and not (state.quotas and guaranteed(js)):
                closed.add(lane.name)
                later.append(lane.name)
                continue
            actions = policy.admit(now, state, js)
            if actions is not None:
                known = {}
                yield from actions
                for head in against:
                    head.look(now, state, policy)
                continue
            closed.add(lane.name)
            if state.quotas and quota_refusal(js) is not None:
                continue
            policy.blocked = policy.blocked or js
            later.append(lane.name)
            if not against:
                head = known.get(js.id) or Head(js, state.eligible(js.job.partition, ()))
                self._heads.append(head)
                if js.id not in known:
                    head.look(now, state, policy)
        yield from self._fill(now, state, policy, later)

    def _fill(self, now: int, state: TrainingState, policy: Admission, lanes: list[Hashable]) -> Iterator[Action]:
        """Start jobs that may overtake, in order. A start only restricts others, so the candidate of a lane is checked
        again only when it comes first."""
        heap: list[tuple[Key, int, Hashable, _Candidate, int]] = []
        started = 0
        for number, lane in enumerate(lanes):
            if (found := self._first_of(now, state, policy, lane)) is not None:
                heappush(heap, (found.order, number, lane, found, started))
        while heap:
            _, number, lane, found, seen = heappop(heap)
            if seen == started:
                started += 1
                yield self._start(found)
            again = self._first_of(now, state, policy, lane)
            if again is not None:
                heappush(heap, (again.order, number, lane, again, started))

    def _first_of(self, now: int, state: TrainingState, policy: Admission, name: Hashable) -> _Candidate | None:
        """Return the first job of a lane that may overtake. Jobs of a lane differ only in how long they run."""
        lane = state.queue.lanes.get(name)
        if lane is None:
            return None
        heads = {head.js.id for head in self._heads}
        longest = FOR_EVER
        for _, job in lane:
            js = state.jobs[job]
            if js.debt + js.expected - js.done > longest or job in heads or js.id in policy.barred:
                continue
            if longest == FOR_EVER and fits(state, js, policy.placement) is None:
                return None
            found = self._overtake(now, state, policy, js)
            if found is not None:
                return found
            if state.speed.constant:
                starts = [head.shadow.start for head in self._against(state, js) if head.shadow is not None]
                longest = max(starts, default=now) - now
        return None

    # --- overtaking -------------------------------------------------------------------------------------------

    def _against(self, state: TrainingState, js: JobState) -> list["Head"]:
        """Return the blocked heads whose partitions share nodes with this job's."""
        if len(self._heads) == 1 and not state.cluster.partitions:
            return self._heads
        territory = state.eligible(js.job.partition, ())
        return [head for head in self._heads if head.territory & territory]

    def _overtake(self, now: int, state: TrainingState, policy: Admission, js: JobState) -> _Candidate | None:
        """Return where a job may start now without delaying the heads before it; None when nowhere."""
        placement = policy.placement.place(state.pool, js)
        if placement is None:
            return None
        shadows = [head.shadow for head in self._against(state, js) if head.shadow is not None]
        spared = self._spared(now, state, policy, js, placement, shadows)
        if spared is None:
            with without(state.pool, reduce(or_, (shadow.nodes for shadow in shadows))):
                placement = policy.placement.place(state.pool, js)
            if placement is None:
                return None
            spared = self._spared(now, state, policy, js, placement, shadows)
        if spared is None:
            return None
        order: Key = (js.key, js.id)
        if state.quotas or _has_lanes(policy):
            order = (not guaranteed(js), tier_of(js.key), policy.order.lane_key(state, js), order)
        return _Candidate(order, js, placement, spared)

    def _spared(
        self,
        now: int,
        state: TrainingState,
        policy: Admission,
        js: JobState,
        placement: Placement,
        shadows: list[Shadow],
    ) -> tuple[tuple[Shadow, Placement], ...] | None:
        """Return the shadow times at which a job still runs, and where their jobs start then; None if it delays one."""
        end = now + run_time(state, js, placement)
        spared = []
        for shadow in shadows:
            if end > max(shadow.start, now + 1):
                if state.quotas and shadow.js.account is js.account and _over_quota(state, js, placement, shadow.js):
                    return None
                elsewhere = shadow.spares(js, placement, policy.placement)
                if elsewhere is None:
                    return None
                spared.append((shadow, elsewhere))
        return tuple(spared)

    def _start(self, found: _Candidate) -> Action:
        for shadow, elsewhere in found.spared:
            shadow.take(found.js, found.placement, elsewhere)
        return StartJob(found.js.id, found.placement)


class Head:
    """A blocked job with no blocked job ahead of it in its partitions."""

    __slots__ = ("js", "shadow", "territory")

    def __init__(self, js: JobState, territory: int) -> None:
        self.js = js
        self.territory = territory
        self.shadow: Shadow | None = None

    def look(self, now: int, state: TrainingState, policy: Admission) -> None:
        """Compute the shadow time from the current state."""
        self.shadow = shadow_of(now, state, self.js, policy.placement)

    def holds(self, now: int) -> bool:
        """Return whether its shadow time still lies ahead."""
        return self.shadow is not None and self.shadow.start > now


def _has_lanes(policy: Admission) -> bool:
    """Return whether the order compares jobs by more than their keys."""
    return type(policy.order).lane is not Order.lane


def _over_quota(state: TrainingState, js: JobState, placement: Placement, head: JobState) -> bool:
    """Return whether the head could not start any more if its own tenant's job held this much."""
    with state.draft() as draft:
        draft.start(js, placement)
        return quota_refusal(head) is not None
