"""The reservations of conservative backfilling: who is to start when and where, made in order.

A plan is made anew only where something has changed: in a region (nodes that no job outside them may use) with the same
running jobs, none of them late, and the same jobs in the same order, time alone moves no reservation. And it is made
only as far as somebody could start now (``hopes.py``): the reservations of the others are worked out when they are
asked for, as of the time at which they were due.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from headway.training.feasible import quota_refusal
from headway.training.jobstate import JobState
from headway.training.policies.backfills.held import NEVER, Held
from headway.training.policies.backfills.hopes import Hopes, Waiting, length_of
from headway.training.policies.backfills.profile import Parts, Profile
from headway.training.policies.backfills.reservation import run_time
from headway.training.policies.parts import Admission, Order, PlacementRule, Reservation
from headway.training.policies.placements.pick import gpus_of
from headway.training.queue import Entry
from headway.training.resources import Placement
from headway.training.state import TrainingState


class Slot(NamedTuple):
    """The reservation of a job: time, nodes and GPUs."""

    js: JobState
    start: int
    end: int
    parts: Parts


class Plan:
    """Reservations that were made, and those that were put off."""

    profile: Profile
    """What is free when beside the reservations that were made."""

    def __init__(self, whole_nodes: bool = False) -> None:
        self.whole_nodes = whole_nodes
        """Whether a reservation takes all of its nodes, as in Slurm."""
        self.slots: dict[int, Slot] = {}
        self.put_off: dict[int, tuple[int, JobState]] = {}
        """Jobs that cannot start now and have no reservation yet, in order: as of when it is to be made."""
        self._starts: list[tuple[int, int]] = []
        self._first: list[Entry] = []
        """The jobs in order when all was planned last."""
        self._orders: dict[int, list[int]] = {}
        """By region: the jobs that were planned, in order."""
        self._order: list[int] = []
        self._left: dict[int, int] = {}
        """How long jobs would have held something whose reservations were put off, and which started before."""
        self._touched = 0
        """Nodes on which jobs have started since all was planned last."""
        self._due = 0
        """No reservation that was put off begins before this time."""
        self._held: Held | None = None
        self._notices = 0
        self._waiting = Waiting()

    def __len__(self) -> int:
        return len(self.slots) + len(self.put_off)

    def __contains__(self, job: int) -> bool:
        return job in self.slots or job in self.put_off

    def promised(self) -> dict[int, Reservation]:
        """Return all reservations by job, in order."""
        self.finish()
        slots = [self.slots[job] for _, job in self._first if job in self.slots]
        return {
            slot.js.id: Reservation(slot.js.id, slot.start, slot.js.gpus, tuple(node for node, _ in slot.parts))
            for slot in slots
        }

    # --- what becomes of reservations -------------------------------------------------------------------------

    def finish(self) -> None:
        """Make the reservations that were put off."""
        while self.put_off:
            job = next(iter(self.put_off))
            self._reserve(*self.put_off.pop(job))

    def begun(self, now: int) -> list[Slot]:
        """Return reservations whose time has come, in order; each is returned once."""
        if now >= self._due:
            self.finish()
        jobs: set[int] = set()
        while self._starts and self._starts[0][0] <= now:
            time, job = heappop(self._starts)
            if job in self.slots and self.slots[job].start == time:
                jobs.add(job)
        if not jobs:
            return []
        return sorted((self.slots[job] for _, job in self._first if job in jobs), key=lambda slot: slot.start)

    def leaves(self, js: JobState) -> None:
        """Take note that a job is about to start that was not to: what was put off goes by what it would have held."""
        if js.id in self.put_off:
            self._left[js.id] = length_of(js, self.put_off[js.id][0])

    def started(self, js: JobState) -> Slot | None:
        """Take note of a job that has started; return the reservation that it had."""
        for node, _ in js.placement:
            self._touched |= 1 << node
        return self.slots.pop(js.id, None)

    def again(self, slot: Slot) -> None:
        """Return a reservation with the next ones that have begun, too."""
        heappush(self._starts, (slot.start, slot.js.id))

    # --- making them ------------------------------------------------------------------------------------------

    def renew(self, now: int, state: TrainingState, policy: Admission, first: list[Entry]) -> None:
        """Drop the reservations that may be others now; ``first`` are the jobs that are to have one, in order."""
        held = self._held
        notices = 0 if state.preempting is None else state.preempting.notices
        if (
            held is None
            or len(held.times) != len(state.cluster.nodes)
            or not state.speed.constant
            or state.divides
            or notices != self._notices
        ):
            self._held = held = Held(state)
            self._orders = {}
        self._notices = notices
        changed, self._touched, self._left = held.follow(now, state) | self._touched, 0, {}
        self._waiting.follow(now, state)
        jobs, before = [job for _, job in first], self._order
        self._first, self._order = first, jobs
        if not self._orders or not self._may_put_off(state, policy):
            self.slots, self.put_off, self._starts, self._orders = {}, {}, [], {}
            self.profile = Profile(held, state.pool.schedulable, self.whole_nodes)
            return
        if not changed and jobs == before:
            return
        changed |= self._reordered(before, jobs)
        for region in [region for region in self._orders if region & changed]:
            for job in self._orders.pop(region):
                self.slots.pop(job, None)
                self.put_off.pop(job, None)
            changed |= region
        self.profile.reset(changed)
        if len(self._starts) > 4 * len(self) + 100:
            self._starts = [(slot.start, job) for job, slot in self.slots.items()]
            heapify(self._starts)

    def _reordered(self, before: list[int], after: list[int]) -> int:
        """Return the regions, as one set of nodes, whose jobs are others or come in another order."""
        same = _alike(before, after)
        parts = before[same:], after[same:]
        end = _alike(parts[0][::-1], parts[1][::-1])
        orders: tuple[dict[int, list[int]], dict[int, list[int]]] = {}, {}
        for order, jobs in zip(orders, parts, strict=True):
            for job in jobs[: len(jobs) - end]:
                order.setdefault(self._region(job), []).append(job)
        nodes = 0
        for region in orders[0].keys() | orders[1].keys():
            if orders[0].get(region) != orders[1].get(region):
                nodes |= region
        return nodes

    def _region(self, job: int) -> int:
        """Return the region of a job that waits, or was planned before it left."""
        known = self._waiting.region_of.get(job)
        return next((region for region, jobs in self._orders.items() if job in jobs), 0) if known is None else known

    def extend(
        self, now: int, state: TrainingState, policy: Admission, first: list[Entry]
    ) -> Iterator[tuple[JobState, Placement]]:
        """Plan those of these jobs that are not planned yet; yield those that start now, each before the next."""
        if first is not self._first:
            self._waiting.follow(now, state)
        self._seen = state, policy.placement
        lazy = self._may_put_off(state, policy)
        if not lazy:
            self.finish()
            self._orders = {}
        slots, put_off, jobs = self.slots, self.put_off, state.jobs
        if first is not self._first:
            self._first, self._order = first, [job for _, job in first]
        added = {job: (now, jobs[job]) for job in self._order if job not in slots and job not in put_off}
        hopes = None
        if lazy:
            region_of = self._waiting.region_of
            for job in added:
                self._orders.setdefault(region_of[job], []).append(job)
            hopes = Hopes(now, state, policy.placement, self._waiting, added, self.profile)
        put_off |= added
        yield from self._go_through(now, policy, hopes)
        ends = state.ends.of_rate(0)
        self._due = max(ends[0][0], now + 1) if ends else now + 1

    def _may_put_off(self, state: TrainingState, policy: Admission) -> bool:
        """Return whether reservations may be made later: jobs start here alone, and each fits somewhere."""
        pool, ends = state.pool, state.ends.of_rate(0)
        return (
            state.speed.constant
            and state.reserved is None
            and not (policy.preempts or state.quotas or state.divides)
            and policy.migration is None
            and type(policy.order).lane is Order.lane
            and pool.schedulable == pool.everywhere
            and not self._waiting.shares
            and (ends[-1][0] if ends else 0) + self._waiting.longest * (state.queue.size + 1) < NEVER
        )

    def _go_through(self, now: int, policy: Admission, hopes: Hopes | None) -> Iterator[tuple[JobState, Placement]]:
        """Plan jobs in order as long as one of their region could start now (None: nobody knows); yield who does."""
        if hopes is not None and not hopes:
            return
        state, _ = self._seen
        for time, js in list(self.put_off.values()):
            if time == now and is_kept_out(state, js):  # one that has just started may have used up a limit
                del self.put_off[js.id]
                if hopes is not None:
                    hopes.planned(js.id, ())
                continue
            if hopes is not None and not hopes.among(js):
                continue
            del self.put_off[js.id]
            if time < now or (hopes is not None and js.id not in hopes):
                self._reserve(time, js)
            elif (placement := self._place_now(now, js, policy)) is not None:
                yield js, placement
            if hopes is not None:
                parts = self.slots[js.id].parts if js.id in self.slots else js.placement
                hopes.planned(js.id, parts)
                if not hopes and state.limits is None:
                    return

    def _place_now(self, now: int, js: JobState, policy: Admission) -> Placement | None:
        """Return where a job starts now; None when its reservation, made here, is for later."""
        state, rule = self._seen
        fresh = js.id in policy.stopped  # it starts at the next decision at the earliest
        placement = None if fresh else rule.place(state.pool, js)
        if placement is not None and self.profile.fits(js, placement, now, run_time(state, js, placement)):
            return placement
        return self._reserve(now, js, start_now=not fresh)

    def _reserve(self, now: int, js: JobState, *, start_now: bool = False) -> Placement | None:
        """Make the reservation of a job; return where it starts at once, where it may and that is its time."""
        state, rule = self._seen
        start, length, parts = self._earliest(now, js)
        if start >= NEVER:
            return None
        if start == now and start_now and (placement := reserved(state, js, parts, rule)) is not None:
            return placement
        self.profile.reserve(js, parts, start, start + length)
        if js.id not in self._left:
            self.slots[js.id] = Slot(js, start, start + length, parts)
            heappush(self._starts, (start, js.id))
        return None

    def _earliest(self, now: int, js: JobState) -> tuple[int, int, Parts]:
        """Return (start, length, parts) of the earliest reservation. The length depends on the nodes, so the search
        may be repeated once."""
        state, rule = self._seen
        profile = self.profile
        single = self._waiting.is_single(state, rule, js)

        def search(length: int) -> tuple[int, Parts]:
            if single:
                return profile.on_one_node(js, now, length)
            domains = rule.domains(state.pool, js)
            return min((profile.on_nodes(js, now, length, domain) for domain in domains), key=lambda found: found[0])

        length = self._left.get(js.id) or length_of(js, now)
        start, parts = search(length)
        if not state.speed.constant and start < NEVER:
            there = run_time(state, js, tuple((node, (1 << count) - 1) for node, count in parts))
            if there != length:
                length = there
                start, parts = search(length)
        return start, length, parts


def _alike(one: list[int], other: list[int]) -> int:
    """Return how many jobs two lists have in common at their beginning; slices are compared faster than jobs."""
    low, high = 0, min(len(one), len(other)) + 1
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low


def is_kept_out(state: TrainingState, js: JobState) -> bool:
    """Return whether a limit or its quota keeps a waiting job out: it has no reservation."""
    return js.lane in state.queue.aside or (state.quotas and quota_refusal(js) is not None)


def reserved(state: TrainingState, js: JobState, parts: Parts, rule: PlacementRule) -> Placement | None:
    """Return the placement of a reservation; None when its GPUs are not free."""
    pool = state.pool
    open_nodes = pool.schedulable & js.eligible
    for node, count in parts:
        if not open_nodes >> node & 1 or pool.free_count[node] < count or not pool.host_fits(js, node, count):
            return None
    placement = tuple((node, gpus_of(pool, node, count)) for node, count in parts)
    return placement if rule.allows(js, placement) else None
