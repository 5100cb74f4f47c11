"""Make report pages: find the runs, open them under distinct names, and write the file."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from headway.core.tape import holds_tape
from headway.errors import ExperimentError, InputError, TapeError, unknown_name
from headway.plugins import as_named
from headway.runs.domain import Row, Shown, Tell
from headway.runs.folder.folder import (
    check_output,
    explains_corrupt_tape,
    open_run,
    read as read_folder,
    scale_name,
    up_to_date,
)
from headway.runs.folder.stored import Note, cut_short, inside, what_if_line
from headway.runs.registry import domain, domain_of
from headway.runs.several import read_order
from headway.runs.sweep.cells import CELLS_NAME
from headway.show import page
from headway.show.names import shortened

_SEED = re.compile(r"seed-(\d+)")
_LOOKED_AT_BYTES = 400
"""Of a file that is in the way: enough to tell a report."""


class Place(NamedTuple):
    """Where a run lies that is to be shown."""

    folder: Path
    shown: str
    """How a command would name the folder; empty where it will go."""
    seeds: tuple[Path, ...] = ()
    """The folders of all its seeds, this one first, where it has several."""


def page_of(
    places: Sequence[Place],
    tell: Tell,
    note: Note,
    *,
    baseline: int | str | None = None,
    title: str = "",
    trust: bool = False,
) -> str:
    """Return one page of some runs of one scale; ``baseline`` is a number, or a name as users know runs by."""
    scales = {scale_name(place.folder) for place in places}
    if len(scales) > 1:
        raise ExperimentError(
            f"some of these runs are of {' and some of '.join(sorted(scales))}: a report shows one kind"
        )
    runs = opened(places, tell, note, trust=trust)
    at = baseline if isinstance(baseline, int) else position(runs, baseline)
    least_sure = next((run.stored for run in runs if not run.stored.result), runs[0].stored)
    with explains_corrupt_tape(least_sure.folder, least_sure.result):
        return domain_of(least_sure.scene.experiment).view.page(runs, at, title, tell)


# --- runs -----------------------------------------------------------------------------------------------------


def folders(given: Sequence[str], note: Note) -> list[Place]:
    """Return each run; a folder without a tape stands for the runs one or two folders below it.

    Links are not followed.
    """
    runs: list[Place] = []
    for text in given:
        folder = Path(text)
        if not folder.is_dir():
            raise TapeError(f"run folder {folder}: there is no such folder")
        if (line := what_if_line(folder)) is not None:
            raise TapeError(line)
        folder = up_to_date(folder)
        below = [(folder,)] if holds_tape(folder) else list(_below(folder, note))
        if not below and (folder / CELLS_NAME).is_dir():
            kept = f"headway SCALE sweep -o {folder} --keep-runs"
            raise TapeError(f"{folder} is the folder of a sweep, and no tape of its cells was kept: {kept} keeps them")
        if not below:
            raise TapeError(
                f"run folder {folder} holds no run, and neither do the folders in it and those in them: "
                "simulate --out makes one"
            )
        runs.extend(Place(first, shown_as(folder, first), (first, *more) if more else ()) for first, *more in below)
    places = [place.folder.resolve() for place in runs]
    for index, place in enumerate(places):
        if place in places[:index]:
            raise ExperimentError(f"run folder {runs[index].folder}: is given twice")
    return runs


def shown_as(given: Path, folder: Path) -> str:
    """Return how a command names a folder in the one that it was given, or that one; without what is above them."""
    shown = given.name or given.resolve().name if given.is_absolute() else given.as_posix()
    within = folder.relative_to(given).as_posix()
    return shown if within == "." else within if shown == "." else f"{shown}/{within}"


def _below(folder: Path, note: Note, deep: int = 2) -> Iterator[Sequence[Path]]:
    """Yield the runs in a folder, in the order of the command, else by name; runs of several seeds together."""
    order = {name: position for position, name in enumerate(read_order(folder))}
    inner = sorted(inside(folder), key=lambda each: (order.get(each.name, len(order)), each.name))
    seeds = sorted((int(m[1]), each) for each in inner if (m := _SEED.fullmatch(each.name)) and holds_tape(each))
    together = [each for _, each in seeds] if len(seeds) > 1 else []
    for each in inner:
        if each in together:
            continue
        if (line := what_if_line(each)) is not None:
            note(f"note: {line.partition(': ')[0]}: left out")
        elif holds_tape(each):
            yield (each,)
        elif deep > 1:
            yield from _below(each, note, deep - 1)
    if together:
        yield together


def opened(places: Sequence[Place], tell: Tell, note: Note, *, trust: bool = False) -> tuple[Shown, ...]:
    """Open runs, with names that tell them apart."""
    found = []
    for place in places:
        tell("reading", 0.0)
        found.append(_read(*_of_seeds(place, note), trust))
        if not (last := found[-1].stored).complete:
            note(f"note: {place.folder}: {cut_short(last)}; the report shows what is there")
    if shown := {run.seeds[0]["seed"] for run in found if run.seeds}:
        which = f"seed {shown.pop()}" if len(shown) == 1 else "the first of each"
        if domain_of(found[0].stored.scene.experiment).view.averages_on_page:
            note(f"note: numbers of the report are means over seeds; its map and figures show {which}")
        else:
            note(f"note: the report shows {which} alone, no means over seeds")
    return tuple(_told_apart(found))


def _of_seeds(place: Place, note: Note) -> tuple[Place, tuple[Row, ...]]:
    """Return a run and the results of its seeds; a seed without any, or that was stopped, is left out."""
    results = {folder: result for folder in place.seeds if _is_whole(folder, result := _result(folder, note))}
    if len(results) < len(place.seeds):
        left_out = [folder.name for folder in place.seeds if folder not in results]
        note(f"note: {place.folder.parent}: no results of {', '.join(left_out)}: left out of means over seeds")
    if len(results) < 2:
        return place, ()
    first = next(iter(results))
    shown = place.shown and f"{place.shown.removesuffix(place.folder.name)}{first.name}"
    return Place(first, shown, place.seeds), tuple(results.values())


def _is_whole(folder: Path, result: Row) -> bool:
    """Return whether these are the results of a run that went to its end, with everything that a mean needs."""
    view = domain(scale_name(folder)).view
    return result.get("stopped") is False and all(
        key in result for key in (*view.first_keys, *view.replication.of_one_seed)
    )


def _read(place: Place, seeds: tuple[Row, ...], trust: bool) -> Shown:
    folder = place.folder
    stored = open_run(folder, trust=trust)
    if not len(stored.tape):
        raise TapeError(f"run folder {folder}: the tape holds no step yet")
    named = as_named(stored.scene.experiment.policy.name)
    label = str(stored.result.get("variant") or stored.result.get("policy") or "") or named
    return Shown(label, place.shown, stored, seeds=seeds, drawn=_drawn(stored.scene.experiment))


def _drawn(experiment: Any) -> bool:
    """Return whether another seed gives another run; where the policy is gone, nothing but the rest can tell."""
    try:
        return domain_of(experiment).draws(experiment)
    except InputError:
        return False


def _result(folder: Path, note: Note) -> Row:
    """Return what was stored beside the tape; nothing for a run that was cut short, or whose files do not match."""
    try:
        return read_folder(folder)[1]
    except TapeError as problem:
        note(f"note: {problem}")
        return {}


def _told_apart(shown: Sequence[Shown]) -> list[Shown]:
    """Return runs under short names; equal names get that of their folder beside it."""
    labels = shortened([run.label for run in shown])
    apart: list[Shown] = []
    taken: set[str] = set()
    for run, short in zip(shown, labels, strict=True):
        label = short if labels.count(short) == 1 else f"{short} ({_folder(run).name})"
        name, number = label, 2
        while name in taken:
            name, number = f"{label} {number}", number + 1
        taken.add(name)
        apart.append(replace(run, label=name, name=run.label if short != run.label else ""))
    return apart


def _folder(run: Shown) -> Path:
    """Return where a run lies, with all its seeds."""
    folder = run.stored.folder.resolve()
    return folder.parent if run.seeds else folder


def _policy(run: Shown) -> str:
    """Return its policy in full; as it was asked for, where its file is gone."""
    try:
        return str(run.stored.scene.policy_name())
    except InputError:
        return as_named(run.stored.scene.experiment.policy.name)


def position(runs: Sequence[Shown], baseline: str | None) -> int:
    """Return the index of the run that a name means: label, policy or folder.

    Without a name, the experiment's baseline.
    """
    wanted = baseline or next((name for run in runs if (name := run.stored.scene.experiment.measure.baseline)), "")
    for names in (
        [run.label for run in runs],
        [run.name for run in runs],
        [_folder(run).name for run in runs],
        [run.shown_folder for run in runs],
        [_policy(run) for run in runs],
        [as_named(run.stored.scene.experiment.policy.name) for run in runs],
    ):
        if wanted and wanted in names:
            return names.index(wanted)
    if baseline is None:
        return 0
    raise ExperimentError(unknown_name("--baseline", baseline, [run.label for run in runs]))


# --- the file -------------------------------------------------------------------------------------------------


def check_target(target: Path, force: bool, flag: str = "-o", to_be_made: Sequence[Path] = ()) -> None:
    """Refuse a file that cannot be written, or is something else, before any work is done."""
    check_output(target, flag)
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
        over = ", or write over it by --force in a shell" if flag == "-o" else ""
        raise ExperimentError(f"{flag} {target}: exists and is not a report; choose another name{over}")


def _is_report(target: Path) -> bool:
    try:
        with target.open("rb") as file:
            start = file.read(_LOOKED_AT_BYTES)
    except OSError:
        return False
    return not start or page.MARK.encode() in start
