"""Run a sweep from the command line: the pool that it runs on, and what it came to."""

import os
import sys
from pathlib import Path

import typer

from headway.cli import console
from headway.cli.options import Given
from headway.cli.results import show
from headway.core.tasks import Pool
from headway.errors import ExperimentError
from headway.experiment.cells import Axes, outstanding
from headway.experiment.domain import Domain
from headway.experiment.pool import LocalPool
from headway.experiment.stopping import status
from headway.experiment.sweep import Sweep, compared_key, grid_of, sweep
from headway.formats import toml
from headway.live.ray_pool import RayPool
from headway.report.terminal import width_of

ENGINES = ("local", "ray")
MOST_FAILURES_TOLD = 5


def run_sweep(scale: Domain, document: toml.Document, axes: Axes, given: Given) -> None:
    """Run what is left to do of a grid and show what came out; one that was stopped ends with 130 or 143."""
    folder, keep = Path(given["out"]), given["keep_runs"]
    pool = _pool(given["engine"], given["address"], given["processes"], keep)
    grid = grid_of(document, axes, folder, given["grid"])
    found = sweep(*grid, folder, pool, keep=keep, retry=given["retry"], note=console.note)
    if found.stopped:
        left = len(outstanding(found.cells, found.store, keep=keep))
        again = f"headway {scale.name} sweep -o {folder}{' --keep-runs' if keep else ''}"
        console.note(f"stopped with {left:,} of {len(found.cells):,} cells to do: {again} goes on")
        sys.exit(status())
    _show(scale, found, given["as_json"])
    if found.failed:
        raise typer.Exit(1)


def _pool(engine: str, address: str | None, processes: int | None, keep: bool) -> Pool:
    if engine == "local" and address is not None:
        raise ExperimentError(f"--address {address}: needs --engine ray")
    if engine == "ray" and keep:
        raise ExperimentError("--keep-runs: needs --engine local, for the tapes of a Ray cluster lie on its machines")
    cores = processes or len(os.sched_getaffinity(0))
    return LocalPool(cores) if engine == "local" else RayPool(address or "", cores, console.note)


def _show(scale: Domain, found: Sweep, as_json: bool) -> None:
    rows, failed = found.rows, found.failed
    if as_json:
        console.print_json(rows)
    elif rows:
        table = scale.view.pivot(rows, compared_key(found.cells))
        show(rows, scale.view) if table is None else console.out(width_of(table)).print(table)
    for cell, error in failed[:MOST_FAILURES_TOLD]:
        console.note(f"failed: {cell.name}: {error}")
    if failed:
        cells = len({cell.digest for cell in found.cells})
        console.note(f"{len(failed):,} of {cells:,} cells failed; --retry runs them once more")
    for line in scale.view.sweep_remarks(rows):
        console.note(f"note: {line}")
    console.note(f"results: {found.store.folder / 'results.parquet'}, {found.store.folder / 'results.csv'}")
