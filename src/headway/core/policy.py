"""What a policy is: a function of what it is shown.

``decide`` does no I/O, reads no clock, draws no hidden randomness and changes nothing it was given; it may keep
private memory from earlier calls. It may be a generator: each action it yields is checked and committed before it
is asked for the next one, so it sees its own earlier actions in the state and never has to imagine them.
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
        """Return what to do at this instant, all of whose events have been applied to ``state``."""
