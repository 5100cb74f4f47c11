"""Clocks of live runs: nanoseconds since the run began."""

from time import monotonic_ns
from typing import Protocol


class RunClock(Protocol):
    """A clock of a live run."""

    def __call__(self) -> int:
        """Return the nanoseconds since the run began."""

    def restart(self) -> None:
        """Let the run begin now."""


class Clock:
    """The time since a run began, by the machine's monotonic clock: no other clock that is set moves it."""

    def __init__(self, began: int | None = None) -> None:
        """``began``: what the monotonic clock showed then; now, if it is left out."""
        self._began = monotonic_ns() if began is None else began

    def restart(self) -> None:
        """Let the run begin now."""
        self._began = monotonic_ns()

    def __call__(self) -> int:
        """Return the nanoseconds since the run began."""
        return monotonic_ns() - self._began


class VirtualClock:
    """A clock that stands still until it is moved: a live run on it takes no time, and is the same each time."""

    def __init__(self) -> None:
        self.now = 0

    def restart(self) -> None:
        """Let the run begin now."""
        self.now = 0

    def __call__(self) -> int:
        """Return the time that it was moved to."""
        return self.now
