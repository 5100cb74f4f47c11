"""Pods of FaST-GShare on a fleet: where they are, what they hold, where another one fits.

A pod holds its slices, CPUs and memory from its placement to its removal, also while it runs nothing. Pods on one GPU
share the weights of their models.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache

from headway.fleet.model.catalogue import Configuration
from headway.fleet.model.fleet import MEMORY_SLICES, MIG, MIG_PLACES, MIG_SPAN
from headway.fleet.policies.central.forming import Key
from headway.fleet.policies.central.fronts import can_hold
from headway.fleet.policies.fast_gshare.planner import Share
from headway.fleet.policies.fast_gshare.rectangles import Rectangle, best_area_fit, free_rectangles
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import WorkerState

Sizes = dict[int, Configuration]
"""By measured batch size: the cell in which a pod runs such a batch."""


@dataclass(slots=True, eq=False)
class Pod:
    """One replica of a stage."""

    stage: Key
    function: int
    share: Share
    worker: int
    place: Rectangle
    sizes: Sizes
    lease: int = field(default=-1, init=False)
    """Its latest batch."""
    used: int = field(default=0, init=False)
    """When that began, or when the pod was placed."""

    def is_busy(self, state: ServingState) -> bool:
        """Return whether its batch has not ended."""
        return self.lease in state.workers[self.worker].running


Found = tuple[int, int, Rectangle]
"""A place for a pod: the area left over beside it, the worker, the rectangle."""


class Pods:
    """All pods of a fleet."""

    def __init__(self, state: ServingState) -> None:
        """Start without pods."""
        self._catalogue = state.catalogue
        self._latency = state.latency
        self.by_stage: dict[Key, list[Pod]] = {}
        """Those that take tasks, most efficient first."""
        self.by_worker: list[list[Pod]] = [[] for _ in state.workers]
        self.retiring: list[Pod] = []
        """Those that take no more tasks."""
        self._workers = state.workers
        self._kinds = list({(w.worker.gpu, w.worker.cpus): w for w in state.workers}.values())
        self.sizes_on = cache(self._sizes_on)

    def is_possible(self, function: int, configuration: Configuration) -> bool:
        """Return whether some worker can hold a pod of this configuration when it is empty."""
        return any(self.sizes_on(worker.id, function, configuration) is not None for worker in self._kinds)

    def _sizes_on(self, worker: int, function: int, configuration: Configuration) -> Sizes | None:
        """Return the cell of each batch size within a pod; None: the worker cannot hold it, or a size has no cell."""
        cells = self._latency.cells(worker, function)
        if configuration not in cells or not can_hold(
            self._workers[worker].worker, self._catalogue, function, configuration
        ):
            return None
        batch, cpus, slices = configuration
        sizes: Sizes = {}
        for size in self._latency.batches(worker, function):
            if size > batch:
                break
            within = [cell for cell in cells if cell.batch == size and cell.cpus <= cpus and cell.slices <= slices]
            if not within:
                return None
            sizes[size] = max(within, key=lambda cell: (cell.slices, cell.cpus))
        return sizes

    def find(
        self, function: int, share: Share, workers: Iterable[WorkerState], without: Sequence[Pod] = ()
    ) -> Found | None:
        """Return the best place for a pod, as if some pods were not there; None: it fits nowhere."""
        best: Found | None = None
        for worker in workers:
            if worker.up and self.sizes_on(worker.id, function, share.configuration) is not None:
                held = [pod for pod in self.by_worker[worker.id] if pod not in without]
                fit = self._fit(worker, function, share, held)
                if fit is not None and (best is None or (fit[0], worker.id) < best[:2]):
                    best = fit[0], worker.id, fit[1]
        return best

    def _fit(
        self, worker: WorkerState, function: int, share: Share, held: Sequence[Pod]
    ) -> tuple[int, Rectangle] | None:
        """Return the area left over and the place of a pod beside others on a worker; None: it does not fit."""
        cpus = share.configuration.cpus + sum(pod.share.configuration.cpus for pod in held)
        together = [(function, share), *((pod.function, pod.share) for pod in held)]
        gpu = worker.worker.gpu
        if cpus > worker.worker.cpus or self._memory_of(together) > gpu.memory_bytes:
            return None
        if not (slices := share.configuration.slices):  # nothing of the GPU: where most CPUs are left
            return cpus - worker.worker.cpus, Rectangle(0, 0, 0, 0)
        mig = gpu.geometry == MIG
        free = free_rectangles(MEMORY_SLICES if mig else gpu.slices, 100, [pod.place for pod in held])
        width = MIG_SPAN[slices] if mig else slices
        return best_area_fit(free, width, share.quota_percent, MIG_PLACES[slices] if mig else None)

    def _memory_of(self, pods: Iterable[tuple[int, Share]]) -> int:
        """Return the GPU memory that pods need when all of them run; weights are there once."""
        models, activations = 0, 0
        for function, share in pods:
            kind = self._catalogue.functions[function]
            models |= kind.mask
            activations += kind.activation_bytes * share.configuration.batch
        return self._catalogue.size_of(models) + activations

    def add(self, now: int, stage: Key, function: int, share: Share, found: Found) -> Pod:
        """Place a pod where it was found to fit."""
        _, worker, place = found
        sizes = self.sizes_on(worker, function, share.configuration)
        assert sizes is not None
        pod = Pod(stage, function, share, worker, place, sizes)
        pod.used = now
        pods = self.by_stage.setdefault(stage, [])
        pods.append(pod)
        pods.sort(key=lambda pod: -pod.share.efficiency)
        self.by_worker[worker].append(pod)
        return pod

    def retire(self, pod: Pod) -> None:
        """Give a pod no more tasks; it holds its place until it is removed."""
        self.by_stage[pod.stage].remove(pod)
        self.retiring.append(pod)

    def remove(self, pod: Pod) -> None:
        """Free the place of a pod that takes no more tasks."""
        self.retiring.remove(pod)
        self.by_worker[pod.worker].remove(pod)

    def processes_wanted(self, worker: int, function: int) -> int:
        """Return how many pods of a function are on a worker: each has a process."""
        return sum(pod.function == function for pod in self.by_worker[worker])
