"""Free CPUs, memory and storage bandwidth of nodes while grants are tried out. The pool itself is not changed."""

from dataclasses import dataclass

from headway.jobs.model.resources import Grant, Placement
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.pool import Pool


@dataclass(slots=True)
class GrantedJob:
    """A placed job with its full demand, its proportional share and its grant."""

    js: JobState
    placement: Placement
    full: Grant
    proportional: Grant
    grant: Grant

    @property
    def order(self) -> tuple[int, int, int, int]:
        """Return the sort key for larger demands first: GPUs, CPUs, memory."""
        return -self.js.gpus, -self.full.cpu_milli, -self.full.memory_bytes, self.js.id


class FreeResources:
    """CPUs, memory and storage bandwidth free on nodes; a node is read from the pool when it is first asked for."""

    __slots__ = ("_free", "_pool")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._free: dict[int, list[int]] = {}

    def free(self, node: int) -> list[int]:
        """Return what is free on a node: thousandths of CPUs, bytes of memory, bytes per second of storage."""
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
        """Return the nodes that are overcommitted, of those read so far."""
        return {node for node, free in self._free.items() if min(free) < 0}

    def regrant(self, job: GrantedJob, grant: Grant) -> None:
        """Change the grant of a job."""
        self.give(job.placement, job.js.gpus, job.grant)
        job.grant = grant
        self.take(job.placement, job.js.gpus, grant)

    def give(self, placement: Placement, gpus: int, grant: Grant) -> None:
        """Free a grant."""
        self.take(placement, gpus, grant, 1)


def part_of_grant(grant: Grant, count: int, gpus: int) -> Grant:
    """Return the part of a grant that goes with ``count`` of a job's GPUs, rounded up as the pool does."""
    if gpus in (0, count):
        return grant
    cpu_milli, memory_bytes, storage = grant
    return Grant(-(-cpu_milli * count // gpus), -(-memory_bytes * count // gpus), -(-storage * count // gpus))
