"""Preemption as the cluster declares it (Slurm's preempt/qos and preempt/partition_prio), beside any order.

Waiting jobs that may preempt somebody are looked at in their order, before the backfill and again after it. Victims are
taken lowest QOS or tier first, of equals those on the fewest nodes first, until the job fits where it may run, beside
what jobs ahead of it take of the free GPUs; whoever is not needed for that is spared. Victims without grace go at once
and the job starts. To others notice is given first: they hold their GPUs until it is over. Jobs that leave anyway count
as free from then on: nobody else is stopped for a job that they are enough for.

Departures from Slurm: a victim is never stopped unless its GPUs are needed, and no number of attempts to reorder them
(reorder_count) bounds that. Victims without grace stay until those that have some are gone, and the job starts in that
instant. Reservations of jobs ahead of it are not asked for. SUSPEND keeps the GPUs of the suspended job, so that no job
gains any by it: it counts as no preemption.
"""

from collections.abc import Iterator
from operator import attrgetter

from headway.jobs.model.actions import Action, KillJob, RequeueJob, StartJob, WarnJob
from headway.jobs.model.resources import Placement
from headway.jobs.policies.parts import RESTART, Admission
from headway.jobs.policies.preemption.most_possible import Spare
from headway.jobs.policies.preemption.victims import fits, make_room, open_to_preemption
from headway.jobs.rules.limits.counters import NEVER
from headway.jobs.rules.preemption.engine import Preempting
from headway.jobs.rules.preemption.preemption import Mode
from headway.jobs.state.feasible import placement_refusal
from headway.jobs.state.jobstate import JobState, Status
from headway.jobs.state.state import TrainingState

_place_in_queue = attrgetter("key", "id")


class SitePreemption:
    """Decides who is stopped for whom, by the rules of the cluster."""

    def __init__(self, book: Preempting) -> None:
        self._book = book
        self._precedence = book.precedence
        self._tried: tuple[int, ...] = ()
        """What the state was like when the jobs of these shapes were found unable to preempt."""
        self._unable: set[tuple[object, ...]] = set()
        self._settled: list[int] | None = None
        """Versions of the lanes when none of their jobs was found able to, in the same state."""
        self._again = NEVER
        """When somebody who runs is exempt no longer."""

    def decide(self, now: int, state: TrainingState, policy: Admission) -> Iterator[Action]:
        """Stop those whose notice is over, and whom waiting jobs preempt now; start these."""
        for js in self._book.due(now):
            yield self._stop(js, js.by, policy)
        self._keep_room(now, state, policy)
        while (actions := self._next(now, state, policy)) is not None:
            for action in actions:
                if isinstance(action, StartJob):
                    policy.backfill.leaves(state.jobs[action.job])
                yield action

    def next(self, now: int) -> int:
        """Return when to decide though nothing happens: a notice, a delay or an exempt time is over."""
        return min(self._book.next(), self._again if self._again > now else NEVER)

    # --- who may preempt --------------------------------------------------------------------------------------

    def _waiting(self, state: TrainingState) -> list[JobState]:
        """Return the jobs that wait and may preempt somebody, in order; limits hold none of them back."""
        jobs, below = state.jobs, self._precedence.below
        waiting = [js for lane in state.queue.lanes.values() for _, job in lane if below((js := jobs[job]).job)]
        waiting.sort(key=_place_in_queue)
        return waiting

    def _next(self, now: int, state: TrainingState, policy: Admission) -> list[Action] | None:
        """Return what the first job that can preempt, or whose victims have gone, does; None when none can."""
        present = (state.tenures, state.releases, self._book.notices, state.pool.schedulable, state.refreshed)
        if present != self._tried or self._again <= now:
            self._tried, self._unable, self._settled, self._again = present, set(), None, NEVER
        versions = [lane.version for lane in state.queue.lanes.values()]
        if versions == self._settled:
            return None
        waiting = self._waiting(state)
        awaits = any(js.awaits for js in waiting)
        if (actions := self._first_able(now, state, policy, waiting)) is None and not awaits:
            self._settled = versions
        return actions

    def _first_able(
        self, now: int, state: TrainingState, policy: Admission, waiting: list[JobState]
    ) -> list[Action] | None:
        """Return what the first of these jobs that can does; None when none can."""
        shapes = [
            (self._precedence.group(js.job), js.eligible, js.gpus, js.gpu_milli, js.nodes, js.grant, js.limits)
            for js in waiting
        ]
        tries = [(js, shape) for js, shape in zip(waiting, shapes, strict=True) if shape not in self._unable]
        if not tries:
            return None
        offered = self._candidates(now, state, waiting)
        spare = Spare(state.pool, policy.placement, self._precedence, offered)
        for js, shape in tries:
            if shape in self._unable:
                continue
            if (actions := self._actions(now, state, policy, js, spare)) is not None:
                return actions
            if not js.awaits:
                self._unable.add(shape)
        return None

    def _keep_room(self, now: int, state: TrainingState, policy: Admission) -> None:
        """Let nobody start whom a job could preempt that waits for its victims: it would wait for that one too."""
        if self._book.latest <= now:
            return
        for js in state.jobs.values():
            if js.awaits > now and js.status is Status.WAITING:
                for _, job in state.queue.in_order():
                    other = state.jobs[job]
                    if other.eligible & js.eligible and self._precedence.may(js.job, other.job):
                        policy.barred[job] = other

    # --- whom it stops ----------------------------------------------------------------------------------------

    def _candidates(self, now: int, state: TrainingState, waiting: list[JobState]) -> list[JobState]:
        """Return the running jobs that one of these may preempt now, those first that go first."""
        below = frozenset().union(*(self._precedence.below(js.job) for js in waiting))
        found = []
        for js in state.running.values():
            if js.leaves or not js.job.preemptible or self._precedence.group(js.job) not in below:
                continue
            exempt = self._precedence.terms(js.job).exempt
            if js.since == now and exempt < RESTART:
                self._again = min(self._again, now + RESTART)  # no instant undoes its own actions
            elif js.since + exempt > now:
                self._again = min(self._again, js.since + exempt)
            else:
                found.append(js)
        return sorted(found, key=self._precedence.order)

    def _actions(
        self, now: int, state: TrainingState, policy: Admission, js: JobState, spare: Spare
    ) -> list[Action] | None:
        """Return what lets a job start, now or when notice is over; None when nothing does, or nothing is needed."""
        if not js.awaits:
            if not self._book.warned and not spare.may_hold(js):
                return None
            if fits(state, js, policy.placement) is not None:
                return None
        victims = list(open_to_preemption(now, state, js, spare.victims(js.job), 0))
        if not victims and not js.awaits:
            return None
        placement, needed = self._room(state, policy, js, victims, behind=False)
        if placement is not None and state.queue.size > 1 and not js.awaits:  # what its victims left is its own
            placement, needed = self._room(state, policy, js, victims, behind=True)
        if placement is None:
            return None
        return self._stops_and_start(now, state, policy, js, placement, needed)

    def _room(
        self, state: TrainingState, policy: Admission, js: JobState, victims: list[JobState], *, behind: bool
    ) -> tuple[Placement | None, list[JobState]]:
        """Return where a job fits when those have gone who leave anyway, and whom it has to stop for that; ``behind``:
        beside the jobs ahead of it that fit."""
        rule = policy.placement
        with state.draft() as draft:
            for leaving in self._book.warned.values():
                draft.release(leaving)
            for other in self._ahead(state, policy, js) if behind else ():
                if other.gpus <= state.pool.free_gpus and (placement := fits(state, other, rule)) is not None:
                    draft.start(other, placement)
            if (placement := fits(state, js, rule)) is not None:
                return placement, []
            room = make_room(state, js, rule, victims)
            return room.placement, room.victims

    def _ahead(self, state: TrainingState, policy: Admission, js: JobState) -> list[JobState]:
        """Return the jobs ahead of one that may start before it, and that it would not preempt then."""
        mine, found = (js.key, js.id), []
        for entry in state.queue.in_order():
            if entry >= mine:
                break
            other = state.jobs[entry[1]]
            if other.id not in policy.barred and not self._precedence.may(js.job, other.job):
                found.append(other)
        return found

    def _stops_and_start(
        self,
        now: int,
        state: TrainingState,
        policy: Admission,
        js: JobState,
        placement: Placement,
        needed: list[JobState],
    ) -> list[Action] | None:
        """Return notices for those who have grace; without any, the stops and the start, if nobody is in the way."""
        grace = {victim.id: self._precedence.terms(victim.job).grace for victim in needed}
        if notices := [WarnJob(job, js.id, now + length) for job, length in grace.items() if length]:
            return [*notices]
        with state.draft() as draft:
            for victim in needed:
                draft.release(victim)
            if placement_refusal(state, js, placement) is not None:
                return None  # some that leave have not gone yet
        return [*(self._stop(victim, js.id, policy) for victim in needed), StartJob(js.id, placement)]

    def _stop(self, victim: JobState, by: int, policy: Admission) -> Action:
        """Return the action by which a victim goes; if it waits again at once, it does not start in this decision."""
        policy.barred[victim.id] = victim
        ends = self._precedence.terms(victim.job).mode is Mode.CANCEL
        return (KillJob if ends else RequeueJob)(victim.id, by)
