"""Refine the times that policies expect: compare what batches take with what was expected, and say where it is off.

A batch is timed from the instant in which it was decided to the moment at which its end is known, so that messages and
copies of values are in it. One that had to load models first does not count.
"""

from collections.abc import Callable
from statistics import median

from headway.fleet.model.catalogue import Configuration
from headway.fleet.model.events import TimeMeasured
from headway.fleet.model.fleet import Gpu
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import Batch

RUNS = 20
"""So many batches of a configuration are seen before its time is changed."""
TOLERANCE = 0.2
"""Times that are off by less are left as they are: a policy that follows every breath plans no better."""


class Refining:
    """Watches the batches of a server."""

    def __init__(self, state: ServingState, happen: Callable[[TimeMeasured], None]) -> None:
        self._state = state
        self._happen = happen
        self._ratios: dict[tuple[Gpu, int, Configuration], list[float]] = {}
        """By configuration: what its last batches took over what was expected."""

    def note(self, worker: int, batch: Batch, took: int) -> None:
        """Note what a batch took; let its time be measured where it is off again and again."""
        state, latency, expected = self._state, self._state.latency, batch.end - batch.start
        if batch.start > batch.began or expected <= 0:
            return
        cell = latency.cell_of(worker, batch.function, len(batch.tasks), batch.cpus, batch.slices)
        if cell is None:
            return
        ratios = self._ratios.setdefault((state.workers[worker].worker.gpu, batch.function, cell), [])
        ratios.append(took / expected)
        if len(ratios) < RUNS:
            return
        if abs((off := median(ratios)) - 1) > TOLERANCE:
            cells = latency.cells(worker, batch.function)
            time = max(1, round(cells[cell] * off))
            position = sum(other < cell for other in cells)
            self._happen(TimeMeasured(worker, batch.function, position, time))
        ratios.clear()

    def profiled(self, worker: int, batch: Batch) -> int:
        """Return what the profile says that a batch takes, whatever was measured since; 0: nothing."""
        gpu, kind = self._state.workers[worker].worker.gpu, self._state.catalogue.functions[batch.function]
        cell = self._state.latency.cell_of(worker, batch.function, len(batch.tasks), batch.cpus, batch.slices)
        return kind.profile.on(gpu.type)[cell] + batch.waking if cell is not None else 0
