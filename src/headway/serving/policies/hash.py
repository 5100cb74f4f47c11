"""Hash: every task on a worker drawn by its name, whatever is there. The baseline of the Compass paper."""

from collections.abc import Iterator
from typing import Any, ClassVar

from headway.serving.actions import Action, PlaceRequest
from headway.serving.policies.local import FIFO, LOOKAHEAD, LocalQueue
from headway.serving.policies.parts import ServingPolicy
from headway.serving.requeststate import RequestState, Stage
from headway.serving.state import ServingState

_ODD = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def drawn(request: int, task: int, salt: int) -> int:
    """A number that looks random and is the same every time (splitmix64)."""
    x = (request * 64 + task + 1 + (salt << 40)) * _ODD & _MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _MASK
    return x ^ x >> 31


class Hash(ServingPolicy):
    """A random worker a task."""

    name = "hash"
    authors: ClassVar[dict[str, Any]] = {"evict": FIFO, "prefetch": 0}

    def __init__(self, evict: str = LOOKAHEAD, prefetch: int = 3, salt: int = 0) -> None:
        self.evict = evict
        self.prefetch = prefetch
        self.salt = salt
        self.queue = LocalQueue(evict, prefetch)

    def bind(self, state: ServingState) -> None:
        """See ``LocalQueue``."""
        self.queue.bind(state)

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        """Place what arrived or was displaced; then let each worker go on."""
        for request in (*state.landed, *state.displaced):
            if (rs := state.requests.get(request)) is not None:
                yield PlaceRequest(request, self.plan(state, rs))
        for index in list(state.touched):
            yield from self.queue.decide(state, state.workers[index])

    def plan(self, state: ServingState, rs: RequestState) -> tuple[int, ...]:
        """A worker a task; what is placed stays."""
        up = [worker.id for worker in state.workers if worker.up]
        if not up:
            return (-1,) * len(rs.stage)
        salt = self.salt
        return tuple(
            rs.worker[task]
            if rs.worker[task] >= 0 or rs.stage[task] >= Stage.RUNNING
            else up[drawn(rs.request.id, task, salt) % len(up)]
            for task in range(len(rs.stage))
        )
