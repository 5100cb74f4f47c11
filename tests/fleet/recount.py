"""Everything that a serving state keeps at hand, counted again from what it stands for."""

from collections import Counter
from collections.abc import Iterator

from headway.fleet.state.requeststate import RequestState, Stage
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import WorkerState


def inconsistencies(state: ServingState) -> list[str]:
    """Where an index of the state is not what it should be."""
    found = []
    for worker in state.workers:
        parts = _of_worker(state, worker) if worker.up else _of_dead(worker)
        found += [f"worker {worker.id}: {name} is {is_}, not {should}" for name, is_, should in parts if is_ != should]
    for request, rs in state.requests.items():
        parts = _of_request(state, rs)
        found += [f"request {request}: {name} is {is_}, not {should}" for name, is_, should in parts if is_ != should]
    for (graph, task), requests in state.ready.items():
        for request in requests:
            rs = state.requests.get(request)
            if rs is None or rs.request.graph != graph or rs.stage[task] != Stage.READY:
                found.append(f"request {request}, task {task} is not ready")
    return found


Part = tuple[str, object, object]


def _of_worker(state: ServingState, worker: WorkerState) -> Iterator[Part]:
    batches = list(worker.running.values())
    gpu = worker.worker.gpu
    yield "CPUs", worker.cpus_free, worker.worker.cpus - sum(batch.cpus for batch in batches)
    yield "slices", worker.slices_free, gpu.slices - sum(batch.slices for batch in batches)
    yield "places", worker.taken, sum(batch.mask for batch in batches)
    held = state.catalogue.size_of(worker.memory.resident) + sum(batch.activation_bytes for batch in batches)
    yield "memory", worker.memory.free_bytes, gpu.memory_bytes - held
    yield "overbooked", worker.memory.free_bytes < 0 or worker.cpus_free < 0 or worker.slices_free < 0, False
    yield "order", sum(1 << model for model in worker.memory.order), worker.memory.resident
    pins = Counter(model for batch in batches for model in batch.models) + Counter(worker.fetches.values())
    yield "pins", worker.memory.pins, dict(pins)
    yield "pinned and gone", [model for model in pins if not worker.memory.resident >> model & 1], []
    yield "under way and gone", [m for m in worker.memory.ready if not worker.memory.resident >> m & 1], []
    yield "warm", worker.warm, sum(1 << function for function, idle in worker.idle.items() if idle)
    functions = {key: state.requests[key[0]].graph.tasks[key[1]].function for key in (*worker.queue, *worker.sent)}
    base = state.latency.base[worker.id]
    yield "queued", worker.queued, sum(base[functions[key]] for key in worker.queue)
    yield "reserved", worker.reserved, sum(base[functions[key]] for key in worker.sent)
    need_counts = Counter(model for f in functions.values() for model in state.catalogue.functions[f].models)
    yield "need_counts", worker.need_counts, dict(need_counts)
    yield "wanted", worker.wanted, sum(1 << model for model in need_counts)
    host = sum(state.catalogue.models[model].size_bytes for model in worker.host)
    yield "host", worker.host_free_bytes, worker.worker.host_bytes - host
    in_line = [batch.function for batch in batches if batch.cache_bytes and not batch.loaded]
    yield "line", worker.line, sum(base[function] for function in in_line)
    row = worker.row()
    seen = (worker.up, worker.queued, worker.reserved, worker.busy_until, worker.memory.resident, worker.wanted)
    yield "row", row, (*seen, worker.memory.free_bytes, worker.cpus_free, worker.slices_free, worker.warm, worker.line)


def _of_dead(worker: WorkerState) -> Iterator[Part]:
    left = (worker.queue, worker.sent, worker.running, worker.fetches, worker.starting, worker.idle, worker.need_counts)
    yield "left", [each for each in left if each], []
    yield "memory", (worker.memory.resident, worker.memory.pins), (0, {})
    yield "free", (worker.cpus_free, worker.slices_free, worker.taken), (0, 0, 0)
    yield "row", worker.row().up, False


def _of_request(state: ServingState, rs: RequestState) -> Iterator[Part]:
    yield "left", rs.left, sum(stage != Stage.DONE for stage in rs.stage)
    for task, stage in enumerate(rs.stage):
        key, at = (rs.request.id, task), rs.worker[task]
        before = [rs.stage[other] == Stage.DONE for other in rs.graph.predecessors[task]]
        if stage < Stage.RUNNING:
            yield f"waits of {task}", rs.waits[task], before.count(False)
            yield f"stage of {task}", stage == Stage.WAITING, not all(before)
        yield f"ready {task}", rs.request.id in state.ready.get((rs.request.graph, task), {}), stage == Stage.READY
        yield f"place of {task}", at < 0, stage == Stage.READY or (stage == Stage.WAITING and at < 0)
        for worker in state.workers:
            here = worker.id == at
            yield f"queue of {task}", key in worker.queue, here and stage == Stage.QUEUED
            yield f"sent {task}", key in worker.sent, here and stage in (Stage.WAITING, Stage.SENT)
            runs = any(key in batch.tasks for batch in worker.running.values())
            yield f"batch of {task}", runs, here and stage == Stage.RUNNING
            if rs.copies[task] >> worker.id & 1:
                yield f"copies of {task}", worker.up, True
        if stage in (Stage.SENT, Stage.QUEUED):
            lacking = [o for o in rs.graph.predecessors[task] if not rs.copies[o] >> at & 1]
            yield f"inputs of {task}", lacking, []
