"""What a state is: the one place where anything changes, by two verbs, ``apply`` and ``commit``.

``check`` is the one definition of what can be done: the loop asks it before each commit, the tests and the auditor
ask it too. A state writes each event it applies and each action it commits, as a row, to its ``journal``, so that what
is on the tape is what happened to the state, by construction. Both verbs return what the change caused beyond the state
(jobs that end at another time, inputs that will arrive): the loop hands it to the executor, which writes no state.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from headway.core.tape import Row

EventT_contra = TypeVar("EventT_contra", contravariant=True)
ActionT_contra = TypeVar("ActionT_contra", contravariant=True)
CausedT_co = TypeVar("CausedT_co", covariant=True)


class State(Protocol[EventT_contra, ActionT_contra, CausedT_co]):
    """Anything that the loop can drive."""

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
        """Return whether no work waits, runs, or is still to come. The one definition of the end."""
