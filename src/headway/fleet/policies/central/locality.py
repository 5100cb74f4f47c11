"""Which workers hold the inputs of tasks: for policies that place a batch where least has to be read."""

from collections.abc import Iterable

from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import TaskId


def bytes_to_read(state: ServingState, tasks: Iterable[TaskId]) -> list[int]:
    """Return by worker the bytes of the results that these tasks need and that it does not hold."""
    missing = [0] * len(state.workers)
    for request, task in tasks:
        rs = state.requests[request]
        for before in rs.graph.predecessors[task]:
            if size := rs.graph.tasks[before].output_bytes:
                holders = rs.copies[before]
                for worker in range(len(missing)):
                    if not holders >> worker & 1:
                        missing[worker] += size
    return missing
