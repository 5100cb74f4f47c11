"""Hash: each task on a worker chosen by a hash of its name, whatever its load. A baseline of the Compass paper."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from headway.fleet.model.actions import NOWHERE, Action, PlaceRequest
from headway.fleet.policies.compass.worker import FIFO, LOOKAHEAD, LocalQueue
from headway.fleet.policies.parts import ServingPolicy
from headway.fleet.state.requeststate import RUNNING, RequestState
from headway.fleet.state.state import ServingState

_ODD = 0x9E3779B97F4A7C15
_OTHER = 0xD1342543DE82EF95
_MASK = (1 << 64) - 1


def hash_of(request: int, task: int, salt: int) -> int:
    """Return a hash of a task as 64 bits (splitmix64)."""
    x = (request * 64 + task + 1) * _ODD + salt * _OTHER & _MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _MASK
    return x ^ x >> 31


class Hash(ServingPolicy):
    """Places each task on a pseudo-random worker."""

    name = "hash"
    authors: ClassVar[dict[str, Any]] = {"evict": FIFO, "prefetch": 0}

    def __init__(self, evict: str = LOOKAHEAD, prefetch: int = 3, salt: int = 0) -> None:
        self.evict = evict
        self.prefetch = prefetch
        self.salt = salt
        self.queue = LocalQueue(evict, prefetch)

    def bind(self, state: ServingState) -> None:
        """Bind the queues; see ``LocalQueue``."""
        self.queue.bind(state)
        self._open: dict[int, None] = {}
        """Requests with tasks that no worker that is up can run."""

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        """Yield the placements of new and displaced requests, then each worker's own actions."""
        if state.landed or state.displaced or self._open:
            for request in dict.fromkeys((*self._open, *state.landed, *state.displaced)):
                self._open.pop(request, None)
                if (rs := state.requests.get(request)) is not None:
                    plan = random_plan(state, rs, self.queue.hosts, self.salt)
                    if rs.unplaced(plan):
                        self._open[request] = None
                    yield PlaceRequest(request, plan)
        queue, workers = self.queue, state.workers
        for index in list(state.touched):
            worker = workers[index]
            if worker.queue:  # ``LocalQueue.decide`` inlined: one generator less
                if queue.generating:
                    yield from queue.start_in_order(state, worker)
                elif not worker.running and (batch := queue.run(state, worker, next(iter(worker.queue)))) is not None:
                    yield batch
                if (fetch := queue.next_fetch(state, worker)) is not None:
                    yield fetch


def random_plan(state: ServingState, rs: RequestState, hosts: Sequence[tuple[int, ...]], salt: int) -> tuple[int, ...]:
    """Return a pseudo-random worker for each task among those up that can run it; -1: none. Placed tasks stay."""
    down = [worker.id for worker in state.workers if not worker.up]
    placed, functions = list(rs.worker), rs.graph.functions
    salt += rs.request.arrival  # other arrivals, another draw
    for task, stage in enumerate(rs.stage):
        if placed[task] == NOWHERE and stage < RUNNING:
            capable: Sequence[int] = hosts[functions[task]]
            if down:
                capable = [worker for worker in capable if worker not in down]
            if capable:
                placed[task] = capable[hash_of(rs.request.id, task, salt) % len(capable)]
    return tuple(placed)
