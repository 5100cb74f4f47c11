"""How much of a worker is in use: the part of its most used resource.

Resources are its slices, its CPUs, and of each engine there the key-value cache and the places of its batch. Requests
in the line of an engine count with the tokens that their function expects; a resource is never more than full.
"""

from headway.fleet.model.catalogue import Catalogue
from headway.fleet.state.workerstate import WorkerState


def use_of(worker: WorkerState, catalogue: Catalogue) -> float:
    """Return the part of the most used resource of a worker that is held."""
    slices, cpus = worker.worker.gpu.slices, worker.worker.cpus
    used = max(1 - worker.slices_free / slices, 1 - worker.cpus_free / cpus)
    return max(used, _engines(worker, catalogue)) if worker.cached else used


def _engines(worker: WorkerState, catalogue: Catalogue) -> float:
    """Return the part of the most used engine of a worker."""
    members: dict[int, int] = {}
    waiting: dict[int, int] = {}
    for batch in worker.running.values():
        if batch.cache_bytes:
            members[batch.function] = members.get(batch.function, 0) + 1
            waiting[batch.function] = waiting.get(batch.function, 0) + (not batch.loaded)
    most = 0.0
    for function, count in members.items():
        kind = catalogue.functions[function].generate
        assert kind is not None
        expected = waiting[function] * (kind.expected_prompt + kind.expected_output) * kind.kv_bytes_per_token
        cache = (worker.cached.get(function, 0) + expected) / kind.cache_bytes
        most = max(most, cache, count / kind.max_batch)
    return min(most, 1.0)
