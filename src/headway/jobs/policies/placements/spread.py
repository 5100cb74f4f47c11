"""Spread: a job goes where most is free, so that load is even and neighbours are few (worst fit).

A job that fits into one node goes whole to the node with the most free GPUs; a larger one to the emptiest nodes, as
few as possible. With ``split=true`` every job is dealt out GPU by GPU, each to the node that then has the most left,
as Kubernetes' default spreading does with the pods of a job. A share takes an unused GPU of the emptiest node while
there is one, then the GPU with the most left.
"""

from heapq import heapify, heapreplace

from headway.jobs.model.resources import Placement
from headway.jobs.policies.parts import PlacementRule
from headway.jobs.policies.placements.pick import (
    by_free,
    by_room,
    first,
    gpus_of,
    on_equal_nodes,
    on_node,
    one_node,
    over_nodes,
    room,
    shares,
    whole_nodes,
)
from headway.jobs.state.pool import Demand, Pool, members


class Spread(PlacementRule):
    """Where most is free."""

    name = "spread"

    def __init__(self, split: bool = False) -> None:
        self.split = split

    def place(self, pool: Pool, js: Demand) -> Placement | None:
        """Return the placement with the most free GPUs; None where the job does not fit."""
        if js.gpu_milli != 1000:
            return self._share(pool, js)
        if js.gpus > pool.free_gpus:
            return None
        if js.nodes > 1:
            return on_equal_nodes(pool, js, by_free(pool, js.eligible, most_first=True))
        if self._splits(js):
            return deal_out(pool, js)
        if (node := emptiest(pool, js)) >= 0:
            return on_node(pool, node, js.gpus)
        if one_node(pool, js) or js.gpus > pool.free_among(js.eligible):
            return None
        return over_nodes(pool, js, by_room(pool, js, js.eligible))

    def needs_one_node(self, pool: Pool, js: Demand) -> bool:
        """Return whether a job has to be on one node: not where it is split."""
        return not self._splits(js) and super().needs_one_node(pool, js)

    def _splits(self, js: Demand) -> bool:
        return self.split and js.nodes == 0 and js.gpus > 1

    def _share(self, pool: Pool, js: Demand) -> Placement | None:
        if (node := emptiest(pool, js)) >= 0:
            return on_node(pool, node, 1)
        found = max(shares(pool, js), key=lambda share: (share[0], -share[1], -share[2]), default=None)
        return None if found is None else ((found[1], 1 << found[2]),)


def emptiest(pool: Pool, js: Demand) -> int:
    """Return the first of the nodes with the most free GPUs that can hold a whole job; -1 when none can."""
    for free in range(len(pool.buckets) - 1, js.gpus - 1, -1):
        if nodes := whole_nodes(pool, js, pool.buckets[free] & js.eligible):
            return first(nodes)
    return -1


def deal_out(pool: Pool, js: Demand) -> Placement | None:
    """Return a placement made one GPU at a time, each from the node that has the most left for this job."""
    left = [(-room(pool, js, node), node) for node in members(js.eligible & pool.schedulable & ~pool.buckets[0])]
    if -sum(count for count, _ in left) < js.gpus:
        return None
    heapify(left)
    taken: dict[int, int] = {}
    for _ in range(js.gpus):
        count, node = left[0]
        taken[node] = taken.get(node, 0) + 1
        heapreplace(left, (count + 1, node))
    return tuple((node, gpus_of(pool, node, count)) for node, count in sorted(taken.items()))
