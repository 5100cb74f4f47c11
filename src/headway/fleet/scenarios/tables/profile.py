"""Serving profiles: run times of functions, as measured cells or from a scaling law.

A cell is a row ``[batch, cpus, slices, ms]``, with the measured spread as a fifth number where it is known. The values
of each axis form a grid, and every point of it needs a cell; ``sparse`` allows holes. A cell with 0 slices takes CPUs
alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field as field_of
from itertools import product
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct, field

from headway.errors import ExperimentError, InputError, ProfileError
from headway.fleet.model.catalogue import ANY_GPU, Configuration
from headway.formats import toml
from headway.jobs.tables.cluster import MOST_BYTES
from headway.jobs.tables.settings import Span, optional_span, span
from headway.units import MILLISECOND, SECOND, parse_size

Rows = list[list[float]]
Size = str | int

MOST_MS = 1e9
MOST_SPREAD = 2.0
MOST_VALUES = 64
"""The most values of one axis of a law."""
_WITHOUT_SPREAD, _WITH_SPREAD = 4, 5
_AXES = ("batch", "cpus", "slices")


class LawTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """t(b, c, g) = t(1, 1, 1) · (f + (1 − f)·b^p) · (s/c^q + (1 − s)/g^r), for every b, c and g of three lists."""

    batches: list[int] = field(default_factory=lambda: [1, 2, 4, 8])
    cpus: list[int] | int = 8
    """A list, or the largest of 1, 2, 3, …"""
    slices: list[int] | int = 7
    batch_fixed: float = 0.25
    """f: the share of the time that does not grow with the batch."""
    batch_power: float = 0.85
    cpu_share: float = 0.25
    """s: the share of the time that is the CPU's."""
    cpu_power: float = 0.6
    slice_power: float = 0.7
    spread: float = 0.05
    gpus: dict[str, float] = field(default_factory=dict)
    """By type of GPU: the times are multiplied by this; a type that is not here is as the times were given."""


class FunctionRows(Struct, kw_only=True, forbid_unknown_fields=True):
    """The table of a function in a profile file."""

    cells: Rows
    spread: float | None = None
    """For all cells; if left out, the median of the spreads in the cells."""
    weights: Size = ""
    activation: Size = ""
    """GPU memory besides the weights, for each request of a batch."""
    cold_start: Span = ""
    load: Span = ""
    """Weights from host memory to the GPU."""
    instance_memory: Size = ""
    """Host memory of an idle process."""
    input: Size = ""
    """Of a request that begins with it."""
    output: Size = ""
    """Of its result."""
    sparse: bool = False
    measured: dict[str, Any] = field(default_factory=dict)
    """Further measurements, for a reader."""


class ModelRows(Struct, kw_only=True, forbid_unknown_fields=True):
    """The table of a model in a profile file, for functions that have several or share one."""

    weights: Size
    load: Span = ""
    """Weights from host memory to the GPU."""


class ProfileTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """The tables of a profile file."""

    name: str = ""
    gpu: str = ANY_GPU
    """The type of GPU that was measured; empty: for any."""
    source: str = ""
    """Where the numbers come from, for a reader."""
    shares: bool = False
    """Whether the slices of cells are sevenths of a GPU's SMs."""
    overhead: Span | dict[str, Span] = ""
    """What a batch takes besides its function where it is served: decision, messages, copies of values. A table: by how
    long its worker has been idle, at least.
    """
    host_to_gpu: Size = ""
    """Bytes a second; if left out, computed from the functions' weights and load times."""
    functions: dict[str, dict[str, Any]]
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    measured: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FunctionProfile:
    """The profile of one function; None where a value is not given."""

    cells: Mapping[Configuration, int]
    spread: float
    weights_bytes: int | None = None
    activation_bytes: int | None = None
    cold_start: int | None = None
    load: int | None = None
    instance_bytes: int | None = None
    input_bytes: int | None = None
    output_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Weights:
    """The measured weights of one model."""

    weights_bytes: int
    load: int | None = None


@dataclass(frozen=True, slots=True)
class ServingProfile:
    """A profile file, checked."""

    path: Path
    gpu: str
    functions: Mapping[str, FunctionProfile]
    host_to_gpu: int | None
    """Bytes a second."""
    models: Mapping[str, Weights] = field_of(default_factory=dict)
    overhead: Mapping[int, int] = field_of(default_factory=dict)
    """What a batch takes besides its cell, by how long its worker has been idle, at least; the first is from 0 on."""

    @property
    def after_idle(self) -> tuple[tuple[int, int], ...]:
        """Return what a batch takes more on a worker that was idle: (for how long at least, how much)."""
        return tuple((idle, time - self.overhead[0]) for idle, time in self.overhead.items() if idle)

    def served(self, function: FunctionProfile) -> dict[Configuration, int]:
        """Return the cells of a function with what each batch takes besides, also on a worker that was busy."""
        return {cell: time + self.overhead.get(0, 0) for cell, time in function.cells.items()}

    def spread(self, function: FunctionProfile) -> float:
        """Return the spread of a function's times as they are served: what a batch takes besides does not vary so."""
        least = function.cells[min(function.cells)]
        return function.spread * least / (least + self.overhead.get(0, 0))


def read(path: Path) -> ServingProfile:
    """Return the profile in a file."""
    where = f"profile {path}"
    try:
        table = toml.typed(toml.read(path, "profile"), ProfileTable, where)
        if not table.functions:
            raise ProfileError(f"{where}: has no functions")
        functions = {}
        for name, rows in table.functions.items():
            at = f"{where}, function {name}"
            functions[name] = _function(toml.typed(rows, FunctionRows, at), at)
        models = {name: _weights(rows, f"{where}, model {name}") for name, rows in table.models.items()}
        link = size(table.host_to_gpu, f"{where}: host_to_gpu", least=1)
        overhead = _overhead(table.overhead, f"{where}: overhead")
    except InputError as problem:
        raise ProfileError(str(problem)) from None
    rate = link or _rate_of([*functions.values(), *models.values()])
    return ServingProfile(path, table.gpu, functions, rate, models, overhead)


def _function(table: FunctionRows, where: str) -> FunctionProfile:
    cells, spreads = cells_of(table.cells, where, sparse=table.sparse)
    spread = table.spread if table.spread is not None else median(spreads) if spreads else 0.0
    return FunctionProfile(
        cells,
        checked_spread(spread, where),
        size(table.weights, f"{where}: weights"),
        size(table.activation, f"{where}: activation"),
        optional_span(table.cold_start, f"{where}: cold_start"),
        optional_span(table.load, f"{where}: load"),
        size(table.instance_memory, f"{where}: instance_memory"),
        size(table.input, f"{where}: input"),
        size(table.output, f"{where}: output"),
    )


def _overhead(given: Span | dict[str, Span], where: str) -> dict[int, int]:
    """Return what a batch takes besides, by idle time of its worker in rising order; empty: nothing."""
    by_idle = given if isinstance(given, dict) else {"0s": given}
    parsed = {span(idle, f"{where} after"): optional_span(time, where) or 0 for idle, time in by_idle.items()}
    found = dict(sorted(parsed.items()))
    if next(iter(found), 0) or len(found) < len(by_idle):
        raise ProfileError(f'{where}: begins with "0s", what a batch takes right after another, and has each time once')
    return found if any(found.values()) else {}


def _weights(rows: Mapping[str, Any], where: str) -> Weights:
    table = toml.typed(dict(rows), ModelRows, where)
    weights = size(table.weights, f"{where}: weights", least=1)
    if weights is None:
        raise ProfileError(f"{where}: weights is empty: write a size like 1.7GB")
    return Weights(weights, optional_span(table.load, f"{where}: load"))


def _rate_of(functions: Iterable[FunctionProfile | Weights]) -> int | None:
    """Return bytes a second to the GPU: all weights over the sum of their load times; None where none is given."""
    timed = [function for function in functions if function.weights_bytes and function.load]
    took = sum(function.load or 0 for function in timed)
    return max(1, sum(function.weights_bytes or 0 for function in timed) * SECOND // took) if timed else None


# --- cells ------------------------------------------------------------------------------------------------------


def cells_of(
    rows: Sequence[Sequence[float]], where: str, *, sparse: bool = False
) -> tuple[dict[Configuration, int], list[float]]:
    """Return rows as cells, and the spreads in them; raise where a row or the grid is invalid."""
    cells: dict[Configuration, int] = {}
    spreads = []
    for number, row in enumerate(rows, start=1):
        if len(row) not in (_WITHOUT_SPREAD, _WITH_SPREAD):
            raise ProfileError(
                f"{where}: row {number} of cells is {row}: write batch, cpus, slices, ms and perhaps a spread"
            )
        cell = _configuration(row, f"{where}: row {number} of cells")
        if cell in cells:
            raise ProfileError(f"{where}: {_said(cell)} is in cells twice")
        cells[cell] = time_of(row[3], f"{where}: {_said(cell)}")
        if len(row) == _WITH_SPREAD:
            spreads.append(checked_spread(row[4], f"{where}: {_said(cell)}"))
    if not cells:
        raise ProfileError(f"{where}: cells is empty")
    if not sparse:
        _no_holes(cells, where)
    return cells, spreads


def _configuration(row: Sequence[float], where: str) -> Configuration:
    for axis, value in zip(_AXES, row, strict=False):
        least = 0 if axis == "slices" else 1
        if not (isfinite(value) and value >= least and value == int(value)):
            raise ProfileError(f"{where}: {axis} is {value:g}: must be a whole number, at least {least}")
    return Configuration(int(row[0]), int(row[1]), int(row[2]))


def _no_holes(cells: Mapping[Configuration, int], where: str) -> None:
    axes = [sorted(set(values)) for values in zip(*cells, strict=True)]
    missing = [cell for cell in map(Configuration._make, product(*axes)) if cell not in cells]
    if missing:
        many = f"{len(missing):,} cells are" if len(missing) > 1 else "1 cell is"
        raise ProfileError(
            f"{where}: {many} missing from the grid, {_said(missing[0])} first (sparse = true: it is meant)"
        )


def _said(cell: Configuration) -> str:
    return f"batch {cell.batch}, cpus {cell.cpus}, slices {cell.slices}"


def law_cells(ms: float, law: LawTable, gpu: str, where: str) -> dict[Configuration, int]:
    """Return the cells of the law for a time at (1, 1, 1), on a type of GPU."""
    base = time_of(ms, where) * law.gpus.get(gpu, 1.0)
    cells = {}
    for batch, cpus, slices in product(law.batches, *(_listed(given) for given in (law.cpus, law.slices))):
        grown = law.batch_fixed + (1 - law.batch_fixed) * batch**law.batch_power
        shrunk = law.cpu_share / cpus**law.cpu_power + (1 - law.cpu_share) / slices**law.slice_power
        cells[Configuration(batch, cpus, slices)] = max(1, round(base * grown * shrunk))
    return cells


def cpu_cells(ms: float, cpus: int | None, law: LawTable, where: str) -> dict[Configuration, int]:
    """Return the cells of the law for a function on CPUs alone: the whole time is the CPU's, on every type of GPU.

    ``cpus``: the number that ``ms`` is given for, and the only one; None: every number of the law, ``ms`` for one.
    """
    base, cells = time_of(ms, where), {}
    for batch, count in product(law.batches, _listed(law.cpus) if cpus is None else [cpus]):
        grown = law.batch_fixed + (1 - law.batch_fixed) * batch**law.batch_power
        shrunk = 1 / count**law.cpu_power if cpus is None else 1.0
        cells[Configuration(batch, count, 0)] = max(1, round(base * grown * shrunk))
    return cells


def check_law(law: LawTable, where: str) -> LawTable:
    """Check the numbers of a law, and return it."""
    for axis, values in (("batches", law.batches), ("cpus", _listed(law.cpus)), ("slices", _listed(law.slices))):
        if not 0 < len(values) <= MOST_VALUES or min(values) < 1 or len(set(values)) < len(values):
            raise ProfileError(
                f"{where}: {axis} of the law must be 1 to {MOST_VALUES} different whole numbers from 1 up"
            )
    limits = {"batch_fixed": 1, "cpu_share": 1, "batch_power": 3, "cpu_power": 3, "slice_power": 3}
    for key, most in limits.items():
        if not 0 <= (value := getattr(law, key)) <= most:
            raise ProfileError(f"{where}: {key} of the law is {value:g}: must lie in 0 to {most}")
    for gpu, factor in law.gpus.items():
        if not (isfinite(factor) and factor > 0):
            raise ProfileError(f"{where}: the factor of GPU {gpu} in the law is {factor:g}: must be above 0")
    checked_spread(law.spread, f"{where}: law")
    return law


def _listed(axis: list[int] | int) -> list[int]:
    return list(range(1, min(axis, MOST_VALUES + 1) + 1)) if isinstance(axis, int) else axis


# --- values -----------------------------------------------------------------------------------------------------


def time_of(ms: float, where: str) -> int:
    """Return a run's milliseconds in nanoseconds, checked."""
    if not (isfinite(ms) and 0 < ms <= MOST_MS):
        raise ProfileError(f"{where}: takes {ms:g} ms: must be above 0 and at most {MOST_MS:,.0f}")
    return max(1, round(ms * MILLISECOND))


def checked_spread(spread: float, where: str) -> float:
    """Return a standard deviation of logarithms, checked."""
    if not (isfinite(spread) and 0 <= spread <= MOST_SPREAD):
        raise ProfileError(f"{where}: the spread is {spread:g}: must lie in 0 to {MOST_SPREAD:g}")
    return spread


def size(given: Size, what: str, *, least: int = 0) -> int | None:
    """Parse a size, also one with ``/s`` behind it, into bytes; None where nothing was given."""
    if given == "":
        return None
    text = str(given).strip().removesuffix("/s")
    parsed = -1 if text.startswith("-") else parse_size(text, what=what)
    if parsed < least:
        raise ExperimentError(f"{what} {given!r} must be {'above 0' if least else 'at least 0'}")
    if parsed > MOST_BYTES:
        raise ExperimentError(f"{what} {given!r} must be at most {MOST_BYTES:,} bytes")
    return parsed
