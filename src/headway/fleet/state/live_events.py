"""State changes by events that only runs outside the simulator have: failures of tasks, refusals, loads and times."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headway.fleet.model.events import ActionRejected, FromOutside, ModelLost, RequestFailed, TimeMeasured
from headway.fleet.model.rows import Kind
from headway.fleet.state import failures as losses
from headway.fleet.state.workerstate import TaskId

if TYPE_CHECKING:
    from headway.fleet.state.state import ServingState


def apply(state: "ServingState", now: int, event: FromOutside) -> None:
    """Apply such an event."""
    if isinstance(event, RequestFailed):
        losses.on_request_failed(state, now, event)
    elif isinstance(event, ActionRejected):
        losses.on_action_rejected(state, now, event)
    elif isinstance(event, ModelLost):
        on_model_lost(state, now, event)
    else:
        on_time_measured(state, now, event)


def on_model_lost(state: "ServingState", now: int, event: ModelLost) -> None:
    """Forget weights that did not come, unless another batch is about to fetch them, or fetched them meanwhile."""
    worker = state.workers[event.worker]
    gone = worker.memory.evictable(event.model)
    state.journal((now, Kind.MODEL_LOST, -1, 0, event.worker, event.model, int(gone)))
    if gone:
        state.touch(worker, now)
        worker.memory.remove(event.model)
        state.touched[worker.id] = None


def on_time_measured(state: "ServingState", now: int, event: TimeMeasured) -> None:
    """Follow a measured time: what is expected from now on, and of the tasks that wait."""
    before, which = state.latency.base, event.function | event.cell << 16
    state.journal((now, Kind.MEASURED, -1, 0, event.worker, which, event.time))
    state.latency.refine(event.worker, event.function, event.cell, event.time)
    for worker in state.workers:
        more = state.latency.base[worker.id][event.function] - before[worker.id][event.function]
        if more and (worker.queue or worker.sent):
            state.touch(worker, now)
            worker.queued += more * _count(state, worker.queue, event.function)
            worker.reserved += more * _count(state, worker.sent, event.function)


def _count(state: "ServingState", tasks: Iterable[TaskId], function: int) -> int:
    """Return how many tasks call a function."""
    return sum(state.requests[request].graph.functions[task] == function for request, task in tasks)
