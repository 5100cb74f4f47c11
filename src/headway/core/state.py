"""Protocol of states: they change only by ``apply(event)`` and ``commit(action)``.

``check`` is the one definition of feasibility: the loop calls it before each commit, and so do the tests and the audit.
A state writes each event that it applies and each action that it commits, as a row, to its ``journal``: the tape
records exactly what happened to the state. ``apply`` and ``commit`` return what the change caused beyond the state
(jobs that end at another time, inputs that will arrive). The loop hands that to the executor, which writes no state.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from headway.core.tape import Row

EventT_contra = TypeVar("EventT_contra", contravariant=True)
ActionT_contra = TypeVar("ActionT_contra", contravariant=True)
CausedT_co = TypeVar("CausedT_co", covariant=True)


class State(Protocol[EventT_contra, ActionT_contra, CausedT_co]):
    """A state that the loop can drive."""

    journal: Callable[[Row], None]

    def apply(self, now: int, event: EventT_contra) -> CausedT_co | None:
        """Apply an event; return what it caused, None when that is nothing."""

    def check(self, action: ActionT_contra) -> str | None:
        """Return why this action cannot be committed now; None when it can."""

    def commit(self, now: int, action: ActionT_contra) -> CausedT_co | None:
        """Commit an action that ``check`` allowed; return what it caused, None when that is nothing."""

    def refused(self, now: int, action: ActionT_contra) -> Row:
        """Return the row that records a refusal of this action."""

    def over(self) -> bool:
        """Return whether no work waits, runs, or is still to come: the one definition of the end."""
