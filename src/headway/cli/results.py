"""Print the results of runs: the table or JSON on stdout, a picture and a page if asked for, notes on stderr."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.cli import console
from headway.cli.options import Given
from headway.errors import ExperimentError
from headway.files import write_whole
from headway.runs.domain import View
from headway.runs.folder.folder import check_output
from headway.runs.folder.pages import Place, check_target, page_of
from headway.runs.result import Comparison
from headway.runs.stopping import status
from headway.show.progress import share_bar
from headway.show.terminal import width_of


@dataclass(frozen=True, slots=True)
class Outputs:
    """What is to come of some runs, besides what their folders keep."""

    as_json: bool = False
    by: Sequence[str] | None = None
    picture: str | None = None
    report: str | None = None
    several: bool = False
    """Whether there are several runs, each in a folder of its own below the one that is named."""


def outputs_of(given: Given, *, several: bool = False) -> Outputs:
    """Return what was asked for; a command need not have all of its flags."""
    names = ("as_json", "by", "picture", "report")
    return Outputs(**{name: given[name] for name in names if name in given}, several=several)


def check_outputs(outputs: Outputs, view: View, out: str | None) -> None:
    """Refuse what could not be written, before anything runs; the folder of the runs is yet to be made."""
    view.check_details(outputs.by or ())
    folders = [Path(out)] if out else []
    to_be_made = [*folders, *(folder.parent for folder in folders)]
    for flag, text in (("--picture", outputs.picture), ("--report", outputs.report)):
        if text is not None:
            check_output(Path(text), flag, () if outputs.several else tuple(folders))
    if outputs.picture is not None:
        _check_picture(Path(outputs.picture), to_be_made)
    if outputs.report is not None:
        report = Path(outputs.report)
        if report.suffix.lower() not in (".html", ".htm"):
            raise ExperimentError(f"--report {report}: the name must end in .html")
        check_target(report, False, "--report", to_be_made)


def _check_picture(picture: Path, to_be_made: Sequence[Path]) -> None:
    if picture.suffix.lower() != ".svg":
        raise ExperimentError(f"--picture {picture}: the name must end in .svg")
    folder = picture.parent
    if not folder.exists() and folder.resolve() in (each.resolve() for each in to_be_made):
        return
    if not folder.is_dir():
        raise ExperimentError(f"--picture {picture}: there is no folder {folder}")
    if picture.is_dir() or not os.access(picture if picture.exists() else folder, os.W_OK):
        raise ExperimentError(f"--picture {picture}: cannot be written")


def show_result(comparison: Comparison, outputs: Outputs) -> None:
    """Print what came of some runs; one that was stopped ends the program with 130 or 143."""
    rows = comparison.rows
    if outputs.as_json and (rows or not comparison.single):
        console.print_json(rows[0] if comparison.single else rows)
    elif rows:
        show(rows, comparison.view, outputs.by or ())
    if outputs.picture is not None and rows:
        text = comparison.view.picture(rows)
        write_whole(Path(outputs.picture), text, ExperimentError, f"--picture {outputs.picture}")
        console.note(f"picture: {outputs.picture}")
    for line in (*comparison.notes(), *comparison.view.missing_details(rows, outputs.by or ())):
        console.note(f"note: {line}")
    if outputs.report is not None and not comparison.stopped:
        write_page(comparison.places, Path(outputs.report), baseline=comparison.baseline, trust=True, flag="--report")
    if comparison.stopped:
        console.note(comparison.stopped if outputs.report is None else f"{comparison.stopped}; no report was made")
        sys.exit(status())


def write_page(
    places: Sequence[Place],
    target: Path,
    *,
    baseline: int | str | None,
    title: str = "",
    trust: bool = False,
    flag: str = "-o",
) -> None:
    """Write one page of some runs, and say so."""
    with share_bar("report") as tell:
        text = page_of(places, tell, console.note, baseline=baseline, title=title, trust=trust)
        write_whole(target, text, ExperimentError, f"{flag} {target}")
    size = target.stat().st_size / 1e6
    console.note(f"report: {target}, {size:.1f} MB, {len(places)} {'run' if len(places) == 1 else 'runs'}")


def show(rows: Sequence[Mapping[str, Any]], view: View, by: Sequence[str] = ()) -> None:
    """Print the tables: all columns where they are piped, what a terminal has room for else."""
    table, left_out = view.comparison(rows, console.out().width if sys.stdout.isatty() else None)
    console.out(width_of(table)).print(table)
    if sys.stdout.isatty() and (explained := view.legend(rows, table)):
        console.note(f"note: {explained}")
    if left_out:
        columns = "1 column does" if left_out == 1 else f"{left_out} columns do"
        console.note(f"note: {columns} not fit: a wider terminal or --json shows {'it' if left_out == 1 else 'them'}")
    for more in view.details(rows, by):
        console.out().print("", more)
