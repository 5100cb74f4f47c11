"""INFless's choice of instances: pure functions of what is free, the SLO and the rate that no instance takes.

An instance has a batch size b and takes a time t for a batch. It serves at most ``b / t`` requests a second. Below
``b / (SLO - t)`` its batches are not full before the first request must run. INFless takes the largest batch size for
which some instance is fast enough and gets enough requests, and of those instances the most efficient.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from headway.fleet.model.catalogue import Configuration
from headway.units import MILLISECOND, SECOND

PAPER, CODE = "paper", "code"
"""The two metrics: throughput by resources and by what is left of the worker; throughput by what is left alone."""
CPU_WEIGHT, GPU_WEIGHT = 64, 142
"""Of a CPU thread, and of a hundredth of a GPU (the authors' code)."""
_LEAST_LEFT = 1e-9
"""Stands for nothing left, so that a worker that is filled exactly has a finite score."""


class Rates(NamedTuple):
    """The requests a second that suit an instance, and how long its batch may wait to fill."""

    low: float
    up: float
    timeout: int


class Cell(NamedTuple):
    """A configuration of a function on a worker, and its time."""

    configuration: Configuration
    time: int


class Slot(NamedTuple):
    """A worker: what it has, what is free, and the cells of the function that is planned."""

    worker: int
    cpus: int
    slices: int
    cpus_free: int
    slices_free: int
    cells: Sequence[Cell]


class Planned(NamedTuple):
    """An instance to start."""

    worker: int
    cell: Cell
    rates: Rates


Fits = Callable[[int, Configuration], bool]
"""Whether a configuration fits on a worker beside the instances there."""


def rates_of(cell: Cell, slo: int, *, whole: bool = True) -> Rates | None:
    """Return the rates of an instance; None: it is too slow for the SLO. ``whole``: round down to whole requests."""
    batch, time = cell.configuration.batch, cell.time
    if time > slo or (batch > 1 and 2 * time > slo):
        return None
    if whole:
        up = float(batch * SECOND // time)
        low = float(batch * SECOND // (slo - time)) if batch > 1 else 1.0
    else:
        up = batch * SECOND / time
        low = batch * SECOND / (slo - time) if batch > 1 else min(1.0, up)
    if not up:
        return None  # rounded down it serves nobody
    return Rates(low, up, (slo - time) // MILLISECOND * MILLISECOND if batch > 1 else 0)


def weight_of(cpus: int, slices: int, slices_of_gpu: int) -> float:
    """Return the weighted resources of so many CPUs and slices."""
    return CPU_WEIGHT * cpus + GPU_WEIGHT * 100 * slices / max(1, slices_of_gpu)


def score(slot: Slot, configuration: Configuration, up: float, metric: str) -> float:
    """Return the efficiency of an instance on a worker: larger is better."""
    need = weight_of(configuration.cpus, configuration.slices, slot.slices) or CPU_WEIGHT  # what takes nothing: a CPU
    free = weight_of(slot.cpus_free, slot.slices_free, slot.slices)
    left = max(_LEAST_LEFT, (free - need) / weight_of(slot.cpus, slot.slices, slot.slices))
    return (up / need if metric == PAPER else up) / left


def choose(
    slots: Sequence[Slot],
    fits: Fits,
    slo: int,
    residual: float,
    *,
    most_batch: int = 0,
    metric: str = PAPER,
    whole: bool = True,
) -> Planned | None:
    """Return the instance to start for a rate that none takes; None: there is no candidate.

    The largest batch size with a candidate wins, then the best score, then the first. ``most_batch`` 0: no limit.
    """
    batches = {cell.configuration.batch for slot in slots for cell in slot.cells}
    for batch in sorted(batches, reverse=True):
        if most_batch and batch > most_batch:
            continue
        best: tuple[float, Planned] | None = None
        for planned, slot in _candidates(slots, batch, slo, residual, whole):
            value = score(slot, planned.cell.configuration, planned.rates.up, metric)
            if (best is None or value > best[0]) and fits(slot.worker, planned.cell.configuration):
                best = value, planned
        if best is not None:
            return best[1]
    return None


def _candidates(
    slots: Iterable[Slot], batch: int, slo: int, residual: float, whole: bool
) -> Iterator[tuple[Planned, Slot]]:
    """Yield the instances of a batch size that are fast enough, get enough requests and find CPUs and slices."""
    for slot in slots:
        for cell in slot.cells:
            size, cpus, slices = cell.configuration
            if size != batch or cpus > slot.cpus_free or slices > slot.slices_free:
                continue
            if (rates := rates_of(cell, slo, whole=whole)) is not None and rates.low <= residual:
                yield Planned(slot.worker, cell, rates), slot


def fastest(slots: Iterable[Slot], fits: Fits) -> Planned | None:
    """Return the fastest instance of batch 1 that fits, where none keeps the SLO; None: none fits."""
    best: Planned | None = None
    for slot in slots:
        for cell in slot.cells:
            if cell.configuration.batch > 1 or (best is not None and cell.time >= best.cell.time):
                continue
            if fits(slot.worker, cell.configuration):
                up = SECOND / cell.time
                best = Planned(slot.worker, cell, Rates(min(1.0, up), up, 0))
    return best
