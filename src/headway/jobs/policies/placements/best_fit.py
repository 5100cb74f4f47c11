"""Best fit: the whole job on the node where the fewest GPUs stay free; a larger job on as few nodes as possible.

Ties go to the first node. A job that fits into one empty node is never split, which is what makes fragmentation cost
something. A share of a GPU goes to the GPU where the least stays free, whole GPUs last. As AnalySIM's best-fit,
except that jobs larger than a node may use partly free nodes (fullest count of free GPUs first, the rest where it
fits best).
"""

from headway.jobs.model.resources import Placement
from headway.jobs.policies.parts import PlacementRule
from headway.jobs.policies.placements.pick import (
    by_free,
    fewest_nodes,
    first,
    gpus_of,
    on_equal_nodes,
    on_node,
    one_node,
    shares,
    whole_nodes,
)
from headway.jobs.state.pool import Demand, Pool


class BestFit(PlacementRule):
    """Where the fewest GPUs stay free."""

    name = "best-fit"

    def place(self, pool: Pool, js: Demand) -> Placement | None:
        """The tightest place."""
        need = js.gpus
        if js.gpu_milli != 1000:
            return self._share(pool, js)
        if need > pool.free_gpus:
            return None
        eligible = js.eligible
        if js.nodes > 1:
            return on_equal_nodes(pool, js, by_free(pool, eligible, most_first=False))
        hosted = js.cpu_milli or js.memory_bytes or js.storage
        for bucket in pool.buckets[need:]:
            nodes = bucket & eligible
            if nodes and (not hosted or (nodes := whole_nodes(pool, js, nodes))):
                node = (nodes & -nodes).bit_length() - 1
                return ((node, gpus_of(pool, node, need)),)
        if one_node(pool, js) or need > pool.free_among(eligible):
            return None
        return fewest_nodes(pool, js, eligible)

    def _share(self, pool: Pool, js: Demand) -> Placement | None:
        found = min(shares(pool, js), default=None)
        if found is not None:
            _, node, gpu = found
            return ((node, 1 << gpu),)
        for nodes in pool.buckets[1:]:
            if fitting := whole_nodes(pool, js, nodes & js.eligible):
                return on_node(pool, first(fitting), 1)
        return None
