"""Strict priority and exclusive use: the two ways to protect a program without predicting anything.

``strict`` lets a kernel go when nobody above has anything queued or running, one at a time: what it costs is the rest
of that one kernel when the program above comes back. ``exclusive`` gives the GPU to one program after another.
"""

from collections.abc import Iterator

from headway.kernels.actions import Action, LetGo
from headway.kernels.policies.parts import KernelsPolicy, idle_above, in_turn
from headway.kernels.reflex import Reason
from headway.kernels.state import KernelsState


class Strict(KernelsPolicy):
    """A kernel below goes when the GPU has nothing to do."""

    name = "strict"
    starves = True

    def decide(self, now: int, state: KernelsState) -> Iterator[Action]:
        """Yield one kernel of those below at a time."""
        for client in in_turn(state):
            if any(other.outstanding for other in state.clients if other.gated):
                return
            if idle_above(state, client):
                yield LetGo(client.id, client.reached, Reason.ALONE)


class Exclusive(KernelsPolicy):
    """A program below goes when everybody above has left, and their last kernel has ended."""

    name = "exclusive"
    starves = True

    def decide(self, now: int, state: KernelsState) -> Iterator[Action]:
        """Whoever has nobody above."""
        for client in in_turn(state):
            if not state.above(client) and idle_above(state, client):
                yield LetGo(client.id, client.reached, Reason.ALONE)
