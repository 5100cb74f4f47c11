"""What happens on one GPU, in the past tense. ``rank`` is the order in which events of one instant are applied.

Tuples and not dataclasses: a run makes several a kernel, and this package needs nothing but the standard library.
"""

from typing import NamedTuple, TypeAlias


class KernelFinished(NamedTuple):
    """A kernel has run to its end; ``started`` is when it got its first blocks onto the GPU."""

    client: int
    launch: int
    started: int


class KernelHeldUp(NamedTuple):
    """A kernel that could have started ``delay`` ago starts now: a kernel of another client was in its way."""

    client: int
    launch: int
    by: int
    kernel: int
    delay: int


class RequestEnded(NamedTuple):
    """The wait of a client for its stream is over; ``began`` is when its request began."""

    client: int
    request: int
    began: int


class ClientLeft(NamedTuple):
    """A client launches nothing any more. What it launched runs on."""

    client: int


class KernelLaunched(NamedTuple):
    """A client that is not gated launched its next kernel."""

    client: int
    launch: int


class KernelReached(NamedTuple):
    """The thread of a gated client wants to launch its next kernel, and waits to be let go."""

    client: int
    launch: int


class Woke(NamedTuple):
    """The time that a policy asked for with ``WakeAt`` has come."""


Event: TypeAlias = KernelFinished | KernelHeldUp | RequestEnded | ClientLeft | KernelLaunched | KernelReached | Woke
RANKS: dict[type[Event], int] = {
    KernelFinished: 0,
    KernelHeldUp: 1,
    RequestEnded: 2,
    ClientLeft: 3,
    KernelLaunched: 4,
    KernelReached: 5,
    Woke: 6,
}
