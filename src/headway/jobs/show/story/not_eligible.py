"""Tell how long a job was submitted and not eligible, and what for."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headway.jobs.metrics.ledger import Ledger
from headway.jobs.model.job import Job, Outcome
from headway.jobs.model.rows import Kind
from headway.jobs.rules.eligibility.engine import Gate
from headway.jobs.show.story.stretches import span_record, spanned
from headway.units import clock

_OUTCOMES = {int(Kind.FINISHED): Outcome.FINISHES, int(Kind.FAILED): Outcome.FAILS}


@dataclass(frozen=True, slots=True)
class NotEligible:
    """An interval in which a job was submitted and not eligible yet."""

    start: int
    end: int | None
    """None: the tape ends before."""
    reasons: tuple[str, ...]
    """What it waited for when it was submitted."""

    def lines(self) -> list[str]:
        """Return it as lines for a terminal."""
        return [f"{spanned(self.start, self.end)}  is not eligible", *(f"      {reason}" for reason in self.reasons)]

    def record(self) -> dict[str, object]:
        """Return it as JSON, for a program."""
        return {"what": "not eligible", **span_record(self.start, self.end), "reasons": list(self.reasons)}


def not_eligible(ledger: Ledger, job: int) -> NotEligible | None:
    """Return how long a job was submitted and not eligible; None where it never was."""
    mine = ledger.jobs[job]
    if mine.submit > ledger.horizon or (ledger.arrived[job] and ledger.submit[job] <= mine.submit):
        return None
    if mine.terms is None or not (mine.terms.after or mine.terms.begin):
        return None
    end = int(ledger.submit[job] if ledger.arrived[job] else ledger.withdrawn[job])
    return NotEligible(mine.submit, end if end >= 0 else None, tuple(reasons(ledger, job, mine.submit)))


def reasons(ledger: Ledger, job: int, at: int) -> list[str]:
    """Return what a job that is not eligible waits for at a time, in words."""
    mine, gate = ledger.jobs[job], gate_at(ledger.jobs, ledger, at)
    begin = 0 if mine.terms is None else mine.terms.begin
    return [*([f"not before {clock(begin)}"] if begin > at else []), *gate.unmet(at, mine)]


def gate_at(jobs: Sequence[Job], ledger: Ledger, at: int) -> Gate:
    """Return a gate that was told all that happened up to and including a time."""
    gate = Gate(jobs)
    began = np.flatnonzero((ledger.first_start >= 0) & (ledger.first_start <= at))
    for job in began[np.argsort(ledger.first_start[began], kind="stable")].tolist():
        gate.started(int(ledger.first_start[job]), job)
    end = np.where(ledger.ended, ledger.end, ledger.withdrawn)
    gone = np.flatnonzero((end >= 0) & (end <= at))
    for job in gone[np.argsort(end[gone], kind="stable")].tolist():
        gate.ended(int(end[job]), job, _OUTCOMES.get(int(ledger.ended_by[job]), Outcome.CANCELLED))
    return gate
