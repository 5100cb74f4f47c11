"""Strict priority and exclusive use: the two ways to protect a program without any prediction.

``strict`` launches one kernel at a time, when no client above has a launch queued or running: a client above that
returns waits for the rest of that kernel. ``exclusive`` gives the GPU to one program after another.
"""

from collections.abc import Iterator

from headway.gpu.model.actions import Action, LetGo
from headway.gpu.model.reflex import Reason
from headway.gpu.model.state import KernelsState
from headway.gpu.policies.parts import KernelsPolicy, idle_above, in_turn


class Strict(KernelsPolicy):
    """Launches a kernel of a client below when the GPU is idle."""

    name = "strict"
    starves = True

    def decide(self, now: int, state: KernelsState) -> Iterator[Action]:
        """Yield one launch of the clients below at a time."""
        for client in in_turn(state):
            if any(other.outstanding for other in state.clients if other.gated):
                return
            if idle_above(state, client):
                yield LetGo(client.id, client.reached, Reason.ALONE)


class Exclusive(KernelsPolicy):
    """Runs a program below when all clients above have left, and their last kernel has ended."""

    name = "exclusive"
    starves = True

    def decide(self, now: int, state: KernelsState) -> Iterator[Action]:
        """Yield the launches of clients that have none above."""
        for client in in_turn(state):
            if not state.above(client) and idle_above(state, client):
                yield LetGo(client.id, client.reached, Reason.ALONE)
