"""How long a program still takes, by what it says of its progress."""

from dataclasses import dataclass

_LEAST_SHARE = 0.001
_CHANGE = 0.1
"""Expectations are changed when they are off by so much; each change is an event and asks the policy."""
_PAUSE = 5 * 10**9
"""And no more often than this, in nanoseconds."""


@dataclass(slots=True)
class Pace:
    """The progress of one lease: where it was seen first."""

    since: int
    share: float
    told: int = -_PAUSE
    """When expectations were last changed."""

    def left(self, now: int, share: float) -> int | None:
        """Return how long it still takes at the pace so far; None where that cannot be said yet."""
        gained = share - self.share
        if gained < _LEAST_SHARE or now <= self.since or not 0 < share <= 1:
            return None
        return round((now - self.since) * (1 - share) / gained)

    def tells(self, now: int, expected: int, before: int) -> bool:
        """Return whether an expectation is to be changed: it differs enough, and the last change is a while ago."""
        if abs(expected - before) <= _CHANGE * before or now - self.told < _PAUSE:
            return False
        self.told = now
        return True
