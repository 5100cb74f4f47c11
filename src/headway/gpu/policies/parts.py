"""Base class of policies of kernels, and what they share: which clients are gated, at work, or next.

A policy says how the GPU is shared (MPS or time slices), whether the GPU uses priorities, and which clients are gated.
It decides about gated launches at each instant; other clients launch freely.
"""

from abc import ABC
from collections.abc import Iterator, Sequence
from typing import ClassVar

from headway.gpu.model.actions import Action
from headway.gpu.model.device import Sharing
from headway.gpu.model.program import Client
from headway.gpu.model.state import ClientState, KernelsState


class KernelsPolicy(ABC):
    """Decides which waiting kernels go to the GPU."""

    name: ClassVar[str]
    sharing: ClassVar[Sharing] = Sharing.MPS
    raised: ClassVar[bool] = False
    """Whether launches of higher priority also get a higher priority on the GPU."""
    gating: ClassVar[bool] = True
    """Whether clients with others of higher priority are gated."""
    starves: ClassVar[bool] = False
    """Whether a client may wait forever while clients above are at work."""

    def gates(self, client: Client, clients: Sequence[Client]) -> bool:
        """Return whether the launches of a client are gated."""
        return self.gating and any(other.priority < client.priority for other in clients)

    def bind(self, state: KernelsState) -> None:  # noqa: B027  # most have nothing to prepare
        """Prepare for a run; called once, before the first decision."""

    def decide(self, now: int, state: KernelsState) -> Iterator[Action]:
        """Return the actions of this instant; none where no client is gated."""
        return iter(())


def in_turn(state: KernelsState) -> list[ClientState]:
    """Return the waiting clients: the highest priority first, within it the least recently served."""
    clients = state.clients
    waiting = [clients[index] for index in state.waiting]
    if len(waiting) > 1:
        waiting.sort(key=lambda client: (client.priority, client.served_at, client.id))
    return waiting


def idle_above(state: KernelsState, client: ClientState) -> bool:
    """Return whether no client of higher priority has a launch queued or running."""
    return not any(other.outstanding for other in state.clients if other.priority < client.priority)
