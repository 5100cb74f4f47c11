"""Events on a training cluster, in the past tense. ``rank`` is the order in which events of one instant are applied.

Jobs that end by themselves do so before nodes fail: work done by then counts, and no job without work left is queued
again.
"""

from dataclasses import dataclass
from typing import TypeAlias

from headway.training.job import Job


@dataclass(frozen=True, slots=True)
class JobArrived:
    """A job was submitted."""

    job: Job
    rank = 6


@dataclass(frozen=True, slots=True)
class JobFinished:
    """A job delivered all its work."""

    job: int
    lease: int
    rank = 0


@dataclass(frozen=True, slots=True)
class JobFailed:
    """An attempt of a job failed by itself; it is queued again while it has retries."""

    job: int
    lease: int
    rank = 1


@dataclass(frozen=True, slots=True)
class JobCancelled:
    """The user cancelled a job, while it ran (its lease) or while it waited (lease 0)."""

    job: int
    lease: int
    rank = 2


@dataclass(frozen=True, slots=True)
class NodeFailed:
    """A node went down; its jobs go back to the queue, at their last periodic checkpoints."""

    node: int
    rank = 3


@dataclass(frozen=True, slots=True)
class NodeRecovered:
    """A failed or drained node takes jobs again."""

    node: int
    rank = 4


@dataclass(frozen=True, slots=True)
class NodeDrained:
    """A node takes no new jobs. With ``evict`` jobs that run there are checkpointed and queued again."""

    node: int
    evict: bool = False
    rank = 5


@dataclass(frozen=True, slots=True)
class Woke:
    """The time that a policy asked for with ``WakeAt`` has come."""

    rank = 7


Event: TypeAlias = JobArrived | JobFinished | JobFailed | JobCancelled | NodeFailed | NodeRecovered | NodeDrained | Woke
