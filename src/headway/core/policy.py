"""Protocol of policies: ``decide(now, state)`` returns actions.

``decide`` does no I/O, reads no clock, draws no hidden randomness and changes nothing it was given. It may keep private
memory from earlier calls. It may be a generator: each action that it yields is checked and committed before it is asked
for the next one, so that it sees its own earlier actions in the state.
"""

from collections.abc import Iterable
from typing import Protocol, TypeVar

StateT_contra = TypeVar("StateT_contra", contravariant=True)
ActionT_co = TypeVar("ActionT_co", covariant=True)


class Policy(Protocol[StateT_contra, ActionT_co]):
    """Anything with a name and a ``decide``."""

    @property
    def name(self) -> str:
        """Return the string that describes it fully: the same in flags, TOML, tables and tapes."""

    def decide(self, now: int, state: StateT_contra) -> Iterable[ActionT_co]:
        """Return the actions of this instant; all its events have been applied to ``state``."""
