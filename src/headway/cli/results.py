"""How the outcome of some runs is printed: the table or JSON on stdout, a picture if wanted, notes on stderr."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headway.cli import STOPPED, console
from headway.errors import ExperimentError
from headway.experiment.measured import MOST_GROUPS, Outcome, against
from headway.report import tables
from headway.report.bars import bars


def finish(
    outcomes: Iterator[Outcome],
    as_json: bool,
    by: Sequence[str] | None = None,
    picture: str | None = None,
    out: str | None = None,
    *,
    single: bool = False,
    baseline: int = 0,
) -> None:
    """Print what came out; a run that was stopped ends the program with 130."""
    tables.check_groups(by or ())
    if picture is not None:
        _check_picture(Path(picture), out)
    ended: list[Outcome] = []
    stopped = ""
    for outcome in outcomes:
        if outcome.stopped:
            stopped = outcome.stopped
            break
        ended.append(outcome)
    compared = not single and baseline < len(ended)
    rows = against(ended, baseline) if compared else [outcome.row for outcome in ended]
    if as_json and (rows or not single):
        console.print_json(rows[0] if single else rows)
    elif rows:
        show(rows, by or ())
    if picture is not None and rows:
        _draw(rows, picture)
    tell_notes(ended)
    if stopped:
        console.note(stopped)
        sys.exit(STOPPED)


def tell_notes(ended: Sequence[Outcome]) -> None:
    """What there is to say about some runs, each thing once."""
    notes: dict[str, list[str]] = {}
    for outcome in ended:
        for note in outcome.notes:
            notes.setdefault(note, []).append(str(outcome.row.get("variant") or outcome.row["policy"]))
    for line in _told_once(notes, len(ended)):
        console.note(f"note: {line}")


def show(rows: Sequence[Mapping[str, Any]], groups: Sequence[str]) -> None:
    """The tables: all of them where they are piped, what a terminal has room for else."""
    table, left_out = tables.fitting(rows, console.out().width) if sys.stdout.isatty() else (tables.comparison(rows), 0)
    console.out(tables.width_of(table)).print(table)
    if left_out:
        columns = "1 column does" if left_out == 1 else f"{left_out} columns do"
        console.note(f"note: {columns} not fit: a wider terminal or --json shows {'it' if left_out == 1 else 'them'}")
    for group in groups:
        if tables.has_group(rows, group):
            console.out().print("", tables.grouped(rows, group))
        else:
            console.note(
                f"note: --by {group}: no {group}s in the results (there are where they are 2 to {MOST_GROUPS})"
            )


def _check_picture(picture: Path, out: str | None) -> None:
    """Refuse a picture that could not be written, before anything runs; the folder of the runs is yet to be made."""
    if picture.suffix.lower() != ".svg":
        raise ExperimentError(f"--picture {picture}: the name must end in .svg")
    folder = picture.parent
    if out is not None and folder.resolve() == Path(out).resolve():
        return
    if not folder.is_dir():
        raise ExperimentError(f"--picture {picture}: there is no folder {folder}")
    if picture.is_dir() or not os.access(picture if picture.exists() else folder, os.W_OK):
        raise ExperimentError(f"--picture {picture}: cannot be written")


def _draw(rows: Sequence[Mapping[str, Any]], picture: str) -> None:
    try:
        Path(picture).write_text(bars(rows, "Mean time to completion"), encoding="utf-8")
    except OSError as problem:
        raise ExperimentError(f"--picture {picture}: cannot be written ({problem.strerror or problem})") from None
    console.note(f"picture: {picture}")


def _told_once(notes: Mapping[str, Sequence[str]], runs: int) -> Iterator[str]:
    """Notes with the runs that they are about; what only differs after its semicolon is told once."""
    alike: dict[str, list[str]] = {}
    for note in notes:
        alike.setdefault(note.partition(";")[0], []).append(note)
    for head, same in alike.items():
        names = [name for note in same for name in notes[note]]
        whose = "" if len(names) == runs else f"{', '.join(names)}: "
        yield f"{whose}{same[0] if len(same) == 1 else head}"
