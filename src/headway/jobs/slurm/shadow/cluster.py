"""A simulated cluster beside a real one: of jobs that still run there it is known only that they run so long at least.

Such a job has as its work what it has run in reality, and is *open*. The cluster comes to rest before the first instant
at which an open job would end: it may go on there, and nobody knows it yet. Everything before that instant depends on
nothing that is still to be learned. When more is known the job is given its new work, and the cluster goes on.
"""

from collections.abc import Sequence, Set
from heapq import heappop, heappush

from headway.jobs.model.actions import Action, MigrateJob, StartJob
from headway.jobs.model.events import Event, JobCancelled
from headway.jobs.model.job import Job
from headway.jobs.sim.cluster import SimulatedCluster
from headway.jobs.sim.resume import Moment
from headway.jobs.state.speed_changes import Respeeded


class ShadowCluster(SimulatedCluster):
    """The executor of a run that goes only as far as it knows."""

    open: Set[int] = frozenset()
    """Jobs of which the end is not known."""
    horizon = 0
    """Instants from this time on do not come yet: who arrives then is not known."""

    def reset(self, open: Set[int], horizon: int) -> None:
        """Set which jobs are open, and how far arrivals are known."""
        self.open, self.horizon = open, horizon
        self._bounds = [(self._end(js), js.id, js.lease) for js in self._state.running.values() if js.id in open]
        self._bounds.sort()

    @property
    def rests_at(self) -> int:
        """Return the first instant that does not come yet."""
        bounds, running, moved = self._bounds, self._state.running, self._moved
        while bounds:
            time, job, lease = bounds[0]
            js = running.get(job)
            if js is not None and js.lease == lease and moved.get(job, time) == time:
                return min(self.horizon, time)
            heappop(bounds)
        return self.horizon

    def next(self) -> tuple[int, Sequence[Event]] | None:
        """Return the next instant that does not depend on what is not known."""
        self.until = self.rests_at
        return super().next()

    def execute(self, now: int, action: Action) -> None:
        """Schedule what an action will cause, and note up to when that is known."""
        super().execute(now, action)
        if isinstance(action, StartJob | MigrateJob) and action.job in self.open:
            js = self._state.running[action.job]
            heappush(self._bounds, (self._end(js), js.id, js.lease))

    def follow(self, now: int, caused: Respeeded) -> None:
        """Move the ends of running jobs."""
        super().follow(now, caused)
        for js in caused:
            if js.id in self.open and js.id in self._state.running:
                heappush(self._bounds, (self._moved[js.id], js.id, js.lease))

    def learn_patience(self, job: Job) -> None:
        """Let a job that has arrived leave when it did in reality, unless it has started by then."""
        heappush(self._heap, (job.submit + job.patience, JobCancelled.rank, job.id, 0, None))


def learn(moment: Moment, job: Job) -> None:
    """Give a job that has arrived in a shadow the work, or the patience, that it really has."""
    if job.id not in moment.state.jobs:
        return
    executor = moment.executor
    assert isinstance(executor, ShadowCluster)
    moment.alter(job)
    if job.patience and moment.state.jobs[job.id].first_start < 0:
        executor.learn_patience(job)
