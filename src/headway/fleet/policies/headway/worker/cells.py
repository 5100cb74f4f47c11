"""Configurations of a function on a worker, and those that fit into its free CPUs and slices, as cached arrays."""

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headway.fleet.model.catalogue import Configuration
from headway.fleet.model.fleet import Gpu, Prices, Worker, find_slices
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import WorkerState


class Fitting(NamedTuple):
    """Configurations that fit, in order."""

    cells: list[Configuration]
    batches: npt.NDArray[np.int64]
    times: npt.NDArray[np.int64]
    shares: npt.NDArray[np.float64]
    """Share of the worker: of its CPUs or slices, whichever is more."""
    held: npt.NDArray[np.float64]
    """Cost of an hour."""


class Cells:
    """Configurations of one function on workers of one kind."""

    def __init__(self, times: Mapping[Configuration, int], worker: Worker, prices: Prices) -> None:
        self._times = times
        self._worker = worker
        self._prices = prices
        self.only = next(iter(times)) if len(times) == 1 else None
        """The only configuration, if there is just one."""
        self._widths = sorted({cell.slices for cell in times})
        self._fit_in = cache(self._fits)
        self._made = cache(self._make)

    def fitting(self, worker: WorkerState, most: int) -> Fitting:
        """Return the configurations that fit into a worker's free CPUs and slices, for batches of at most ``most``."""
        return self._made(worker.cpus_free, self._fit_in(worker.slices_free, worker.taken), most)

    def _fits(self, free: int, taken: int) -> int:
        """Return the numbers of slices that could be placed now, as bits."""
        gpu = self._worker.gpu
        return sum(1 << width for width in self._widths if width <= free and find_slices(gpu, width, taken) is not None)

    def _make(self, cpus_free: int, widths: int, most: int) -> Fitting:
        cells = [
            cell
            for cell in sorted(self._times)
            if cell.cpus <= cpus_free and widths >> cell.slices & 1 and cell.batch <= most
        ]
        cpus, slices = np.array([cell.cpus for cell in cells]), np.array([cell.slices for cell in cells])
        return Fitting(
            cells,
            np.array([cell.batch for cell in cells], dtype=np.int64),
            np.array([self._times[cell] for cell in cells], dtype=np.int64),
            np.maximum(slices / self._worker.gpu.slices, cpus / self._worker.cpus),
            cpus * self._prices.cpu_hour + slices * self._prices.slice_hour,
        )


class CellTable:
    """Configurations by worker and function."""

    def __init__(self, state: ServingState) -> None:
        self._state = state
        self.of = cache(self._of)
        self._by_kind: dict[tuple[int, Gpu, int], Cells] = {}

    def _of(self, worker: int, function: int) -> Cells:
        """Return the configurations of a function on a worker; workers of one kind share them."""
        state, spec = self._state, self._state.fleet.workers[worker]
        kind = function, spec.gpu, spec.cpus
        if kind not in self._by_kind:
            self._by_kind[kind] = Cells(state.latency.cells(worker, function), spec, state.fleet.prices)
        return self._by_kind[kind]
