"""What a state keeps for the preemption that its cluster declares: who was given notice, and who may not start yet.

A requeued job may start again some time later: until then it is in no queue. A job that was given notice runs on and
holds what it holds; when the notice is over, the policy stops it.
"""

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from headway.jobs.model.cluster import Cluster
from headway.jobs.rules.limits.counters import NEVER
from headway.jobs.rules.preemption.preemption import Mode
from headway.jobs.rules.preemption.tiers import Precedence
from headway.jobs.state.jobstate import JobState, Status

if TYPE_CHECKING:
    from headway.jobs.model.actions import KillJob, RequeueJob, WarnJob
    from headway.jobs.state.state import TrainingState


class Preempting:
    """Notices and delays, and the rules that they go by."""

    def __init__(self, precedence: Precedence) -> None:
        self.precedence = precedence
        self.warned: dict[int, JobState] = {}
        """Running jobs that were given notice, in this order."""
        self.notices = 0
        """Grows with each notice."""
        self.latest = 0
        """When the last notice is over that was ever given."""
        self._again: list[tuple[int, int]] = []
        """(when, job) of requeued jobs that may not start yet; jobs that ended meanwhile may be among them."""

    def warn(self, js: JobState, until: int) -> None:
        """Take note that a job was given notice."""
        self.notices += 1
        self.warned[js.id] = js
        js.leaves = until
        self.latest = max(self.latest, until)

    def stopped(self, js: JobState) -> None:
        """Forget the notice of a job that has stopped, for whatever reason."""
        js.leaves = 0
        del self.warned[js.id]

    def requeue(self, now: int, js: JobState, state: "TrainingState") -> None:
        """Keep a job out of the queue for a while; its age counts from the end of that."""
        js.aged_from = now + self.precedence.rules.again_after
        if js.aged_from == now:
            return state.wait(now, js)
        state.returns += 1
        js.since, js.status = now, Status.DELAYED
        heappush(self._again, (js.aged_from, js.id))

    def release(self, now: int, state: "TrainingState") -> bool:
        """Let those wait in the queue again that may start now; return whether there were any."""
        released = False
        while self._again and self._again[0][0] <= now:
            js = state.jobs.get(heappop(self._again)[1])
            if js is not None and js.status is Status.DELAYED:
                since, js.status, released = js.since, Status.WAITING, True
                state.wait(now, js)
                js.since = since
        return released

    def due(self, now: int) -> list[JobState]:
        """Return the running jobs whose notice is over."""
        return [js for js in self.warned.values() if js.leaves <= now]

    def next(self) -> int:
        """Return when the next notice is over, or the next requeued job may start; ``NEVER`` where there is none."""
        leaves = min((js.leaves for js in self.warned.values()), default=NEVER)
        return min(leaves, self._again[0][0]) if self._again else leaves

    def take_over(self, state: "TrainingState", old: "Preempting | None") -> None:
        """Keep the notices and delays of a run that goes on under other rules."""
        for js in state.jobs.values():
            if js.status is Status.DELAYED:
                heappush(self._again, (js.aged_from, js.id))
        if old is not None:
            self.warned, self.latest = old.warned, old.latest

    def refusal(
        self, state: "TrainingState", action: "RequeueJob | KillJob | WarnJob", mode: Mode | None
    ) -> str | None:
        """Return why a running job may not be stopped so (None: in any way), or be given notice; None when it may."""
        told = f"{type(action).__name__}(job={action.job}, by={action.by})"
        js, other = state.running[action.job], state.jobs.get(action.by)
        if mode is not None and js.leaves and js.by == action.by:
            return None  # it was given notice, whatever has become of the other one
        if other is None:
            return f"{told}: job {action.by} is not there"
        precedence = self.precedence
        if not precedence.may(other.job, js.job):
            return f"{told}: {precedence.told(other.job)} may not preempt {precedence.told(js.job)}"
        own = precedence.terms(js.job).mode
        return f"{told}: its mode is {own}" if mode is not None and own is not mode else None


def preempting_of(cluster: Cluster) -> Preempting | None:
    """Return what a state keeps for the preemption that a cluster declares; None where it declares none."""
    return None if cluster.preemption is None else Preempting(Precedence(cluster, cluster.preemption))
