"""INFless's keep-alive: windows from histograms of a stage's idle times, a long one and a short one.

The head of a histogram says when the next request comes at the earliest: a process is started shortly before. Its tail
says how long to wait for it. The windows of the two histograms are averaged. Their lengths, bins and percentiles are
ours: those of the hybrid histogram policy that INFless extends, as far as we know it.
"""

from collections import Counter, deque
from typing import NamedTuple

from headway.units import SECOND

_HOUR, BIN = 3600 * SECOND, 60 * SECOND
_LONG_HOURS, _SHORT_HOURS = 24, 1
_HEAD, _TAIL = 0.05, 0.99
_LEAST_COUNT = 10
"""Idle times without which there are no windows."""


class Windows(NamedTuple):
    """From when to when after its last request a stage should have a process."""

    head: int
    tail: int

    def keeps(self, idle: int, cold_start: int) -> bool:
        """Return whether a process should be there, or start, after so long without requests."""
        return idle < self.tail and (self.head <= cold_start or idle >= self.head - cold_start)


class IdleTimes:
    """Counts the idle times of a stage by hour and by minutes of length."""

    def __init__(self) -> None:
        self._hours: deque[tuple[int, Counter[int]]] = deque()

    def add(self, now: int, idle: int) -> None:
        """Count an idle time that ends now."""
        hour = now // _HOUR
        if not self._hours or self._hours[-1][0] != hour:
            self._hours.append((hour, Counter()))
            while self._hours[0][0] < hour - _LONG_HOURS:
                self._hours.popleft()
        self._hours[-1][1][idle // BIN] += 1

    def windows(self, now: int, gamma: float) -> Windows | None:
        """Return ``gamma`` of the long histogram's windows plus the rest of the short one's; None: too few counts."""
        hour = now // _HOUR
        long, short = self._since(hour - _LONG_HOURS), self._since(hour - _SHORT_HOURS)
        if long.total() < _LEAST_COUNT:
            return None
        first = _windows(long)
        second = _windows(short) if short else first
        return Windows(
            round(gamma * first.head + (1 - gamma) * second.head),
            round(gamma * first.tail + (1 - gamma) * second.tail),
        )

    def _since(self, hour: int) -> Counter[int]:
        return sum((counts for at, counts in self._hours if at >= hour), Counter())


def _windows(counts: Counter[int]) -> Windows:
    return Windows(_percentile(counts, _HEAD) * BIN, (_percentile(counts, _TAIL) + 1) * BIN)


def _percentile(counts: Counter[int], share: float) -> int:
    """Return the first bin up to which at least a share of the counts lies."""
    left = share * counts.total()
    for at in sorted(counts):
        left -= counts[at]
        if left <= 0:
            return at
    return max(counts)
