"""Free resources, indexed so that a placement costs what it looks at, not what exists.

Sets of nodes are Python integers used as bit sets: intersecting "four GPUs free" with "partition debug" and "has H100s"
is two machine operations a word, and the lowest set bit is the first node in order. ``buckets[f]`` holds the
schedulable nodes with exactly f whole GPUs free. ``take`` and ``give`` are exact inverses, which is what makes a draft
cheap: its undo log is the list of what it did.
"""

from collections.abc import Iterator
from typing import Protocol

from headway.jobs.model.cluster import Cluster
from headway.jobs.model.job import Job
from headway.jobs.model.resources import Placement
from headway.units import WHOLE_GPU_MILLI


class Demand(Protocol):
    """What a job asks for, as far as free resources go."""

    gpus: int
    gpu_milli: int
    nodes: int
    width: int
    cpu_milli: int
    memory_bytes: int
    storage: int
    eligible: int
    id: int
    attempt: int
    preemptions: int


class Pool:
    """What is free where."""

    def __init__(self, cluster: Cluster) -> None:
        nodes = cluster.nodes
        self.cluster = cluster
        self.bits = [1 << index for index in range(len(nodes))]
        self.indexed = self.bits.copy()
        """The bit of each node; 0 while it is not schedulable."""
        self.islands = [node.island_gpus for node in nodes]
        self.capacity = [node.gpus for node in nodes]
        self.free_mask = [(1 << node.gpus) - 1 for node in nodes]
        self.free_count = [node.gpus for node in nodes]
        self.cpu_free = [node.host.cpu_milli for node in nodes]
        self.memory_free = [node.host.memory_bytes for node in nodes]
        self.storage_free = [node.host.storage for node in nodes]
        self.shares: list[dict[int, int]] = [{} for _ in nodes]
        """Free thousandths of each partly used GPU, by node."""
        self.sharing = 0
        """Nodes with a partly used GPU that has something left."""
        self.largest = max(self.capacity)
        self.buckets = [0] * (self.largest + 1)
        for index, node in enumerate(nodes):
            self.buckets[node.gpus] |= self.bits[index]
        self.everywhere = (1 << len(nodes)) - 1
        self.schedulable = self.everywhere
        self.free_gpus = sum(self.capacity)
        """Whole free GPUs on schedulable nodes."""
        self._largest: dict[int, int] = {self.everywhere: self.largest}

    # --- taking and giving back -------------------------------------------------------------------------------

    def take(self, demand: Demand, placement: Placement) -> None:
        """Occupy what a placement says."""
        if demand.gpu_milli != WHOLE_GPU_MILLI:
            self._take_share(demand, placement)
            return
        free_count, free_mask, buckets = self.free_count, self.free_mask, self.buckets
        for node, mask in placement:
            count = mask.bit_count()
            before = free_count[node]
            free_mask[node] ^= mask
            free_count[node] = after = before - count
            if bit := self.indexed[node]:
                buckets[before] ^= bit
                buckets[after] ^= bit
                self.free_gpus -= count
        if demand.cpu_milli or demand.memory_bytes or demand.storage:
            self._move_host(demand, placement, -1)

    def give(self, demand: Demand, placement: Placement) -> None:
        """Free what ``take`` with the same arguments occupied."""
        if demand.gpu_milli != WHOLE_GPU_MILLI:
            self._give_share(demand, placement)
            return
        free_count, free_mask, buckets = self.free_count, self.free_mask, self.buckets
        for node, mask in placement:
            count = mask.bit_count()
            before = free_count[node]
            free_mask[node] ^= mask
            free_count[node] = after = before + count
            if bit := self.indexed[node]:
                buckets[before] ^= bit
                buckets[after] ^= bit
                self.free_gpus += count
        if demand.cpu_milli or demand.memory_bytes or demand.storage:
            self._move_host(demand, placement, +1)

    def recount(self, node: int, mask: int, change: int) -> None:
        """Mark the whole GPUs of ``mask`` as free (+1) or in use (-1)."""
        before = self.free_count[node]
        after = before + change * mask.bit_count()
        self.free_mask[node] ^= mask
        self.free_count[node] = after
        if bit := self.indexed[node]:
            self.buckets[before] ^= bit
            self.buckets[after] ^= bit
            self.free_gpus += after - before

    def _take_share(self, demand: Demand, placement: Placement) -> None:
        ((node, mask),) = placement
        gpu = mask.bit_length() - 1
        shares = self.shares[node]
        if gpu not in shares:
            self.recount(node, mask, -1)
        shares[gpu] = shares.get(gpu, WHOLE_GPU_MILLI) - demand.gpu_milli
        self._mark_sharing(node)
        self._move_host(demand, placement, -1)

    def _give_share(self, demand: Demand, placement: Placement) -> None:
        ((node, mask),) = placement
        gpu = mask.bit_length() - 1
        shares = self.shares[node]
        shares[gpu] += demand.gpu_milli
        if shares[gpu] == WHOLE_GPU_MILLI:
            del shares[gpu]
            self.recount(node, mask, +1)
        self._mark_sharing(node)
        self._move_host(demand, placement, +1)

    def _mark_sharing(self, node: int) -> None:
        if any(self.shares[node].values()):
            self.sharing |= self.bits[node]
        else:
            self.sharing &= ~self.bits[node]

    def _move_host(self, demand: Demand, placement: Placement, sign: int) -> None:
        for node, mask in placement:
            cpu_milli, memory_bytes = host_share(demand, mask.bit_count())
            self.cpu_free[node] += sign * cpu_milli
            self.memory_free[node] += sign * memory_bytes
            if demand.storage:
                self.storage_free[node] += sign * storage_share(demand, mask.bit_count())

    # --- nodes that come and go -------------------------------------------------------------------------------

    def set_schedulable(self, node: int, on: bool) -> None:
        """Put a node into the indexes or take it out; what is used on it stays used."""
        bit = self.bits[node]
        if bool(self.schedulable & bit) == on:
            return
        self.schedulable ^= bit
        self.indexed[node] = bit if on else 0
        self.buckets[self.free_count[node]] ^= bit
        self.free_gpus += self.free_count[node] if on else -self.free_count[node]

    # --- looking ----------------------------------------------------------------------------------------------

    def largest_among(self, eligible: int) -> int:
        """Return the number of GPUs of the largest of these nodes."""
        found = self._largest.get(eligible)
        if found is None:
            found = self._largest[eligible] = max((self.capacity[node] for node in members(eligible)), default=0)
        return found

    def free_among(self, eligible: int) -> int:
        """Return the number of whole free GPUs on these nodes, as far as they are schedulable."""
        if eligible & self.schedulable == self.schedulable:
            return self.free_gpus
        return sum(free * (nodes & eligible).bit_count() for free, nodes in enumerate(self.buckets) if free)

    def with_free(self, at_least: int, eligible: int) -> int:
        """Return the set of schedulable nodes among these with so many whole GPUs free."""
        found = 0
        for nodes in self.buckets[at_least:]:
            found |= nodes
        return found & eligible

    def host_fits(self, demand: Demand, node: int, gpus: int) -> bool:
        """Return whether a node has the CPUs, memory and storage that go with so many of the job's GPUs."""
        if not (demand.cpu_milli or demand.memory_bytes or demand.storage):
            return True
        cpu_milli, memory_bytes = host_share(demand, gpus)
        return (
            self.cpu_free[node] >= cpu_milli
            and self.memory_free[node] >= memory_bytes
            and (not demand.storage or self.storage_free[node] >= storage_share(demand, gpus))
        )


def host_share(demand: Demand | Job, count: int) -> tuple[int, int]:
    """Return the CPUs and memory that go with so many of a job's GPUs: its part of them, rounded up."""
    if demand.gpus == 0 or count == demand.gpus:
        return demand.cpu_milli, demand.memory_bytes
    return -(-demand.cpu_milli * count // demand.gpus), -(-demand.memory_bytes * count // demand.gpus)


def storage_share(demand: Demand, count: int) -> int:
    """Return the storage bandwidth that goes with so many of a job's GPUs, rounded up."""
    return demand.storage if demand.gpus in (0, count) else -(-demand.storage * count // demand.gpus)


def members(nodes: int) -> Iterator[int]:
    """Yield the nodes of a set, in order."""
    while nodes:
        low = nodes & -nodes
        yield low.bit_length() - 1
        nodes ^= low
