"""Protocol of executors: they produce events and carry actions out, in virtual time or on real machines.

An executor may read the state of its run and never writes it. What a change caused is handed to ``follow``.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

EventT_co = TypeVar("EventT_co", covariant=True)
ActionT_contra = TypeVar("ActionT_contra", contravariant=True)
CausedT_contra = TypeVar("CausedT_contra", contravariant=True)


class Executor(Protocol[EventT_co, ActionT_contra, CausedT_contra]):
    """Produces events and carries actions out."""

    def next(self) -> tuple[int, Sequence[EventT_co]] | None:
        """Return the next instant and all its events in rank order; None when nothing will ever happen again."""

    def execute(self, now: int, action: ActionT_contra) -> None:
        """Carry out an action that was just committed."""

    def follow(self, now: int, caused: CausedT_contra) -> None:
        """Schedule what an event or an action caused, right after it was applied, or committed and carried out."""

    def refused(self, now: int, action: ActionT_contra) -> None:
        """Take note of an action that was stale when it was decided, and of which nothing happened."""
