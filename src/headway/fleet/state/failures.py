"""What is lost: batches, queue and GPU memory of workers that fail, requests that cannot be answered, stale actions."""

from typing import TYPE_CHECKING

from headway.fleet.model.actions import NOWHERE
from headway.fleet.model.events import ActionRejected, RequestFailed
from headway.fleet.model.rows import Kind
from headway.fleet.state import batches
from headway.fleet.state.requeststate import RequestState, Stage
from headway.fleet.state.stage_store import is_kept
from headway.fleet.state.workerstate import Power, WorkerState

if TYPE_CHECKING:
    from headway.fleet.state.state import ServingState


def on_worker_failed(state: "ServingState", now: int, worker: WorkerState) -> None:
    """Apply a failure: the worker's tasks become unplaced, and the requests that lost tasks go to ``displaced``."""
    if not worker.up and worker.power is not Power.DRAINING:
        state.journal((now, Kind.STALE, -1, 0, worker.id, 0, Kind.WORKER_FAILED))
        return
    state.journal((now, Kind.WORKER_FAILED, -1, 0, worker.id, 0, 0))
    worker.power = Power.ON  # one that drained has nothing left to drain
    state.touch(worker, now)
    lost = unplace_waiting(state, now, worker)
    for batch in worker.running.values():
        for request, task in batch.tasks:
            if (running_request := state.requests.get(request)) is not None:
                running_request.worker[task] = NOWHERE
                lost[request] = None
                _reset(state, now, running_request, task, 0)
    empty(state, now, worker)
    forget_copies(state, worker)
    for request, rs in state.requests.items():
        if _recompute(state, now, rs):
            lost[request] = None
    state.displaced.extend(request for request in lost if request not in state.displaced)


def unplace_waiting(state: "ServingState", now: int, worker: WorkerState) -> dict[int, None]:
    """Unplace every task that waits on a worker; return their requests."""
    lost: dict[int, None] = {}
    for request, task in [*worker.queue, *worker.sent]:
        rs = state.requests[request]
        state.unplace(now, rs, task)
        rs.moves[task] += 1  # inputs on their way become stale
        lost[request] = None
        _reset(state, now, rs, task, 0)
    return lost


def forget_copies(state: "ServingState", worker: WorkerState) -> None:
    """Forget the results that a worker holds."""
    still_up = ~(1 << worker.id)
    for rs in state.requests.values():
        rs.copies = [copies & still_up for copies in rs.copies]


def empty(state: "ServingState", now: int, worker: WorkerState) -> None:
    """Clear a worker that failed or stopped: its processes end, its GPU is empty, and it is down."""
    for function, idle in worker.idle.items():
        for since in idle:
            state.journal((now, Kind.EXPIRED, -1, 0, worker.id, function, since))
    worker.running.clear()
    worker.memory.clear()
    worker.cached.clear()
    worker.line = 0
    worker.fetches.clear()
    worker.starting.clear()
    worker.idle.clear()
    worker.up = False
    worker.warm = 0
    worker.cpus_free = worker.slices_free = worker.taken = 0
    worker.busy_until = now
    batches.free_link(state, worker, now)
    worker.published = worker.row()  # others notice the broken connection at once


def on_worker_recovered(state: "ServingState", now: int, worker: WorkerState) -> None:
    """Apply a recovery: the GPU is empty, host memory holds the weights that it held."""
    if worker.up or worker.power is not Power.ON:
        state.journal((now, Kind.STALE, -1, 0, worker.id, 0, Kind.WORKER_RECOVERED))
        return
    state.journal((now, Kind.WORKER_RECOVERED, -1, 0, worker.id, 0, 0))
    bring_up(state, now, worker)


def bring_up(state: "ServingState", now: int, worker: WorkerState) -> None:
    """Make an empty worker usable: one that has recovered, or has started."""
    state.touch(worker, now)
    worker.cpus_free = worker.worker.cpus
    worker.slices_free = worker.worker.gpu.slices
    worker.busy_until = now
    batches.free_link(state, worker, now)
    announce(state, worker)


def announce(state: "ServingState", worker: WorkerState) -> None:
    """Make a worker known as up; where it is the only one, requests that could be placed nowhere are displaced."""
    worker.up = True
    worker.current_row = None
    worker.published = worker.row()
    state.touched[worker.id] = None
    if sum(other.up for other in state.workers) == 1:  # until now nothing could be placed anywhere
        open_requests = [request for request, rs in state.requests.items() if rs.unplaced(rs.worker)]
        state.displaced.extend(request for request in open_requests if request not in state.displaced)


def _reset(state: "ServingState", now: int, rs: RequestState, task: int, finished: int) -> None:
    """Reset a lost task so that it is placed again."""
    state.journal((now, Kind.LOST, rs.request.id, 0, -1, task, finished))
    rs.waits[task] = _unmet(rs, task)
    if rs.waits[task]:
        rs.stage[task] = Stage.WAITING
    else:
        state.make_ready(now, rs, task)


def _unmet(rs: RequestState, task: int) -> int:
    """Return how many predecessors are not done; a done one may have been lost and be computed again."""
    return sum(rs.stage[before] != Stage.DONE for before in rs.graph.predecessors[task])


def _recompute(state: "ServingState", now: int, rs: RequestState) -> bool:
    """Reset done tasks whose lost results are still needed; return whether there were any."""
    graph, any_lost = rs.graph, False
    for task in reversed(graph.order):
        if rs.stage[task] != Stage.DONE or rs.copies[task] or not graph.successors[task]:
            continue
        if is_kept(rs, task, now):
            continue
        needing = [after for after in graph.successors[task] if rs.stage[after] < Stage.RUNNING]
        if not needing:
            continue
        any_lost = True
        rs.left += 1
        rs.coming = {key: when for key, when in rs.coming.items() if key[0] != task}
        rs.worker[task] = NOWHERE
        for after in needing:
            if rs.stage[after] == Stage.READY:
                state.remove_ready(rs, after)
            rs.stage[after] = Stage.WAITING
            rs.waits[after] += 1
        state.journal((now, Kind.LOST, rs.request.id, 0, -1, task, 1))
        rs.stage[task] = Stage.WAITING
        rs.waits[task] = _unmet(rs, task)
    for task in graph.order:
        before = [other for other in graph.predecessors[task] if rs.stage[other] != Stage.DONE]
        if rs.stage[task] == Stage.WAITING and rs.worker[task] == NOWHERE and not before and any_lost:
            rs.waits[task] = 0
            state.make_ready(now, rs, task)
    return any_lost


def on_request_failed(state: "ServingState", now: int, event: RequestFailed) -> None:
    """Drop a request that cannot be answered."""
    if event.request not in state.requests:
        state.journal((now, Kind.STALE, event.request, 0, -1, event.task, Kind.REQUEST_FAILED))
        return
    done = _forget(state, now, event.request)
    state.journal((now, Kind.REQUEST_FAILED, event.request, 0, -1, event.task, done))


def on_action_rejected(state: "ServingState", now: int, event: ActionRejected) -> None:
    """Tell the policy of an action that did not happen: its request is displaced, its worker touched."""
    state.journal((now, Kind.REJECTED, event.request, 0, event.worker, 0, event.kind))
    state.rejected.append(event)
    if event.request in state.requests and event.request not in state.displaced:
        state.displaced.append(event.request)
    if event.worker >= 0:
        state.touched[event.worker] = None


def drop(state: "ServingState", now: int, request: int) -> None:
    """Drop an open request."""
    state.journal((now, Kind.DROP, request, 0, -1, 0, _forget(state, now, request)))


def _forget(state: "ServingState", now: int, request: int) -> int:
    """Close an open request: its tasks leave the queues, those that run end for nothing; return how many were done."""
    dropped = state.requests.pop(request)
    done = 0
    for task, stage in enumerate(dropped.stage):
        if stage == Stage.READY:
            state.remove_ready(dropped, task)
        elif stage < Stage.RUNNING:
            state.unplace(now, dropped, task)
        else:
            done += stage == Stage.DONE
    return done
