"""A queue policy in the manner of XSched (Shen et al., OSDI 2025): highest priority first, no prediction.

Commands of a program below are launched while no program above has any, a bounded number in flight; when one above
launches, the rest wait, and what is in flight runs out. XSched can also deactivate or interrupt what is in flight on
some devices; this is its level that works on every GPU.
"""

from collections.abc import Iterator

from headway.errors import ExperimentError
from headway.gpu.model.actions import Action, LetGo
from headway.gpu.model.reflex import Reason
from headway.gpu.model.state import KernelsState
from headway.gpu.policies.parts import KernelsPolicy, idle_above, in_turn


class XSched(KernelsPolicy):
    """Highest priority first, ``in_flight`` launches of each program below on the GPU."""

    name = "xsched"
    starves = True

    def __init__(self, in_flight: int = 8) -> None:
        if in_flight < 1:
            raise ExperimentError(f"policy xsched: in_flight={in_flight} must be at least 1")
        self.in_flight = in_flight

    def decide(self, now: int, state: KernelsState) -> Iterator[Action]:
        """Yield launches of clients below their limit, unless a client above has work."""
        for client in in_turn(state):
            if client.outstanding < self.in_flight and idle_above(state, client):
                yield LetGo(client.id, client.reached, Reason.ALONE)
