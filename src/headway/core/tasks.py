"""Types shared by callers that have tasks and pools that run them, on this machine or on others."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol


class Far(NamedTuple):
    """Progress of a run: its time, its last submission, and the numbers of ended, waiting and running jobs."""

    now: int
    last: int
    jobs: int
    """Of the whole workload."""
    ended: int
    waiting: int
    running: int

    @property
    def share(self) -> float:
        """Return the share of its jobs that have ended: after the last arrival a run may take hours to drain."""
        return min(1.0, max(0.0, self.ended / self.jobs)) if self.jobs else 1.0


Progress = Callable[[Far], None]
"""Called by a running task with its progress, at times."""
Work = Callable[[Any, Progress | None], Any]
"""Runs a task, reports progress, returns the result. The function and its tasks are sent to other processes."""
Told = Callable[[int, Far | None], None]
"""Called with the number of a running task and its progress; None where that is not known."""


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome of a task: its result, or why there is none."""

    task: int
    result: Any = None
    problem: Exception | None = None
    stopped: bool = False
    """It was running, or had not started, when all tasks were stopped."""


class Pool(Protocol):
    """Runs tasks."""

    def run(self, tasks: Sequence[Any], work: Work, told: Told | None = None) -> Generator[Done, None, None]:
        """Yield the outcome of each task as it ends."""
        ...
