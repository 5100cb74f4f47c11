"""List every interval of waiting of every job: from an arrival or a stop to the next start, or to the end."""

from dataclasses import dataclass

import numpy as np

from headway.jobs.metrics.ledger import Ledger
from headway.jobs.metrics.window import Window
from headway.jobs.model.rows import REJOINS, Kind
from headway.statistics.series import IntArray

_JOINS = (Kind.ARRIVED, *REJOINS, Kind.QUEUED_AGAIN)


@dataclass(frozen=True, slots=True, eq=False)
class Waits:
    """Stretches by job, then by time; none of length 0. Those of a job are exactly its ``Ledger.wait``."""

    job: IntArray
    start: IntArray
    end: IntArray
    """When it started, or was cancelled; the last row where the tape ends before that."""

    @property
    def length(self) -> IntArray:
        """Return the nanoseconds of each stretch."""
        return self.end - self.start


def waits(ledger: Ledger, window: Window | None = None) -> Waits:
    """Return the stretches in which each job waited; with a window, each job that it measures."""
    rows = ledger.rows(*_JOINS, Kind.START, Kind.CANCELLED)
    kind = ledger.kind[rows]
    rows = rows[(kind != Kind.CANCELLED) | (ledger.lease[rows] == 0)]  # one that ran does not leave the queue
    rows = rows[np.argsort(ledger.subject[rows], kind="stable")]
    job, time, kind = ledger.subject[rows], ledger.time[rows], ledger.kind[rows]
    joins = np.isin(kind, [int(each) for each in _JOINS])
    followed = np.append(job[1:] == job[:-1], False)[: len(rows)]
    end = np.where(followed, np.append(time[1:], 0)[: len(rows)], ledger.horizon)
    kept = joins & (end > time)
    if window is not None:
        kept &= (job >= window.first) & (job < window.last)
    return Waits(job[kept], time[kept], end[kept])
