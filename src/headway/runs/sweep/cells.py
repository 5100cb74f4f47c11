"""Store the cells of a sweep and their results in a folder. Each result is written whole or not at all."""

import fcntl
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.errors import TapeError
from headway.files import remove_unfinished, write_whole
from headway.formats import toml
from headway.runs.folder.folder import RESULT_NAME, is_complete, refuse_run

Axes = dict[str, list[Any]]
Record = dict[str, Any]
TABLE = "sweep"
POLICY = "policy.name"
GRID_NAME = "grid.toml"
CELLS_NAME = "cells"
MEASURED_NAME = "measured.json"
RUNS_NAME = "runs"


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of a grid: the values of the keys that vary, its seed, and all the rest."""

    values: tuple[tuple[str, Any], ...]
    seed: int
    experiment: Any
    digest: str

    @property
    def name(self) -> str:
        """Return what it is called in a progress bar or a message."""
        said = [f"{key.rpartition('.')[2]}={value}" if key != POLICY else str(value) for key, value in self.values]
        return ", ".join([*said, f"seed {self.seed}"])


class Store:
    """The folder of a sweep."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cells = folder / CELLS_NAME
        try:
            if folder.exists() and not folder.is_dir():
                raise TapeError(f"sweep folder {folder}: is a file, not a folder")
            if folder.is_dir() and any(folder.iterdir()) and not self.cells.is_dir():
                raise TapeError(f"sweep folder {folder} holds files that are no sweep: choose another folder")
            refuse_run(folder, f"sweep folder {folder}")
            self.cells.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise TapeError(f"sweep folder {folder}: cannot be used ({problem.strerror or problem})") from None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for one sweep at a time; the lock ends with the process, however that ends."""
        with open(self.cells / ".lock", "w", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise TapeError(f"sweep folder {self.folder}: another sweep is at work in it") from None
            for folder in (self.folder, self.cells):  # only who holds the lock writes here
                remove_unfinished(folder)
            yield

    def read(self, cell: Cell) -> Record | None:
        """Return what is known of a cell; None when it was not run to an end, or its file was changed since."""
        record = _record(self.cells / f"{cell.digest}.json")
        return record if record.pop("checksum", "") == _checksum(record) else None

    def kept(self, cell: Cell) -> bool:
        """Return whether the folder of its run is there, and the run went to its end."""
        return is_complete(_record(self.run_of(cell) / RESULT_NAME))

    def run_of(self, cell: Cell) -> Path:
        """Return the folder of a cell's run, where runs are kept."""
        return self.folder / RUNS_NAME / cell.digest

    def write(self, cell: Cell, record: Record) -> None:
        """Put down what became of a cell, as a whole or not at all."""
        whole = {"values": dict(cell.values), "seed": cell.seed, **record}
        text = json.dumps({**whole, "checksum": _checksum(whole)}, indent=1, allow_nan=False) + "\n"
        write_whole(self.cells / f"{cell.digest}.json", text.encode())

    def measured(self) -> dict[str, str]:
        """Return what was measured on a machine for the cells of this sweep, each for all that share it."""
        return _record(self.folder / MEASURED_NAME)

    def keep_measured(self, known: Mapping[str, str]) -> None:
        """Put down what was measured, for all cells that share it, now and when the sweep goes on."""
        write_whole(self.folder / MEASURED_NAME, (json.dumps(known, indent=1) + "\n").encode())

    def keep_grid(self, document: toml.Document, axes: Axes) -> Path:
        """Write the grid to a file from which the sweep can be resumed; return its path."""
        path = self.folder / GRID_NAME
        kept = {**json.loads(json.dumps(document)), TABLE: {}}
        for key, values in axes.items():
            toml.put(kept[TABLE], key, values)
        write_whole(path, toml.write(kept).encode())
        return path


def _record(path: Path) -> Record:
    """Return what a file says; nothing where it is not there or cannot be read."""
    try:
        record = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _checksum(record: Record) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def outstanding(cells: Sequence[Cell], store: Store, *, retry: bool = False, keep: bool = False) -> list[Cell]:
    """Return the cells to run, each once: without result, failed (``retry``), or without a run (``keep``)."""
    chosen: dict[str, Cell] = {}
    for cell in cells:
        record = store.read(cell)
        lacking = keep and record is not None and not record["error"] and not store.kept(cell)
        if record is None or lacking or (retry and record["error"]):
            chosen.setdefault(cell.digest, cell)
    return list(chosen.values())
