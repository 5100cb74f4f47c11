"""Events of one GPU, named in the past tense. ``RANKS`` is the order in which events of one instant are applied.

They are tuples for speed: a run makes several for each kernel, and this package needs only the standard library.
"""

from typing import NamedTuple, TypeAlias


class KernelFinished(NamedTuple):
    """A kernel has run to its end; ``started`` is when it got its first blocks onto the GPU."""

    client: int
    launch: int
    started: int


class KernelHeldUp(NamedTuple):
    """A kernel that could have started ``delay`` ago starts now: a kernel of client ``by`` held the GPU."""

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
    """The thread of a gated client reached its next launch and waits at the gate."""

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
