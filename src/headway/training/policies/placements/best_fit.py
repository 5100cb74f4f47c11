"""Best fit: the whole job on the node where the fewest GPUs stay free; a larger job on as few nodes as possible.

Ties go to the first node. A job that fits into one empty node is never split, which is what makes fragmentation cost
something. A share of a GPU goes to the GPU where the least stays free, whole GPUs last. As AnalySIM's best-fit, except that
jobs larger than a node may use partly free nodes (fullest count of free GPUs first, the rest where it fits best).
"""

from typing import ClassVar

from headway.training.actions import Placement
from headway.training.policies.parts import PlacementRule
from headway.training.policies.placements.pick import by_free, gpus_of, on_equal_nodes, over_nodes, shares, whole_nodes
from headway.training.pool import Pool
from headway.training.state import JobState


class BestFit(PlacementRule):
    """Where the fewest GPUs stay free."""

    name: ClassVar[str] = "best-fit"

    def place(self, pool: Pool, js: JobState) -> Placement | None:
        """The tightest place."""
        need = js.gpus
        if js.gpu_milli != 1000:
            return self._share(pool, js)
        if need > pool.free_gpus:
            return None
        eligible = js.eligible
        if js.nodes > 1:
            return on_equal_nodes(pool, js, by_free(pool, eligible, most_first=False))
        if need <= pool.largest_among(eligible):
            buckets = pool.buckets
            hosted = js.cpu_milli or js.memory_bytes
            for free in range(need, len(buckets)):
                nodes = buckets[free] & eligible
                if nodes and (not hosted or (nodes := whole_nodes(pool, js, nodes))):
                    node = (nodes & -nodes).bit_length() - 1
                    return ((node, gpus_of(pool, node, need)),)
            return None
        if need > pool.free_among(eligible):
            return None
        return self._many(pool, js)

    def _share(self, pool: Pool, js: JobState) -> Placement | None:
        found = min(shares(pool, js), default=None)
        if found is not None:
            _, node, gpu = found
            return ((node, 1 << gpu),)
        for nodes in pool.buckets[1:]:
            fitting = whole_nodes(pool, js, nodes & js.eligible)
            if fitting:
                node = (fitting & -fitting).bit_length() - 1
                return ((node, gpus_of(pool, node, 1)),)
        return None

    def _many(self, pool: Pool, js: JobState) -> Placement | None:
        """Most free first; the last, partial, node is the one it fits best."""
        placement = over_nodes(pool, js, by_free(pool, js.eligible, most_first=True))
        if placement is None or len(placement) == 1:
            return placement
        *body, (last, mask) = placement
        rest = mask.bit_count()
        used = sum(pool.bits[node] for node, _ in body)
        for free in range(rest, pool.free_count[last]):
            nodes = pool.buckets[free] & js.eligible & ~used
            for node in (n for n in [(nodes & -nodes).bit_length() - 1] if nodes and pool.host_fits(js, n, rest)):
                return (*body, (node, gpus_of(pool, node, rest)))
        return placement
