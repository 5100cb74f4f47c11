"""Check that every worker of a fleet can run every function, and leave out configurations that fit nowhere."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headway.errors import ExperimentError, ProfileError
from headway.fleet.model.catalogue import Configuration, Function, Model
from headway.fleet.model.fleet import FIXED, Fleet, Gpu, Worker, find_slices, reachable_bytes
from headway.units import counted, format_size


def check_memory(models: Sequence[Model], functions: Sequence[Function], fleet: Fleet) -> None:
    """Raise where a worker has too little memory for a function: policies may place any task on any worker."""
    largest = max((worker.gpu for worker in fleet.workers), key=lambda gpu: gpu.memory_bytes)
    smallest = min((worker.gpu for worker in fleet.workers), key=lambda gpu: gpu.memory_bytes)
    for model in models:
        if model.size_bytes > largest.memory_bytes:
            raise ExperimentError(
                f"model {model.name} of {format_size(model.size_bytes)} is larger than every GPU; "
                f"the largest, {largest.type}, has {format_size(largest.memory_bytes)}"
            )
    for function in functions:
        alone = function.on_cpus and function.generate is None  # tasks of an engine may hold none of its slices
        if alone and (function.models or function.activation_bytes):
            held = "models" if function.models else "activation"
            raise ExperimentError(
                f"function {function.name} has {held} and a configuration with 0 slices, which holds no GPU memory; "
                f"leave out its {held}, or give it slices"
            )
        needs = sum(models[model].size_bytes for model in set(function.models)) + function.activation_bytes
        if needs > smallest.memory_bytes:
            raise ExperimentError(
                f"function {function.name} needs {format_size(needs)} of GPU memory for its models and one request; "
                f"GPU {smallest.type} has {format_size(smallest.memory_bytes)}, and every worker must be able to run it"
            )


def runnable(function: Function, models: Sequence[Model], fleet: Fleet, where: str) -> Function:
    """Return the function with only those cells that every empty worker with their type of GPU can run."""
    weights = sum(models[model].size_bytes for model in set(function.models))
    kept: dict[str, Mapping[Configuration, int]] = {}
    for gpu in dict.fromkeys(worker.gpu.type for worker in fleet.workers):
        kinds = {(worker.cpus, worker.gpu): worker for worker in fleet.workers if worker.gpu.type == gpu}.values()
        cells = function.profile.on(gpu)
        kept[gpu] = {
            cell: time
            for cell, time in cells.items()
            if (sharing := [worker for worker in kinds if _shares(worker.gpu, cell)])
            and all(_runs(worker, cell, weights + function.activation_bytes * cell.batch) for worker in sharing)
        }
        if worker := next((each for each in kinds if not any(_shares(each.gpu, cell) for cell in kept[gpu])), None):
            raise ProfileError(
                f"{where}, function {function.name}: none of its {counted(len(cells), 'cell')} can run on GPU {gpu} "
                f"with {counted(worker.gpu.slices, 'slice')} ({worker.gpu.geometry}), {counted(worker.cpus, 'CPU')} "
                f"and {format_size(worker.gpu.memory_bytes)}"
            )
    return replace(function, profile=replace(function.profile, times=kept))


def _shares(gpu: Gpu, cell: Configuration) -> bool:
    """Return whether the times of a cell are of workers with such a GPU: each fixed share has its own."""
    return gpu.geometry != FIXED or cell.slices in (0, gpu.slices)


def _runs(worker: Worker, cell: Configuration, memory_bytes: int) -> bool:
    fits = cell.cpus <= worker.cpus and memory_bytes <= reachable_bytes(worker.gpu, cell.slices)
    return fits and cell.slices <= worker.gpu.slices and find_slices(worker.gpu, cell.slices, 0) is not None
