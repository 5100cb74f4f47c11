"""Tables of a broker's tape for notebooks; times are seconds since the broker began."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import polars as pl

from headway.gpu.share.recorded.metrics import MILLION, SharedRun, summarise
from headway.units import SECOND


def tables(run: SharedRun) -> Mapping[str, Callable[[], pl.DataFrame]]:
    """Return each table by name."""
    return {
        "programs": lambda: _programs(run),
        "counters": lambda: pl.DataFrame(list(_counters(run)), schema=_COUNTERS, orient="row"),
        "slowdown": lambda: pl.DataFrame(list(_slowdown(run)), schema=_SLOWDOWN, orient="row"),
        "delays": lambda: pl.DataFrame(list(_delays(run)), schema=_DELAYS, orient="row"),
        "charges": lambda: pl.DataFrame(list(_charges(run)), schema=_CHARGES, orient="row"),
    }


_COUNTERS = {
    "program": pl.String,
    "time_s": pl.Float64,
    "launches": pl.Int64,
    "waits": pl.Int64,
    **dict.fromkeys(("waited_s", "gpu_s", "harvested_s", "delay_s"), pl.Float64),
}
_SLOWDOWN = {
    "program": pl.String,
    **dict.fromkeys(("time_s", "slowdown", "low", "high"), pl.Float64),
    "holds": pl.Int64,
    "steps": pl.Int64,
}
_CHARGES = {"program": pl.String, "kernel": pl.String, "time_s": pl.Float64, "charge": pl.Float64}
_DELAYS = {"program": pl.String, "kernel": pl.String, "time_s": pl.Float64, "delay_s": pl.Float64}


def _programs(run: SharedRun) -> pl.DataFrame:
    listed = ("delays", "charges")
    rows = [{key: value for key, value in row.items() if key not in listed} for row in summarise(run)["programs"]]
    return pl.DataFrame(rows, infer_schema_length=None)


def _counters(run: SharedRun) -> Iterator[tuple[Any, ...]]:
    for program in run.programs:
        for time, launches, waits, *spans in program.counters.tolist():
            yield program.name, time / SECOND, launches, waits, *(span / SECOND for span in spans)


def _slowdown(run: SharedRun) -> Iterator[tuple[Any, ...]]:
    for program in run.programs:
        for time, value, low, high, holds, steps in program.slowdown.tolist():
            yield program.name, time / SECOND, value / MILLION, low / MILLION, high / MILLION, holds, steps


def _delays(run: SharedRun) -> Iterator[tuple[Any, ...]]:
    for program in run.programs:
        for kernel in program.kernels:
            for time, delay in zip(kernel.times.tolist(), kernel.delay.tolist(), strict=True):
                yield program.name, kernel.name, time / SECOND, delay / SECOND


def _charges(run: SharedRun) -> Iterator[tuple[Any, ...]]:
    for program in run.programs:
        for kernel in program.charges:
            for time, charge in zip(kernel.times.tolist(), kernel.charge_ppm.tolist(), strict=True):
                yield program.name, kernel.name, time / SECOND, charge / MILLION
