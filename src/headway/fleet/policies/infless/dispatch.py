"""INFless's dispatch: how the requests of a stage are divided over its instances.

Each instance has a window of rates. Above the sum of the upper ends the rest goes to a virtual instance, for which new
ones are started. In the upper part of the whole window every instance gets the same place in its own. Below it, some
instances are stopped, so that the others are busy.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headway.fleet.policies.infless.planner import Rates

ALPHA = 0.8
"""From here on, as a share of the whole window, no instance is stopped."""
_LOADS = (0.8, 0.4, 0.2, 0.0)
"""Loads of the instances that go on, in their window, most wanted first."""
MOST_SUBSETS = 1_040_000


class Dispatch(NamedTuple):
    """Weights of the lottery among instances."""

    weights: tuple[float, ...]
    excess: float = 0.0
    """The rate that no instance takes."""
    stopped: int | None = None
    """The instances with weight 0, as bits, where a subset was searched."""


def divide(rate: float, windows: Sequence[Rates], stopped: int | None = None) -> Dispatch:
    """Return the weights for a rate. ``stopped``: the subset of last time, kept while the rate is in its window."""
    low, up = sum(window.low for window in windows), sum(window.up for window in windows)
    if rate > up:
        return Dispatch(tuple(window.up for window in windows), rate - up)
    if rate >= low + ALPHA * (up - low):
        return Dispatch(_spread(rate, windows, 0))
    if stopped is None or not _within(rate, windows, stopped):
        stopped = find_stopped(rate, windows)
    if stopped is not None:
        return Dispatch(_spread(rate, windows, stopped), stopped=stopped)
    weights = []
    for window in windows:
        weights.append(min(window.up, rate))
        rate -= weights[-1]
    return Dispatch(tuple(weights))


def _within(rate: float, windows: Sequence[Rates], stopped: int) -> bool:
    kept = [window for at, window in enumerate(windows) if not stopped >> at & 1]
    return sum(window.low for window in kept) <= rate <= sum(window.up for window in kept)


def _spread(rate: float, windows: Sequence[Rates], stopped: int) -> tuple[float, ...]:
    """Return the rates of instances that are all at the same place of their windows; 0 for stopped ones."""
    kept = [window for at, window in enumerate(windows) if not stopped >> at & 1]
    low, up = sum(window.low for window in kept), sum(window.up for window in kept)
    part = (up - rate) / (up - low) if up > low else 0.0
    return tuple(
        0.0 if stopped >> at & 1 else window.up - part * (window.up - window.low) for at, window in enumerate(windows)
    )


def find_stopped(rate: float, windows: Sequence[Rates]) -> int | None:
    """Return the first subset of instances to stop, in order of its bits, that leaves the others well loaded.

    A load of 0.8 is sought first, then lower ones. None: the windows of no subset hold the rate.
    """
    low = _kept_sums([window.low for window in windows])
    up = _kept_sums([window.up for window in windows])
    inside = (low <= rate) & (rate <= up)
    for load in _LOADS:
        found = inside & (rate - low >= load * (up - low))
        if found.any():
            return int(found.argmax())
    return None


def _kept_sums(values: Sequence[float]) -> npt.NDArray[np.float64]:
    """Return for each subset of stopped ones (not all) the sum over the others; its bits are its position.

    Beyond ``MOST_SUBSETS`` none is looked at, so that the last of many instances are always kept.
    """
    sums = np.zeros(1)
    for value in values:
        kept = sums + value
        sums = np.concatenate((kept, sums)) if len(sums) < MOST_SUBSETS else kept
    return sums[: min(len(sums) - 1, MOST_SUBSETS)]
