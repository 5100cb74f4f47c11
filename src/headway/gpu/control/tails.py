"""Tail of a program above: the p99 of its steps beside others against alone, and how long kernels below may be.

Held steps are a twentieth of all. After a hundred of them their p99 begins to be known; the interval is by ranks (of
a hundred steps the second largest may as well be the largest), of the steps alone and of those beside together. Each
step counts by its ratio to the usual one of its like near in time, so that neither kinds nor drift are in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, sqrt

from headway.gpu.control.slowdown import LATEST_NS, MILLION, Estimate, Value

LEAST_STEPS = 100
FRESH_HOLDS = 20
"""So many holds tell of a limit before it is changed again."""
_LEAST, _MOST = 0.05, 64.0
_SHARE = 0.99


def tail(values: Sequence[Value]) -> Estimate | None:
    """Return the p99 beside over the p99 alone, with its interval of 95 %; None before there are enough held steps."""
    alone = sorted(each for value in values for each in value.alone)
    beside = sorted(each for value in values for each in value.beside)
    if min(len(alone), len(beside)) < LEAST_STEPS:
        return None
    (fast_low, fast, fast_high), (slow_low, slow, slow_high) = _p99(alone), _p99(beside)
    middle = slow - fast
    low = middle - sqrt((slow - slow_low) ** 2 + (fast_high - fast) ** 2)
    high = middle + sqrt((slow_high - slow) ** 2 + (fast - fast_low) ** 2)
    value_ppm, low_ppm, high_ppm = (round(exp(x) * MILLION) for x in (middle, low, high))
    return Estimate(value_ppm, low_ppm, high_ppm, len(values), len(alone))


def _p99(ordered: Sequence[float]) -> tuple[float, float, float]:
    """Return the lower end, the value and the upper end of a p99, by ranks."""
    half = 1.96 * sqrt(_SHARE * (1 - _SHARE) / len(ordered))
    last = len(ordered) - 1
    low, middle, high = (
        ordered[min(last, int(share * len(ordered)))] for share in (_SHARE - half, _SHARE, _SHARE + half)
    )
    return low, middle, high


@dataclass(slots=True)
class Tail:
    """How long a kernel below may be, for an aim of p99: at first what the aim allows a step to be delayed by."""

    scale: float = 1.0
    since_ns: int = -1
    """When it was last changed: holds before that tell of another limit."""

    def move(self, now_ns: int, values: Sequence[Value], aim_ppm: int) -> None:
        """Shorten kernels where the p99 is surely above the aim, and lengthen them where it is surely below."""
        if len(values) < FRESH_HOLDS or (found := tail(values)) is None:
            return
        factor = 0.6 if found.low_ppm > aim_ppm else 1.5 if found.high_ppm < aim_ppm else 1.0
        if factor != 1.0 and _LEAST <= self.scale * factor <= _MOST:
            self.scale, self.since_ns = self.scale * factor, now_ns

    def longest_ns(self, aim_ppm: int, step_ns: int) -> int:
        """Return the longest kernel that may go beside a step of this length."""
        return max(1, min(LATEST_NS, round((aim_ppm - MILLION) * step_ns // MILLION * self.scale)))
