"""First fit: the first node, in the cluster's order, that holds the whole job; a larger job over the nodes in order.

The oldest rule there is (Johnson, 1973) and the cheapest; it keeps the last nodes empty and looks at nothing else. A
share of a GPU goes to the first GPU with room on the first node that has one, whether others use that GPU already or
not.
"""

from headway.jobs.model.resources import Placement
from headway.jobs.policies.parts import PlacementRule
from headway.jobs.policies.placements.pick import (
    first,
    holding,
    on_equal_nodes,
    on_node,
    one_node,
    over_nodes,
    share_nodes,
    share_on,
)
from headway.jobs.state.pool import Demand, Pool, members


class FirstFit(PlacementRule):
    """The first node that holds it."""

    name = "first-fit"

    def place(self, pool: Pool, js: Demand) -> Placement | None:
        """Return the first placement in the cluster's order; None where the job does not fit."""
        if js.gpu_milli != 1000:
            nodes = share_nodes(pool, js)
            return ((first(nodes), 1 << min(share_on(pool, js, first(nodes)))),) if nodes else None
        eligible = js.eligible & pool.schedulable
        if js.nodes > 1:
            return on_equal_nodes(pool, js, members(eligible))
        if nodes := holding(pool, js):
            return on_node(pool, first(nodes), js.gpus)
        if one_node(pool, js) or js.gpus > pool.free_among(eligible):
            return None
        return over_nodes(pool, js, members(eligible))
