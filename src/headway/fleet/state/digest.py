"""Digest of everything in a serving state that a policy is shown and must not change.

What reading changes is left out: the counts of rows that were read, and the cached row of a worker.
"""

import hashlib

from headway.fleet.model.memory import GpuMemory
from headway.fleet.state.requeststate import RequestState
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import Batch, WorkerState

_OF_REQUEST = tuple(slot for slot in RequestState.__slots__ if slot != "graph")
_OF_MEMORY = tuple(slot for slot in GpuMemory.__slots__ if slot != "sizes")
_OF_WORKER = tuple(slot for slot in WorkerState.__slots__ if slot not in ("current_row", "memory", "running", "worker"))
_OF_STATE = (
    *("to_come", "ready", "landed", "ended", "displaced", "touched", "rejected", "leases"),
    *("expiries", "push_interval", "central"),
)


def digest(state: ServingState) -> str:
    """Return the SHA-256 of a state; equal states give equal digests."""
    seen = (
        [getattr(state, name) for name in _OF_STATE],
        [_worker(worker) for worker in state.workers],
        [_plain(request, _OF_REQUEST) for request in state.requests.values()],
    )
    return hashlib.sha256(repr(seen).encode()).hexdigest()


def _worker(worker: WorkerState) -> tuple[object, ...]:
    running = [_plain(batch, Batch.__slots__) for batch in worker.running.values()]
    return _plain(worker, _OF_WORKER), _plain(worker.memory, _OF_MEMORY), running


def _plain(thing: object, slots: tuple[str, ...]) -> tuple[object, ...]:
    return tuple(getattr(thing, slot) for slot in slots)
