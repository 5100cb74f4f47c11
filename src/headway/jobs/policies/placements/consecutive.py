"""Consecutive: of the runs of neighbouring nodes that can hold a job, the shortest that is enough; its first node.

This is how Slurm (select/cons_tres, SchedMD) places jobs where no topology is configured: nodes are a line, and a job
takes from the tightest stretch of it, so that long stretches stay whole for wide jobs. Where no run is enough for a job
over several nodes, the longest is taken first and the rest from the others in the same way. A run ends where a node
cannot hold the job, or has another weight; runs of lower weight come first.

Departures: Slurm compares CPUs that runs have to give, here the nodes that they have are counted (GPUs for a job over
as many nodes as it takes); for a job that says how many tasks it has on how many nodes, both are the same. Shares of a
GPU go as with first fit.
"""

from collections.abc import Callable, Iterator

from headway.jobs.model.cluster import Cluster
from headway.jobs.model.resources import Placement
from headway.jobs.policies.parts import PlacementRule
from headway.jobs.policies.placements.first_fit import FirstFit
from headway.jobs.policies.placements.pick import (
    equal_nodes,
    first,
    holding,
    on_equal_nodes,
    on_node,
    one_node,
    over_nodes,
    room,
)
from headway.jobs.state.pool import Demand, Pool, members


class Consecutive(PlacementRule):
    """The shortest run of neighbouring nodes that is enough."""

    name = "consecutive"

    def __init__(self) -> None:
        self._in_order = FirstFit()
        self._cluster: Cluster | None = None
        self._classes: list[int] = []
        """Nodes of equal weight, the lowest weight first."""

    def place(self, pool: Pool, js: Demand) -> Placement | None:
        """Return a place in the tightest run; None where the job does not fit."""
        if js.gpu_milli != 1000:
            return self._in_order.place(pool, js)
        if pool.cluster is not self._cluster:
            self._cluster, self._classes = pool.cluster, _classes(pool)
        if js.nodes > 1:
            able = equal_nodes(pool, js, pool.everywhere)
            return on_equal_nodes(pool, js, self._tightest(able, js.nodes, int.bit_count))
        if nodes := holding(pool, js):
            lightest = next(filter(None, (nodes & each for each in self._classes)))
            return on_node(pool, first(min(runs(lightest), key=int.bit_count)), js.gpus)
        eligible = js.eligible & pool.schedulable
        if one_node(pool, js) or js.gpus > pool.free_among(eligible):
            return None

        def gives(nodes: int) -> int:
            return sum(room(pool, js, node) for node in members(nodes))

        able = sum(pool.bits[node] for node in members(eligible) if room(pool, js, node))
        return over_nodes(pool, js, self._tightest(able, js.gpus, gives))

    def _tightest(self, able: int, wanted: int, gives: Callable[[int], int]) -> Iterator[int]:
        """Yield nodes run by run, of the lowest weight first: the run that gives least of those that are enough for the
        rest, else the one that gives most."""
        for nodes in self._classes:
            left = [(gives(run), run) for run in runs(able & nodes)]
            while left and wanted > 0:
                enough = [each for each in left if each[0] >= wanted]
                chosen = min(enough, key=lambda each: each[0]) if enough else max(left, key=lambda each: each[0])
                left.remove(chosen)
                wanted -= chosen[0]
                yield from members(chosen[1])


def _classes(pool: Pool) -> list[int]:
    """Return sets of nodes of equal weight, the lowest weight first."""
    found: dict[int, int] = {}
    for index, node in enumerate(pool.cluster.nodes):
        found[node.weight] = found.get(node.weight, 0) | pool.bits[index]
    return [found[weight] for weight in sorted(found)]


def runs(nodes: int) -> Iterator[int]:
    """Yield the runs of neighbouring nodes of a set, in order."""
    while nodes:
        rest = nodes & (nodes + (nodes & -nodes))
        yield nodes ^ rest
        nodes = rest
