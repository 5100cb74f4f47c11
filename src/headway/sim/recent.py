"""Finds from where on a recorded policy has to be asked again to remember what it did: often a short while is enough.

A backfill that makes all reservations anew when a job ends before its time knows nothing of what it had reserved
before. Where its tape has such an instant, after a pause in which it would have waited its turn, the policy may be
asked from there on; what happened before is carried out as it was recorded.
"""

from collections.abc import Sequence

import numpy as np

from headway.core.tape import Tape
from headway.training.job import Job
from headway.training.policies.compose import ComposedPolicy
from headway.training.rows import Kind
from headway.training.state import TrainingState

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
    for row in ended[np.isin(times[ended], rested)][::-1].tolist():
        job = jobs[int(subjects[row])]
        if times[row] - begun[leases[row]] < (job.estimate or job.work):
            return int(times[row])
    return -1


def woken_for(tape: Tape, time: int) -> int:
    """Return the last wake-up that was asked for before a time and comes after it; 0 where there is none."""
    wakes = tape.of(Kind.WAKE_AT)
    pending = wakes[(wakes[:, 0] < time) & (wakes[:, 6] > time), 6]
    return int(pending[-1]) if len(pending) else 0
