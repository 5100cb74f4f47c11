"""Ranks of the rows of events: the order in which those of one instant stand on a tape."""

from headway.jobs.model.events import (
    JobArrived,
    JobCancelled,
    JobFailed,
    JobFinished,
    JobInterrupted,
    JobProgressed,
    JobWithdrawn,
    NodeDrained,
    NodeFailed,
    NodeRecovered,
    Woke,
)
from headway.jobs.model.rows import Kind

RANKS: dict[int, int] = {
    Kind.ARRIVED: JobArrived.rank,
    Kind.FINISHED: JobFinished.rank,
    Kind.FAILED: JobFailed.rank,
    Kind.CANCELLED: JobCancelled.rank,
    Kind.WITHDRAWN: JobWithdrawn.rank,
    Kind.NODE_FAILED: NodeFailed.rank,
    Kind.NODE_RECOVERED: NodeRecovered.rank,
    Kind.NODE_DRAINED: NodeDrained.rank,
    Kind.WOKE: Woke.rank,
    Kind.INTERRUPTED: JobInterrupted.rank,
    Kind.PROGRESSED: JobProgressed.rank,
}
