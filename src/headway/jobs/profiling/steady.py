"""Compute a program's steady rate of steps, with its confidence.

The first steps are slower (lazy start, caches that fill) or faster (a loader that had time to work ahead) than the
rest: a tenth is dropped in any case, and then as much of the beginning as makes the mean of what is left surest (MSER,
White 1997). What is left is cut into ten blocks whose means spread as much as chance makes them, because neighbouring
steps are alike and blocks are not; the error is half the width of the 95 % interval, as a share of the rate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BLOCKS = 10
LEAST_DROPPED = 3
LEAST_STEPS = 10
"""Fewer say nothing."""
_SLICES = 40
_T95 = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's t, two-sided 95 %, for 1 to 9 degrees of freedom."""


@dataclass(frozen=True)
class Rate:
    """Samples a second over the steps that count."""

    per_second: float
    error: float
    """Half the width of the 95 % interval, as a share."""
    steps: int
    """Steps that count."""
    dropped: int
    """Steps before them."""
    seconds: float
    """How long they took."""


def rate(times_ns: Sequence[int], samples: Sequence[int], since_ns: int = 0) -> Rate | None:
    """Return the steady rate of steps that ended at these times from ``since_ns`` on; None if they are too few."""
    order = np.argsort(np.asarray(times_ns, dtype=np.int64), kind="stable")
    times = np.asarray(times_ns, dtype=np.int64)[order]
    done = np.cumsum(np.asarray(samples, dtype=np.int64)[order])
    first = max(int(np.searchsorted(times, since_ns)), LEAST_DROPPED, math.ceil(len(times) / 10))
    if len(times) - first <= LEAST_STEPS or done[-1] <= done[first]:
        return None
    first += _settled(times[first:], done[first:])
    times, done = times[first:], done[first:]
    seconds = float(times[-1] - times[0]) / 1e9
    total = int(done[-1] - done[0])
    if seconds <= 0 or total <= 0:
        return None
    return Rate(total / seconds, _error(times, done), len(times) - 1, first + 1, seconds)


def _settled(times: NDArray[np.int64], done: NDArray[np.int64]) -> int:
    """Return how many of the first steps to drop, at most half, so that the mean of the rest is surest."""
    edges = _edges(len(times), min(_SLICES, (len(times) - 1) // 2))
    spans = _seconds_a_sample(times, done, edges)
    with np.errstate(invalid="ignore"):  # a slice without a sample takes for ever
        scores = [float(np.var(spans[cut:])) / (len(spans) - cut) for cut in range(len(spans) // 2 + 1)]
    return int(edges[int(np.argmin(np.nan_to_num(scores, nan=math.inf, posinf=math.inf)))])


def _error(times: NDArray[np.int64], done: NDArray[np.int64]) -> float:
    blocks = min(BLOCKS, (len(times) - 1) // 2)
    spans = _seconds_a_sample(times, done, _edges(len(times), blocks))
    if not np.isfinite(spans).all():
        return 1.0
    spread = float(np.std(spans, ddof=1)) / math.sqrt(blocks)
    return _T95[blocks - 2] * spread / float(np.mean(spans))


def _edges(count: int, parts: int) -> NDArray[np.int64]:
    return np.linspace(0, count - 1, parts + 1).astype(np.int64)


def _seconds_a_sample(
    times: NDArray[np.int64], done: NDArray[np.int64], edges: NDArray[np.int64]
) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore"):
        spans: NDArray[np.float64] = np.diff(times[edges]) / 1e9 / np.diff(done[edges])
    return spans


def monotone(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the nearest values, by weighted squares, that never fall: neighbours that do are pooled."""
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        pool = (value, weight, 1)
        while pools and pools[-1][0] > pool[0]:
            mean, mass, members = pools.pop()
            joint = mass + pool[1]
            pool = ((mean * mass + pool[0] * pool[1]) / joint, joint, members + pool[2])
        pools.append(pool)
    return [mean for mean, _, members in pools for _ in range(members)]
