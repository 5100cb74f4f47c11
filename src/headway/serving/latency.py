"""How long things take: the one place that turns a configuration, a worker and the neighbours into nanoseconds.

Policies see these expectations through the state; what a run really took may differ from them by its spread.
"""

from collections.abc import Mapping, Sequence

from headway.errors import ProfileError
from headway.serving.catalogue import Catalogue, Configuration
from headway.serving.fleet import Fleet
from headway.units import REFERENCE_SPEED_PPM


class LatencyModel:
    """Run times by function, worker and configuration."""

    def __init__(
        self, catalogue: Catalogue, fleet: Fleet, interference: Mapping[tuple[int, int], int] | None = None
    ) -> None:
        """``interference``: (function, function beside it) to how much longer it takes, in parts per million."""
        self.catalogue = catalogue
        self.interference = dict(interference or {})
        self._types = tuple(worker.gpu.type for worker in fleet.workers)
        self._cells: dict[tuple[str, int], Mapping[Configuration, int]] = {}
        self._batches: dict[tuple[str, int], tuple[int, ...]] = {}
        self._padded: dict[tuple[int, int, int, int, int], int] = {}
        for gpu in dict.fromkeys(self._types):
            for index, function in enumerate(catalogue.functions):
                cells = function.profile.on(gpu)
                if not cells:
                    raise ProfileError(f"function {function.name}: its profile for GPU {gpu!r} is empty")
                self._cells[gpu, index] = cells
                self._batches[gpu, index] = tuple(sorted({cell.batch for cell in cells}))
        self.base = tuple(
            tuple(
                self.cells(worker, function)[self.least(worker, function)]
                for function in range(len(catalogue.functions))
            )
            for worker in range(len(fleet.workers))
        )
        """By worker and function: what one task takes at the least configuration."""

    def cells(self, worker: int, function: int) -> Mapping[Configuration, int]:
        """Everything that a function can be given on a worker, and what it then takes."""
        return self._cells[self._types[worker], function]

    def least(self, worker: int, function: int) -> Configuration:
        """The smallest configuration that has a cell."""
        return min(self.cells(worker, function))

    def batches(self, worker: int, function: int) -> tuple[int, ...]:
        """The batch sizes that were measured, smallest first."""
        return self._batches[self._types[worker], function]

    def run_time(self, worker: int, function: int, batch: int, cpus: int, slices: int) -> int | None:
        """What a batch is expected to take alone; a size between two takes as long as the larger. None: no cell."""
        key = (worker, function, batch, cpus, slices)
        found = self._padded.get(key)
        if found is None:
            sizes = self.batches(worker, function)
            padded = next((size for size in sizes if size >= batch), 0)
            found = self.cells(worker, function).get(Configuration(padded, cpus, slices), -1)
            self._padded[key] = found
        return None if found < 0 else found

    def beside(self, function: int, neighbours: Sequence[int]) -> int:
        """How much longer a function takes beside others, in parts per million: the product over the neighbours."""
        slower = REFERENCE_SPEED_PPM
        if self.interference:
            for other in neighbours:
                slower = slower * self.interference.get((function, other), REFERENCE_SPEED_PPM) // REFERENCE_SPEED_PPM
        return slower
