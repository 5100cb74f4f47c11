"""The words between those who have tasks and the pools that do them, on this machine or on others."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Progress = Callable[[int, int, int, int], None]
"""Told, by a task at work, the time it has reached, the last one, and how many jobs wait and run."""
Work = Callable[[Any, Progress | None], Any]
"""From a task, telling how far it is, to its result. It and its tasks are sent to other processes."""
Told = Callable[[int, int, int, int, int], None]
"""Told the number of a task, then what ``Progress`` is told."""


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
        """What became of each task, as they end."""
        ...
