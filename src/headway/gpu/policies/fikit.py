"""FIKIT (Wu, arXiv 2311.10359): fill the predicted gap after each kernel of the program of higher priority.

When the program above has nothing on the GPU, the measured idle time after its last kernel predicts when its next one
starts. While the rest of that gap exceeds a threshold, BestPrioFit takes, from the highest waiting priority downwards,
the longest kernel that is predicted to fit, and subtracts its time. A next kernel that comes early ends the filling. A
program whose gap is far longer than predicted counts as idle after ``silence``. The paper fills from the queues of one
process; here each waiting thread offers the one kernel that it waits with.
"""

from collections.abc import Iterator

from headway.errors import ExperimentError
from headway.gpu.model.actions import Action, LetGo, WakeAt
from headway.gpu.model.reflex import LONGEST_NS, Reason, Waiter, choose
from headway.gpu.model.state import ClientState, KernelsState
from headway.gpu.policies.parts import KernelsPolicy
from headway.units import MICROSECOND, MILLISECOND, Duration

THRESHOLD = Duration(10 * MICROSECOND)
SILENCE = Duration(100 * MILLISECOND)
IDLE_DEPTH_NS = 2 * MILLISECOND
"""The most work in flight while no client above is at work, so that one that returns does not wait for long."""


class Fikit(KernelsPolicy):
    """Fills gaps by predicted time alone."""

    name = "fikit"
    starves = True

    def __init__(self, threshold: Duration = THRESHOLD, silence: Duration = SILENCE) -> None:
        if threshold < 0 or silence < 0:
            raise ExperimentError(f"policy fikit: threshold={threshold} and silence={silence} must not be negative")
        self.threshold = threshold
        self.silence = silence

    def decide(self, now: int, state: KernelsState) -> Iterator[Action]:
        """Yield the launches that fill the rest of the gap."""
        while state.waiting:
            room = self._room(now, state)
            if room <= self.threshold:
                break
            waiting = [state.clients[index] for index in state.waiting]
            chosen = choose([Waiter(client.priority, client.fill, 0) for client in waiting], room)
            if chosen < 0:
                break
            yield LetGo(waiting[chosen].id, waiting[chosen].reached, Reason.FITS)
        if state.waiting and (ends := [at for client in _ungated(state) if (at := self._gone_at(client)) > now]):
            yield WakeAt(min(ends))

    def _room(self, now: int, state: KernelsState) -> int:
        """Return the rest of the gap for one more kernel; ``LONGEST_NS`` when no client above is at work."""
        filled = max((client.busy for client in state.clients if client.gated and client.outstanding), default=0)
        start = max(now + state.device.latency, filled)
        end = 0
        for client in _ungated(state):
            if client.outstanding:
                return 0
            if now < self._gone_at(client):
                gap = client.finished_at + client.step.idle
                end = min(end, gap) if end else gap
        if not end:  # nobody above is at work
            return LONGEST_NS if filled - now <= IDLE_DEPTH_NS else 0
        return end - start

    def _gone_at(self, client: ClientState) -> int:
        return client.launched_at + max(self.silence, client.step.idle) if client.launched else 0


def _ungated(state: KernelsState) -> list[ClientState]:
    return [client for client in state.clients if not client.gated and not client.left]
