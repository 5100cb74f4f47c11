"""A store between stages: results are written to it when a task ends, and read from it by other workers.

Each worker writes and reads at its own rate; workers do not slow each other down. What a worker has made or read before
it has at hand. A result that was written survives the failure of its worker.
"""

from typing import TYPE_CHECKING

from headway.fleet.model.fleet import Store
from headway.fleet.state.requeststate import RequestState

if TYPE_CHECKING:
    from headway.fleet.state.state import ServingState

IN_STORE = -1
"""Stands for the store among the workers that a result comes to."""


def write(store: Store, now: int, rs: RequestState, task: int) -> None:
    """Note when the result of a task that ended now will be in the store."""
    rs.coming[task, IN_STORE] = now + store.time(rs.graph.tasks[task].output_bytes)


def read(store: Store, now: int, rs: RequestState, task: int, worker: int) -> int:
    """Read a result to a worker that does not have it; return when it is there."""
    there = max(now, rs.coming[task, IN_STORE]) + store.time(rs.graph.tasks[task].output_bytes)
    rs.coming[task, worker] = there
    rs.copies[task] |= 1 << worker
    return there


def read_inputs(state: "ServingState", now: int, rs: RequestState, task: int, worker: int) -> int:
    """Read the inputs that exist to a worker; return when the last of them is there."""
    store = state.fleet.store
    assert store is not None
    arrives = now
    for other in rs.graph.predecessors[task]:
        if rs.copies[other] >> worker & 1:
            arrives = max(arrives, rs.coming.get((other, worker), 0))
        elif (other, IN_STORE) in rs.coming:
            arrives = max(arrives, read(store, now, rs, other, worker))
    return arrives


def is_kept(rs: RequestState, task: int, now: int) -> bool:
    """Return whether the result of a task is in the store."""
    return rs.coming.get((task, IN_STORE), now + 1) <= now
