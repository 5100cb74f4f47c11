"""``headway sweep``: a grid of runs over all cores or a Ray cluster, taken up again where it was left."""

import os
import shutil
import sys
import tomllib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from headway.cli import STOPPED, console
from headway.cli.app import app
from headway.cli.flags import (
    AllocationFlag,
    BackfillFlag,
    BadRowsFlag,
    BaselineFlag,
    ClusterFlag,
    CompletionsFlag,
    ConfidenceFlag,
    CpusFlag,
    EstimatesFlag,
    FailuresFlag,
    FormatFlag,
    GpusFlag,
    JsonFlag,
    MapFlag,
    MeasureJobsFlag,
    MemoryFlag,
    MigrationCostFlag,
    MigrationFlag,
    ModelsFlag,
    NoIntervalsFlag,
    PlacementFlag,
    PreemptionCostFlag,
    PreemptionFlag,
    ProfilesFlag,
    QuantumFlag,
    RoundFlag,
    SeedFlag,
    SeedsFlag,
    SetFlag,
    SkipFlag,
    SpeedFlag,
    StorageFlag,
    StrictFlag,
    TraceFlag,
    WarmupFlag,
    document_of,
    split_policies,
)
from headway.cli.progress import Board
from headway.cli.results import show
from headway.cli.runs import run_cell
from headway.errors import ExperimentError, unknown_name
from headway.experiment import sweep as sweeps
from headway.experiment.identity import grid_in_place
from headway.experiment.measured import NOTHING_DRAWN, draws
from headway.experiment.pool import LocalPool
from headway.experiment.sweep import Axes, Cell, Record, Store
from headway.formats import toml
from headway.formats.settings import Experiment, check_measure
from headway.live.ray_pool import RayPool
from headway.live.tasks import Far, Pool
from headway.report import pivot
from headway.report.terminal import width_of

ENGINES = ("local", "ray")
MOST_FAILURES_TOLD = 5

GridArgument = Annotated[
    str | None, typer.Argument(help="An experiment as TOML, with a table \\[sweep].", metavar="[GRID.toml]")
]
FolderFlag = Annotated[
    str, typer.Option("--out", "-o", help="The folder of the sweep; what is done there is not done again.")
]
_grid = {"rich_help_panel": "Grid"}
PoliciesFlag = Annotated[str | None, typer.Option("--policies", help="With commas between them.", **_grid)]
LoadsFlag = Annotated[str | None, typer.Option("--loads", help="Arrivals so many times as fast: 0.8,1.0,1.2.", **_grid)]
NodesFlag = Annotated[str | None, typer.Option("--nodes", help="Nodes of the cluster: 40,80.", **_grid)]
VaryFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--vary", help="Any key of an experiment file: costs.preemption=0s,60s.", metavar="KEY=V1,V2", **_grid
    ),
]
EngineFlag = Annotated[str, typer.Option("--engine", help="local, or ray: over the machines of a Ray cluster.")]
AddressFlag = Annotated[
    str | None, typer.Option("--address", help="Of the Ray cluster: auto or host:port; one is started if left out.")
]
ProcessesFlag = Annotated[
    int | None, typer.Option("--processes", help="Cells at a time: all cores if left out.", min=1, max=1024)
]
KeepFlag = Annotated[bool, typer.Option("--keep-runs", help="Keep the tape of every cell, under runs/.")]
RetryFlag = Annotated[bool, typer.Option("--retry", help="Run cells that failed once more.")]


@app.command()
def sweep(
    out: FolderFlag,
    grid: GridArgument = None,
    policies: PoliciesFlag = None,
    loads: LoadsFlag = None,
    nodes: NodesFlag = None,
    vary: VaryFlag = None,
    trace: TraceFlag = None,
    format: FormatFlag = None,
    columns: MapFlag = None,
    cluster: ClusterFlag = None,
    gpus_per_node: GpusFlag = None,
    backfill: BackfillFlag = None,
    placement: PlacementFlag = None,
    preemption: PreemptionFlag = None,
    preemption_cost: PreemptionCostFlag = None,
    migration: MigrationFlag = None,
    migration_cost: MigrationCostFlag = None,
    estimates: EstimatesFlag = None,
    quantum: QuantumFlag = None,
    allocation: AllocationFlag = None,
    round: RoundFlag = None,
    completions: CompletionsFlag = None,
    speed: SpeedFlag = None,
    profiles: ProfilesFlag = None,
    models: ModelsFlag = None,
    failures: FailuresFlag = None,
    cpus_per_node: CpusFlag = None,
    memory_per_node: MemoryFlag = None,
    storage_per_node: StorageFlag = None,
    skip_infeasible: SkipFlag = None,
    strict: StrictFlag = None,
    skip_bad_rows: BadRowsFlag = None,
    seed: SeedFlag = None,
    seeds: SeedsFlag = None,
    baseline: BaselineFlag = None,
    warmup: WarmupFlag = None,
    measure_jobs: MeasureJobsFlag = None,
    confidence: ConfidenceFlag = None,
    no_intervals: NoIntervalsFlag = False,
    as_json: JsonFlag = False,
    overrides: SetFlag = None,
    processes: ProcessesFlag = None,
    engine: EngineFlag = "local",
    address: AddressFlag = None,
    keep_runs: KeepFlag = False,
    retry: RetryFlag = False,
) -> None:
    """Run every combination of policies, loads, sizes, seeds or any other keys; what is done is not done again.

    headway sweep --trace jobs.csv --nodes 16,32 --gpus-per-node 8 --policies fifo,srtf --loads 0.8,1.0 -o sweeps/mine

    headway sweep experiments/grid.toml --seeds 5 --baseline fifo -o sweeps/grid
    """
    document, axes = grid_in_place(*_grid_of(locals()))
    pool = _pool(engine, address, processes, keep_runs)
    _sweep(document, axes, Path(out), pool, as_json=as_json, keep=keep_runs, retry=retry)


def _sweep(
    document: toml.Document, axes: Axes, folder: Path, pool: Pool, *, as_json: bool, keep: bool, retry: bool
) -> None:
    cells = sweeps.cells_of(document, axes, "sweep")
    table = check_measure(cells[0].experiment.measure)
    sweeps.check_baseline(cells, table.baseline)
    store = Store(folder)
    with store.locked():
        path = store.keep_grid(document, axes)
        stopped = _run(cells, store, pool, keep=keep, retry=retry)
        pivot.store(sweeps.flat(cells, store), folder)
        if stopped:
            left = len(sweeps.outstanding(cells, store, keep=keep))
            command = f"headway sweep {path} -o {folder}{' --keep-runs' if keep else ''}"
            console.note(f"stopped with {left:,} of {len(cells):,} cells to do: {command} goes on")
            sys.exit(STOPPED)
        failed = _report(cells, store, table.baseline, table.confidence, as_json=as_json)
    if table.seeds > 1 and not any(draws(cell.experiment) for cell in cells):
        console.note(f"note: {NOTHING_DRAWN}")
    if failed:
        raise typer.Exit(1)


def _grid_of(flags: dict[str, Any]) -> tuple[toml.Document, Axes]:
    """The experiment and what varies in it: of the file, then the flags; of the folder's own file if none is given."""
    grid, own = flags["grid"], Path(flags["out"]) / sweeps.GRID_NAME
    varied = {key: flags[key] for key in ("policies", "loads", "nodes", "vary")}
    given = document_of({key: value for key, value in flags.items() if key not in (*varied, "out")}, flags["overrides"])
    if not grid and not given and not any(varied.values()) and own.is_file():
        grid = str(own)
    document: toml.Document = toml.read(Path(grid)) if grid else {}
    axes = sweeps.axes_of(document)
    for key, value in toml.leaves(given):
        toml.put(document, key, value)
        axes.pop(key, None)
    axes |= _axes(varied)
    for key in [key for key, values in axes.items() if len(values) == 1]:
        toml.put(document, key, axes.pop(key)[0])
    if not document and not axes:
        raise ExperimentError("there is no grid: give GRID.toml, or --policies, --loads, --nodes, --vary")
    return document, axes


def _axes(chosen: dict[str, Any]) -> Axes:
    """What the flags vary."""
    axes: Axes = {}
    for flag in ("policies", "loads", "nodes"):
        if chosen[flag] is not None and not chosen[flag].strip():
            raise ExperimentError(f"--{flag} is empty: give it values with commas between them, or leave it out")
    if chosen["policies"]:
        axes[sweeps.POLICY] = list(split_policies(chosen["policies"]))
    if chosen["loads"]:
        axes["trace.load"] = _numbers(chosen["loads"], "--loads", 0.8)
    if chosen["nodes"]:
        axes["cluster.nodes"] = _numbers(chosen["nodes"], "--nodes", 40)
    for text in chosen["vary"] or ():
        key, equals, values = text.partition("=")
        if not equals or not key.strip() or not values.strip():
            raise ExperimentError(f"--vary {text!r} is not understood: write it like cluster.nodes=40,80")
        axes[key.strip()] = _values(values, f"--vary {key.strip()}", "40,80")
    return axes


def _numbers(text: str, flag: str, like: float) -> list[Any]:
    """Numbers between commas, all finite and above 0."""
    found = _values(text, flag, f"{like},{2 * like:g}")
    for value in found:
        whole = isinstance(value, type(like) if isinstance(like, int) else int | float)
        if not whole or not 0 < value < float("inf"):
            raise ExperimentError(f"{flag} {value!r} is not a number above 0: write it like {flag} {like},{2 * like:g}")
    return found


def _values(text: str, what: str, example: str) -> list[Any]:
    """Values between commas, each as TOML, or plain text where it is none."""
    found: list[Any] = []
    for piece in split_policies(text, example, what):
        try:
            found.append(tomllib.loads(f"value = {piece}")["value"])
        except tomllib.TOMLDecodeError:
            found.append(piece)
    return found


def _pool(engine: str, address: str | None, processes: int | None, keep: bool) -> Pool:
    if engine not in ENGINES:
        raise ExperimentError(unknown_name("--engine", engine, ENGINES))
    if engine == "local" and address is not None:
        raise ExperimentError(f"--address {address}: needs --engine ray")
    if engine == "ray" and keep:
        raise ExperimentError("--keep-runs: needs --engine local, for the tapes of a Ray cluster lie on its machines")
    cores = processes or len(os.sched_getaffinity(0))
    return LocalPool(cores) if engine == "local" else RayPool(address or "", cores, console.note)


def _run(cells: Sequence[Cell], store: Store, pool: Pool, *, keep: bool, retry: bool) -> bool:
    """Do what is left to do, putting down each result as it comes; whether that was stopped."""
    ahead = sweeps.outstanding(cells, store, retry=retry, keep=keep)
    done = len({cell.digest for cell in cells}) - len(ahead)
    if done:
        console.note(f"{done:,} of {done + len(ahead):,} cells are done already")
    if again := keep and len(ahead) - len(sweeps.outstanding(ahead, store, retry=retry)):
        console.note(f"run again, for their tapes were not kept: {again:,} cells that are done")
    if not ahead:
        return False
    tasks = [(_kept(cell, store.run_of(cell)) if keep else cell.experiment) for cell in ahead]
    stopped = False
    with Board(done + len(ahead), "cells", done) as board:

        def told(task: int, far: Far | None) -> None:
            board.tell(task, ahead[task].name, far)

        with closing(pool.run(tasks, run_cell, told if board.shown else None)) as ends:
            for end in ends:
                if end.stopped or (end.problem is None and end.result is None):
                    stopped = True
                    continue
                failed: Record = {"row": None, "batches": [], "measured": "", "notes": [], "error": _line(end.problem)}
                store.write(ahead[end.task], end.result if end.problem is None else failed)
                board.ended(end.task)
    return stopped


def _line(problem: Exception | None) -> str:
    return " ".join(f"{'' if isinstance(problem, ExperimentError) else type(problem).__name__ + ': '}{problem}".split())


def _kept(cell: Cell, folder: Path) -> Experiment:
    """The cell with a folder for its tape; what an earlier attempt left there is no run."""
    shutil.rmtree(folder, ignore_errors=True)
    return msgspec.structs.replace(
        cell.experiment, run=msgspec.structs.replace(cell.experiment.run, out=str(folder.resolve()))
    )


def _report(cells: Sequence[Cell], store: Store, baseline: str, level: float, *, as_json: bool) -> int:
    """Print the results; how many cells failed."""
    rows = sweeps.results(cells, store, baseline, level)
    if as_json:
        console.print_json(rows)
    elif rows:
        table = pivot.pivot(rows, sweeps.compared_key(cells))
        show(rows, ()) if table is None else console.out(width_of(table)).print(table)
    records = {cell.digest: (cell, store.read(cell)) for cell in cells}
    failed = [(cell, record["error"]) for cell, record in records.values() if record and record["error"]]
    for cell, error in failed[:MOST_FAILURES_TOLD]:
        console.note(f"failed: {cell.name}: {error}")
    if failed:
        console.note(f"{len(failed):,} of {len(records):,} cells failed; --retry runs them once more")
    overloaded = sum(1 for row in rows if row["overload"])
    if overloaded:
        console.note(
            f"note: {overloaded:,} of {len(rows):,} combinations are overloaded: their waits grow with the trace"
        )
    growing = sum(1 for row in rows if row["growing"])
    if growing:
        console.note(f"note: in {growing:,} of {len(rows):,} combinations the queue grows all through what is measured")
    elsewhere = sum(1 for row in rows if row.get("jct_change_over"))
    if elsewhere:
        console.note(
            f"note: in {elsewhere:,} of {len(rows):,} combinations the change is over some of the seeds, or between "
            "different jobs: jct_change_over in --json"
        )
    console.note(f"results: {store.folder / 'results.parquet'}, {store.folder / 'results.csv'}")
    return len(failed)
