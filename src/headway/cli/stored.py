"""Runs that were kept, and jobs of them, as they are named on the command line."""

from collections.abc import Sequence
from pathlib import Path

from headway import experiment
from headway.cli import console
from headway.core.tape import holds_tape
from headway.errors import TapeError
from headway.experiment.folder import EXPERIMENT_NAME
from headway.experiment.whatif import CONTINUATION_NAME, origin
from headway.training.job import Job

_MOST_NAMED = 3


def stored(folder: str, checked: str = "", *, trust: bool = False) -> experiment.StoredRun:
    """A run of which there is something to look at; one that was cut short is checked as far as it goes."""
    if experiment.is_serving(folder):
        raise TapeError(f"{folder} is a run of requests on a fleet, and this is about jobs: headway story tells of one")
    try:
        found = experiment.open_run(folder, trust=trust)
    except TapeError as problem:
        if (line := _no_run(Path(folder))) is None:
            raise
        raise TapeError(line) from problem
    if not len(found.tape):
        raise TapeError(f"run folder {folder}: the tape holds no step yet")
    if checked and not found.complete:
        console.note(f"note: the run was cut short after {len(found.tape):,} rows; {checked}")
    return found


def what_followed(folder: Path) -> str | None:
    """The line about a what-if without a run, given by its folder or that of its tape; None for any other folder."""
    place = folder.parent if folder.name == CONTINUATION_NAME else folder
    if holds_tape(place) or not (place / CONTINUATION_NAME).is_dir() or (came := origin(place)) is None:
        return None
    what = "a what-if without a run, which holds no run but what followed changes on the way"
    return f"{folder} is {what}: take the run it came from, {came.run}"


def _no_run(folder: Path) -> str | None:
    """What a folder without a run holds instead, in one line: what followed changes, or runs; None for neither."""
    if (line := what_followed(folder)) is not None:
        return line
    if holds_tape(folder) or not (runs := _runs_in(folder)):
        return None
    more = f" and {len(runs) - _MOST_NAMED:,} more" if len(runs) > _MOST_NAMED else ""
    what = "a run is in it: take" if len(runs) == 1 else "runs are in it: take one of"
    return f"{folder} holds no run itself, but {what} {', '.join(map(str, runs[:_MOST_NAMED]))}{more}"


def _runs_in(folder: Path) -> list[Path]:
    """Runs one or two folders below, by name; seed-2 before seed-10."""
    near = inside(folder)
    found = (*near, *(deeper for each in near for deeper in inside(each)))
    runs = [each for each in found if (each / EXPERIMENT_NAME).is_file() and holds_tape(each)]
    return sorted(runs, key=lambda each: (each.parent, len(each.name), each.name))


def inside(folder: Path) -> list[Path]:
    """The folders in a folder, by name; links are not followed, and none are where they cannot be read."""
    try:
        return sorted(each for each in folder.iterdir() if each.is_dir() and not each.is_symlink())
    except OSError:
        return []


def job_number(jobs: Sequence[Job], wanted: str) -> int:
    """The number of a job that was named by its id in the trace, or by its number."""
    if not wanted.strip():
        raise TapeError("the job is empty: name it by its id in the trace, or by its number")
    for job in jobs:
        if job.name == wanted:
            return job.id
    if wanted.isdecimal() and len(wanted) < 19 and int(wanted) < len(jobs):
        return int(wanted)
    names = [job.name or str(job.id) for job in (jobs[0], jobs[-1])]
    raise TapeError(f"job {wanted!r} is not in this run: its {len(jobs):,} jobs go from {names[0]} to {names[1]}")
