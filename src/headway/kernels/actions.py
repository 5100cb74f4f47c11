"""What a policy can ask for, in the imperative."""

from typing import NamedTuple, TypeAlias


class LetGo(NamedTuple):
    """Let the kernel that a client waits with go to the GPU."""

    client: int
    launch: int
    reason: int = 0
    """Why, as ``reflex.Reason`` numbers it."""
    harm: int = 0
    """The delay that it is expected to cause to those above."""


class WakeAt(NamedTuple):
    """Ask again then, whatever happens until then."""

    time: int


Action: TypeAlias = LetGo | WakeAt
