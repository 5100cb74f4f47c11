"""Write files for other programs: tables as Parquet or CSV, and traces for Perfetto.

Whatever is written is written beside its place first and put there when it is whole, so that a full disk or a Ctrl-C
leaves what was there before.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from headway.errors import TapeError
from headway.files import packed, replacing

Tables = Mapping[str, Callable[[], pl.DataFrame]]
"""The tables of a run by name, each made when it is asked for."""


@dataclass(frozen=True, slots=True)
class Written:
    """A file that was written."""

    path: Path
    rows: int
    """Of a table; of a trace its events."""
    size_bytes: int


def write_pieces(path: Path, made: Iterator[str]) -> Written:
    """Write events that are made one by one, with what comes before and after them, into one file."""
    pieces = 0
    with replacing(path) as file, packed(file, path) as sink:
        for piece in made:
            sink.write(piece.encode())
            pieces += 1
    return Written(path, pieces - 2, path.stat().st_size)  # what comes before and after the events


def write_tables(
    tables: Tables,
    folder: Path,
    kind: str,
    tell: Callable[[str, float], None] | None = None,
) -> list[Written]:
    """Write all tables into a folder, as ``parquet`` or ``csv``; files of other names there are left alone."""
    made = []
    with ExitStack() as stack:
        for index, (name, make) in enumerate(tables.items()):
            if tell is not None:
                tell(name, index / len(tables))
            path, table = folder / f"{name}.{kind}", make()
            file = stack.enter_context(replacing(path))
            table.write_parquet(file) if kind == "parquet" else table.write_csv(file)
            made.append((path, len(table)))
    return [Written(path, rows, path.stat().st_size) for path, rows in made]


def check_file(path: Path, *, force: bool) -> None:
    """Refuse a file that is there, unless it may go, or that cannot be made."""
    if path.is_dir():
        raise TapeError(f"{path}: is a folder, not a file")
    if path.exists() and not force:
        raise TapeError(f"{path}: exists already; --force overwrites it")
    if not path.parent.is_dir():
        raise TapeError(f"{path}: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise TapeError(f"{path}: cannot be written")


def check_folder(folder: Path, *, force: bool) -> None:
    """Refuse a folder that holds anything, unless it may be overwritten; make one that is missing."""
    try:
        if folder.exists() and not folder.is_dir():
            raise TapeError(f"{folder}: is a file, not a folder")
        if folder.is_dir() and any(folder.iterdir()) and not force:
            raise TapeError(f"{folder}: is a folder with something in it; --force overwrites the tables there")
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise TapeError(f"{folder}: cannot be used ({problem.strerror or problem})") from None


@contextmanager
def folder_for_output(folder: Path, *, force: bool) -> Iterator[None]:
    """Yield with the folder made; remove the folders that were made if the body fails."""
    made = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    try:
        check_folder(folder, force=force)
        yield
    except BaseException:
        with suppress(OSError):  # the first with something in it stays, and so do those that it lies in
            for parent in made:
                parent.rmdir()
        raise
