"""The node with least free that can give a job all of a grant: by GPUs, then CPUs, then memory.

Best fit with its ties broken by what else is free. Every other placement rule goes its own way.
"""

from headway.training.actions import Placement
from headway.training.policies.parts import PlacementRule
from headway.training.policies.placements.best_fit import BestFit
from headway.training.policies.placements.pick import on_node, whole_nodes
from headway.training.pool import Pool, members
from headway.training.tentative_demand import TentativeDemand


def place_tightest(pool: Pool, tentative: TentativeDemand, rule: PlacementRule) -> Placement | None:
    """Return where a job goes with a grant; None where it does not fit."""
    if type(rule) is not BestFit or tentative.gpu_milli != 1000 or tentative.nodes > 1 or not tentative.gpus:
        return rule.place(pool, tentative)
    for nodes in pool.buckets[tentative.gpus :]:
        if fitting := whole_nodes(pool, tentative, nodes & tentative.eligible):
            tightest = min(members(fitting), key=lambda node: (pool.cpu_free[node], pool.memory_free[node], node))
            return on_node(pool, tightest, tentative.gpus)
    return rule.place(pool, tentative)
