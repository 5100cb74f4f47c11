"""What instances hold of each worker, whether a batch runs or not: CPUs, slices, GPU memory."""

from headway.fleet.model.catalogue import Configuration
from headway.fleet.model.fleet import find_slices
from headway.fleet.state.state import ServingState


class Ledger:
    """Reservations on all workers."""

    def __init__(self, state: ServingState) -> None:
        self._catalogue = state.catalogue
        self._workers = [worker.worker for worker in state.workers]
        self.cpus_free = [worker.cpus for worker in self._workers]
        self.slices_free = [worker.gpu.slices for worker in self._workers]
        self._taken = [0] * len(self._workers)
        """By worker: the places on its GPU that are reserved, as bits."""
        self._held: list[list[tuple[int, int]]] = [[] for _ in self._workers]
        """By worker: (function, batch) of each reservation."""

    def fits(self, worker: int, function: int, configuration: Configuration) -> bool:
        """Return whether an instance fits beside those that are there."""
        batch, cpus, slices = configuration
        gpu = self._workers[worker].gpu
        if cpus > self.cpus_free[worker] or slices > self.slices_free[worker]:
            return False
        if find_slices(gpu, slices, self._taken[worker]) is None:
            return False
        functions, weights, need = self._catalogue.functions, 0, 0
        for other, size in (*self._held[worker], (function, batch)):
            weights |= functions[other].mask
            need += functions[other].activation_bytes * size
        return need + self._catalogue.size_of(weights) <= gpu.memory_bytes

    def reserve(self, worker: int, function: int, configuration: Configuration) -> int:
        """Reserve what an instance needs; return its places on the GPU, as bits."""
        place = find_slices(self._workers[worker].gpu, configuration.slices, self._taken[worker])
        assert place is not None
        self.cpus_free[worker] -= configuration.cpus
        self.slices_free[worker] -= configuration.slices
        self._taken[worker] |= place[1]
        self._held[worker].append((function, configuration.batch))
        return place[1]

    def release(self, worker: int, function: int, configuration: Configuration, mask: int) -> None:
        """Give back what an instance holds."""
        self.cpus_free[worker] += configuration.cpus
        self.slices_free[worker] += configuration.slices
        self._taken[worker] &= ~mask
        self._held[worker].remove((function, configuration.batch))
