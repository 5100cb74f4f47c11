"""Reports from the command line: the runs that folders hold, in their order and by their names, and the file."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from headway import experiment
from headway.cli import console
from headway.cli.progress import Tell, share_bar
from headway.cli.runs import noted_order
from headway.core.tape import FINAL_NAME, STREAM_NAME
from headway.errors import ExperimentError, TapeError, unknown_name
from headway.experiment import RESULT_NAME
from headway.report import page
from headway.report.measured import Comparison, Measured
from headway.report.names import shortened

_SEED = re.compile(r"seed-(\d+)")
_LOOKED_AT_BYTES = 400
"""Of a file that is in the way: enough to tell a report."""


def page_of(played: Sequence[tuple[Path, str]], target: Path, base: int = 0) -> None:
    """A report of runs that were just played: their folders, and how a command names them ('' where they will go)."""
    with share_bar("report") as tell:
        both = Comparison(opened(played, tell), base)
        write(target, page.build(both, tell=tell), "--report")
    told(target, len(played))


def told(target: Path, runs: int) -> None:
    """Say that there is a report."""
    size = target.stat().st_size / 1e6
    console.note(f"report: {target}, {size:.1f} MB, {runs} {'run' if runs == 1 else 'runs'}")


# --- runs -----------------------------------------------------------------------------------------------------


def folders(given: Sequence[str]) -> list[tuple[Path, str]]:
    """Each run folder and how a command would name it; a folder without a tape stands for the runs below it."""
    found: list[tuple[Path, str]] = []
    for text in given:
        folder = Path(text)
        if not folder.is_dir():
            raise TapeError(f"run folder {folder}: there is no such folder")
        below = [folder] if _holds_run(folder) else list(_below(folder))
        if not below:
            raise TapeError(f"run folder {folder} holds no run, and no folder in it does: simulate --out makes one")
        found.extend((each, shown_as(folder, each)) for each in below)
    places = [folder.resolve() for folder, _ in found]
    for index, place in enumerate(places):
        if place in places[:index]:
            raise ExperimentError(f"run folder {found[index][0]}: is given twice")
    return found


def shown_as(given: Path, folder: Path) -> str:
    """How a command names a folder in the one that it was given, or that one; without what is above them."""
    shown = given.name or given.resolve().name if given.is_absolute() else given.as_posix()
    within = folder.relative_to(given).as_posix()
    return shown if within == "." else within if shown == "." else f"{shown}/{within}"


def _below(folder: Path) -> Iterator[Path]:
    """The runs in a folder, as they were asked for, else by name. Of those of several seeds a page shows the first."""
    order = {name: position for position, name in enumerate(noted_order(folder))}
    inside = [each for each in folder.iterdir() if each.is_dir()]
    inside.sort(key=lambda each: (order.get(each.name, len(order)), each.name))
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


def opened(places: Sequence[tuple[Path, str]], tell: Tell) -> tuple[Measured, ...]:
    """Runs with names that tell them apart."""
    found = []
    for folder, shown in places:
        tell("reading", 0.0)
        found.append(_read(folder, shown))
    return tuple(_told_apart(found))


def _read(folder: Path, shown: str) -> Measured:
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
    """Runs by short names; those with the same get that of their folder beside it."""
    labels = shortened([run.label for run in measured])
    apart: list[Measured] = []
    taken: set[str] = set()
    for run, short in zip(measured, labels, strict=True):
        label = short if labels.count(short) == 1 else f"{short} ({run.stored.folder.resolve().name})"
        name, number = label, 2
        while name in taken:
            name, number = f"{label} {number}", number + 1
        taken.add(name)
        apart.append(replace(run, label=name, name=run.label if short != run.label else ""))
    return apart


def position(runs: Sequence[Measured], baseline: str | None) -> int:
    """The run that a name means: its label, its policy or its folder. Without one, as the experiment wants it."""
    wanted = baseline or next((name for run in runs if (name := run.stored.scene.experiment.measure.baseline)), "")
    for names in (
        [run.label for run in runs],
        [run.name for run in runs],
        [run.stored.folder.name for run in runs],
        [run.shown_folder for run in runs],
        [run.policy for run in runs],
        [run.stored.scene.experiment.policy.name for run in runs],
    ):
        if wanted and wanted in names:
            return names.index(wanted)
    if baseline is None:
        return 0
    raise ExperimentError(unknown_name("--baseline", baseline, [run.label for run in runs]))


# --- the file -------------------------------------------------------------------------------------------------


def check_target(target: Path, force: bool, flag: str = "-o", to_be_made: Sequence[Path] = ()) -> None:
    """Refuse a file that cannot be written, or is something else, before any work is done."""
    folder = target.parent
    if folder.resolve() in (each.resolve() for each in to_be_made) and not folder.exists():
        return
    if not folder.is_dir():
        raise ExperimentError(f"{flag} {target}: there is no folder {folder}")
    if target.is_dir():
        raise ExperimentError(f"{flag} {target}: is a folder; name a file")
    if not os.access(folder, os.W_OK) or (target.exists() and not os.access(target, os.W_OK)):
        raise ExperimentError(f"{flag} {target}: cannot be written")
    if target.exists() and not force and not _is_report(target):
        way_out = "--force writes over it" if flag == "-o" else "choose another name"
        raise ExperimentError(f"{flag} {target}: exists and is not a report; {way_out}")


def _is_report(target: Path) -> bool:
    try:
        with target.open("rb") as file:
            start = file.read(_LOOKED_AT_BYTES)
    except OSError:
        return False
    return not start or page.MARK.encode() in start


def write(target: Path, text: str, flag: str = "-o") -> None:
    """Whole or not at all: what is stopped in the middle leaves what was there before."""
    partial = target.with_name(f".{target.name}.part")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
    except OSError as problem:
        raise ExperimentError(f"{flag} {target}: cannot be written ({problem.strerror or problem})") from None
    finally:
        partial.unlink(missing_ok=True)
