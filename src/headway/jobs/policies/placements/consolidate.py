"""Consolidate: the smallest domain of the topology that holds the job; of those, the one where the least stays free.

Domains are tried from the innermost level outwards (NVLink island, node, rack, zone: whatever the cluster has) and
last of all the whole cluster, as Gandiva (Xiao et al., OSDI 2018) and Tiresias (Gu et al., NSDI 2019) pack jobs whose
speed depends on locality. Inside a domain of several nodes a job takes as few of them as possible.

How far a job may fall back outwards is ``up_to``: a job that one empty domain of that level could hold never spans
two of them, it waits. The default, node, is what every other placement does; ``any`` lets a job spread rather than
wait, ``rack`` makes jobs up to the size of a rack wait for one. Topology-blind jobs (shares, single GPUs) are placed
by best fit.
"""

from collections.abc import Sequence

from headway.errors import ExperimentError, unknown_name
from headway.jobs.model.cluster import Cluster
from headway.jobs.model.resources import Placement
from headway.jobs.policies.parts import PlacementRule
from headway.jobs.policies.placements.best_fit import BestFit
from headway.jobs.policies.placements.pick import (
    by_free,
    choose,
    equal_nodes,
    fewest_nodes,
    first,
    holding,
    on_equal_nodes,
    on_node,
    room,
)
from headway.jobs.state.pool import Demand, Pool, members

ANYWHERE = "any"


class Consolidate(PlacementRule):
    """The smallest domain that holds it."""

    name = "consolidate"

    def __init__(self, up_to: str = "node") -> None:
        self.up_to = up_to
        self._tight = BestFit()
        self._cluster: Cluster | None = None
        self._domains: list[tuple[str, list[int]]] = []
        self._islands = False

    def place(self, pool: Pool, js: Demand) -> Placement | None:
        """Return a placement in the innermost domain with room; None where the job does not fit."""
        if pool.cluster is not self._cluster:
            self._survey(pool)
        if js.gpus <= 1 and js.nodes <= 1:
            return self._tight.place(pool, js)
        if js.gpus > pool.free_gpus:
            return None
        if js.nodes <= 1:
            if nodes := holding(pool, js):
                return self._inside(pool, js, nodes)
            if self.needs_one_node(pool, js):
                return None
        return self._across(pool, js)

    def needs_one_node(self, pool: Pool, js: Demand) -> bool:
        """Return whether a job has to be on one node: only where it may not fall back further out than the node."""
        if self.up_to == "node" or js.nodes == 1 or js.gpus <= 1:
            return super().needs_one_node(pool, js)
        return False

    def domains(self, pool: Pool, js: Demand) -> Sequence[int]:
        """Return the domains of the level beyond which a job does not fall back, if one of them could hold it."""
        if pool.cluster is not self._cluster:
            self._survey(pool)
        limits = [domains for name, domains in self._domains if name == self.up_to]
        return next((domains for domains in limits if _could_hold(pool, js, domains)), (pool.everywhere,))

    def _survey(self, pool: Pool) -> None:
        cluster = pool.cluster
        names = [level.name for level in cluster.levels]
        if self.up_to not in (ANYWHERE, *names):
            raise ExperimentError(unknown_name("level of consolidate(up_to=...)", self.up_to, [ANYWHERE, *names]))
        if self.up_to in names[cluster.node_level + 1 :]:
            raise ExperimentError(
                f"consolidate(up_to={self.up_to}): must be a level from the node outwards, or {ANYWHERE}"
            )
        self._cluster = cluster
        self._islands = any(node.island_gpus for node in cluster.nodes)
        self._domains = []
        for depth in range(cluster.node_level, 0, -1):
            groups: dict[tuple[str, ...], int] = {}
            for index, node in enumerate(cluster.nodes):
                groups[node.path[:depth]] = groups.get(node.path[:depth], 0) | pool.bits[index]
            self._domains.append((names[depth - 1], list(groups.values())))
        self._domains.append((ANYWHERE, [pool.everywhere]))

    def _inside(self, pool: Pool, js: Demand, nodes: int) -> Placement:
        """Return a placement on one of these nodes: the fullest island that holds it, innermost first, else the fullest
        node."""
        if self._islands:
            depth = max(len(node.island_gpus) for node in pool.cluster.nodes)
            for level in range(depth - 1, -1, -1):
                found = min((part for n in members(nodes) for part in _islands(pool, js, n, level)), default=None)
                if found is not None:
                    _, node, island = found
                    inner = pool.cluster.nodes[node].island_gpus[level + 1 :]
                    return ((node, choose(island, js.gpus, inner)),)
        for free in range(js.gpus, len(pool.buckets)):
            if tight := pool.buckets[free] & nodes:
                return on_node(pool, first(tight), js.gpus)
        raise AssertionError("a node that holds the job is in a bucket")

    def _across(self, pool: Pool, js: Demand) -> Placement | None:
        """Return a placement over nodes of one domain: the fullest of the innermost level that has one with room."""
        for name, domains in self._domains:
            best: tuple[int, int] | None = None
            for domain in domains:
                free = pool.free_among(js.eligible & domain)
                if free >= js.gpus and (best is None or free < best[0]) and _has_room(pool, js, domain):
                    best = (free, domain)
            if best is not None:
                if js.nodes > 1:
                    return on_equal_nodes(pool, js, by_free(pool, js.eligible & best[1], most_first=False))
                return fewest_nodes(pool, js, best[1])
            if name == self.up_to and _could_hold(pool, js, domains):
                return None
        return None


def _islands(pool: Pool, js: Demand, node: int, level: int) -> list[tuple[int, int, int]]:
    """Return (free GPUs, node, mask) of a node's islands of this level that can hold a job."""
    sizes = pool.cluster.nodes[node].island_gpus
    if level >= len(sizes):
        return []
    size, free = sizes[level], pool.free_mask[node]
    parts = (free & (((1 << size) - 1) << start) for start in range(0, free.bit_length(), size))
    return [(part.bit_count(), node, part) for part in parts if part.bit_count() >= js.gpus]


def _has_room(pool: Pool, js: Demand, domain: int) -> bool:
    if js.nodes > 1:
        return equal_nodes(pool, js, domain).bit_count() >= js.nodes
    if not (js.cpu_milli or js.memory_bytes or js.storage):
        return True
    return sum(room(pool, js, node) for node in members(js.eligible & domain & pool.schedulable)) >= js.gpus


def _could_hold(pool: Pool, js: Demand, domains: Sequence[int]) -> bool:
    """Return whether one of these domains could hold a job if it were empty."""
    for domain in domains:
        counts = [_capacity(pool, js, node) for node in members(js.eligible & domain)]
        if js.nodes > 1:
            if sum(count * js.nodes >= js.gpus for count in counts) >= js.nodes:
                return True
        elif sum(counts) >= js.gpus:
            return True
    return False


def _capacity(pool: Pool, js: Demand, node: int) -> int:
    """Return how many of a job's GPUs an empty node could give."""
    machine = pool.cluster.nodes[node]
    count = min(machine.gpus, js.gpus)
    for has, wanted in zip(machine.host, (js.cpu_milli, js.memory_bytes, js.storage), strict=True):
        if wanted:
            count = min(count, has * js.gpus // wanted)
    return count
