"""What comes of some runs: the table or JSON on stdout, a picture and a report if wanted, notes on stderr."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec.structs import replace

from headway.cli import STOPPED, console
from headway.cli.pages import Place, check_target, page_of, shown_as
from headway.cli.runs import apart, note_order, play
from headway.errors import ExperimentError
from headway.experiment.folder import check_output
from headway.experiment.measured import MOST_GROUPS, Outcome, against, seeded, told_changes
from headway.files import write_whole
from headway.formats.settings import Experiment
from headway.report import tables
from headway.report.bars import bars
from headway.report.names import shortened
from headway.report.terminal import width_of

Named = tuple[str, Experiment]
"""What a run is called, '' for its policy; and the run."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to come of some runs, besides what their folders keep."""

    as_json: bool = False
    by: Sequence[str] | None = None
    picture: str | None = None
    report: str | None = None


def play_out(
    experiments: Sequence[Named], wanted: Wanted, processes: int = 1, *, single: bool = False, baseline: int = 0
) -> None:
    """Run all of them and show what came out; a run that was stopped ends the program with 130."""
    _check(wanted, experiments)
    with _kept(experiments, wanted.report is not None) as (runs, for_good):
        places = _places(runs, for_good) if wanted.report is not None else []
        ended, stopped = _ended(runs, processes, for_good)
        compared = not single and baseline < len(ended)
        rows = against(ended, baseline) if compared else [outcome.row for outcome in ended]
        if wanted.as_json and (rows or not single):
            console.print_json(rows[0] if single else rows)
        elif rows:
            show(rows, wanted.by or ())
        if wanted.picture is not None and rows:
            _draw(rows, wanted.picture)
        tell_notes(ended)
        for line in told_changes(rows):
            console.note(f"note: {line}")
        if wanted.report is not None and not stopped:
            page_of(places, Path(wanted.report), 0 if single else baseline)
    if stopped:
        console.note(stopped if wanted.report is None else f"{stopped}; no report was made")
        sys.exit(STOPPED)


def _ended(runs: Sequence[Named], processes: int, for_good: bool) -> tuple[list[Outcome], str]:
    """The runs that went to their end, and how far the one got that was stopped."""
    ended: list[Outcome] = []
    for outcome in play(runs, processes):
        if for_good and not ended:
            note_order(runs)
        if outcome.stopped:
            told, tape, _ = outcome.stopped.partition("; the tape is ")
            return ended, f"{told}; without --out nothing is kept" if tape and not for_good else outcome.stopped
        ended.append(outcome)
    return ended, ""


@contextmanager
def _kept(experiments: Sequence[Named], wanted: bool) -> Iterator[tuple[Sequence[Named], bool]]:
    """The runs, with folders where a report is to be made of them; and whether those are there for good."""
    if not wanted or all(each.run.out for _, each in experiments):
        yield experiments, True
        return
    with TemporaryDirectory(prefix="headway-", ignore_cleanup_errors=True) as place:
        moved = [(label, replace(each, run=replace(each.run, out=place))) for label, each in experiments]
        yield apart(moved, [label or each.policy.name for label, each in experiments]), False


def _places(runs: Sequence[Named], for_good: bool) -> list[Place]:
    """The folders of each run, and how a command would name the first."""
    root = Path(runs[0][1].run.out) if len(runs) == 1 else Path(runs[0][1].run.out).parent
    seeds = [[Path(each.run.out) for each in seeded(one)] for _, one in runs]
    return [
        Place(each[0], shown_as(root, each[0]) if for_good else "", tuple(each) if len(each) > 1 else ())
        for each in seeds
    ]


def tell_notes(ended: Sequence[Outcome]) -> None:
    """What there is to say about some runs, each thing once."""
    notes: dict[str, list[str]] = {}
    names = shortened([str(outcome.row.get("variant") or outcome.row["policy"]) for outcome in ended])
    for name, outcome in zip(names, ended, strict=True):
        for note in outcome.notes:
            notes.setdefault(note, []).append(name)
    for line in _told_once(notes, len(ended)):
        console.note(f"note: {line}")


def show(rows: Sequence[Mapping[str, Any]], groups: Sequence[str]) -> None:
    """The tables: all of them where they are piped, what a terminal has room for else."""
    table, left_out = tables.fitting(rows, console.out().width) if sys.stdout.isatty() else (tables.comparison(rows), 0)
    console.out(width_of(table)).print(table)
    if sys.stdout.isatty() and (explained := tables.legend(rows, table)):
        console.note(f"note: {explained}")
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


def _check(wanted: Wanted, experiments: Sequence[Named]) -> None:
    """Refuse what could not be written, before anything runs; the folder of the runs is yet to be made."""
    tables.check_groups(wanted.by or ())
    folders = [Path(each.run.out) for _, each in experiments if each.run.out]
    to_be_made = [*folders, *(folder.parent for folder in folders)]
    for flag, text in (("--picture", wanted.picture), ("--report", wanted.report)):
        if text is not None:
            check_output(Path(text), flag, tuple(folders))
    if wanted.picture is not None:
        _check_picture(Path(wanted.picture), to_be_made)
    if wanted.report is not None:
        report = Path(wanted.report)
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


def _draw(rows: Sequence[Mapping[str, Any]], picture: str) -> None:
    text = bars(rows, "Mean time to completion")
    write_whole(Path(picture), text, ExperimentError, f"--picture {picture}")
    console.note(f"picture: {picture}")


def _told_once(notes: Mapping[str, Sequence[str]], runs: int) -> Iterator[str]:
    """Notes with the runs that they are about; what only differs after its semicolon is told once."""
    alike: dict[str, list[str]] = {}
    for note in notes:
        alike.setdefault(note.partition(";")[0], []).append(note)
    for head, same in alike.items():
        names = [name for note in same for name in notes[note]]
        whose = "" if len(names) == runs else f"{', '.join(dict.fromkeys(names))}: "
        yield f"{whose}{same[0] if len(same) == 1 else head}"
