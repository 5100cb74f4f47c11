"""The reservations of conservative backfilling: who is to start when and where, made in order.

A plan is made anew only where something has changed: in a region (nodes that no job outside them may use) with the same
running jobs, none of them late, and the same jobs in the same order, time alone moves no reservation. And it is made
only as far as somebody could start now (``could_start.py``): the reservations of the others are worked out when they
are asked for, as of the time at which they were due.
"""

from collections.abc import Iterator

from headway.jobs.model.resources import Placement
from headway.jobs.policies.backfills.conservative.availability import Parts, Profile
from headway.jobs.policies.backfills.conservative.could_start import Hopes, TooLate, Waiting, length_of, mask_of
from headway.jobs.policies.backfills.conservative.last_plan import Before, Slot, following
from headway.jobs.policies.backfills.conservative.queue_order import (
    in_order,
    is_kept_out,
    jobs_of,
    last_of,
    versions_of,
)
from headway.jobs.policies.backfills.conservative.region import Region
from headway.jobs.policies.backfills.conservative.running import NEVER, Held
from headway.jobs.policies.backfills.conservative.slots import Slots
from headway.jobs.policies.backfills.conservative.whole_nodes import WholeNodes
from headway.jobs.policies.backfills.reservation import reserved, run_time
from headway.jobs.policies.parts import Admission, Reservation
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.queue import Entry, Lane
from headway.jobs.state.state import TrainingState

_FEW = 4
"""So many new jobs are planned whether one could start or not."""


class Plan:
    """Reservations that were made, and those that were put off."""

    profile: Profile | WholeNodes
    """What is free when beside the reservations that were made."""

    def __init__(self, whole_nodes: bool = False, window: int = 0) -> None:
        self.whole_nodes = whole_nodes
        """Whether a reservation takes all of its nodes, as in Slurm."""
        self.window = window
        """Above 0: what begins later than so long after the plan is made is not held free."""
        self.slots = Slots()
        self.jobs: set[int] = set()
        """Jobs that have a reservation, or whose reservation was put off."""
        self._regions: dict[int, Region] = {}
        """By their nodes."""
        self._fresh: dict[int, list[JobState]] = {}
        """By region: jobs that are to be planned, once it is known that there are any."""
        self._touched = 0
        """Nodes on which jobs have started since all was planned last."""
        self._entered: Slot | None = None
        """The reservation that was made last."""
        self._held: Held | None = None
        self._notices = 0
        self._waiting = Waiting()
        self._too_late = TooLate(self._waiting)
        self.lazy = self._anew = False
        """Whether reservations may be put off, as far as was known when the last plan was made."""

    @property
    def is_whole(self) -> bool:
        """Return whether no reservation is put off."""
        return not any(region.has_left for region in self._regions.values())

    def promised(self) -> dict[int, Reservation]:
        """Return all reservations by job."""
        self.finish()
        return {
            job: Reservation(job, slot.start, slot.js.gpus, tuple(node for node, _ in slot.parts))
            for job, slot in self.slots.by_job.items()
        }

    # --- what becomes of reservations -------------------------------------------------------------------------

    def finish(self) -> None:
        """Make the reservations that were put off."""
        for region in self._regions.values():
            self._finish(region)

    def _finish(self, region: Region) -> None:
        region.before = Before()
        for time, js in region.left():
            self._reserve(region, time, js)

    def begun(self, now: int, state: TrainingState, policy: Admission) -> list[Slot]:
        """Return reservations whose time has come, by it and in order; each is returned once."""
        for region in self._regions.values():
            if region.has_left and now >= region.first_due(self._held):
                self._finish(region)
        if not (jobs := self.slots.begin(now)):
            return []
        ordered = [job for _, job in in_order(state, policy, state.queue.size) if job in jobs]
        held_back = sorted(jobs.difference(ordered))
        return sorted([self.slots.by_job[job] for job in (*ordered, *held_back)], key=lambda slot: slot.start)

    def leaves(self, js: JobState) -> None:
        """Take note that a job is about to start that was not to: what was put off goes by what it would have held."""
        self._waiting.started.add(js.id)
        if js.id in self.jobs and js.id not in self.slots.by_job:
            self.slots.left[js.id] = length_of(js, 0)

    def started(self, js: JobState, end: int) -> Slot | None:
        """Take note of a job that has started and is to end then; return the reservation that it had."""
        nodes, slot = mask_of(js.placement), self.slots.by_job.pop(js.id, None)
        self._touched |= nodes
        self.jobs.discard(js.id)
        self._waiting.started.add(js.id)
        for region in self._regions.values():
            if region.nodes & nodes:
                if end < region.first_end:
                    region.first_end = end
                region.before.differs |= nodes if slot is None else nodes | slot.nodes
        return slot

    # --- making them ------------------------------------------------------------------------------------------

    def renew(self, now: int, state: TrainingState, policy: Admission, depth: int) -> None:
        """Drop the reservations that may be others now; the first ``depth`` jobs are to have one."""
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
            self.lazy = False
        self._notices = notices
        changed, self._touched = held.follow(now, state) | self._touched, 0
        self.slots.left.clear()
        self._waiting.follow(now, state)
        anew, self.lazy = not self.lazy, self._waiting.may_put_off(state, policy)
        if anew or not self.lazy:
            self.slots, self.jobs, self._regions = Slots(), set(), {}
            if self.lazy and self.whole_nodes:
                self.profile = WholeNodes(held, state)
            else:
                self.profile = Profile(held, state.pool.schedulable, self.whole_nodes)
        self._fresh = {}
        if not self.lazy:
            self._look_for_all(state, policy, depth)
            return
        lanes = self._waiting.lanes(state)
        for nodes in self._regions.keys() - lanes.keys():
            changed |= nodes
            self._drop(self._regions.pop(nodes))
        self.profile.reset(changed)
        last = last_of(state, depth)
        for nodes, theirs in lanes.items():
            self._renew(now, state, nodes, theirs, last, changed)
        self.slots.tidy(4 * len(self.jobs) + 100)

    def _renew(
        self, now: int, state: TrainingState, nodes: int, lanes: list[Lane], last: Entry | None, changed: int
    ) -> None:
        """Make the plan of a region anew if it may be another one now."""
        versions = versions_of(state, lanes) if last is None else None
        known = self._regions.get(nodes)
        same = known is not None and not nodes & changed and known.too_late > now + self.window
        if known is not None and same and known.versions == versions is not None:
            self._note_stands(known, now)
            return
        jobs = jobs_of(lanes, last)
        region = known if known is not None else self._regions.setdefault(nodes, Region(nodes))
        region.versions = versions
        if same and jobs == region.jobs:
            self._note_stands(region, now)
            return
        self._drop(region)
        region.jobs = jobs
        self.profile.reset(nodes & self.profile.changed)
        region.renew(now, nodes & changed)
        if jobs:
            self._fresh[nodes] = list(map(state.jobs.__getitem__, jobs))

    def _note_stands(self, region: Region, now: int) -> None:
        """Take note that the plan of a region, made now, would be the same."""
        if self.window:
            region.stands(now)

    def _drop(self, region: Region) -> None:
        """Forget the reservations of a region."""
        self.jobs.difference_update(region.planned)
        self.slots.drop(region.planned if region.made is None else [slot.js.id for slot in region.made])

    def extend(
        self, now: int, state: TrainingState, policy: Admission, depth: int
    ) -> Iterator[tuple[JobState, Placement]]:
        """Plan those of the first ``depth`` jobs that are not planned yet; yield those that start now, each before the
        next."""
        self._anew = bool(self._fresh)
        if not self._fresh:
            self._follow_new(now, state, policy, depth)
        fresh, self._fresh = self._fresh, {}
        self._seen = state, policy.placement
        regions = [self._regions[nodes] for nodes in fresh]
        unplanned: dict[int, set[int]] = {}
        at_once = not self.lazy or (not self._anew and sum(map(len, fresh.values())) <= _FEW)
        for region in regions:
            at_once = at_once and not region.has_left
            ids = region.add(now, fresh[region.nodes])
            unplanned[region.nodes] = set(ids)
            self.jobs.update(ids)
        if at_once:
            yield from self._go_through_all(now, policy, regions)
            return
        hopes = Hopes(now, state, policy.placement, self._waiting, self.profile)
        hopes.add(unplanned)
        yield from self._go_through(now, policy, regions, hopes)

    def _follow_new(self, now: int, state: TrainingState, policy: Admission, depth: int) -> None:
        """Find the jobs that have come since the last plan, which stands."""
        self._waiting.follow(now, state)
        if self.lazy and not self._waiting.may_put_off(state, policy):
            self.finish()
            self.lazy, self._regions = False, {}
            if isinstance(self.profile, WholeNodes):
                self.profile = self.profile.to_profile()
        if not self.lazy:
            self._look_for_all(state, policy, depth)
            return
        lanes = self._waiting.lanes(state)
        for nodes in self._regions.keys() - lanes.keys():
            for joined in [joined for joined in lanes if joined & nodes]:  # a new job connects it with another one
                self._finish(region := self._regions.pop(nodes))
                whole = self._regions.setdefault(joined, Region(joined))
                whole.join(region)
        last = last_of(state, depth)
        for nodes, theirs in lanes.items():
            versions = versions_of(state, theirs) if last is None else None
            known = self._regions.get(nodes)
            if known is not None and known.versions == versions is not None:
                continue
            region = known if known is not None else self._regions.setdefault(nodes, Region(nodes))
            region.jobs, region.versions = jobs_of(theirs, last), versions
            if new := [state.jobs[job] for job in region.jobs if job not in self.jobs]:
                self._fresh[nodes] = new
            if state.limits is not None and {*region.planned} & self.jobs - {*region.jobs}:
                region.leave_out()

    def _look_for_all(self, state: TrainingState, policy: Admission, depth: int) -> None:
        """Take all nodes for one region."""
        nodes = state.pool.everywhere
        region = self._regions.setdefault(nodes, Region(nodes))
        region.jobs = [job for _, job in in_order(state, policy, depth)]
        if new := [state.jobs[job] for job in region.jobs if job not in self.jobs]:
            self._fresh[nodes] = new

    # --- job by job -------------------------------------------------------------------------------------------

    def _go_through_all(
        self, now: int, policy: Admission, regions: list[Region]
    ) -> Iterator[tuple[JobState, Placement]]:
        """Plan all jobs in order; yield those that start now."""
        state, _ = self._seen
        for region in regions:
            region.before = Before()
        while regions := [each for each in regions if each.has_left]:
            region = regions[0] if len(regions) == 1 else min(regions, key=Region.head)
            _, js = region.take()
            if is_kept_out(state, js):  # one that has just started may have used up a limit
                self.jobs.discard(js.id)
                region.leave_out()
            elif (placement := self._place_now(region, now, js, policy)) is not None:
                yield js, placement

    def _go_through(
        self, now: int, policy: Admission, regions: list[Region], hopes: Hopes
    ) -> Iterator[tuple[JobState, Placement]]:
        """Plan jobs in order as long as one of their region could start now; yield who does."""
        state, _ = self._seen
        held_back = len(state.queue.aside)
        active: list[Region] = []
        again, others = True, None
        self._too_late.forget()
        while True:
            if again:
                active = [each for each in regions if each.has_left and hopes.regions.get(each.nodes)]
            if not active:
                break
            if again or (others is not None and active[0].head() > others):
                active.sort(key=Region.head)
                others = active[1].head() if len(active) > 1 else None
            region = active[0]
            (time, js), placement, again = region.take(), None, False
            if js.id not in self.slots.left and self._too_late.has(time, js.id):
                again = hopes.planned(js.id, region.nodes, 0) or not region.has_left
                continue
            kept = self._keeps(region, time, js, hopes)
            if not kept and (time < now or js.id not in hopes):
                self._reserve(region, time, js)
            elif not kept and (placement := self._place_now(region, now, js, policy)) is not None:
                yield js, placement
                if len(state.queue.aside) != held_back:  # it has used up a limit
                    held_back = len(state.queue.aside)
                    again = True
                    self._hold_back(now, regions, js, hopes)
            slot = self._entered
            nodes = slot.taken if slot is not None else mask_of(placement or ())
            if not kept:
                region.before.note(slot, nodes)
            again = hopes.planned(js.id, region.nodes, nodes) or again or not region.has_left

    def _hold_back(self, now: int, regions: list[Region], started: JobState, hopes: Hopes) -> None:
        """Give those no reservation who come after a job that has started and are held back by a limit since."""
        state, _ = self._seen
        after, aside = (started.key, started.id), state.queue.aside
        self._too_late.forget()
        for region in regions:
            for job in region.hold_back(now, after, aside):
                self.jobs.discard(job)
                hopes.planned(job, region.nodes, 0)
        for region in [each for each in self._regions.values() if self._anew and each not in regions]:
            waiting = [state.jobs[job] for job in region.jobs]
            left = [js for js in waiting if js.lane not in aside or (js.key, js.id) < after]
            if len(left) < len(waiting):
                self._drop(region)
                self.profile.reset(region.nodes & self.profile.changed)
                region.renew(now, region.nodes)
                region.add(now, left)
                region.leave_out()
                regions.append(region)
                jobs = {js.id for js in left}
                self.jobs |= jobs
                hopes.add({region.nodes: jobs})

    def _keeps(self, region: Region, now: int, js: JobState, hopes: Hopes) -> bool:
        """Give a job what follows from its reservation in the plan before; return False where it has to be looked
        for."""
        before, profile, self._entered = region.before, self.profile, None
        slot = before.of(js, hopes.unplanned[region.nodes])
        if slot is None or slot.end - slot.start != self._waiting.length[js.id] or not isinstance(profile, WholeNodes):
            return False
        found = following(now, slot, before.differs, profile)
        if found is None:
            return False
        found = self._enter(region, now, found)
        if found is not slot:
            before.note(found, found.taken)
        return True

    def _place_now(self, region: Region, now: int, js: JobState, policy: Admission) -> Placement | None:
        """Return where a job starts now; None when its reservation, made here, is for later."""
        state, rule = self._seen
        fresh = js.id in policy.barred  # it starts at the next decision at the earliest
        placement = None if fresh else rule.place(state.pool, js)
        if placement is not None and self.profile.fits(js, placement, now, run_time(state, js, placement)):
            return placement
        return self._reserve(region, now, js, start_now=not fresh)

    def _reserve(self, region: Region, now: int, js: JobState, *, start_now: bool = False) -> Placement | None:
        """Make the reservation of a job; return where it starts at once, where it may and that is its time."""
        state, rule = self._seen
        start, length, parts = self._earliest(now, js)
        if start >= NEVER:
            self.jobs.discard(js.id)
            region.leave_out()
            return None
        if start == now and start_now and (placement := reserved(state, js, parts, rule)) is not None:
            return placement
        self._enter(region, now, Slot(js, start, start + length, parts, mask_of(parts), self.profile.stands))
        return None

    def _enter(self, region: Region, now: int, slot: Slot) -> Slot:
        """Hold free what a job is to have, unless that begins too late; return the reservation."""
        kept = not self.window or slot.start <= now + self.window
        taken = slot.nodes if kept else 0
        if taken != slot.taken:
            slot = Slot(*slot[:-1], taken)
        self._entered = slot
        if region.made is not None:
            region.made.append(slot)
        if kept:
            self.profile.plan(slot.js, slot.parts, slot.start, slot.end)
            self.slots.add(slot)
        else:
            self._too_late.note(now, slot.js.id, slot.end - slot.start)
            region.too_late = min(region.too_late, slot.start)
        return slot

    def _earliest(self, now: int, js: JobState) -> tuple[int, int, Parts]:
        """Return (start, length, parts) of the earliest reservation. The length depends on the nodes, so the search
        may be repeated once."""
        state, _ = self._seen
        length = self.slots.left.get(js.id) or self._waiting.length.get(js.id) or length_of(js, now)
        start, parts = self._search(now, js, length)
        if not state.speed.constant and start < NEVER:
            there = run_time(state, js, tuple((node, (1 << count) - 1) for node, count in parts))
            if there != length:
                length = there
                start, parts = self._search(now, js, length)
        return start, length, parts

    def _search(self, now: int, js: JobState, length: int) -> tuple[int, Parts]:
        state, rule = self._seen
        if self._waiting.is_single(state, rule, js):
            return self.profile.on_one_node(js, now, length)
        domains = rule.domains(state.pool, js)
        return min((self.profile.on_nodes(js, now, length, domain) for domain in domains), key=lambda found: found[0])
