"""Base class of scalers, and what one is shown: how the fleet did since it was last asked.

A scaler is asked every ``every`` and returns how many workers of each kind it wants. Its constructor takes options and
stores them; ``bind`` is called once before the run. ``wrapper`` turns what it wants into actions, beside any policy.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar

from headway.errors import ExperimentError
from headway.fleet.policies.scalers.kinds import Kinds
from headway.fleet.state.state import ServingState
from headway.units import SECOND, Duration, format_duration

_DURATIONS = ("every", "window", "smooth", "day")
Wanted = Sequence[int]
"""By kind, cheapest first: how many workers."""


@dataclass(slots=True)
class Seen:
    """What happened since the scaler was last asked."""

    duration: int
    arrived: list[int]
    """By graph: requests."""
    answered: list[int]
    """By graph: requests, in time or late."""
    ended: int = 0
    """Requests with a deadline that were answered or dropped."""
    missed: int = 0
    """Of those: too late, or dropped."""
    busy_workers: float = 0.0
    """Mean number of workers that were busy: of each the part of its most used resource, as ``use`` says."""
    usable_workers: float = 0.0
    """Mean number of workers that could be used."""
    rented: Wanted = ()
    """By kind: workers that can be used or are starting, now."""
    starting: int = 0
    """Of those: workers that are starting."""
    open_tasks: int = 0
    """Tasks that wait or run, now."""


@dataclass(eq=False)
class Scaler(ABC):
    """Decides how many workers are rented."""

    name: ClassVar[str]

    least: int = field(default=1, kw_only=True)
    most: int = field(default=0, kw_only=True)
    """0: all workers of the fleet."""
    initial: int = field(default=0, kw_only=True)
    """Workers when the run begins; 0: what the first requests need."""
    every: Duration = field(default=Duration(15 * SECOND), kw_only=True)

    def __post_init__(self) -> None:
        """Raise for an option that makes no sense."""
        self.check("least", self.least, 1)
        self.check("most", self.most, 0)
        self.check("initial", self.initial, 0)
        self.check("every", self.every, 1)
        if self.most and self.least > self.most:
            wrong = f"least={self.least} is above most={self.most}"
            raise ExperimentError(f"autoscale {self.name}: {wrong}: lower least, or raise most")
        if self.initial and not self.least <= self.initial <= (self.most or self.initial):
            bounds = f"between least={self.least} and most={self.most or 'all'}"
            remedy = "change it, or leave it out for what the first requests need"
            raise ExperimentError(f"autoscale {self.name}: initial={self.initial} is not {bounds}: {remedy}")

    def check(self, option: str, value: float, low: float, high: float = inf) -> None:
        """Raise where an option is not a number between two bounds."""
        if not low <= value <= high or value == inf:
            rule = f"of {low:g} or more" if high == inf else f"between {low:g} and {high:g}"
            shown = format_duration(int(value)) if option in _DURATIONS else f"{value:g}"
            raise ExperimentError(f"autoscale {self.name}: option {option}={shown} is not a number {rule}")

    def bind(self, state: ServingState, kinds: Kinds) -> None:
        """Prepare for a run; called once, before the first decision."""
        self.kinds = kinds

    @abstractmethod
    def scale(self, now: int, state: ServingState, seen: Seen) -> Wanted:
        """Return how many workers of each kind are wanted; what is out of bounds is brought within them."""


class Stabilised:
    """The highest of the numbers wanted within a window: a fleet shrinks once fewer were wanted for that long."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._wanted: deque[tuple[int, int]] = deque()
        """(when, how many), numbers falling: a later one that is higher makes earlier ones needless."""

    def highest(self, now: int, wanted: int) -> int:
        """Return the highest number within the window, with the one that is wanted now."""
        while self._wanted and self._wanted[0][0] <= now - self._window:
            self._wanted.popleft()
        while self._wanted and self._wanted[-1][1] <= wanted:
            self._wanted.pop()
        self._wanted.append((now, wanted))
        return self._wanted[0][1]
