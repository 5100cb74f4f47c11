"""Run a grid: every combination of the values of some keys, each for every seed. Finished cells are not run again.

A cell is one run. It goes by a digest of all that its result depends on: its settings, the contents of the files that
they name, and the code of headway. Its result is a file ``cells/<digest>.json`` of the sweep's folder that is there
as a whole or not at all, so whatever is killed loses the cell it was at. Change the grid or a trace, and what is the
same as before is still done; what is not is a new cell. What is measured on this machine for a run, how long decisions
take, is measured once for all cells that share it, and kept in ``measured.json``.
"""

import itertools
import json
import math
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from headway.core.tasks import Far, Pool
from headway.errors import ExperimentError, HeadwayError, InfeasibleJobError, InputError, TapeError
from headway.formats import toml
from headway.runs.blame import own_code
from headway.runs.domain import Outcome, Progress
from headway.runs.folder.stored import Note
from headway.runs.identity import digest, grid_with_absolute_paths, with_absolute_paths
from headway.runs.measured import NOTHING_DRAWN, seeded, with_run
from headway.runs.registry import domain_of
from headway.runs.settings.files import copied, typed
from headway.runs.several import measure
from headway.runs.sweep.cells import GRID_NAME, POLICY, TABLE, Axes, Cell, Record, Store, outstanding
from headway.runs.sweep.measurements import with_measured
from headway.show import frames
from headway.show.progress import Board
from headway.statistics.replications import Batches, Sample, batches, over_seeds
from headway.units import counted

Row = Mapping[str, Any]
MOST_CELLS = 100_000
_NOT_VARIED = {"run.out": "-o", "run.seed": "--seed and --seeds", "measure.seeds": "--seeds"}


_Run = tuple[Cell, Record]
"""A cell and what became of it."""


# --- the grid -------------------------------------------------------------------------------------------------


def axes_of(document: toml.Document) -> Axes:
    """Take the table ``[sweep]`` out of a document: each of its keys is a key of the experiment, with its values."""
    table = document.pop(TABLE, {})
    if not isinstance(table, Mapping):
        raise ExperimentError(f"[{TABLE}] must be a table of keys with lists of values")
    axes: Axes = {}
    for key, values in toml.leaves(table):
        if not isinstance(values, list):
            raise ExperimentError(f"[{TABLE}] {key} is {values!r}: it must be a list of values")
        axes[key] = values
    return axes


def cells_of(document: toml.Document, axes: Axes, where: str) -> list[Cell]:
    """Return every combination of the values, the last key's changing fastest, for every seed."""
    _check(axes)
    cells = []
    for values in itertools.product(*axes.values()):
        changed, chosen = copied(document), tuple(zip(axes, values, strict=True))
        for key, value in chosen:
            toml.put(changed, key, value)
        said = ", ".join(f"{key}={value}" for key, value in chosen)
        each = with_absolute_paths(typed(changed, f"{where}, {said}" if said else where))
        if each.variants:
            raise ExperimentError(f"{where}: a sweep has no variants; give [{TABLE}] keys with lists of values instead")
        with own_code():
            domain_of(each).check(each)
        cells += [Cell(chosen, run.run.seed, run, digest(run)) for run in seeded(each)]
    return cells


def _check(axes: Axes) -> None:
    for key, values in axes.items():
        if key in _NOT_VARIED:
            raise ExperimentError(f"[{TABLE}] {key} cannot vary: use {_NOT_VARIED[key]}")
        if not values:
            raise ExperimentError(f"[{TABLE}] {key} has no values")
        written = [json.dumps(value, sort_keys=True) for value in values]
        if twice := next((value for index, value in enumerate(written) if value in written[:index]), ""):
            raise ExperimentError(f"[{TABLE}] {key} has the value {twice} twice")
    total = math.prod(map(len, axes.values()))
    if total > MOST_CELLS:
        raise ExperimentError(f"the grid has {total:,} combinations; at most {MOST_CELLS:,} make a sweep")


# --- running --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class Sweep:
    """A grid that was run, or as much of it as was."""

    cells: list[Cell]
    store: Store
    baseline: str
    level: float
    stopped: bool = False

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each combination of values."""
        return results(self.cells, self.store, self.baseline, self.level)

    @property
    def failed(self) -> list[tuple[Cell, str]]:
        """Return the cells that failed, each once, and why."""
        records = {cell.digest: (cell, self.store.read(cell)) for cell in self.cells}
        return [(cell, record["error"]) for cell, record in records.values() if record and record["error"]]

    @property
    def may_pass(self) -> int:
        """Count the cells that failed and were not refused: run once more they may come to an end."""
        records = {cell.digest: self.store.read(cell) for cell in self.cells}
        return sum(bool(each and each["error"] and not each.get("refused")) for each in records.values())

    def frame(self) -> Any:
        """Return a polars frame, one row a cell."""
        return frames.frame(flat(self.cells, self.store))

    def __repr__(self) -> str:
        rows, failed = self.rows, self.failed
        notes = [f"{len(failed):,} of {len(self.cells):,} cells failed: {failed[0][1]}"] if failed else []
        if not rows:
            return "\n".join(["no results", *notes])
        view = domain_of(self.cells[0].experiment).view
        notes += view.sweep_remarks(rows)
        return frames.text(view.pivot(rows, compared_key(self.cells)) or view.comparison(rows)[0], notes)

    def _repr_html_(self) -> str:
        return frames.html(repr(self))


def sweep(
    document: toml.Document,
    axes: Axes,
    folder: Path,
    pool: Pool,
    *,
    keep: bool = False,
    retry: bool = False,
    note: Note = print,
) -> Sweep:
    """Run what is left to do of a grid, putting down each result as it comes."""
    document, axes = grid_with_absolute_paths(document, axes)
    cells = cells_of(document, axes, "sweep")
    table = cells[0].experiment.measure
    check_baseline(cells, table.baseline)
    store = Store(folder)
    with store.locked():
        _refuse_other(cells, store)
        store.keep_grid(document, axes)
        cells = _with_measured(cells, store, note)
        stopped = _run(cells, store, pool, note, keep=keep, retry=retry)
        frames.store(flat(cells, store), folder)
    if table.seeds > 1 and not any(domain_of(cell.experiment).draws(cell.experiment) for cell in cells):
        note(f"note: {NOTHING_DRAWN}")
    return Sweep(cells, store, table.baseline, table.confidence, stopped)


def _refuse_other(cells: Sequence[Cell], store: Store) -> None:
    """Refuse a folder of another grid, whose results would be replaced; a grid that adds to its own may go on."""
    path = store.folder / GRID_NAME
    if not path.is_file():
        return
    try:
        document = toml.read(path)
        before = {_settings(cell) for cell in cells_of(document, axes_of(document), str(path))}
    except InputError:  # what it names is gone: its results cannot be had again
        return
    if gone := len(before - {_settings(cell) for cell in cells}):
        whole = f"{gone:,} of its {counted(len(before), 'combination')} are not in this one"
        remedy = "choose another folder, or give longer lists of values to add to it"
        raise TapeError(f"sweep folder {store.folder}: holds another grid, and {whole}: {remedy}")


def _settings(cell: Cell) -> str:
    """Return what a cell is about, whatever its seed and however it is compared."""
    tables = msgspec.to_builtins(cell.experiment)
    return json.dumps({key: value for key, value in tables.items() if key not in ("run", "measure")}, sort_keys=True)


def _with_measured(cells: Sequence[Cell], store: Store, note: Note) -> list[Cell]:
    """Return the cells with numbers for what is measured on this machine, which the folder keeps."""
    known = store.measured()
    measured = []
    for cell in cells:
        before = len(known)
        try:
            experiment = with_measured(cell.experiment, known)
        except HeadwayError:  # the cell itself will say so
            measured.append(cell)
            continue
        if len(known) > before:
            store.keep_measured(known)
            key = domain_of(experiment).measured_key
            note(f"{key} of {experiment.policy.name}, measured on this machine: {list(known.values())[-1]}")
        same = experiment is cell.experiment
        measured.append(cell if same else replace(cell, experiment=experiment, digest=digest(experiment)))
    return measured


def _run(cells: Sequence[Cell], store: Store, pool: Pool, note: Note, *, keep: bool, retry: bool) -> bool:
    """Run the outstanding cells; return whether that was stopped."""
    ahead = outstanding(cells, store, retry=retry, keep=keep)
    done = len({cell.digest for cell in cells}) - len(ahead)
    if done:
        note(f"{done:,} of {done + len(ahead):,} cells are done already")
    if again := keep and len(ahead) - len(outstanding(ahead, store, retry=retry)):
        note(f"run again, for their tapes were not kept: {again:,} cells that are done")
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
                store.write(ahead[end.task], end.result if end.problem is None else _failure(end.problem))
                board.ended(end.task)
    return stopped


def run_cell(experiment: Any, progress: Progress | None) -> Record | None:
    """Run one cell, in whatever process; None when it was stopped before its end."""
    outcome = measure(("", experiment), progress)
    if outcome.stopped:
        return None
    sample = outcome.sample if isinstance(outcome.sample, Sample) else None
    kept = {"batches": batches(sample) if sample else [], "measured": sample.digest if sample else ""}
    return {"row": outcome.row, **kept, "notes": list(outcome.notes), "error": ""}


def _failure(problem: Exception) -> Record:
    """Return the record of a cell that failed, and whether it was refused: then it will be each time."""
    refused = isinstance(problem, InfeasibleJobError | ExperimentError)
    nothing: Record = {"row": None, "batches": [], "measured": "", "notes": []}
    return {**nothing, "error": _line(problem), "refused": refused}


def _line(problem: Exception) -> str:
    return " ".join(f"{'' if isinstance(problem, HeadwayError) else type(problem).__name__ + ': '}{problem}".split())


def _kept(cell: Cell, folder: Path) -> Any:
    """Return the cell with a folder for its tape; what an earlier attempt left there is no run."""
    shutil.rmtree(folder, ignore_errors=True)
    return with_run(cell.experiment, out=str(folder.resolve()))


def grid_of(given: toml.Document, varied: Axes, folder: Path, grid: str | None) -> tuple[toml.Document, Axes]:
    """Return an experiment and what varies in it: of the file, then as given; of the folder's own file if none is."""
    own = folder / GRID_NAME
    if not grid and set(given) <= {"scale", "measure"} and not varied and own.is_file():
        grid = str(own)
    document: toml.Document = toml.read(Path(grid)) if grid else {}
    axes = axes_of(document)
    for key, value in toml.leaves(given):
        if key == "scale" and document.get("scale", value) != value:
            raise ExperimentError(f"{grid}: is about {document['scale']}, and this is a sweep of {value}")
        toml.put(document, key, value)
        axes.pop(key, None)
    axes |= varied
    for key in [key for key, values in axes.items() if len(values) == 1]:
        toml.put(document, key, axes.pop(key)[0])
    if set(document) <= {"scale"} and not axes:
        raise ExperimentError("there is no grid: give --grid FILE.toml, or --policies, --vary")
    return document, axes


# --- results --------------------------------------------------------------------------------------------------


def results(cells: Sequence[Cell], store: Store, baseline: str, level: float) -> list[dict[str, Any]]:
    """Return a row for each combination of values: means over its seeds, and the change against the baseline."""
    groups: dict[tuple[tuple[str, str], ...], list[_Run]] = {}
    for cell in cells:
        record = store.read(cell)
        if record is not None and record["row"] is not None:
            groups.setdefault(_key(cell.values), []).append((cell, record))
    rows = {key: _row(group, level) for key, group in groups.items()}
    compared = compared_key(cells)
    reference = _reference(cells, compared, baseline)
    for key, row in rows.items():
        if not compared:
            continue
        other = tuple((name, reference if name == compared else value) for name, value in key)
        row["baseline"] = json.loads(reference)
        base = None if other == key or other not in groups else _outcome(groups[other], rows[other])
        view = domain_of(groups[key][0][0].experiment).view
        row |= view.changes(_outcome(groups[key], row), base)
    return domain_of(cells[0].experiment).view.together(list(rows.values())) if rows else []


def compared_key(cells: Sequence[Cell]) -> str:
    """Return the key whose values are compared with each other: the policy if it varies, else the first that does."""
    keys = list(dict(cells[0].values)) if cells else []
    several = [key for key in keys if len({json.dumps(dict(cell.values)[key]) for cell in cells}) > 1]
    return POLICY if POLICY in several else several[0] if several else ""


def _key(values: Sequence[tuple[str, Any]]) -> tuple[tuple[str, str], ...]:
    return tuple((key, json.dumps(value)) for key, value in values)


def _reference(cells: Sequence[Cell], compared: str, baseline: str) -> str:
    """Return the value that the others are compared with, written as JSON."""
    if not compared:
        return ""
    values = list(dict.fromkeys(json.dumps(dict(cell.values)[compared]) for cell in cells))
    if not baseline:
        return values[0]
    for value in values:
        if baseline in (value, str(json.loads(value))):
            return value
    given = ", ".join(str(json.loads(value)) for value in values)
    raise ExperimentError(f"unknown baseline {baseline!r}: {compared} has the values {given}")


def check_baseline(cells: Sequence[Cell], baseline: str) -> None:
    """Refuse a baseline that is no value of what is compared, before anything runs."""
    if baseline and not compared_key(cells):
        raise ExperimentError(f"baseline {baseline!r}: nothing varies in this sweep")
    _reference(cells, compared_key(cells), baseline)


def _row(group: Sequence[_Run], level: float) -> dict[str, Any]:
    rows = [record["row"] for _, record in group]
    rule = domain_of(group[0][0].experiment).view.replication
    row = over_seeds(rows, level, rule) if len(rows) > 1 else dict(rows[0])
    values = dict(group[0][0].values)
    others = [f"{key.rpartition('.')[2]}={value}" for key, value in values.items() if key != POLICY]
    return {**row, "values": values, **({"variant": ", ".join(others)} if others else {})}


def _outcome(group: Sequence[_Run], row: Row) -> Outcome:
    """Return a combination as the outcome of one run, or of several seeds, for a comparison."""
    cell, record = group[0]
    kept = None if len(group) > 1 or not record["batches"] else Batches(record["measured"], record["batches"])
    return Outcome(dict(row), (), sample=kept, drawn=domain_of(cell.experiment).draws(cell.experiment))


def flat(cells: Sequence[Cell], store: Store) -> list[dict[str, Any]]:
    """Return a flat row a cell, for tables that other programs read: values, seed, error, then every number."""
    rows = []
    for cell in cells:
        record = store.read(cell) or {"row": None, "error": "not run yet"}
        values = {key: value if isinstance(value, int | float | str) else str(value) for key, value in cell.values}
        numbers = {key: value for key, value in (record["row"] or {}).items() if not isinstance(value, list | dict)}
        rows.append({**values, **numbers, "seed": cell.seed, "cell": cell.digest, "error": record["error"]})
    return rows
