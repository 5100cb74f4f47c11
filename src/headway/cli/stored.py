"""Runs that were kept, and jobs of them, as they are named on the command line."""

from collections.abc import Sequence
from pathlib import Path

from headway import experiment
from headway.cli import console
from headway.errors import TapeError
from headway.experiment.whatif import CONTINUATION_NAME, origin
from headway.training.job import Job


def stored(folder: str, checked: str = "") -> experiment.StoredRun:
    """A run of which there is something to look at; one that was cut short is checked as far as it goes."""
    try:
        found = experiment.open_run(folder)
    except TapeError as problem:
        if not (Path(folder) / CONTINUATION_NAME).is_dir() or (came := origin(Path(folder))) is None:
            raise
        raise TapeError(
            f"{folder} holds no run but what followed changes on the way: take the run it came from, {came.run}"
        ) from problem
    if not len(found.tape):
        raise TapeError(f"run folder {folder}: the tape holds no step yet")
    if checked and not found.complete:
        console.note(f"note: the run was cut short after {len(found.tape):,} rows; {checked}")
    return found


def job_number(jobs: Sequence[Job], wanted: str) -> int:
    """The number of a job that was named by its id in the trace, or by its number."""
    for job in jobs:
        if job.name == wanted:
            return job.id
    if wanted.isdecimal() and len(wanted) < 19 and int(wanted) < len(jobs):
        return int(wanted)
    names = [job.name or str(job.id) for job in (jobs[0], jobs[-1])]
    raise TapeError(f"job {wanted!r} is not in this run: its {len(jobs):,} jobs go from {names[0]} to {names[1]}")
