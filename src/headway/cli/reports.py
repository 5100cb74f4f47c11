"""The command that makes a report of runs: one HTML file that opens without a network."""

import os
import re
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from headway import experiment
from headway.cli import console
from headway.cli.app import app
from headway.core.tape import FINAL_NAME, STREAM_NAME
from headway.errors import ExperimentError, TapeError, unknown_name
from headway.experiment import RESULT_NAME
from headway.report import page
from headway.report.measured import Comparison, Measured

_SEED = re.compile(r"seed-(\d+)")
_LOOKED_AT_BYTES = 400
"""Of a file that is in the way: enough to tell a report."""


@app.command()
def report(
    runs: Annotated[
        list[str], typer.Argument(help="Folders of runs (--out), or a folder that holds several.", metavar="RUN…")
    ],
    out: Annotated[str, typer.Option("--out", "-o", help="The file to write.", metavar="FILE.html")] = "report.html",
    baseline: Annotated[
        str | None, typer.Option(help="The run that others are measured against; the first if left out.")
    ] = None,
    title: Annotated[str, typer.Option(help="A line above the headline.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is not a report.")] = False,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
) -> None:
    """Show one run, or several side by side, on a page of its own: figures, tables and a map of the cluster.

    headway report runs/srtf -o srtf.html

    headway report runs/fifo runs/srtf runs/las -o comparison.html --baseline fifo --open
    """
    target = Path(out)
    check_target(target, force)
    with _progress() as tell:
        tell("reading", 0.0)
        measured = [_opened(folder, shown) for folder, shown in folders(runs)]
        told = _told_apart(measured)
        both = Comparison(tuple(told), _position(told, baseline))
        text = page.build(both, title, tell)
        tell("writing", 1.0)
        write(target, text)
    size = target.stat().st_size / 1e6
    console.note(f"report: {target}, {size:.1f} MB, {len(both.runs)} {'run' if len(both.runs) == 1 else 'runs'}")
    if open_it:
        webbrowser.open(target.resolve().as_uri())


# --- runs -----------------------------------------------------------------------------------------------------


def folders(given: Sequence[str]) -> list[tuple[Path, str]]:
    """Each run folder and how a command would name it; a folder without a tape stands for the runs below it."""
    found: list[tuple[Path, str]] = []
    for text in given:
        folder = Path(text)
        if not folder.is_dir():
            raise TapeError(f"run folder {folder}: there is no such folder")
        shown = folder.name or folder.resolve().name if folder.is_absolute() else folder.as_posix()
        if _holds_run(folder):
            found.append((folder, shown))
            continue
        below = list(_below(folder))
        if not below:
            raise TapeError(f"run folder {folder} holds no run, and no folder in it does: simulate --out makes one")
        for each in below:
            within = each.relative_to(folder).as_posix()
            found.append((each, within if shown == "." else f"{shown}/{within}"))
    places = [folder.resolve() for folder, _ in found]
    for index, place in enumerate(places):
        if place in places[:index]:
            raise ExperimentError(f"run folder {found[index][0]}: is given twice")
    return found


def _below(folder: Path) -> Iterator[Path]:
    """The runs in a folder, by name. Of the runs of several seeds the first stands for all: a page shows one."""
    inside = sorted(each for each in folder.iterdir() if each.is_dir())
    seeds = sorted((int(m[1]), each) for each in inside if (m := _SEED.fullmatch(each.name)) and _holds_run(each))
    if len(seeds) > 1:
        console.note(f"note: {folder}: runs of {len(seeds)} seeds; the report shows {seeds[0][1].name}")
        inside = [each for each in inside if not _SEED.fullmatch(each.name)] + [seeds[0][1]]
    for each in inside:
        if _holds_run(each):
            yield each
        elif each.is_dir():
            yield from _below(each)


def _holds_run(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (FINAL_NAME, STREAM_NAME))


def _opened(folder: Path, shown: str) -> Measured:
    stored = experiment.open_run(folder)
    if not len(stored.tape):
        raise TapeError(f"run folder {folder}: the tape holds no step yet")
    result = _result(folder)
    label = str(result.get("variant") or result.get("policy") or "") or stored.scene.experiment.policy.name
    skipped = result.get("skipped")
    return Measured(label, shown, stored, skipped if isinstance(skipped, int) else 0)


def _result(folder: Path) -> dict[str, Any]:
    """What was stored beside the tape; nothing for a run that was cut short."""
    try:
        result = msgspec.json.decode((folder / RESULT_NAME).read_bytes())
    except (OSError, msgspec.DecodeError):
        return {}
    return result if isinstance(result, dict) else {}


def _told_apart(measured: Sequence[Measured]) -> list[Measured]:
    """Runs with the same name get that of their folder beside it."""
    labels = [run.label for run in measured]
    apart: list[Measured] = []
    taken: set[str] = set()
    for run in measured:
        label = run.label if labels.count(run.label) == 1 else f"{run.label} ({run.stored.folder.resolve().name})"
        name, number = label, 2
        while name in taken:
            name, number = f"{label} {number}", number + 1
        taken.add(name)
        apart.append(Measured(name, run.shown_folder, run.stored, run.skipped))
    return apart


def _position(runs: Sequence[Measured], baseline: str | None) -> int:
    """The run that a name means: its label, its policy or its folder. Without one, as the experiment wants it."""
    wanted = baseline or next((name for run in runs if (name := run.stored.scene.experiment.measure.baseline)), "")
    for names in (
        [run.label for run in runs],
        [run.stored.folder.name for run in runs],
        [run.shown_folder for run in runs],
        [run.policy for run in runs],
    ):
        if wanted and wanted in names:
            return names.index(wanted)
    if baseline is None:
        return 0
    raise ExperimentError(unknown_name("--baseline", baseline, [run.label for run in runs]))


# --- the file -------------------------------------------------------------------------------------------------


def check_target(target: Path, force: bool) -> None:
    """Refuse a file that cannot be written, or is something else, before any work is done."""
    folder = target.parent
    if not folder.is_dir():
        raise ExperimentError(f"-o {target}: there is no folder {folder}")
    if target.is_dir():
        raise ExperimentError(f"-o {target}: is a folder; name a file")
    if not os.access(folder, os.W_OK) or (target.exists() and not os.access(target, os.W_OK)):
        raise ExperimentError(f"-o {target}: cannot be written")
    if target.exists() and not force and not _is_report(target):
        raise ExperimentError(f"-o {target}: exists and is not a report; --force writes over it")


def _is_report(target: Path) -> bool:
    try:
        with target.open("rb") as file:
            start = file.read(_LOOKED_AT_BYTES)
    except OSError:
        return False
    return not start or page.MARK.encode() in start


def write(target: Path, text: str) -> None:
    """Whole or not at all: what is stopped in the middle leaves what was there before."""
    partial = target.with_name(f".{target.name}.part")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
    except OSError as problem:
        raise ExperimentError(f"-o {target}: cannot be written ({problem.strerror or problem})") from None
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _progress() -> Iterator[page.Tell]:
    """A bar on stderr; nothing where nobody looks."""
    if not console.err().is_terminal:
        yield page.silent
        return
    columns = (TextColumn("report"), BarColumn(), TextColumn("{task.fields[what]}"), TimeElapsedColumn())
    with Progress(*columns, console=console.err(), transient=True) as bar:
        task = bar.add_task("report", total=1.0, what="")
        yield lambda what, share: bar.update(task, completed=share, what=what)
