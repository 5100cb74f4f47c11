"""The words between those who have tasks and the pools that do them, on this machine or on others."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol


class Far(NamedTuple):
    """How far a run is: the time it has reached, the last submission, and what became of its jobs."""

    now: int
    last: int
    jobs: int
    """Of the whole workload."""
    ended: int
    waiting: int
    running: int

    @property
    def share(self) -> float:
        """Of its jobs that have ended: a trace that has all arrived may have hours to drain."""
        return min(1.0, max(0.0, self.ended / self.jobs)) if self.jobs else 1.0


Progress = Callable[[Far], None]
"""Told, by a task at work, how far it is, now and then."""
Work = Callable[[Any, Progress | None], Any]
"""From a task, telling how far it is, to its result. It and its tasks are sent to other processes."""
Told = Callable[[int, Far | None], None]
"""Told the number of a task that is at work, and how far it is; None where there is no saying."""


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a task: its result, or why there is none."""

    task: int
    result: Any = None
    problem: Exception | None = None
    stopped: bool = False
    """It was still at work, or had not begun, when everything was stopped."""


class Pool(Protocol):
    """What does tasks somewhere."""

    def run(self, tasks: Sequence[Any], work: Work, told: Told | None = None) -> Generator[Done, None, None]:
        """Yield what became of each task, as they end."""
        ...
