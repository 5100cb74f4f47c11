"""Fragmentation: the free GPUs that typical jobs cannot use. The measure of fragmentation gradient descent (FGD).

Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", ATC
2023. For a node n and a typical shape of job m, F_n(m) is

- all that is free on the node, if m cannot run there (too few GPUs, CPUs or memory, or a node where it may not run);
- otherwise what is free on those GPUs that have less left than m asks of one: min(gpu_milli, 1000) thousandths.

F_n is the mean of F_n(m) over the distribution of typical jobs, F of the cluster the sum over its nodes. Departures
from the paper: jobs that ask for no GPU are left out (to them every free GPU counts the same, wherever it is); a job
over several nodes counts with its part on one node, and one that is larger than any node with a whole largest node.

Everything is an integer, in thousandths of a GPU times weight, so that equal states score equal.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from headway.jobs.model.resources import UNCOUNTED
from headway.jobs.state.pool import Demand, host_share
from headway.units import WHOLE_GPU_MILLI

EVERYWHERE = -1
"""As a set of nodes: all of them."""


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """The demand of a typical job on one node."""

    gpus: int
    gpu_milli: int = WHOLE_GPU_MILLI
    cpu_milli: int = 0
    memory_bytes: int = 0
    eligible: int = EVERYWHERE
    """The nodes where it may run, as a bit set."""


@dataclass(frozen=True, slots=True)
class FreeNode:
    """What is free on one node."""

    whole: int
    """GPUs that nobody uses."""
    parts_milli: tuple[int, ...] = ()
    """Thousandths left on each GPU that is used in part."""
    cpu_milli: int = UNCOUNTED
    memory_bytes: int = UNCOUNTED

    @property
    def free_milli(self) -> int:
        """Thousandths of a GPU free in all."""
        return self.whole * WHOLE_GPU_MILLI + sum(self.parts_milli)


Typical: TypeAlias = Sequence[tuple[Shape, int]]
"""Shapes of jobs and how often each occurs."""


def shape_of(demand: Demand, largest: int) -> Shape:
    """Return the shape of a job; ``largest``: the GPUs of the largest node."""
    count = demand.gpus // demand.nodes if demand.nodes > 1 else min(demand.gpus, largest)
    cpu_milli, memory_bytes = host_share(demand, count)
    return Shape(count, demand.gpu_milli, cpu_milli, memory_bytes, demand.eligible)


def unusable_milli(free: FreeNode, shape: Shape) -> int:
    """Return F_n(m) for a node where the shape may run: thousandths of a GPU that it could not use."""
    if shape.cpu_milli > free.cpu_milli or shape.memory_bytes > free.memory_bytes:
        return free.free_milli
    if shape.gpu_milli < WHOLE_GPU_MILLI:
        too_small = sum(part for part in free.parts_milli if part < shape.gpu_milli)
        lacks = not free.whole and too_small == sum(free.parts_milli)
        return free.free_milli if lacks else too_small
    return free.free_milli if free.whole < shape.gpus else sum(free.parts_milli)


def weighted_milli(free: FreeNode, allowed: Iterable[tuple[Shape, int]], barred_weight: int) -> int:
    """Return F_n times the sum of all weights. ``allowed``: shapes that may run on the node, with their weights;
    ``barred_weight``: the weight of those that may not."""
    lost = barred_weight * free.free_milli
    for shape, weight in allowed:
        lost += weight * unusable_milli(free, shape)
    return lost


def fragmentation(nodes: Sequence[FreeNode], typical: Typical) -> float:
    """Return the expected share of the free GPUs that a typical job cannot use; 0 when nothing is free."""
    total = sum(weight for _, weight in typical)
    free = sum(node.free_milli for node in nodes)
    if not free or not total:
        return 0.0
    lost = 0
    for index, node in enumerate(nodes):
        allowed = [(shape, weight) for shape, weight in typical if shape.eligible >> index & 1]
        lost += weighted_milli(node, allowed, total - sum(weight for _, weight in allowed))
    return lost / (free * total)
