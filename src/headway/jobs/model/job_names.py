"""Find the job that is meant by what a user calls it: its id in the trace, or its number in the run.

A Slurm log calls its jobs by numbers. Of such a run a plain number is an id and never a number of the run, which would
be another job: that is said as ``#17``.
"""

import re
from collections.abc import Sequence

from headway.errors import TapeError
from headway.jobs.model.job import Job
from headway.units import counted

TASK = r"^((?:[^:]+:)?\d+)_\d+$"
"""The name of a task of a Slurm array; of several clusters with its cluster before it."""
_NUMBER = re.compile(r"(?:[^:]+:)?\d+(?:[_+]\d+)?")
_ALL_NAMED = 3
"""So many names are listed; of more the first and the last."""


def reads_as_number(name: str) -> bool:
    """Return whether a name is a number, as those of a Slurm log are: 1953, 1953_4, north:1953."""
    return _NUMBER.fullmatch(name) is not None


def job_number(jobs: Sequence[Job], wanted: str) -> int:
    """Return the number of a job that was named by its id in the trace, or by its number."""
    if not wanted.strip():
        raise TapeError("the job is empty: name it by its id in the trace, or by its number")
    for job in jobs:
        if job.name == wanted:
            return job.id
    numbers_are_names = 2 * sum(reads_as_number(job.name) for job in jobs) > len(jobs)
    if (found := _place(wanted, plain=not numbers_are_names)) is not None and found < len(jobs):
        return found
    raise TapeError(_not_found(jobs, wanted, numbers_are_names))


def _place(wanted: str, *, plain: bool) -> int | None:
    """Return the number of the run that is meant by ``#17``, and by a plain 17 where that is no name."""
    digits = wanted.removeprefix("#")
    meant = plain or digits != wanted
    return int(digits) if meant and digits.isdecimal() and len(digits) < 19 else None


def _not_found(jobs: Sequence[Job], wanted: str, numbers_are_names: bool) -> str:
    """Return what to say about a name that no job has: an array, a job of several clusters, or nothing."""
    names = [job.name for job in jobs if job.name]
    if tasks := _tasks(names, wanted):
        return f"{wanted} is an array: say {_listed(tasks)}"
    if alike := [name for name in names if name.partition(":")[2] == wanted]:
        return f"job {wanted!r} is of which cluster? Say {_listed(alike)}"
    absent = f"job {wanted!r} is not in this run"
    if not names:
        return f"{absent}: its {counted(len(jobs), 'job')} go from 0 to {len(jobs) - 1}"
    if len(jobs) == 1:
        return f"{absent}: its only job is called {names[0]}"
    place = _place(f"#{wanted}", plain=False) if numbers_are_names else None
    hint = f"; '#{wanted}' is the one with that number in the run" if place in range(len(jobs)) else ""
    return f"{absent}: none of its {len(jobs):,} jobs is called so{hint}"


def _tasks(names: Sequence[str], array: str) -> list[str]:
    """Return the tasks of an array of Slurm, in their order."""
    tasks = [name for name in names if (task := re.match(TASK, name)) is not None and task[1] == array]
    return sorted(tasks, key=lambda name: int(name.rpartition("_")[2]))


def _listed(names: Sequence[str]) -> str:
    if len(names) > _ALL_NAMED:
        return f"{names[0]} … {names[-1]}"
    return " or ".join(names)
