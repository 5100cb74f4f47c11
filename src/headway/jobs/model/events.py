"""Events on a training cluster, in the past tense. ``rank`` is the order in which events of one instant are applied.

Jobs that end by themselves do so before nodes fail: work done by then counts, and no job without work left is queued
again. Structs and not dataclasses: a frozen dataclass takes five times as long to make.
"""

from typing import ClassVar, TypeAlias

from msgspec import Struct

from headway.jobs.model.job import Job


class JobArrived(Struct, frozen=True, gc=False):
    """A job was submitted and is eligible."""

    job: Job
    rank: ClassVar[int] = 8


class JobFinished(Struct, frozen=True, gc=False):
    """A job delivered all its work; with lease 0 while it waited: its program ended by itself while it was stopped."""

    job: int
    lease: int
    rank: ClassVar[int] = 0


class JobFailed(Struct, frozen=True, gc=False):
    """An attempt of a job failed by itself; it is queued again while it has retries."""

    job: int
    lease: int
    rank: ClassVar[int] = 1


class JobInterrupted(Struct, frozen=True, gc=False):
    """What ran of a job is gone, by no fault of its own: it waits again, at its last checkpoint.

    With ``saved`` its program wrote that one right before it ended.
    """

    job: int
    lease: int
    saved: bool = False
    rank: ClassVar[int] = 2


class JobCancelled(Struct, frozen=True, gc=False):
    """The user cancelled a job, while it ran (its lease) or while it waited (lease 0)."""

    job: int
    lease: int
    rank: ClassVar[int] = 3


class JobWithdrawn(Struct, frozen=True, gc=False):
    """A job left before it was eligible: cancelled by its user, or what it waits for can never happen."""

    job: int
    rank: ClassVar[int] = 4


class NodeFailed(Struct, frozen=True, gc=False):
    """A node went down; its jobs go back to the queue, at their last periodic checkpoints."""

    node: int
    rank: ClassVar[int] = 5


class NodeRecovered(Struct, frozen=True, gc=False):
    """A failed or drained node takes jobs again."""

    node: int
    rank: ClassVar[int] = 6


class NodeDrained(Struct, frozen=True, gc=False):
    """A node takes no new jobs. With ``evict`` jobs that run there are checkpointed and queued again."""

    node: int
    evict: bool = False
    rank: ClassVar[int] = 7


class Woke(Struct, frozen=True, gc=False):
    """The time that a policy asked for with ``WakeAt`` has come."""

    rank: ClassVar[int] = 10


class JobProgressed(Struct, frozen=True, gc=False):
    """What is expected of a job is known better, while it runs (its lease) or waits (lease 0)."""

    job: int
    lease: int
    expected: int
    """All its work, in nanoseconds at reference speed."""
    rank: ClassVar[int] = 9


Event: TypeAlias = (
    JobArrived
    | JobFinished
    | JobFailed
    | JobInterrupted
    | JobCancelled
    | JobWithdrawn
    | JobProgressed
    | NodeFailed
    | NodeRecovered
    | NodeDrained
    | Woke
)
