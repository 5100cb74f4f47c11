"""Finds from where on a recorded policy has to be asked again to remember what it did: often a short while is enough.

A backfill that makes all reservations anew when a job ends before its time knows nothing of what it had reserved
before. Where its tape has such an instant, after a pause in which it would have waited its turn, the policy may be
asked from there on; what happened before is carried out as it was recorded.
"""

from collections.abc import Sequence

import numpy as np

from headway.core.tape import Tape
from headway.jobs.model.job import Job
from headway.jobs.model.rows import Kind
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.state.state import TrainingState

_CHANGES_EXPECTED_END = (Kind.WARN, Kind.PROGRESSED)
_ENDS = (Kind.FINISHED, Kind.FAILED, Kind.CANCELLED)


def asked_from(tape: Tape, jobs: Sequence[Job], policy: ComposedPolicy, state: TrainingState) -> int:
    """Return the last instant of a tape that leaves nothing of what the policy remembered; -1 where there is none."""
    pause = policy.forgets
    if pause is None or not state.speed.constant or not len(tape.rows):
        return -1
    times, kinds, subjects, leases = (tape.column(name) for name in ("time", "kind", "subject", "lease"))
    started = kinds == Kind.START
    begun = np.full(int(leases.max()) + 1, -1)
    begun[leases[started]] = times[started]
    begun[leases[np.isin(kinds, _CHANGES_EXPECTED_END)]] = -1
    once = np.bincount(subjects[started], minlength=len(jobs)) == 1
    ended = np.flatnonzero(np.isin(kinds, _ENDS) & (leases > 0))
    ended = ended[once[subjects[ended]] & (begun[leases[ended]] >= 0)]
    instants = np.unique(times)
    rested = instants[1:][np.diff(instants) >= pause]
    wakes = Wakes(tape)
    for row in ended[np.isin(times[ended], rested)][::-1].tolist():
        job = jobs[int(subjects[row])]
        if times[row] - begun[leases[row]] < (job.estimate or job.work) and wakes.last(int(times[row])) is not None:
            return int(times[row])
    return -1


class Wakes:
    """The wake-ups that a policy asked for."""

    def __init__(self, tape: Tape) -> None:
        rows = tape.of(Kind.WAKE_AT)
        self._asked, self._values = rows[:, 0], rows[:, 6]
        self._latest = np.maximum.accumulate(self._values)

    def last(self, time: int) -> int | None:
        """Return the last one that was asked for before a time, or 0; None where it cannot be told whose it is.

        The backfill and the rest of a policy each remember their own. That of a backfill is over after a pause. So one
        that is to come is the other's; one that is over, while an earlier one is to come, may be of either.
        """
        if not (count := int(np.searchsorted(self._asked, time))):
            return 0
        found = int(self._values[count - 1])
        return found if found > time or self._latest[count - 1] <= time else None
