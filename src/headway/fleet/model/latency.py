"""Latency model: the one place that turns a configuration, a worker and its neighbours into nanoseconds.

Policies see these expected times through the state. The time that a run takes varies about them, by the ``spread`` of
its profile.
"""

from collections.abc import Mapping, Sequence

from headway.errors import ProfileError
from headway.fleet.model.catalogue import ANY_GPU, Catalogue, Configuration
from headway.fleet.model.fleet import FIXED, FREE, Fleet, Gpu, reachable_bytes
from headway.fleet.model.graph import Graph
from headway.units import REFERENCE_SPEED_PPM


class LatencyModel:
    """Run times by function, worker and configuration."""

    def __init__(
        self,
        catalogue: Catalogue,
        fleet: Fleet,
        interference: Mapping[tuple[int, int], int] | None = None,
        by_share: Mapping[tuple[int, int, int], int] | None = None,
    ) -> None:
        """Build the tables.

        ``interference``: (function, neighbour) to its time beside the neighbour over its time alone, in parts per
        million. ``by_share``: the same by share of the SMs, also in parts per million; it comes first.
        """
        self.catalogue = catalogue
        self.interference = dict(interference or {})
        self.by_share = dict(by_share or {})
        self.shared_cpus = fleet.shared_cpus
        self.weights = tuple(catalogue.size_of(function.mask) for function in catalogue.functions)
        """By function: the bytes of its models."""
        self._gpus = tuple(worker.gpu for worker in fleet.workers)
        self._cells: dict[tuple[Gpu, int], Mapping[Configuration, int]] = {}
        self._batches: dict[tuple[Gpu, int], tuple[int, ...]] = {}
        self.after_idle: dict[tuple[Gpu, int], tuple[tuple[int, int], ...]] = {}
        """What a batch takes more on a worker that was idle, where it does: (for how long at least, how much)."""
        self._padded: dict[tuple[int, int, int, int, int], int] = {}
        for gpu in dict.fromkeys(self._gpus):
            for index in range(len(catalogue.functions)):
                cells = self._cells[gpu, index] = self._held(gpu, index)
                self._batches[gpu, index] = tuple(sorted({cell.batch for cell in cells}))
                by_type = catalogue.functions[index].profile.after_idle
                if steps := by_type.get(gpu.type) or by_type.get(ANY_GPU):
                    self.after_idle[gpu, index] = steps
        self.base = self._base()
        """By worker and function: the run time of one task at the least configuration."""
        self.version = 0
        """How often a time was refined: what was computed from times of an earlier version is out of date."""

    def _base(self) -> tuple[tuple[int, ...], ...]:
        base: dict[Gpu, tuple[int, ...]] = {}
        for gpu in dict.fromkeys(self._gpus):
            all_cells = [self._cells[gpu, index] for index in range(len(self.catalogue.functions))]
            base[gpu] = tuple(cells[min(cells)] for cells in all_cells)
        return tuple(base[gpu] for gpu in self._gpus)

    def refine(self, worker: int, function: int, position: int, time: int) -> None:
        """Expect another time of a configuration from now on, on all workers with the GPU of this one."""
        gpu = self._gpus[worker]
        cells = self._cells[gpu, function]
        self._cells[gpu, function] = {**cells, sorted(cells)[position]: time}
        self._padded = {}
        self.base = self._base()
        self.version += 1

    def cell_of(self, worker: int, function: int, batch: int, cpus: int, slices: int) -> Configuration | None:
        """Return the measured configuration by which a batch is timed; None: there is none."""
        padded = next((size for size in self.batches(worker, function) if size >= batch), 0)
        cell = Configuration(padded, cpus, slices)
        return cell if cell in self.cells(worker, function) else None

    def _held(self, gpu: Gpu, index: int) -> Mapping[Configuration, int]:
        """Return the cells of a function on a GPU; with MIG those that fit into their instance."""
        function, weights = self.catalogue.functions[index], self.weights[index]
        if not (cells := function.profile.on(gpu.type)):
            raise ProfileError(f"function {function.name}: its profile for GPU {gpu.type!r} is empty")
        if gpu.geometry == FREE:
            return cells
        if gpu.geometry == FIXED:
            if not (own := {cell: time for cell, time in cells.items() if cell.slices in (0, gpu.slices)}):
                raise ProfileError(f"function {function.name}: its profile has no cell with {gpu.slices} slices")
            return own
        activation_bytes = function.activation_bytes
        held = {
            cell: time
            for cell, time in cells.items()
            if weights + activation_bytes * cell.batch <= reachable_bytes(gpu, cell.slices)
        }
        if not held:
            raise ProfileError(f"function {function.name}: no cell fits into its MIG instance of GPU {gpu.type!r}")
        return held

    def cells(self, worker: int, function: int) -> Mapping[Configuration, int]:
        """Return the configurations of a function on a worker, each with its run time."""
        return self._cells[self._gpus[worker], function]

    def least(self, worker: int, function: int) -> Configuration:
        """Return the smallest configuration that has a cell."""
        return min(self.cells(worker, function))

    def batches(self, worker: int, function: int) -> tuple[int, ...]:
        """Return the batch sizes that were measured, smallest first."""
        return self._batches[self._gpus[worker], function]

    def critical_path(self, graph: Graph) -> int:
        """Return L: the critical path of a graph at least configurations, each task on its fastest GPU."""
        tables = set(self.base)
        return graph.critical_path([min(table[task.function] for table in tables) for task in graph.tasks])

    def fastest_path(self, graph: Graph) -> int:
        """Return the critical path at the fastest configurations: a lower bound of any request's latency."""
        gpus = set(self._gpus)
        times = [min(min(self._cells[gpu, task.function].values()) for gpu in gpus) for task in graph.tasks]
        return graph.critical_path(times)

    def run_time(self, worker: int, function: int, batch: int, cpus: int, slices: int) -> int | None:
        """Return the expected run time of a batch without neighbours; None: the profile has no such cell.

        A size between two measured ones takes as long as the larger.
        """
        key = (worker, function, batch, cpus, slices)
        if (time := self._padded.get(key)) is None:
            cell = self.cell_of(worker, function, batch, cpus, slices)
            time = self._padded[key] = -1 if cell is None else self.cells(worker, function)[cell]
        return None if time < 0 else time

    def waking(self, worker: int, function: int, idle: int) -> int:
        """Return what a batch takes more on a worker that has been idle for a time: it slept, its caches are cold."""
        steps = self.after_idle.get((self._gpus[worker], function), ())
        return next((more for least, more in reversed(steps) if idle >= least), 0)

    def crowded(self, cpus: int) -> int:
        """Return the slow-down where batches of one device want so many CPUs in all, in parts per million."""
        shared = self.shared_cpus
        return REFERENCE_SPEED_PPM if not shared or cpus <= shared else REFERENCE_SPEED_PPM * cpus // shared

    def beside(self, function: int, neighbours: Sequence[int], worker: int = -1, slices: int = 0) -> int:
        """Return a function's slow-down beside others, in parts per million: the product over the neighbours.

        With a worker and slices of its GPU: the slow-down at that share, where it was measured.
        """
        slower = REFERENCE_SPEED_PPM
        if self.interference:
            share = slices * REFERENCE_SPEED_PPM // self._gpus[worker].whole if self.by_share else 0
            for other in neighbours:
                plain = self.interference.get((function, other), REFERENCE_SPEED_PPM)
                slower = slower * self.by_share.get((function, other, share), plain) // REFERENCE_SPEED_PPM
        return slower
