"""State changes when batches, weight fetches and processes start and end on a worker, and the resources they hold."""

from typing import TYPE_CHECKING

from headway.fleet.model.actions import FetchModel, RunBatch, StartInstance
from headway.fleet.model.events import (
    BatchFinished,
    BatchLoaded,
    FirstToken,
    InstanceStarted,
    ModelFetched,
    Sent,
)
from headway.fleet.model.fleet import find_slices
from headway.fleet.model.rows import Kind, pack
from headway.fleet.state import stage_store as store
from headway.fleet.state.requeststate import DONE, QUEUED, RUNNING, RequestState
from headway.fleet.state.warm import Warm
from headway.fleet.state.workerstate import Batch, WorkerState
from headway.units import REFERENCE_SPEED_PPM

if TYPE_CHECKING:
    from headway.fleet.state.state import ServingState

_RUN, _TASK, _LOAD, _LOADED = map(int, (Kind.RUN, Kind.TASK, Kind.LOAD, Kind.LOADED))
_EVICTED, _FINISHED, _DONE = map(int, (Kind.EVICTED, Kind.FINISHED, Kind.DONE))
"""Kinds of the frequent rows as plain integers, for speed; see ``requeststate``."""


def run(state: "ServingState", now: int, action: RunBatch) -> None:
    """Start a batch: take its tasks, its CPUs and slices, and fetch what is missing."""
    index, tasks, cpus, slices = action.worker, action.tasks, action.cpus, action.slices
    worker, latency, journal = state.workers[index], state.latency, state.journal
    state.touch(worker, now)
    first_request, first_task = tasks[0]
    function = state.requests[first_request].graph.functions[first_task]
    kind = state.catalogue.functions[function]
    lease = state.leases = state.leases + 1
    batch = Batch(lease, tasks, function, kind.models, cpus, slices, now)
    place = find_slices(worker.worker.gpu, slices, worker.taken)
    assert place is not None
    batch.first, batch.mask = first, mask = place
    journal((now, _RUN, first_request, lease, index, function, pack(cpus, slices, first)))
    ready = _take_tasks(state, now, worker, batch)
    worker.cpus_free -= cpus
    worker.slices_free -= slices
    worker.taken |= mask
    if kind.activation_bytes:
        batch.activation_bytes = kind.activation_bytes * len(tasks)
        worker.memory.free_bytes -= batch.activation_bytes
    if kind.generate is not None:
        request = state.requests[first_request].request
        batch.cache_bytes = kind.generate.kv_bytes_per_token * (request.prompt_tokens + request.output_tokens)
        worker.line += latency.base[index][function]
    if kind.cold_start:
        batch.instance = True
        if not _take_instance(state, now, worker, function):
            journal((now, Kind.COLD, -1, lease, index, function, kind.cold_start))
            ready = max(ready, now + kind.cold_start)
    start = batch.start = max(ready, _load(state, now, worker, batch, action.evict))
    expected = latency.run_time(index, function, len(tasks), cpus, slices)
    assert expected is not None
    if latency.interference:
        running = [other.function for near in state.sharing[index] for other in near.running.values()]
        beside = latency.beside(function, running, index, slices)
        expected = expected * beside // REFERENCE_SPEED_PPM
    if latency.shared_cpus:
        wanted = cpus + sum(other.cpus for near in state.sharing[index] for other in near.running.values())
        expected = expected * latency.crowded(wanted) // REFERENCE_SPEED_PPM
    if latency.after_idle and not worker.running:
        batch.waking = latency.waking(index, function, now - worker.busy_until)
    end = batch.end = start + expected + batch.waking
    worker.running[lease] = batch
    if end > worker.busy_until:
        worker.busy_until = end


def _take_tasks(state: "ServingState", now: int, worker: WorkerState, batch: Batch) -> int:
    """Take the tasks of a batch out of their queues; return when the last of their inputs is here."""
    latest, index, requests, journal = now, worker.id, state.requests, state.journal
    base = state.latency.base[index][batch.function]
    for request, task in batch.tasks:
        rs = requests[request]
        if rs.stage[task] is QUEUED:
            del worker.queue[request, task]
            worker.queued -= base
            worker.remove_need(batch.models)
            due = now
        else:
            state.remove_ready(rs, task)
            due = state.inputs_arrive_at(now, rs, task, index)
            rs.worker[task] = index
            latest = max(latest, due)
        rs.stage[task] = RUNNING
        journal((now, _TASK, request, batch.lease, index, task, due))
    return latest


def _load(state: "ServingState", now: int, worker: WorkerState, batch: Batch, evict: tuple[int, ...]) -> int:
    """Pin the batch's models and fetch the missing ones, one after the other; return when all can be used.

    Weights are fetched while a process starts: a cold start does not occupy the link.
    """
    memory = worker.memory
    missing = [model for model in batch.models if not memory.resident >> model & 1]
    ready, write_back_time = now, 0
    if evict:
        write_back_time = write_back(state, evict)
        for model in evict:
            memory.remove(model)
            state.journal((now, _EVICTED, -1, batch.lease, worker.id, model, 0))
    if memory.ready:
        for model in batch.models:
            ready = max(ready, memory.ready.get(model, 0))
    if missing or write_back_time:
        free = max(now, worker.link_free)
        for model in missing:
            time = load_weights(state, worker, model) + write_back_time
            write_back_time = 0
            memory.add(model, now)
            free += time
            memory.ready[model] = free
            state.journal((now, _LOAD, -1, batch.lease, worker.id, model, time))
        _hold_link(state, worker, free + write_back_time)  # evicted for activations alone
        ready = max(ready, worker.link_free)
    for model in batch.models:
        memory.pin(model, now)
    return ready


def _hold_link(state: "ServingState", worker: WorkerState, until: int) -> None:
    """Occupy a worker's link, for all that share it."""
    for near in state.linked[worker.id]:
        near.link_free = until


def free_link(state: "ServingState", worker: WorkerState, now: int) -> None:
    """Note that nothing of an empty worker is on its way; what others fetch over the same link still is."""
    if len(state.linked[worker.id]) == 1:
        worker.link_free = now


def write_back(state: "ServingState", evict: tuple[int, ...]) -> int:
    """Return how long writing back the evicted models takes; 0 where links need no write-back."""
    if not state.fleet.links.write_back:
        return 0
    return state.fleet.fetch_time(sum(state.catalogue.models[model].weights_bytes for model in evict))


def load_weights(state: "ServingState", worker: WorkerState, model: int) -> int:
    """Note a model as last used in the host's LRU cache; return how long its weights take to the GPU."""
    size = state.catalogue.models[model].weights_bytes
    in_host = model in worker.host
    if in_host:
        del worker.host[model]  # it becomes the last used
        worker.host[model] = None
    elif size <= worker.worker.host_bytes:
        while worker.host_free_bytes < size:
            oldest = next(iter(worker.host))
            del worker.host[oldest]
            worker.host_free_bytes += state.catalogue.models[oldest].weights_bytes
        worker.host[model] = None
        worker.host_free_bytes -= size
    return state.fleet.fetch_time(size, from_disk=not in_host)


def on_batch_loaded(state: "ServingState", now: int, event: BatchLoaded) -> None:
    """Apply that all inputs, processes and weights of a batch have arrived."""
    worker = state.workers[event.worker]
    if (batch := worker.running.get(event.lease)) is None or batch.loaded:
        state.journal((now, Kind.STALE, -1, event.lease, event.worker, 0, Kind.LOADED))
        return
    batch.loaded = True
    if batch.cache_bytes:
        generate = state.catalogue.functions[batch.function].generate
        assert generate is not None
        state.touch(worker, now)
        worker.line -= state.latency.base[worker.id][batch.function]
        batch.cache_bytes -= event.cached * generate.kv_bytes_per_token
        worker.cached[batch.function] = worker.cached.get(batch.function, 0) + batch.cache_bytes
    state.journal((now, _LOADED, -1, event.lease, event.worker, event.cached, 0))
    for model in batch.models:
        worker.memory.ready.pop(model, None)  # outside a simulation it may be earlier than expected
    state.touched[worker.id] = None


def on_first_token(state: "ServingState", now: int, event: FirstToken) -> None:
    """Note that a request of a generating function has its first token."""
    if (batch := state.workers[event.worker].running.get(event.lease)) is None:
        state.journal((now, Kind.STALE, -1, event.lease, event.worker, 0, Kind.FIRST_TOKEN))
        return
    request, task = batch.tasks[0]
    state.journal((now, Kind.FIRST_TOKEN, request, event.lease, event.worker, task, 0))


def on_batch_finished(state: "ServingState", now: int, event: BatchFinished) -> list[Sent] | None:
    """End a batch: free what it held and release its successors; return the inputs that are sent to them."""
    index, lease, journal = event.worker, event.lease, state.journal
    worker = state.workers[index]
    if (batch := worker.running.get(lease)) is None:
        journal((now, Kind.STALE, -1, lease, index, 0, Kind.FINISHED))
        return None
    state.touch(worker, now)
    del worker.running[lease]
    journal((now, _FINISHED, -1, lease, index, batch.function, len(batch.tasks)))
    release(worker, batch)
    if batch.cache_bytes and not batch.loaded:
        worker.line -= state.latency.base[index][batch.function]
    worker.busy_until = max([other.end for other in worker.running.values()]) if worker.running else now
    if worker.memory.ready:
        for model in batch.models:
            worker.memory.ready.pop(model, None)
    if batch.instance:
        mark_idle(state, now, worker, batch.function)
    state.touched[index] = None
    caused = []
    for request, task in batch.tasks:
        if (rs := state.requests.get(request)) is None:
            continue  # it was dropped meanwhile
        rs.stage[task] = DONE
        rs.copies[task] = 1 << index
        rs.left -= 1
        state.ended.append((request, task))
        if not rs.left:
            del state.requests[request]
            journal((now, _DONE, request, 0, index, task, now - rs.request.arrival))
            continue
        if state.fleet.store is not None:
            store.write(state.fleet.store, now, rs, task)
        for after in rs.graph.successors[task]:
            # A successor may run already: this task was lost and computed again for another one.
            if rs.stage[after] < RUNNING and (sent := _deliver_result(state, now, rs, task, after)) is not None:
                caused.append(sent)
    return caused or None


def _deliver_result(state: "ServingState", now: int, rs: RequestState, task: int, after: int) -> Sent | None:
    """Send a result to the worker of the successor ``after``; return its inputs when this was the last of them."""
    waits = rs.waits[after] = rs.waits[after] - 1
    if (target := rs.worker[after]) < 0:
        if not waits:
            state.make_ready(now, rs, after)
            state.journal((now, Kind.READY, rs.request.id, 0, -1, after, 0))
        return None
    copies = rs.copies[task]
    if not copies >> target & 1:
        size = rs.graph.tasks[task].output_bytes  # with a store it is written and read: its write begins now
        rs.coming[task, target] = now + state.fleet.copy_time(rs.worker[task], target, size)
        rs.copies[task] = copies | 1 << target
    arrival = rs.coming.get((task, target), 0)
    if arrival > rs.due[after]:
        rs.due[after] = arrival
    if waits:
        return None
    rs.since[after] = now
    return state.deliver(now, rs, after)


def release(worker: WorkerState, batch: Batch) -> None:
    """Give back what a batch held."""
    worker.cpus_free += batch.cpus
    worker.slices_free += batch.slices
    worker.taken &= ~batch.mask
    memory = worker.memory
    memory.free_bytes += batch.activation_bytes
    if batch.cache_bytes and batch.loaded:
        worker.cached[batch.function] -= batch.cache_bytes
    for model in batch.models:
        memory.unpin(model)


# --- ahead of any task ------------------------------------------------------------------------------------------


def fetch(state: "ServingState", now: int, action: FetchModel) -> None:
    """Start to fetch weights ahead of any batch."""
    worker = state.workers[action.worker]
    state.touch(worker, now)
    memory = worker.memory
    state.leases += 1
    back = write_back(state, action.evict)
    for model in action.evict:
        memory.remove(model)
    begin = max(now, worker.link_free)
    time = load_weights(state, worker, action.model) + back
    state.journal((now, Kind.FETCH, -1, state.leases, worker.id, action.model, begin + time - now))
    for model in action.evict:
        state.journal((now, _EVICTED, -1, state.leases, worker.id, model, 0))
    memory.add(action.model, now)
    memory.pin(action.model, now)
    memory.ready[action.model] = begin + time
    _hold_link(state, worker, begin + time)
    worker.fetches[state.leases] = action.model


def on_model_fetched(state: "ServingState", now: int, event: ModelFetched) -> None:
    """Apply that weights which were fetched ahead have arrived."""
    worker = state.workers[event.worker]
    if worker.fetches.pop(event.lease, -1) < 0:
        state.journal((now, Kind.STALE, -1, event.lease, event.worker, event.model, Kind.FETCHED))
        return
    state.touch(worker, now)
    worker.memory.unpin(event.model)
    worker.memory.ready.pop(event.model, None)
    state.journal((now, Kind.FETCHED, -1, event.lease, event.worker, event.model, 0))
    state.touched[worker.id] = None


def start_instance(state: "ServingState", now: int, action: StartInstance) -> None:
    """Start a process ahead of any batch."""
    worker = state.workers[action.worker]
    state.touch(worker, now)
    state.leases += 1
    worker.starting[state.leases] = action.function
    time = state.catalogue.functions[action.function].cold_start
    state.journal((now, Kind.START_INSTANCE, -1, state.leases, worker.id, action.function, time))


def on_instance_started(state: "ServingState", now: int, event: InstanceStarted) -> None:
    """Apply that a process which was started ahead is ready."""
    worker = state.workers[event.worker]
    if worker.starting.pop(event.lease, -1) < 0:
        state.journal((now, Kind.STALE, -1, event.lease, event.worker, event.function, Kind.INSTANCE_STARTED))
        return
    state.touch(worker, now)
    state.journal((now, Kind.INSTANCE_STARTED, -1, event.lease, event.worker, event.function, 0))
    mark_idle(state, now, worker, event.function)
    state.touched[worker.id] = None


def mark_idle(state: "ServingState", now: int, worker: WorkerState, function: int) -> None:
    """Count a process as idle from now on."""
    worker.idle.setdefault(function, []).append(now)
    worker.warm |= 1 << function
    state.expiries.append((now + state.fleet.keep_alive, worker.id, function, now))


def stop_idle(state: "ServingState", now: int, worker: WorkerState, function: int, which: int) -> None:
    """End an idle process."""
    idle = worker.idle[function]
    since = idle.pop(which)
    if not idle:
        worker.warm &= ~(1 << function)
    state.journal((now, Kind.EXPIRED, -1, 0, worker.id, function, since))


def begin_warm(state: "ServingState", worker: WorkerState, begins_with: Warm) -> None:
    """Put the processes and weights on a worker that it has when the run begins; no rows are written."""
    for model in begins_with.models:
        load_weights(state, worker, model)
        worker.memory.add(model, 0)
    for function in begins_with.processes:
        mark_idle(state, 0, worker, function)
    worker.current_row = None
    worker.published = worker.row()


def _take_instance(state: "ServingState", now: int, worker: WorkerState, function: int) -> bool:
    """Take the process that became idle last; return whether there was one."""
    if not (idle := worker.idle.get(function)):
        return False
    idle.pop()
    if not idle:
        worker.warm &= ~(1 << function)
    return True
