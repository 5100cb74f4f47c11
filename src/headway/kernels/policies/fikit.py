"""FIKIT (Wu, arXiv 2311.10359): fill the predicted gap after each kernel of the program above.

When the program above has nothing on the GPU, its last kernel's measured idle time says when its next one will start.
While what is left of that gap exceeds a threshold, BestPrioFit takes, from the highest priority that waits downwards,
the longest kernel that is predicted to fit, and what it takes is subtracted. A next kernel that comes early ends the
filling. A program whose gap was far longer than predicted counts as gone after ``silence``. The paper fills one
process's queues; here each waiting thread offers the one kernel it waits with.
"""

from collections.abc import Iterator

from headway.errors import ExperimentError
from headway.kernels.actions import Action, LetGo, WakeAt
from headway.kernels.policies.parts import KernelsPolicy
from headway.kernels.reflex import LONGEST_NS, Reason, Waiter, choose
from headway.kernels.state import ClientState, KernelsState
from headway.units import MICROSECOND, MILLISECOND, Duration

THRESHOLD = Duration(10 * MICROSECOND)
SILENCE = Duration(100 * MILLISECOND)
IDLE_DEPTH_NS = 2 * MILLISECOND
"""Work in flight while nobody above is at work, so that one who comes back does not wait for a thousand launches."""


class Fikit(KernelsPolicy):
    """Gap filling by predicted time alone."""

    name = "fikit"
    starves = True

    def __init__(self, threshold: Duration = THRESHOLD, silence: Duration = SILENCE) -> None:
        if threshold < 0 or silence < 0:
            raise ExperimentError(f"policy fikit: threshold={threshold} and silence={silence} must not be negative")
        self.threshold = threshold
        self.silence = silence

    def decide(self, now: int, state: KernelsState) -> Iterator[Action]:
        """Fill what is left of the gap."""
        while state.waiting:
            room = self._room(now, state)
            if room <= self.threshold:
                break
            waiting = [state.clients[index] for index in state.waiting]
            chosen = choose([Waiter(client.priority, client.fill, 0) for client in waiting], room)
            if chosen < 0:
                break
            yield LetGo(waiting[chosen].id, waiting[chosen].reached, Reason.FITS)
        if state.waiting and (ends := [at for each in _ungated(state) if (at := self._gone_at(each)) > now]):
            yield WakeAt(min(ends))

    def _room(self, now: int, state: KernelsState) -> int:
        """Return what is left of the gap for one more kernel; the longest there is when nobody above is at work."""
        filled = max((each.busy for each in state.clients if each.gated and each.outstanding), default=0)
        start = max(now + state.device.latency, filled)
        end = 0
        for each in _ungated(state):
            if each.outstanding:
                return 0
            if now < self._gone_at(each):
                gap = each.finished_at + each.step.idle
                end = min(end, gap) if end else gap
        if not end:  # nobody above is at work
            return LONGEST_NS if filled - now <= IDLE_DEPTH_NS else 0
        return end - start

    def _gone_at(self, client: ClientState) -> int:
        return client.launched_at + max(self.silence, client.step.idle) if client.launched else 0


def _ungated(state: KernelsState) -> list[ClientState]:
    return [each for each in state.clients if not each.gated and not each.left]
