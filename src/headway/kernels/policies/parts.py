"""What policies of kernels are made of, and what they share: who is gated, who is at work, whose turn it is.

A policy says how the GPU is shared (MPS or slices), whether the GPU heeds priorities, and who must ask before it
launches. Those who must are decided about at each instant; the others launch as they please.
"""

from abc import ABC
from collections.abc import Iterator, Sequence
from typing import ClassVar

from headway.kernels.actions import Action
from headway.kernels.device import Sharing
from headway.kernels.program import Client
from headway.kernels.state import ClientState, KernelsState


class KernelsPolicy(ABC):
    """Decides which waiting kernels go to the GPU."""

    name: ClassVar[str]
    sharing: ClassVar[Sharing] = Sharing.MPS
    raised: ClassVar[bool] = False
    """Whether launches of higher priority get the GPU's own priority too."""
    gating: ClassVar[bool] = True
    """Whether those with somebody above them must ask."""
    starves: ClassVar[bool] = False
    """Whether somebody may wait forever while those above are at work."""

    def gates(self, client: Client, clients: Sequence[Client]) -> bool:
        """Return whether a client must ask before each launch."""
        return self.gating and any(other.priority < client.priority for other in clients)

    def bind(self, state: KernelsState) -> None:  # noqa: B027  # most have nothing to prepare
        """Prepare for a run; called once, before the first decision."""

    def decide(self, now: int, state: KernelsState) -> Iterator[Action]:
        """Return what to do at this instant; nothing, where nobody is gated."""
        return iter(())


def in_turn(state: KernelsState) -> list[ClientState]:
    """Return those who wait: the highest priority first, within it who was served longest ago."""
    waiting = [state.clients[index] for index in state.waiting]
    if len(waiting) > 1:
        waiting.sort(key=lambda client: (client.priority, client.served_at, client.id))
    return waiting


def idle_above(state: KernelsState, client: ClientState) -> bool:
    """Return whether nobody of higher priority has anything queued or running."""
    return not any(other.outstanding for other in state.clients if other.priority < client.priority)
