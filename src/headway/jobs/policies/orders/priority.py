"""Priority: the job with the larger priority comes first, equal ones in order of their submission.

What Kubernetes' priority classes and Slurm's nice values come down to. No paper. Quotas and guarantees are not this
part's business: they hold for every order. Preemption, when asked for, takes GPUs only from strictly lower
priorities.
"""

from headway.jobs.policies.parts import Order
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.queue import Key


class Priority(Order):
    """By priority, then submission."""

    name = "priority"
    starves = True

    def key(self, now: int, js: JobState) -> Key:
        """Return minus the priority; the queue breaks ties by id, which is in order of submission."""
        return -js.job.priority
