"""What was seen of jobs whose work nobody knew: how they ended, and after how much work, from a tape."""

from collections.abc import Sequence
from dataclasses import replace

from headway.core.replay import rows_of
from headway.core.tape import Tape
from headway.jobs.model.job import Job, Outcome, workload
from headway.jobs.model.rows import Kind

_ENDS = {
    int(Kind.FINISHED): Outcome.FINISHES,
    int(Kind.FAILED): Outcome.FAILS,
    int(Kind.CANCELLED): Outcome.CANCELLED,
    int(Kind.KILL): Outcome.CANCELLED,
}
_AGAIN = int(Kind.QUEUED_AGAIN)


def last_rows(tape: Tape) -> dict[int, list[int]]:
    """Return by job the row with which it left for good."""
    last: dict[int, list[int]] = {}
    for row in rows_of(tape):
        if row[1] in _ENDS:
            last[row[2]] = row
        elif row[1] == _AGAIN:
            last.pop(row[2], None)
    return last


def seen(jobs: Sequence[Job], tape: Tape) -> tuple[Job, ...]:
    """Return the jobs with the work and the outcome that a tape tells; those that have not ended as they were."""
    last = last_rows(tape)
    return tuple(_ended(job, last[job.id]) if job.id in last and job.open_end else job for job in jobs)


def _ended(job: Job, row: list[int]) -> Job:
    outcome, work = _ENDS[row[1]], max(1, row[6])
    if outcome is Outcome.FINISHES:
        return replace(job, work=work)
    return replace(job, work=work, outcome=outcome, outcome_after=work)


def played_again(jobs: Sequence[Job], tape: Tape) -> tuple[Job, ...]:
    """Return the jobs of a live run that ran and ended, as a simulation plays them."""
    last = last_rows(tape)
    ran = [job for job in seen(jobs, tape) if job.id in last and (last[job.id][3] or last[job.id][6])]
    return workload(replace(job, open_end=False) for job in ran)
