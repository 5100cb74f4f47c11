"""Reduce distributions and step functions to the few points that a page needs to draw them."""

from dataclasses import dataclass

import numpy as np

from headway.statistics.series import FloatArray, IntArray, Series

MOST_CDF_POINTS = 500
BUCKETS = 300
"""Stretches of time that a step function is averaged over; with its extremes two points each."""


@dataclass(frozen=True, slots=True, eq=False)
class Buckets:
    """A step function over equal stretches of time."""

    edges: FloatArray
    """In nanoseconds; one more than there are stretches."""
    mean: FloatArray
    low: FloatArray
    high: FloatArray

    @property
    def middles(self) -> FloatArray:
        """Return the middle of each stretch."""
        return (self.edges[1:] + self.edges[:-1]) / 2

    def then(self, later: "Buckets") -> "Buckets":
        """Return these intervals followed by later ones, which may be of another length."""
        return Buckets(
            np.concatenate((self.edges, later.edges[1:])),
            np.concatenate((self.mean, later.mean)),
            np.concatenate((self.low, later.low)),
            np.concatenate((self.high, later.high)),
        )


def cdf(values: FloatArray, floor: float) -> tuple[FloatArray, FloatArray]:
    """Return points (value, share of values up to it) for an axis in logarithms that begins at ``floor``.

    What lies below the floor is drawn at it. Half of the points are spread evenly over ranks, half over the axis, so
    that neither a steep rise nor a long tail loses its shape; the first and the last value are always there.
    """
    ordered = np.maximum(np.sort(values[~np.isnan(values)]), floor)
    count = len(ordered)
    if not count:
        return np.empty(0), np.empty(0)
    if count > MOST_CDF_POINTS:
        half = MOST_CDF_POINTS // 2
        ranks = np.linspace(0, count - 1, half).astype(np.int64)
        along = np.geomspace(ordered[0], ordered[-1], half) if ordered[-1] > ordered[0] else ordered[:1]
        at = np.clip(np.searchsorted(ordered, along, side="right") - 1, 0, count - 1)
        kept = np.unique(np.concatenate((ranks, at)))
    else:
        kept = np.arange(count)
    # of equal values only the highest share is a point of the curve
    values_kept = ordered[kept]
    last = np.append(values_kept[1:] != values_kept[:-1], True)
    shares = np.searchsorted(ordered, values_kept[last], side="right") / count
    return values_kept[last], shares


def bucketed(series: Series, start: int, end: int, buckets: int = BUCKETS) -> Buckets:
    """Return the mean and the extremes of a step function over equal stretches between two times."""
    edges = np.linspace(start, max(end, start + 1), buckets + 1)
    if not len(series):
        nothing = np.zeros(buckets)
        return Buckets(edges, nothing, nothing, nothing)
    times, values = series.times.astype(np.float64), series.values / series.unit
    area = np.concatenate(([0.0], np.cumsum(np.diff(times) * values[:-1])))
    index = np.searchsorted(times, edges, side="right") - 1
    known = np.maximum(index, 0)
    passed = np.where(index >= 0, area[known] + (edges - times[known]) * values[known], 0.0)
    mean = np.diff(passed) / np.diff(edges)
    at_edge = np.where(index >= 0, values[known], 0.0)
    low, high = _extremes(values, index, at_edge, buckets)
    return Buckets(edges, np.clip(mean, low, high), low, high)


def _extremes(values: FloatArray, index: IntArray, at_edge: FloatArray, buckets: int) -> tuple[FloatArray, FloatArray]:
    """Return the least and largest value in each stretch: those that begin in it, and the one that it begins with."""
    low, high = at_edge[:-1].copy(), at_edge[:-1].copy()
    first, last = index[:-1] + 1, index[1:] + 1
    some = np.flatnonzero(last > first)
    if len(some):
        # reduceat takes pairs of bounds; every second result is what lies between two stretches
        bounds = np.stack((first[some], last[some]), axis=1).ravel()
        padded = np.append(values, values[-1])
        low[some] = np.minimum(low[some], np.minimum.reduceat(padded, bounds)[::2])
        high[some] = np.maximum(high[some], np.maximum.reduceat(padded, bounds)[::2])
    return low[:buckets], high[:buckets]


def rounded(values: FloatArray, digits: int = 4) -> list[float]:
    """Return values for JSON, rounded to some significant digits: no screen shows more."""
    return [float(f"{value:.{digits}g}") for value in values.tolist()]
