"""What tune's five steps leave to nobody: a job that was held to its due gets as much more of what it wants as its
nodes have left, those first that gain most by it. They are above their due then, and give it back like any other."""

from collections.abc import Sequence

from headway.training.actions import Grant
from headway.training.policies.allocations.shared.demands import Demands, exceeds
from headway.training.policies.allocations.shared.free_resources import FreeResources, GrantedJob, part_of_grant
from headway.training.sensitivity import Matrix


def hand_out(room: FreeResources, held: Sequence[GrantedJob], demands: Demands) -> None:
    """Raise the grants of jobs that have their due and want more; the room is what is left beside all of them."""
    believed = Matrix(demands.profiles)

    def gain(each: GrantedJob) -> int:
        """Return what all its GPUs together would gain by having all that is left for it."""
        pace = demands.pace(each.placement)
        now, then = (
            believed.of(each.js.job, demands.shares.effective(grant), pace) for grant in (each.grant, most(each))
        )
        return (then - now) * each.js.width

    def most(each: GrantedJob) -> Grant:
        """Return what it holds, and what its nodes have left of all that it would like."""
        gpus = each.js.gpus
        reach = [
            [(free + has) * gpus // mask.bit_count() for free, has in zip(room.free(node), here, strict=True)]
            for node, mask in each.placement
            for here in [part_of_grant(each.grant, mask.bit_count(), gpus)]
        ]
        limits = (min(amounts) for amounts in zip(*reach, strict=True))
        return Grant(*(max(now, min(full, top)) for now, full, top in zip(each.grant, each.full, limits, strict=True)))

    waiting = [each for each in held if exceeds(each.full, each.grant) and demands.profile(each.js.job) is not None]
    while waiting:
        gains = [gain(each) for each in waiting]
        best = max(range(len(waiting)), key=lambda index: (gains[index], -waiting[index].js.id))
        if gains[best] <= 0:
            return
        chosen = waiting.pop(best)
        room.regrant(chosen, most(chosen))
