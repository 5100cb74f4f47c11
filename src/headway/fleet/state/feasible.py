"""Feasibility of actions on a fleet: the one definition, used by the loop, the tests and the audit."""

from typing import TYPE_CHECKING

from headway.fleet.model.actions import (
    NOWHERE,
    Action,
    DrainWorker,
    DropRequest,
    EvictModel,
    FetchModel,
    MoveTask,
    PlaceRequest,
    RunBatch,
    StartInstance,
    StartWorker,
    StopInstance,
    StopWorker,
    WakeAt,
)
from headway.fleet.model.fleet import FREE, find_slices, reachable_bytes
from headway.fleet.model.rows import Kind
from headway.fleet.state import power
from headway.fleet.state.requeststate import QUEUED, READY, RUNNING
from headway.fleet.state.workerstate import Power, WorkerState

if TYPE_CHECKING:
    from headway.fleet.state.state import ServingState


KINDS = {
    PlaceRequest: Kind.PLACE,
    MoveTask: Kind.MOVE,
    RunBatch: Kind.RUN,
    FetchModel: Kind.FETCH,
    EvictModel: Kind.EVICT,
    StartInstance: Kind.START_INSTANCE,
    StopInstance: Kind.STOP_INSTANCE,
    DropRequest: Kind.DROP,
    StartWorker: Kind.START_WORKER,
    DrainWorker: Kind.DRAIN_WORKER,
    StopWorker: Kind.STOP_WORKER,
    WakeAt: Kind.WAKE_AT,
}
"""The kind of row of each action."""


def refusal(state: "ServingState", action: Action) -> str | None:
    """Return why an action cannot be committed now; None when it can."""
    if type(action) is RunBatch:
        return _run(state, action)
    if type(action) is PlaceRequest:
        return _place(state, action)
    if type(action) is MoveTask:
        return _move(state, action)
    if isinstance(action, FetchModel):
        return _fetch(state, action)
    if isinstance(action, DropRequest):
        return None if action.request in state.requests else f"{action}: there is no such request"
    if isinstance(action, EvictModel | StartInstance | StopInstance):
        return _model_or_process(state, action)
    if isinstance(action, StartWorker | DrainWorker | StopWorker):
        known = 0 <= action.worker < len(state.workers)
        return power.refusal(state, action) if known else f"{action}: there is no worker {action.worker}"
    return None


def _worker_problem(state: "ServingState", action: Action, index: int) -> str | None:
    """Return why a worker cannot be used; None when it exists and is up."""
    if not 0 <= index < len(state.workers):
        return f"{action}: there is no worker {index}"
    worker = state.workers[index]
    return None if worker.up else f"{action}: worker {worker.worker.name} is down"


def _model_or_process(state: "ServingState", action: EvictModel | StartInstance | StopInstance) -> str | None:
    problem = _worker_problem(state, action, action.worker)
    drains = 0 <= action.worker < len(state.workers) and state.workers[action.worker].power is Power.DRAINING
    if problem is not None and (not drains or isinstance(action, StartInstance)):
        return problem
    worker = state.workers[action.worker]
    if isinstance(action, EvictModel):
        return None if worker.memory.evictable(action.model) else f"{action}: it is not there, or in use"
    if isinstance(action, StopInstance):
        return None if worker.idle.get(action.function) else f"{action}: no idle process of it is there"
    if not 0 <= action.function < len(state.catalogue.functions):
        return f"{action}: there is no function {action.function}"
    needs_process = state.catalogue.functions[action.function].cold_start
    return None if needs_process else f"{action}: the function needs no process"


def _place(state: "ServingState", action: PlaceRequest) -> str | None:
    if (rs := state.requests.get(action.request)) is None:
        return f"{action}: there is no such request"
    if len(action.workers) != len(rs.stage):
        return f"{action}: its graph has {len(rs.stage)} tasks"
    workers = state.workers
    for index, stage in zip(action.workers, rs.stage, strict=True):
        if index != NOWHERE and stage < RUNNING and not (0 <= index < len(workers) and workers[index].up):
            return _worker_problem(state, action, index)
    return None


def _move(state: "ServingState", action: MoveTask) -> str | None:
    if (rs := state.requests.get(action.request)) is None:
        return f"{action}: there is no such request"
    if not 0 <= action.task < len(rs.stage):
        return f"{action}: its graph has {len(rs.stage)} tasks"
    if rs.stage[action.task] >= RUNNING:
        return f"{action}: the task has begun"
    if rs.worker[action.task] == action.worker:
        return f"{action}: it is placed there already"
    return _worker_problem(state, action, action.worker)


def _run(state: "ServingState", action: RunBatch) -> str | None:
    index, tasks, cpus, slices = action.worker, action.tasks, action.cpus, action.slices
    if not 0 <= index < len(state.workers) or not (worker := state.workers[index]).up:
        return _worker_problem(state, action, index)
    function = _function_of(state, action)
    if isinstance(function, str):
        return function
    latency, kind = state.latency, state.catalogue.functions[function]
    need = kind.activation_bytes * len(tasks)
    if cpus < 0 or slices < 0:
        return f"{action}: CPUs and slices are not below 0"
    if cpus > worker.cpus_free:
        return f"{action}: wants {cpus} CPUs, worker {worker.worker.name} has {worker.cpus_free} free"
    gpu = worker.worker.gpu
    mig = gpu.geometry != FREE  # free slices may go anywhere
    if slices > worker.slices_free or (mig and find_slices(gpu, slices, worker.taken) is None):
        return f"{action}: wants {slices} slices, worker {worker.worker.name} has {worker.slices_free} free"
    if mig and (whole := need + latency.weights[function]) > (share := reachable_bytes(gpu, slices)):
        instance = f"a MIG instance of {slices} slices on {worker.worker.name}"
        return f"{action}: wants {whole} bytes of GPU memory, {instance} has {share}"
    if latency.run_time(index, function, len(tasks), cpus, slices) is None:
        size = f"{len(tasks)} at {cpus} CPUs, {slices} slices"
        return f"{action}: {kind.name} has no profile for {size}"
    return _memory(worker, action, kind.models, need)


def _function_of(state: "ServingState", action: RunBatch) -> int | str:
    """Return the function of a batch, or, as text, why its tasks cannot run together on its worker now."""
    function, tasks = -1, action.tasks
    for request, task in tasks:
        if (rs := state.requests.get(request)) is None:
            return f"{action}: there is no request {request}"
        stages = rs.stage
        if not 0 <= task < len(stages):
            return f"{action}: request {request} has no task {task}, its graph has {len(stages)}"
        if (stage := stages[task]) is not READY and (stage is not QUEUED or rs.worker[task] != action.worker):
            return f"{action}: task {task} of request {request} is {stage.name.lower()} at {rs.worker[task]}"
        called = rs.graph.functions[task]
        if function != called:
            if function >= 0:
                return f"{action}: its tasks are of different functions"
            function = called
    if len(tasks) != 1:
        if not tasks:
            return f"{action}: no tasks"
        if len(set(tasks)) < len(tasks):
            return f"{action}: a task is there twice"
    return function


def _fetch(state: "ServingState", action: FetchModel) -> str | None:
    if (problem := _worker_problem(state, action, action.worker)) is not None:
        return problem
    worker = state.workers[action.worker]
    if not 0 <= action.model < len(state.catalogue.models):
        return f"{action}: there is no model {action.model}"
    if worker.memory.resident >> action.model & 1:
        return f"{action}: it is there already"
    return _memory(worker, action, (action.model,), 0)


def _memory(worker: WorkerState, action: RunBatch | FetchModel, models: tuple[int, ...], need: int) -> str | None:
    memory = worker.memory
    resident = memory.resident
    for model in models:
        if not resident >> model & 1:
            need += memory.sizes[model]
    free = memory.free_bytes
    if action.evict:
        for model in action.evict:
            if model in models or not memory.evictable(model):
                return f"{action}: model {model} cannot be evicted: it is not there, or in use"
        if len(set(action.evict)) < len(action.evict):
            return f"{action}: a model is evicted twice"
        free += memory.size_of(action.evict)
    if need > free:
        return f"{action}: wants {need} bytes of GPU memory, worker {worker.worker.name} has {free}"
    return None
