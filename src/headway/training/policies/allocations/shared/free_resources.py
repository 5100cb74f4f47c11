"""What is free on nodes besides GPUs while grants are tried out: a sketch beside the pool, thrown away afterwards."""

from dataclasses import dataclass

from headway.training.actions import Grant, Placement
from headway.training.jobstate import JobState
from headway.training.pool import Pool


@dataclass(slots=True)
class GrantedJob:
    """A job on its nodes, with what it holds, would like and is due."""

    js: JobState
    placement: Placement
    full: Grant
    proportional: Grant
    grant: Grant

    @property
    def order(self) -> tuple[int, int, int, int]:
        """Larger demands first: GPUs, CPUs, memory."""
        return -self.js.gpus, -self.full.cpu_milli, -self.full.memory_bytes, self.js.id


class FreeResources:
    """CPUs, memory and storage bandwidth free on some nodes, read from the pool when a node is first looked at."""

    __slots__ = ("_free", "_pool")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._free: dict[int, list[int]] = {}

    def free(self, node: int) -> list[int]:
        """CPUs in thousandths, bytes of memory, bytes a second of storage."""
        found = self._free.get(node)
        if found is None:
            pool = self._pool
            found = self._free[node] = [pool.cpu_free[node], pool.memory_free[node], pool.storage_free[node]]
        return found

    def fits(self, placement: Placement, gpus: int, grant: Grant) -> bool:
        """Return whether the nodes of a placement can give a grant."""
        for node, mask in placement:
            for has, wanted in zip(self.free(node), part_of_grant(grant, mask.bit_count(), gpus), strict=True):
                if wanted > has:
                    return False
        return True

    def take(self, placement: Placement, gpus: int, grant: Grant, sign: int = -1) -> None:
        """Occupy a grant; with ``sign`` 1 free it."""
        for node, mask in placement:
            free = self.free(node)
            for index, amount in enumerate(part_of_grant(grant, mask.bit_count(), gpus)):
                free[index] += sign * amount

    def short(self) -> set[int]:
        """The nodes, of those looked at, that would have to give more than they have."""
        return {node for node, free in self._free.items() if min(free) < 0}

    def regrant(self, job: GrantedJob, grant: Grant) -> None:
        """Let a job hold something else."""
        self.give(job.placement, job.js.gpus, job.grant)
        job.grant = grant
        self.take(job.placement, job.js.gpus, grant)

    def give(self, placement: Placement, gpus: int, grant: Grant) -> None:
        """Free a grant."""
        self.take(placement, gpus, grant, 1)


def part_of_grant(grant: Grant, count: int, gpus: int) -> Grant:
    """Return what of a grant goes with so many of a job's GPUs, rounded up as the pool does."""
    if gpus in (0, count):
        return grant
    cpu_milli, memory_bytes, storage = grant
    return Grant(-(-cpu_milli * count // gpus), -(-memory_bytes * count // gpus), -(-storage * count // gpus))
