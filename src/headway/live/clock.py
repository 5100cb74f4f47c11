"""Clocks of live runs: nanoseconds since the run began."""

from time import monotonic_ns


class Clock:
    """The time since it was made, by the machine's monotonic clock."""

    def __init__(self) -> None:
        self._began = monotonic_ns()

    def __call__(self) -> int:
        """Return the nanoseconds since the run began."""
        return monotonic_ns() - self._began


class VirtualClock:
    """A clock that stands still until it is moved: a live run on it takes no time, and is the same each time."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        """Return the time that it was moved to."""
        return self.now
