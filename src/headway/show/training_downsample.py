"""Reduce a long run for drawing: all of it in stretches of time, the long tail of a few last jobs in fewer."""

from headway.show.downsample import Buckets, bucketed
from headway.statistics.series import Series

TAIL_BUCKETS = 100
"""The same for the long end of a run, where only a few jobs are left."""


def stretched(series: Series, shown: int, horizon: int) -> Buckets:
    """Return a step function over stretches up to where it is shown, and, where it goes on, over some beyond."""
    first = bucketed(series, 0, min(shown, horizon))
    return first.then(bucketed(series, shown, horizon, TAIL_BUCKETS)) if horizon > shown else first


def without_tail(bulk: int, whole: int) -> int:
    """Return how much of a run is shown at first: a few jobs that run on and on would leave all others a sliver.

    ``bulk`` is when nearly all is over; the whole run if that is not much longer.
    """
    return bulk + bulk // 20 if bulk < 0.7 * whole else whole
