"""Find stored runs: one by its folder, or all below a folder."""

from collections.abc import Callable
from pathlib import Path

from headway.core.tape import holds_tape
from headway.errors import TapeError
from headway.runs.domain import StoredRun
from headway.runs.folder.folder import CONTINUATION_NAME, EXPERIMENT_NAME, open_run, origin
from headway.units import counted, format_duration

Note = Callable[[str], None]
"""Told one line about what was found."""

_MOST_NAMED = 3


def stored(folder: str | Path, checked: str = "", *, trust: bool = False, note: Note | None = None) -> StoredRun:
    """Open a run of which there is something to look at; ``note`` is told of one that was cut short."""
    try:
        run = open_run(folder, trust=trust)
    except TapeError as problem:
        if (line := _no_run(Path(folder))) is None:
            raise
        raise TapeError(line) from problem
    if not len(run.tape):
        raise TapeError(f"run folder {folder}: the tape holds no step yet")
    if checked and note is not None and not run.complete:
        note(f"note: {cut_short(run)}; {checked}")
    return run


def cut_short(run: StoredRun) -> str:
    """Say of a run that is not complete how far it goes."""
    last = format_duration(int(run.tape.column("time")[-1])) if len(run.tape) else "its beginning"
    if why := run.scene.endless():
        return f"{why}: this is the run up to {last}, {counted(len(run.tape), 'row')}"
    return f"the run is not complete: it was cut short at {last}, after {counted(len(run.tape), 'row')}"


def what_if_line(folder: Path) -> str | None:
    """Return a line about a what-if without a run, given its folder or that of its tape; None for any other folder."""
    place = folder.parent if folder.name == CONTINUATION_NAME else folder
    if holds_tape(place) or not (place / CONTINUATION_NAME).is_dir() or (came := origin(place)) is None:
        return None
    what = "a what-if without a run, which holds no run but what followed changes on the way"
    return f"{folder} is {what}: take the run it came from, {came.run}"


def _no_run(folder: Path) -> str | None:
    """Return a line on what a folder without a run holds: a what-if, or runs below it; None for neither."""
    if (line := what_if_line(folder)) is not None:
        return line
    if holds_tape(folder) or not (runs := _runs_in(folder)):
        return None
    more = f" and {len(runs) - _MOST_NAMED:,} more" if len(runs) > _MOST_NAMED else ""
    what = "a run is in it: take" if len(runs) == 1 else "runs are in it: take one of"
    return f"{folder} holds no run itself, but {what} {', '.join(map(str, runs[:_MOST_NAMED]))}{more}"


def _runs_in(folder: Path) -> list[Path]:
    """Return the runs one or two folders below, by name; seed-2 before seed-10."""
    near = inside(folder)
    candidates = (*near, *(deeper for each in near for deeper in inside(each)))
    runs = [each for each in candidates if (each / EXPERIMENT_NAME).is_file() and holds_tape(each)]
    return sorted(runs, key=lambda each: (each.parent, len(each.name), each.name))


def inside(folder: Path) -> list[Path]:
    """Return the folders in a folder, by name; links are not followed, unreadable folders are empty."""
    try:
        return sorted(each for each in folder.iterdir() if each.is_dir() and not each.is_symlink())
    except OSError:
        return []
