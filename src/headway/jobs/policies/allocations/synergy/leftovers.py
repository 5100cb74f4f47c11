"""Hands out what tune's five steps leave free: jobs that were held to their proportional share get as much more of
their demand as their nodes have left, those first that gain most. They can be lowered again like any other job."""

from collections.abc import Sequence

from headway.jobs.model.resources import Grant
from headway.jobs.model.sensitivity import Matrix
from headway.jobs.policies.allocations.shared.demands import Demands, exceeds
from headway.jobs.policies.allocations.shared.free_resources import FreeResources, GrantedJob, part_of_grant


def hand_out(resources: FreeResources, held: Sequence[GrantedJob], demands: Demands) -> None:
    """Raise the grants of jobs that have less than their full demand; ``resources``: what all jobs leave free."""
    believed = Matrix(demands.profiles)

    def gain(job: GrantedJob) -> int:
        """Return what all GPUs of a job together would gain from all that it can have."""
        pace = demands.pace(job.placement)
        now, then = (believed.of(job.js.job, demands.shares.effective(grant), pace) for grant in (job.grant, most(job)))
        return (then - now) * job.js.width

    def most(job: GrantedJob) -> Grant:
        """Return the grant of a job, raised towards its full demand by what its nodes have left."""
        gpus = job.js.gpus
        reach = [
            [(free + has) * gpus // mask.bit_count() for free, has in zip(resources.free(node), here, strict=True)]
            for node, mask in job.placement
            for here in [part_of_grant(job.grant, mask.bit_count(), gpus)]
        ]
        limits = (min(amounts) for amounts in zip(*reach, strict=True))
        return Grant(*(max(now, min(full, top)) for now, full, top in zip(job.grant, job.full, limits, strict=True)))

    waiting = [job for job in held if exceeds(job.full, job.grant) and demands.profile(job.js.job) is not None]
    while waiting:
        gains = [gain(job) for job in waiting]
        best = max(range(len(waiting)), key=lambda index: (gains[index], -waiting[index].js.id))
        if gains[best] <= 0:
            return
        chosen = waiting.pop(best)
        resources.regrant(chosen, most(chosen))
