"""Hold step functions of time, and compute sums that stay exact beyond 64 bits.

A quantity on a tape (GPUs allocated, jobs waiting) changes at instants and is constant between them. Its integral, in
nanoseconds times thousandths of a GPU over months, does not fit into an int64; ``exact_dot`` gives it as a Python
integer without leaving numpy. Sums avoid BLAS: they must not depend on how many threads a machine has.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

IntArray: TypeAlias = npt.NDArray[np.int64]
FloatArray: TypeAlias = npt.NDArray[np.float64]

_WRAP = 1 << 64


def exact_dot(left: IntArray, right: IntArray) -> int:
    """Return the sum of products as a Python integer, whatever its size.

    Integer arithmetic of numpy is exact modulo 2**64; the float sum says which multiple of 2**64 is missing (its
    own error is far below 2**63 for any total under 2**110).
    """
    wrapped = int((left * right).sum())
    near = float((left.astype(np.float64) * right).sum())
    return wrapped + round((near - wrapped) / _WRAP) * _WRAP


def exact_sum(values: IntArray) -> int:
    """Return the sum as a Python integer, whatever its size."""
    return exact_dot(values, np.ones_like(values))


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """A step function: ``values[i]`` holds from ``times[i]`` until ``times[i + 1]``, the last one for ever.

    Before the first time it is 0. Each time occurs once: the value is the one after all that happened at that instant.
    Integer values count in parts of ``unit`` (1000 for thousandths of a GPU); ``at``, ``mean``, ``peak`` divide by it.
    """

    times: IntArray
    values: IntArray | FloatArray
    unit: int = 1

    def __len__(self) -> int:
        return len(self.times)

    def at(self, time: int) -> float:
        """Return the value at a time."""
        index = int(np.searchsorted(self.times, time, side="right")) - 1
        return float(self.values[index]) / self.unit if index >= 0 else 0.0

    def clipped(self, start: int, end: int) -> tuple[IntArray, IntArray | FloatArray]:
        """Return how long each value holds between two times, and the values (not divided by the unit)."""
        edges = np.clip(self.times, start, end)
        return np.diff(edges, append=np.int64(max(start, end))), self.values

    def integral(self, start: int, end: int) -> int:
        """Return the exact integral between two times, in nanoseconds times parts of ``unit``; for integer values."""
        lengths, values = self.clipped(start, end)
        if values.dtype != np.int64:
            raise TypeError(f"an exact integral needs integer values, not {values.dtype}")
        return exact_dot(lengths, values.astype(np.int64, copy=False))

    def mean(self, start: int, end: int) -> float:
        """Return the average over time between two times; 0 when no time passes between them."""
        if end <= start:
            return 0.0
        if self.values.dtype == np.int64:
            return self.integral(start, end) / ((end - start) * self.unit)
        lengths, values = self.clipped(start, end)
        return float((lengths * values).sum()) / ((end - start) * self.unit)

    def peak(self, start: int, end: int) -> float:
        """Return the largest value that holds for some time between two times; 0 when no time passes between them."""
        lengths, values = self.clipped(start, end)
        held = values[lengths > 0]
        top = float(held.max()) / self.unit if held.size else 0.0
        starts_late = not len(self.times) or self.times[0] > start
        return max(top, 0.0) if starts_late else top


def from_changes(times: IntArray, changes: IntArray, unit: int = 1, first: int | None = None) -> Series:
    """Return the series of changes at these times, in any order; with ``first`` it starts from that value at time 0."""
    order = np.argsort(times)
    ordered, deltas = times[order], changes[order]
    if first is not None:
        ordered, deltas = np.concatenate(([0], ordered)), np.concatenate(([first], deltas))
    if not len(ordered):
        return Series(np.empty(0, np.int64), np.empty(0, np.int64), unit)
    last = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    values = np.cumsum(deltas)[last]
    kept = np.append(True, values[1:] != values[:-1])
    return Series(ordered[last][kept], values[kept], unit)


def joined(times: Sequence[IntArray], changes: Sequence[IntArray], unit: int = 1) -> Series:
    """Return the series of several lists of changes together."""
    return from_changes(np.concatenate(times), np.concatenate(changes), unit)
