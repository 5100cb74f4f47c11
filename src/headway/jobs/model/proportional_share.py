"""A job's proportional share: the part of a node's CPUs, memory and storage that goes with its GPUs.

A job over nodes of several kinds has the same for each of its GPUs: the least that one of its nodes has per GPU.
"""

from headway.jobs.model.cluster import Cluster, Node
from headway.jobs.model.resources import UNCOUNTED, Grant, Placement


def proportional_per_gpu(node: Node) -> Grant:
    """Return the proportional share of one whole GPU of a node; 0 of what the node does not count."""
    return Grant(
        (node.cpu_milli or 0) // (node.gpus or 1),
        (node.memory_bytes or 0) // (node.gpus or 1),
        (node.storage_bytes_per_second or 0) // (node.gpus or 1),
    )


def scaled(per_gpu: Grant, width_milli: int) -> Grant:
    """Return a grant per GPU scaled to a job's width in thousandths of a GPU, rounded down."""
    if width_milli == 1000:
        return per_gpu
    cpu_milli, memory_bytes, storage = per_gpu
    return Grant(cpu_milli * width_milli // 1000, memory_bytes * width_milli // 1000, storage * width_milli // 1000)


def counted(cluster: Cluster) -> tuple[bool, bool, bool]:
    """Return whether CPUs, memory and storage bandwidth are counted, on any node."""
    return (
        any(node.cpu_milli is not None for node in cluster.nodes),
        any(node.memory_bytes is not None for node in cluster.nodes),
        any(node.storage_bytes_per_second is not None for node in cluster.nodes),
    )


def effective(grant: Grant, counts: tuple[bool, bool, bool]) -> Grant:
    """Return a grant with unlimited amounts of the resources that no node counts: they never slow a job down."""
    if all(counts):
        return grant
    return Grant(*(held if each else UNCOUNTED for held, each in zip(grant, counts, strict=True)))


class ProportionalShares:
    """The proportional shares of a cluster's GPUs."""

    def __init__(self, cluster: Cluster) -> None:
        self.of_node = [proportional_per_gpu(node) for node in cluster.nodes]
        self.counted = counted(cluster)
        """Whether CPUs, memory and storage bandwidth are counted anywhere."""
        kinds: dict[Grant, int] = {}
        for index, (proportional, node) in enumerate(zip(self.of_node, cluster.nodes, strict=True)):
            if node.gpus:
                kinds[proportional] = kinds.get(proportional, 0) | 1 << index
        self.kinds = tuple(sorted(kinds.items(), reverse=True))
        """(proportional share of a GPU, bit set of the nodes that have it), the largest first."""

    def per_gpu(self, placement: Placement) -> Grant:
        """Return the proportional share of each GPU of a placement."""
        if len(placement) == 1:
            return self.of_node[placement[0][0]]
        shares = [self.of_node[node] for node, _ in placement]
        return Grant(min(d[0] for d in shares), min(d[1] for d in shares), min(d[2] for d in shares))

    def of(self, placement: Placement, width_milli: int) -> Grant:
        """Return the proportional share of a job of this width on a placement."""
        return scaled(self.per_gpu(placement), width_milli)

    def effective(self, grant: Grant) -> Grant:
        """Return a grant with unlimited amounts of the resources that no node counts."""
        return effective(grant, self.counted)
