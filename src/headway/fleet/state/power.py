"""Workers that are started, drained and stopped while a run goes on: what an autoscaler's actions change.

A worker is rented from its start until it is stopped. A draining worker is down for policies: tasks that wait there are
placed elsewhere, what runs there ends. It can be stopped once nothing runs there and nobody needs a result it holds.
Until then it can be started again, which takes no time.
"""

from typing import TYPE_CHECKING

from headway.fleet.model.actions import NOWHERE, DrainWorker, StartWorker, StopWorker
from headway.fleet.model.events import WorkerStarted
from headway.fleet.model.rows import Kind
from headway.fleet.state import failures as losses
from headway.fleet.state.requeststate import RUNNING, RequestState
from headway.fleet.state.workerstate import Power, WorkerState

if TYPE_CHECKING:
    from headway.fleet.state.state import ServingState

PowerAction = StartWorker | DrainWorker | StopWorker


def begin_off(state: "ServingState") -> None:
    """Switch off the workers that are off when the run begins; no rows are written."""
    for index in state.fleet.off:
        worker = state.workers[index]
        losses.empty(state, 0, worker)
        worker.power = Power.OFF
        worker.current_row = None
        worker.published = worker.row()


def fill_host(state: "ServingState", worker: WorkerState) -> None:
    """Fill a host with the weights that it begins with: all that fit, or none."""
    worker.host, worker.host_free_bytes = {}, worker.worker.host_bytes
    for index, model in enumerate(state.catalogue.models if state.preloaded else ()):
        if model.weights_bytes <= worker.host_free_bytes:
            worker.host[index] = None
            worker.host_free_bytes -= model.weights_bytes


def refusal(state: "ServingState", action: PowerAction) -> str | None:
    """Return why a worker cannot be started, drained or stopped now; None when it can."""
    worker = state.workers[action.worker]
    is_now = f"worker {worker.worker.name} is {worker.power.name.lower()}"
    if isinstance(action, StartWorker):
        return None if worker.power in (Power.OFF, Power.DRAINING) else f"{action}: {is_now}"
    if isinstance(action, DrainWorker):
        return None if worker.up else f"{action}: {is_now if worker.power else 'it has failed'}"
    if worker.power is Power.OFF:
        return f"{action}: {is_now}"
    return None if is_drained(state, worker) else f"{action}: tasks run or wait there, or need results that it holds"


def commit(state: "ServingState", now: int, action: PowerAction) -> None:
    """Start, drain or stop a worker."""
    worker = state.workers[action.worker]
    state.touch(worker, now)
    if isinstance(action, StartWorker) and worker.power is Power.DRAINING:
        state.journal((now, Kind.START_WORKER, -1, 0, worker.id, 0, 0))
        worker.power = Power.ON
        losses.announce(state, worker)
        state.pushed = None
        return
    if isinstance(action, StartWorker):
        worker.start_lease = state.leases = state.leases + 1
        worker.power = Power.STARTING
        state.journal((now, Kind.START_WORKER, -1, state.leases, worker.id, 0, state.fleet.startup))
        return
    if isinstance(action, DrainWorker):
        state.journal((now, Kind.DRAIN_WORKER, -1, 0, worker.id, 0, 0))
        worker.up, worker.power = False, Power.DRAINING
        lost = losses.unplace_waiting(state, now, worker)
        state.displaced.extend(request for request in lost if request not in state.displaced)
        worker.published = worker.row()
    else:
        state.journal((now, Kind.STOP_WORKER, -1, 0, worker.id, 0, 0))
        losses.empty(state, now, worker)
        losses.forget_copies(state, worker)
        worker.power, worker.start_lease = Power.OFF, 0
    state.pushed = None  # others notice at once


def on_worker_started(state: "ServingState", now: int, event: WorkerStarted) -> None:
    """Apply that a worker has started: its GPU is empty, its host holds what hosts hold when a run begins."""
    worker = state.workers[event.worker]
    if worker.power is not Power.STARTING or worker.start_lease != event.lease:
        state.journal((now, Kind.STALE, -1, event.lease, event.worker, 0, Kind.WORKER_STARTED))
        return
    state.journal((now, Kind.WORKER_STARTED, -1, event.lease, event.worker, 0, 0))
    worker.power = Power.ON
    fill_host(state, worker)
    losses.bring_up(state, now, worker)
    state.pushed = None


def is_drained(state: "ServingState", worker: WorkerState) -> bool:
    """Return whether nothing runs or waits on a worker, and nobody needs a result that it holds."""
    if worker.running or worker.queue or worker.sent:
        return False
    return not any(_holds_needed(state.now, rs, worker.id) for rs in state.requests.values())


def _holds_needed(now: int, rs: RequestState, index: int) -> bool:
    """Return whether a worker holds, or still sends, a result that a task of a request waits for."""
    for task, copies in enumerate(rs.copies):
        if not copies >> index & 1:
            continue
        for after in rs.graph.successors[task]:
            if rs.stage[after] < RUNNING and rs.worker[after] == NOWHERE:
                return True
        if any(sent == task and when > now for (sent, _), when in rs.coming.items()):
            return True
    return False
