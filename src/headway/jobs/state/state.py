"""The state of a cluster: the one place where anything about jobs, GPUs and quotas changes.

``apply`` takes events, ``commit`` takes actions that ``check`` allows; both write what they did to the journal and
return the running jobs that end at another time for it, None when there are none. Free resources live in ``pool``,
waiting jobs in ``queue``, quotas in ``accounts``; how jobs are kept in order is told by the policy's ``Arrangement``,
so that deciding costs what changed and not what exists.
"""

from collections.abc import Callable
from typing import assert_never

from headway.core.tape import Row
from headway.jobs.model.actions import Action, MigrateJob, ReallocateJob, StartJob, Stop, WakeAt
from headway.jobs.model.cluster import Cluster, Eligible
from headway.jobs.model.events import Event, JobArrived, JobFinished
from headway.jobs.model.job import Job
from headway.jobs.model.resources import UNCOUNTED, Grant, Placement
from headway.jobs.model.rows import WORD, Kind, grant_rows, placement_rows, refused_row
from headway.jobs.model.speed import Costs, SpeedModel
from headway.jobs.rules.limits.counters import NEVER
from headway.jobs.rules.limits.engine import Limits
from headway.jobs.rules.preemption.engine import preempting_of
from headway.jobs.rules.preemption.tiers import tiered, tiered_keys, tiers_of
from headway.jobs.rules.reservations.engine import ReservedNodes, SetAside
from headway.jobs.state import interruptions as losses
from headway.jobs.state.arrangement import Arrangement
from headway.jobs.state.draft import Draft
from headway.jobs.state.feasible import grant_refusal, move_refusal, start_refusal
from headway.jobs.state.jobstate import Account, JobState, Status, account_of
from headway.jobs.state.pool import Pool
from headway.jobs.state.queue import Queue, Ranked
from headway.jobs.state.speed_changes import Respeeded, reallocate, respeed_neighbours, speed_of
from headway.jobs.state.stopping import migrate, stop_for_another, stop_refusal
from headway.units import REFERENCE_SPEED_PPM

_ARRIVED, _FINISHED, _START = int(Kind.ARRIVED), int(Kind.FINISHED), int(Kind.START)
_WAITING, _RUNNING = Status.WAITING, Status.RUNNING
_COST = int(Kind.COST)


class TrainingState:
    """Jobs, free resources and quotas, and how they change."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        to_come: int,
        arrangement: Arrangement,
        speed: SpeedModel | None = None,
        costs: Costs | None = None,
    ) -> None:
        self.cluster = cluster
        self.to_come = to_come
        """Jobs that have not arrived yet."""
        self.arrangement = arrangement
        self.speed = speed or SpeedModel(cluster)
        self.costs = costs or Costs()
        self.pool = Pool(cluster)
        self.queue = Queue()
        self.jobs: dict[int, JobState] = {}
        """All live jobs."""
        self.running: dict[int, JobState] = {}
        """Those that run, in order of their last start."""
        self.on_node: list[dict[int, JobState]] = [{} for _ in cluster.nodes]
        """Those that run on each node."""
        self.ranked = Ranked()
        """Running preemptible jobs, by the arrangement's order; empty unless it ranks them."""
        self.ends = Ranked()
        """Running jobs by expected end; empty unless the arrangement asks for it."""
        self.accounts = {tenant.name: account_of(tenant) for tenant in cluster.tenants}
        self.quotas = any(min(account.limit, account.guaranteed) < UNCOUNTED for account in self.accounts.values())
        self.limits = Limits(cluster) if cluster.limits else None
        self.preempting = preempting_of(cluster)
        self.reserved = ReservedNodes(cluster) if cluster.reservations else None
        self.changes = 0
        """Grows whenever resources are taken or given back."""
        self.releases = 0
        """Grows whenever resources are given back: by as many GPUs at least, and by one at least."""
        self.tenures = 0
        """Grows whenever a job starts, moves or stops."""
        self.returns = 0
        """Grows whenever a job that was stopped waits again, in the queue or for when it may."""
        self.lease = self.refreshed = 0
        self.journal: Callable[[Row], None] = _nowhere
        self.divides = arrangement.divides
        """Whether the policy divides CPUs, memory and storage: a job with GPUs then waits for what that one says."""
        self.grants = False
        """Whether any job was ever given something else than it asked for."""
        self._lane, self._rekeys, self._watches_ends = arrangement.lane, arrangement.rekeys, arrangement.watches_ends
        self._tiers = tiers_of(cluster)
        self._key = tiered(arrangement.key, self._tiers)
        self._ranks_running, self._ranks_ends = arrangement.ranks_running, arrangement.ranks_ends
        self._ranks = self._ranks_running or self._ranks_ends
        self._moves = any((self._rekeys, self.limits, self.preempting, self.reserved))
        self._parts = self._watches_ends or self.limits is not None
        self._eligible = Eligible(cluster)

    # --- the contract -----------------------------------------------------------------------------------------

    def over(self, never: int = 0) -> bool:
        """Return whether no job lives or is to come, but for those that limits stop for ever or that ``never`` come."""
        return self.to_come <= never and (not self.jobs or self.is_stuck())

    def is_stuck(self) -> bool:
        """Return whether nothing runs, and limits hold back all that wait, whatever time passes."""
        if self.preempting is not None and self.preempting.next() < NEVER:
            return False
        if self.limits is None or self.running or self.queue.size or (self.reserved and self.reserved.begins):
            return False
        return self.limits.opens() == NEVER

    def apply(self, now: int, event: Event) -> Respeeded | None:
        """Apply an event; return the running jobs whose speed it changed."""
        if self._moves:
            self.pass_time(now)
        if isinstance(event, JobFinished):  # quicker than a pattern, and these two are almost all that happens
            return self._finished(now, event)
        if isinstance(event, JobArrived):
            self._arrived(now, event.job)
            return None
        return losses.lose(self, now, event)

    def pass_time(self, now: int) -> None:
        """Let time change what it changes by itself: whom limits hold back, who may start again, and keys."""
        if self.preempting is not None and self.preempting.release(now, self):
            self.changes += 1
        if self.limits is not None and self.limits.advance(now, self.queue):
            self.changes += 1
            self.releases += 1
        if self.reserved is not None:
            self.reserved.advance(now, self)
        if self._rekeys and self.arrangement.key_due(now, self.refreshed):
            self.rekey(now)

    def check(self, action: Action) -> str | None:
        """Return why this action cannot be committed now; None when it can."""
        if isinstance(action, StartJob):
            return start_refusal(self, action.job, action.placement, action.grant)
        if isinstance(action, Stop):
            return stop_refusal(self, action)
        match action:
            case MigrateJob():
                return move_refusal(self, action.job, action.placement, action.grant)
            case ReallocateJob():
                return grant_refusal(self, action.job, action.grant)
            case WakeAt():
                return None
            case _:
                assert_never(action)

    def commit(self, now: int, action: Action) -> Respeeded | None:
        """Commit an action that ``check`` allowed; return the running jobs whose speed it changed."""
        if isinstance(action, StartJob):
            return self._start(now, self.jobs[action.job], action.placement, action.grant)
        if isinstance(action, Stop):
            return stop_for_another(self, now, action)
        match action:
            case MigrateJob():
                return migrate(self, now, self.running[action.job], action)
            case ReallocateJob():
                return reallocate(self, now, self.running[action.job], action.grant)
            case WakeAt():
                self.journal((now, int(Kind.WAKE_AT), -1, 0, -1, 0, action.time))
                return None
            case _:
                assert_never(action)

    refused = staticmethod(refused_row)
    """Return the row that records a refusal of an action."""

    def draft(self) -> Draft:
        """Return an overlay to try releases and starts on; undone when its ``with`` block ends."""
        return Draft(self.pool)

    def rekey(self, now: int) -> None:
        """Give waiting jobs their keys anew, for orders whose keys move with time."""
        self.refreshed = now
        jobs = self.jobs
        moved = self.arrangement.moved(now, [jobs[job] for job in self.queue.waiting()])
        for js, key in zip(moved, tiered_keys(self.arrangement.keys(now, moved), moved, self._tiers), strict=True):
            js.key = key
        self.queue.rekey(dict.fromkeys([js.lane for js in moved]), lambda job: jobs[job].key)
        if self.limits is not None:
            self.limits.name_first()

    def eligible(self, partition: str, gpu_types: tuple[str, ...]) -> int:
        """Return the nodes of a partition that carry one of these GPU types (any, when none is named)."""
        return self._eligible[partition, gpu_types]

    # --- changes from outside: what was thought of the work is wrong ----------------------------------------------

    def expect(self, jobs: int) -> None:
        """Set how many jobs have not arrived yet."""
        self.to_come = jobs

    def revise(self, job: Job) -> Respeeded | None:
        """Make a live job other work than was thought, whatever the policy expects; return it if its end moves."""
        js = self.jobs[job.id]
        js.job = job
        return [js] if job.id in self.running else None

    # --- arrivals and departures ------------------------------------------------------------------------------

    def _arrived(self, now: int, job: Job) -> None:
        account = self.accounts.get(job.tenant)
        if account is None:
            account = self.accounts[job.tenant] = Account(job.tenant)
        js = self.jobs[job.id] = JobState(job, account, self._eligible[job.partition, job.gpu_types], now)
        if self.divides and job.gpus:
            js.cpu_milli, js.memory_bytes, js.storage = self.arrangement.asks(js)
        if self.reserved is not None:
            self.reserved.look(now, js, js.eligible)
        self.to_come -= 1
        # A function kept in an attribute gets a local name: for self.journal(...) Python looks for a method first.
        journal, lane_of, key_of = self.journal, self._lane, self._key
        journal((now, _ARRIVED, job.id, 0, -1, 0, 0))
        js.lane = lane = lane_of(js)
        js.key = key = key_of(now, js)
        if self.limits is not None or (job.terms is not None and job.terms.throttle):
            self.limits_from(now).arrive(js)
        if js.limits is None and self.reserved is None:
            self.queue.add(lane, (key, job.id))
        else:
            self.enqueue(js)

    def limits_from(self, now: int) -> Limits:
        """Return the limits; a cluster without any has them from when the first job comes that brings one along."""
        if self.limits is None:
            self.limits, self._moves, self._parts = Limits(self.cluster, now), True, True
        return self.limits

    def _finished(self, now: int, event: JobFinished) -> Respeeded | None:
        js = self.running.get(event.job)
        if js is None or js.lease != event.lease:
            losses.finish_waiting(self, now, event)
            return None
        caused = self.stop(now, js)
        if js.done > js.job.work and not js.job.open_end:
            js.done = js.job.work
        journal = self.journal
        journal((now, _FINISHED, js.id, js.lease, -1, 0, js.done))
        self.end(now, js)
        return caused

    def end(self, now: int, js: JobState) -> None:
        """Forget a job that ended, which neither waits nor runs."""
        del self.jobs[js.id]
        if self._parts:
            if self.limits is not None:
                self.limits.leave(self.queue, js)
            if self._watches_ends:
                self.arrangement.ended(now, js)

    def stale(self, now: int, kind: Kind, job: int, lease: int) -> None:
        """Write down an event of an earlier lease."""
        self.journal((now, int(Kind.STALE), job, lease, -1, 0, int(kind)))

    # --- waiting and running ----------------------------------------------------------------------------------

    def wait(self, now: int, js: JobState) -> None:
        """Put a job that was stopped back into the queue."""
        self.returns += 1
        js.since = now
        if self.reserved is not None:
            self.reserved.look(now, js, self._eligible[js.job.partition, js.job.gpu_types])
        self.put_in_order(now, js)
        self.enqueue(js)

    def put_in_order(self, now: int, js: JobState) -> None:
        """Give a job that is about to wait its lane and its key."""
        js.lane, js.key = self._lane(js), self._key(now, js)

    def enqueue(self, js: JobState) -> None:
        """Let a job wait in its lane, or aside where a limit or its reservation holds it back."""
        if self.reserved is not None and js.id in self.reserved.begins:
            js.lane = SetAside(js.lane)
            self.queue.add_aside(js.lane, (js.key, js.id))
        elif js.limits is None:
            self.queue.add(js.lane, (js.key, js.id))
        else:
            js.limits.book.enqueue(self.queue, js, js.lane)

    def dequeue(self, js: JobState) -> None:
        """Take a job out of the queue, or from where it was held back."""
        if js.limits is None or isinstance(js.lane, SetAside):
            self.queue.remove(js.lane, (js.key, js.id))
        else:
            js.limits.book.dequeue(self.queue, js)

    def _start(self, now: int, js: JobState, placement: Placement, grant: Grant | None) -> Respeeded | None:
        if js.limits is None:
            self.queue.remove(js.lane, (js.key, js.id))
        else:
            self.dequeue(js)
        if js.first_start < 0:
            js.first_start = now
        js.awaits = 0
        debt, js.debt = js.debt, 0
        caused = self.run(now, js, placement, grant, _START, debt)
        js.turn = js.lease
        return caused

    def run(
        self, now: int, js: JobState, placement: Placement, grant: Grant | None, kind: int, standstill: int
    ) -> Respeeded | None:
        """Occupy, take a new lease, set the speed, write it down; return the neighbours whose speed this changed."""
        if grant is not None:
            js.cpu_milli, js.memory_bytes, js.storage = grant
            self.grants = True
        self.pool.take(js, placement)
        self.tenures += 1
        js.account.held += js.width
        if js.limits is not None:
            js.limits.book.take(now, self.queue, js, placement, anew=kind == _START)
        self.changes += 1
        self.lease = js.lease = self.lease + 1
        js.status = _RUNNING
        js.placement = placement
        js.since = now
        js.base = now + standstill
        js.writing = 0
        js.speed = REFERENCE_SPEED_PPM if self.speed.constant else speed_of(self, js)
        self.running[js.id] = js
        node, mask = placement[0]
        if len(placement) == 1 and mask <= WORD:
            self.on_node[node][js.id] = js
            journal = self.journal
            journal((now, kind, js.id, js.lease, node, mask, js.speed))
        else:
            for node, _ in placement:
                self.on_node[node][js.id] = js
            for row in placement_rows(now, kind, js.id, js.lease, placement, js.speed):
                self.journal(row)
        if grant is not None:
            for row in grant_rows(now, js.id, js.lease, grant):
                self.journal(row)
        if standstill:
            self.journal((now, _COST, js.id, js.lease, -1, 0, standstill))
        if self._ranks:
            self.enter_ranks(now, js)
        return respeed_neighbours(self, now, js) if self.speed.sharing_costs else None

    def enter_ranks(self, now: int, js: JobState) -> None:
        """Put a running job into the orders that the arrangement asks for."""
        if self._ranks_running and js.job.preemptible:
            js.rank = self.arrangement.rank(now, js)
            self.ranked.add(*js.rank, js.id)
        if self._ranks_ends:
            self.ends.add(0, js.expected_end(), js.id)

    def leave_ranks(self, js: JobState) -> None:
        """Take a running job out of them, before its work is settled or its speed changes."""
        if self._ranks_running and js.job.preemptible:
            self.ranked.remove(*js.rank, js.id)
        if self._ranks_ends:
            self.ends.remove(0, js.expected_end(), js.id)

    def stop(self, now: int, js: JobState) -> Respeeded | None:
        """Settle what was delivered and free what was held; return the running jobs whose speed this changed."""
        if self._ranks:
            self.leave_ranks(js)
        if js.every:
            js.settle(now)
        elif now > js.base:
            ran = now - js.base
            js.done += ran if js.speed == REFERENCE_SPEED_PPM else ran * js.speed // REFERENCE_SPEED_PPM
        js.attained += (now - js.since) * js.width
        js.status = _WAITING
        if js.leaves and self.preempting is not None:
            self.preempting.stopped(js)
        del self.running[js.id]
        for node, _ in js.placement:
            del self.on_node[node][js.id]
        self.pool.give(js, js.placement)
        self.tenures += 1
        if self.divides and js.gpus:
            js.cpu_milli, js.memory_bytes, js.storage = self.arrangement.asks(js)
        elif self.grants:
            js.cpu_milli, js.memory_bytes, js.storage = js.job.cpu_milli, js.job.memory_bytes, 0
        js.account.held -= js.width
        if js.limits is not None:
            js.limits.book.give(now, self.queue, js)
        self.changes += 1
        self.releases += js.gpus or 1
        return respeed_neighbours(self, now, js) if self.speed.sharing_costs else None


def _nowhere(_: Row) -> None:
    """The journal of a state that nobody records."""
