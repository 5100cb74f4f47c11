"""Place the processes and weights that a warm fleet begins with: one rule for the state, the audit and the metrics.

Worker after worker takes functions, at most one process of each: first those that have the fewest workers so far, in
the scenario's order where they are equal. It takes every function that still fits as if all its processes ran one
request at their smallest configuration: their CPUs together, and weights (once each) and activations in GPU memory. A
function that needs no process takes no CPUs, only its weights are placed.
"""

from typing import NamedTuple

from headway.fleet.model.catalogue import Catalogue, Function
from headway.fleet.model.fleet import Fleet, Worker


class Warm(NamedTuple):
    """What is on one worker when the run begins."""

    processes: tuple[int, ...] = ()
    """Functions with an idle process."""
    models: tuple[int, ...] = ()
    """Models in GPU memory, in the order in which they were placed."""


def placed(catalogue: Catalogue, fleet: Fleet) -> tuple[Warm, ...]:
    """Return by worker what a run begins with; nothing for a fleet that is not warm."""
    if not fleet.warm:
        return (Warm(),) * len(fleet.workers)
    counts = {at: 0 for at, function in enumerate(catalogue.functions) if function.cold_start or function.models}
    workers = []
    for index, worker in enumerate(fleet.workers):
        if index in fleet.off:
            workers.append(Warm())
            continue
        taken = _taken(catalogue, worker, sorted(counts, key=lambda at: (counts[at], at)))
        for at in taken:
            counts[at] += 1
        functions = [catalogue.functions[at] for at in taken]
        processes = tuple(at for at in taken if catalogue.functions[at].cold_start)
        workers.append(Warm(processes, tuple(dict.fromkeys(m for function in functions for m in function.models))))
    return tuple(workers)


def _taken(catalogue: Catalogue, worker: Worker, order: list[int]) -> list[int]:
    """Return those functions of ``order`` that fit on a worker together."""
    taken: list[int] = []
    mask = cpus = activation_bytes = 0
    for at in order:
        function = catalogue.functions[at]
        wider = activation_bytes + function.activation_bytes
        more = cpus + _cpus(function, worker)
        if more <= worker.cpus and catalogue.size_of(mask | function.mask) + wider <= worker.gpu.memory_bytes:
            taken.append(at)
            mask, cpus, activation_bytes = mask | function.mask, more, wider
    return taken


def _cpus(function: Function, worker: Worker) -> int:
    return min(function.profile.on(worker.gpu.type)).cpus if function.cold_start else 0
