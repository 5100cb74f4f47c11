"""Best fit over all resources: the node with the fewest free GPUs, then CPUs, then memory, on which a grant fits.

Other placement rules than best fit are used as they are.
"""

from headway.jobs.model.resources import Placement
from headway.jobs.policies.parts import PlacementRule
from headway.jobs.policies.placements.best_fit import BestFit
from headway.jobs.policies.placements.pick import on_node, whole_nodes
from headway.jobs.state.pool import Pool, members
from headway.jobs.state.tentative_demand import TentativeDemand


def place_tightest(pool: Pool, tentative: TentativeDemand, rule: PlacementRule) -> Placement | None:
    """Return the placement of a job with a tentative grant; None where it does not fit."""
    if type(rule) is not BestFit or tentative.gpu_milli != 1000 or tentative.nodes > 1 or not tentative.gpus:
        return rule.place(pool, tentative)
    for nodes in pool.buckets[tentative.gpus :]:
        if fitting := whole_nodes(pool, tentative, nodes & tentative.eligible):
            tightest = min(members(fitting), key=lambda node: (pool.cpu_free[node], pool.memory_free[node], node))
            return on_node(pool, tightest, tentative.gpus)
    return rule.place(pool, tentative)
