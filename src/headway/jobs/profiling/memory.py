"""Compute the effect of memory on a program: a cache with a fixed hit rate in the memory that the program leaves free.

An epoch over data of which a share f is kept takes max(compute, f·D/memory bandwidth + (1−f)·D/disk bandwidth), as in
Synergy. The maximum holds for a loader that fetches while the program computes. One that does not makes the program
wait for both, and most are in between: ``overlap`` says how much of the shorter of the two is hidden behind the other,
1 for all of it (the paper), 0 for nothing. It follows from one measured point without any cache. Times here are a
sample's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

LEAST_GAP = 0.02
"""A point without a cache that is slower by less than this says nothing about the disk."""
_CLOSEST = 20
_COLUMNS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Cache:
    """A program's data, and how fast it comes."""

    bytes_per_sample: float
    dataset_bytes: int
    working_bytes: int
    """Memory that the program itself takes, all GPUs together."""
    memory_bytes_per_second: float
    disk_bytes_per_second: float
    overlap: float = 1.0

    def share(self, memory_bytes: float) -> float:
        """Return the share of the data that is kept in so much memory."""
        return min(1.0, max(0.0, memory_bytes - self.working_bytes) / self.dataset_bytes)

    def seconds(self, compute_s: float, share: float) -> float:
        """Return how long a sample takes that takes ``compute_s`` with all data in memory."""
        kept = self._kept_s(compute_s)
        fetch = kept + (1 - share) * self._missed_s()
        return max(compute_s, fetch) + (1 - self.overlap) * (min(compute_s, fetch) - kept)

    def _kept_s(self, compute_s: float) -> float:
        """Return how long a sample takes to come from memory, which is part of the measured time already."""
        return min(compute_s, self.bytes_per_sample / self.memory_bytes_per_second)

    def _missed_s(self) -> float:
        """Return how much longer it takes from the disk."""
        return max(0.0, self.bytes_per_sample * (1 / self.disk_bytes_per_second - 1 / self.memory_bytes_per_second))

    def enough(self, compute_s: float) -> float:
        """Return the smallest share at which fetching slows this program by nothing."""
        low, high = 0.0, 1.0
        for _ in range(40):
            middle = (low + high) / 2
            if self.seconds(compute_s, middle) > compute_s * 1.0001:
                low = middle
            else:
                high = middle
        return high

    def calibrated(self, compute_s: float, uncached_s: float) -> "Cache":
        """Return this cache with the overlap, and if need be the disk, that a run without any cache showed."""
        kept, missed = self._kept_s(compute_s), self._missed_s()
        fetch = kept + missed
        if uncached_s >= compute_s + missed:
            return self._with_missed(uncached_s - compute_s, 0.0)
        if uncached_s > max(compute_s, fetch):
            return replace(self, overlap=1 - (uncached_s - max(compute_s, fetch)) / (min(compute_s, fetch) - kept))
        if uncached_s > compute_s * (1 + LEAST_GAP):  # several readers at a time are faster than one
            return self._with_missed(uncached_s - kept, 1.0)
        return self._with_missed(min(missed, compute_s - kept), 1.0)

    def _with_missed(self, missed_s: float, overlap: float) -> "Cache":
        rate = 1 / (missed_s / self.bytes_per_sample + 1 / self.memory_bytes_per_second)
        return replace(self, overlap=overlap, disk_bytes_per_second=rate)


def columns(cache: Cache, compute_s: Sequence[float], gpus: int) -> list[int]:
    """Return sizes of memory a GPU that show what the cache does: from no data to all, and where it is enough."""
    shares = {*_COLUMNS, *(cache.enough(each) for each in compute_s)}
    sizes = sorted({-(-round(cache.working_bytes + share * cache.dataset_bytes) // gpus) for share in shares})
    apart = cache.dataset_bytes / gpus / _CLOSEST
    kept: list[int] = []
    for size in reversed(sizes):
        if not kept or kept[-1] - size >= apart:
            kept.append(size)
    return kept[::-1]
