"""What can be done on a fleet: the one definition, asked by the loop, the tests and the auditor."""

from typing import TYPE_CHECKING

from headway.serving.actions import (
    NOWHERE,
    Action,
    DropRequest,
    EvictModel,
    FetchModel,
    MoveTask,
    PlaceRequest,
    RunBatch,
    StartInstance,
    StopInstance,
)
from headway.serving.fleet import FREE, places, share_bytes
from headway.serving.requeststate import Stage
from headway.serving.workerstate import WorkerState

if TYPE_CHECKING:
    from headway.serving.state import ServingState


def refusal(state: "ServingState", action: Action) -> str | None:
    """Why an action cannot be committed now; None when it can."""
    if isinstance(action, RunBatch):
        return _run(state, action)
    if isinstance(action, PlaceRequest):
        return _place(state, action)
    if isinstance(action, MoveTask):
        return _move(state, action)
    if isinstance(action, FetchModel):
        return _fetch(state, action)
    if isinstance(action, DropRequest):
        return None if action.request in state.requests else f"{action}: there is no such request"
    if isinstance(action, EvictModel | StartInstance | StopInstance):
        return _small(state, action)
    return None


def _gone(state: "ServingState", action: Action, index: int) -> str | None:
    """Why nothing can be done on a worker; None when it is there."""
    if not 0 <= index < len(state.workers):
        return f"{action}: there is no worker {index}"
    worker = state.workers[index]
    return None if worker.up else f"{action}: worker {worker.worker.name} is down"


def _small(state: "ServingState", action: EvictModel | StartInstance | StopInstance) -> str | None:
    if (gone := _gone(state, action, action.worker)) is not None:
        return gone
    worker = state.workers[action.worker]
    if isinstance(action, EvictModel):
        return None if worker.memory.evictable(action.model) else f"{action}: it is not there, or in use"
    if isinstance(action, StopInstance):
        return None if worker.idle.get(action.function) else f"{action}: no idle process of it is there"
    if not 0 <= action.function < len(state.catalogue.functions):
        return f"{action}: there is no function {action.function}"
    if not state.catalogue.functions[action.function].cold_start:
        return f"{action}: the function needs no process"
    return None


def _place(state: "ServingState", action: PlaceRequest) -> str | None:
    rs = state.requests.get(action.request)
    if rs is None:
        return f"{action}: there is no such request"
    if len(action.workers) != len(rs.stage):
        return f"{action}: its graph has {len(rs.stage)} tasks"
    for index, stage in zip(action.workers, rs.stage, strict=True):
        if index != NOWHERE and stage < Stage.RUNNING and (gone := _gone(state, action, index)) is not None:
            return gone
    return None


def _move(state: "ServingState", action: MoveTask) -> str | None:
    rs = state.requests.get(action.request)
    if rs is None:
        return f"{action}: there is no such request"
    if not 0 <= action.task < len(rs.stage):
        return f"{action}: its graph has {len(rs.stage)} tasks"
    if rs.stage[action.task] >= Stage.RUNNING:
        return f"{action}: the task has begun"
    if rs.worker[action.task] == action.worker:
        return f"{action}: it is placed there already"
    return _gone(state, action, action.worker)


def _run(state: "ServingState", action: RunBatch) -> str | None:
    if (gone := _gone(state, action, action.worker)) is not None:
        return gone
    worker = state.workers[action.worker]
    if not action.tasks:
        return f"{action}: no tasks"
    if (wrong := _tasks(state, action)) is not None:
        return wrong
    request, task = action.tasks[0]
    function = state.requests[request].graph.tasks[task].function
    kind = state.catalogue.functions[function]
    need = kind.activation_bytes * len(action.tasks)
    if action.cpus < 0 or action.slices < 0:
        return f"{action}: CPUs and slices are not below 0"
    if action.cpus > worker.cpus_free:
        return f"{action}: wants {action.cpus} CPUs, worker {worker.worker.name} has {worker.cpus_free} free"
    if action.slices > worker.slices_free or places(worker.worker.gpu, action.slices, worker.taken) is None:
        return f"{action}: wants {action.slices} slices, worker {worker.worker.name} has {worker.slices_free} free"
    gpu, whole = worker.worker.gpu, need + state.latency.weights[function]
    if gpu.geometry != FREE and whole > (share := share_bytes(gpu, action.slices)):
        instance = f"a MIG instance of {action.slices} slices on {worker.worker.name}"
        return f"{action}: wants {whole} bytes of GPU memory, {instance} has {share}"
    if state.latency.run_time(action.worker, function, len(action.tasks), action.cpus, action.slices) is None:
        size = f"{len(action.tasks)} at {action.cpus} CPUs, {action.slices} slices"
        return f"{action}: {kind.name} has no profile for {size}"
    return _memory(worker, action, kind.models, need)


def _tasks(state: "ServingState", action: RunBatch) -> str | None:
    """Why the tasks of a batch cannot run together now, or not on its worker."""
    function = -1
    for request, task in action.tasks:
        rs = state.requests.get(request)
        if rs is None:
            return f"{action}: there is no request {request}"
        if not 0 <= task < len(rs.stage):
            return f"{action}: request {request} has no task {task}, its graph has {len(rs.stage)}"
        stage = rs.stage[task]
        here = rs.worker[task] == action.worker and stage == Stage.QUEUED
        if not here and stage != Stage.READY:
            return f"{action}: task {task} of request {request} is {stage.name.lower()} at {rs.worker[task]}"
        if function not in (-1, rs.graph.tasks[task].function):
            return f"{action}: its tasks are of different functions"
        function = rs.graph.tasks[task].function
    if len(action.tasks) > 1 and len(set(action.tasks)) < len(action.tasks):
        return f"{action}: a task is there twice"
    return None


def _fetch(state: "ServingState", action: FetchModel) -> str | None:
    if (gone := _gone(state, action, action.worker)) is not None:
        return gone
    worker = state.workers[action.worker]
    if not 0 <= action.model < len(state.catalogue.models):
        return f"{action}: there is no model {action.model}"
    if worker.memory.resident >> action.model & 1:
        return f"{action}: it is there already"
    return _memory(worker, action, (action.model,), 0)


def _memory(worker: WorkerState, action: RunBatch | FetchModel, models: tuple[int, ...], need: int) -> str | None:
    memory = worker.memory
    need += memory.size_of(model for model in models if not memory.resident >> model & 1)
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
