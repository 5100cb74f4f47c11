"""Candidate grants of a program: at least as good as its proportional share, and larger ones in steps."""

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from headway.jobs.model.job import Job
from headway.jobs.model.proportional_share import ProportionalShares
from headway.jobs.model.resources import UNCOUNTED, Grant
from headway.jobs.model.sensitivity import Matrix, Profile
from headway.jobs.policies.allocations.headway.knapsack import NodeKnapsack
from headway.units import REFERENCE_SPEED_PPM, WHOLE_GPU_MILLI

_FINEST = 2
"""A job on several GPUs has steps of a unit of CPUs divided by its GPUs, but by no more than this."""


class CandidateGrants:
    """Candidate grants per GPU for one program, on GPUs of one pace and nodes of one kind."""

    def __init__(
        self, probe: Job, matrix: Matrix, shares: ProportionalShares, pace: int, knapsack: NodeKnapsack
    ) -> None:
        """``probe`` is a job of one GPU that runs the program, which has a profile."""
        self._probe = probe
        self._matrix = matrix
        self._profile: Profile = matrix.profiles[probe.model]
        self._shares = shares
        self._pace = pace
        self._knapsack = knapsack
        self._cpus = knapsack.capacity.cpu_milli

    def all(self, gpus: int, proportional: Grant) -> Iterator[Grant]:
        """Yield grants at least as good as the proportional share, which comes first.

        For each size of memory there are the fewest CPUs that suffice, and more in steps. Each grant has the storage
        bandwidth that its speed needs.
        """
        guaranteed_speed = self._matrix.of(self._probe, self._shares.effective(proportional), self._pace)
        first = self._with_storage(proportional.cpu_milli, proportional.memory_bytes, guaranteed_speed)
        yield first._replace(storage=min(first.storage, proportional.storage))
        reached = -1
        for memory in self._memories(proportional):
            best = self._speed(self._cpus, memory)
            if best < guaranteed_speed or (best == reached and not self._shares.counted[2]):
                continue  # more memory alone is no use, unless it saves storage bandwidth
            reached = best
            for cpus in self._steps(gpus, self._least_cpus(memory, guaranteed_speed), self._least_cpus(memory, best)):
                yield self._with_storage(cpus, memory, guaranteed_speed)

    def _speed(self, cpus: int, memory: int) -> int:
        """Return the speed with unlimited storage bandwidth."""
        return self._matrix.of(self._probe, self._shares.effective(Grant(cpus, memory, UNCOUNTED)), self._pace)

    def _with_storage(self, cpus: int, memory: int, guaranteed_speed: int) -> Grant:
        counted = self._shares.counted
        need = self._profile.storage_need(max(self._speed(cpus, memory), guaranteed_speed), memory) if counted[2] else 0
        return Grant(cpus if counted[0] else 0, memory if counted[1] else 0, need)

    def _memories(self, proportional: Grant) -> list[int]:
        knapsack, sizes = self._knapsack, self._profile.memory_bytes
        if not knapsack.counted[1] or not self._shares.counted[1]:
            return [proportional.memory_bytes]
        top = min(knapsack.capacity.memory_bytes, max(sizes[-1], proportional.memory_bytes))
        steps = range(proportional.memory_bytes, top + 1, knapsack.units[1])
        return sorted({proportional.memory_bytes, *steps, *(size for size in sizes if size <= top)})

    def _least_cpus(self, memory: int, speed: int) -> int:
        """Return the fewest CPUs with which a speed is reached. All CPUs of a node must reach it."""
        most = self._cpus if self._pace > REFERENCE_SPEED_PPM else self._profile.cpu_milli[-1]
        return bisect_left(range(min(self._cpus, most)), speed, key=lambda cpus: self._speed(cpus, memory))

    def _steps(self, gpus: int, least: int, enough: int) -> list[int]:
        if not self._knapsack.counted[0] or not self._shares.counted[0]:
            return [least]
        unit = max(1, self._knapsack.units[0] // max(1, min(gpus, _FINEST)))
        steps = range(least // unit * unit + unit, enough, unit)
        return sorted({least, enough, *steps, *(cpus for cpus in self._profile.cpu_milli if least < cpus < enough)})


def grant_of_share(per_gpu: Grant, proportional: Grant, proportional_of_job: Grant, share: int) -> Grant:
    """Return a grant per GPU scaled to a share of a GPU, in thousandths.

    It is rounded up. Where the grant is within the proportional share of a GPU, it stays within that of the job.
    """
    scaled = (-(-amount * share // WHOLE_GPU_MILLI) for amount in per_gpu)
    return Grant(
        *(
            min(rounded_up, limit) if amount <= of_gpu else rounded_up
            for rounded_up, limit, amount, of_gpu in zip(
                scaled, proportional_of_job, per_gpu, proportional, strict=True
            )
        )
    )


def undominated(grants: list[Grant], speeds: list[int]) -> list[int]:
    """Return the indexes of the Pareto-optimal grants: no other takes no more of anything and is as fast."""
    takes = np.array(grants, dtype=np.int64)
    fast = np.array(speeds, dtype=np.int64)
    no_more = (takes[:, None, :] <= takes[None, :, :]).all(axis=2)
    as_fast = fast[:, None] >= fast[None, :]
    other = (takes[:, None, :] != takes[None, :, :]).any(axis=2)
    beaten = (no_more & as_fast & other).any(axis=0)
    return [index for index in range(len(grants)) if not beaten[index]]
