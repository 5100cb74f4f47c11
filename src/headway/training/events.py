"""What happens on a cluster, in the past tense. ``rank`` is the order in which events of one instant are applied.

Jobs that end by themselves do so before nodes fail: what was done by then counts, and nobody is queued again who had no
work left.
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
    """The user took a job back, while it ran (its lease) or while it waited (lease 0)."""

    job: int
    lease: int
    rank = 2


@dataclass(frozen=True, slots=True)
class NodeFailed:
    """A node went down; what ran on it goes back to the queue, at its last periodic checkpoint."""

    node: int
    rank = 3


@dataclass(frozen=True, slots=True)
class NodeRecovered:
    """A failed or drained node takes jobs again."""

    node: int
    rank = 4


@dataclass(frozen=True, slots=True)
class NodeDrained:
    """A node takes no new jobs. With ``evict`` what runs there is checkpointed and queued again."""

    node: int
    evict: bool = False
    rank = 5


@dataclass(frozen=True, slots=True)
class Woke:
    """The time that a policy asked for with ``WakeAt`` has come."""

    rank = 7


Event: TypeAlias = JobArrived | JobFinished | JobFailed | JobCancelled | NodeFailed | NodeRecovered | NodeDrained | Woke
