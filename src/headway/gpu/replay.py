"""Replay of a kernel tape: read its events, and ask a policy again at each instant."""

from collections.abc import Sequence

from headway.core.replay import decide_again, instants
from headway.core.tape import Tape
from headway.errors import TapeError
from headway.gpu.model.device import Device
from headway.gpu.model.events import (
    ClientLeft,
    Event,
    KernelFinished,
    KernelHeldUp,
    KernelLaunched,
    KernelReached,
    RequestEnded,
    Woke,
)
from headway.gpu.model.program import Client
from headway.gpu.model.rows import Kind
from headway.gpu.model.state import KernelsState
from headway.gpu.policies.parts import KernelsPolicy


def fresh_state(clients: Sequence[Client], device: Device, policy: KernelsPolicy) -> KernelsState:
    """Return the state that a run of this policy begins with; the policy is bound to it."""
    state = KernelsState(clients, device, lambda client: policy.gates(client, clients))
    policy.bind(state)
    return state


def _event(row: list[int]) -> Event:
    time, kind, subject, lease, place, detail, value = row
    match kind:
        case Kind.FINISHED:
            return KernelFinished(subject, lease, value)
        case Kind.HELD_UP:
            return KernelHeldUp(subject, lease, detail, place, value)
        case Kind.REQUEST_ENDED:
            return RequestEnded(subject, lease, value)
        case Kind.LEFT:
            return ClientLeft(subject)
        case Kind.LAUNCHED:
            return KernelLaunched(subject, lease)
        case Kind.REACHED:
            return KernelReached(subject, lease)
        case Kind.WOKE:
            return Woke()
        case _:
            raise TapeError(f"the tape has a row of kind {kind} at {time} ns; no event of kernels has that number")


def about(row: Sequence[int]) -> str:
    """Return what a row of the tape is about: a client."""
    return f"client {row[2]}" if row[2] >= 0 else ""


def replay(
    clients: Sequence[Client], device: Device, tape: Tape, policy: KernelsPolicy, *, complete: bool = False
) -> Tape:
    """Return the tape that a fresh policy writes when shown the recorded events: identical, if it is the recorded one.

    ``complete``: the tape must be that of a whole run; a tape that ends early is refused.
    """
    state = fresh_state(clients, device, policy)
    again = decide_again(state, policy, instants(tape, int(Kind.LET_GO), _event))
    if complete and not state.over() and again.digest == tape.digest:
        raise TapeError("the tape ends before the run did: programs are at work at its last row")
    return again
