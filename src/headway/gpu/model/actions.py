"""Actions of policies of kernels, named in the imperative."""

from typing import NamedTuple, TypeAlias


class LetGo(NamedTuple):
    """Launch the kernel that a client waits with at the gate."""

    client: int
    launch: int
    reason: int = 0
    """Why, as ``reflex.Reason`` numbers it."""
    harm: int = 0
    """The delay that it is expected to cause to clients of higher priority."""


class WakeAt(NamedTuple):
    """Ask the policy again at this time, even if nothing happens before."""

    time: int


Action: TypeAlias = LetGo | WakeAt
