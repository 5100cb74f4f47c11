"""The rows of a training tape: kinds, columns, and how actions are written as rows.

Columns: time, kind, subject (a job's id, or a node's index for node events), lease, place (a node), detail (a mask of
GPUs), value. Kinds below 20 are events, from 20 on actions, from 40 on consequences: facts that follow from the row
before (RESPEED: from a row of the same instant) and are written down so that metrics need no model. A placement on
several nodes, or on a node with more than 62 GPUs, continues in PLACE rows whose value is the 62-bit word of the mask.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import assert_never

from headway.core.tape import Row
from headway.jobs.model.actions import (
    Action,
    KillJob,
    MigrateJob,
    PreemptJob,
    ReallocateJob,
    RequeueJob,
    StartJob,
    WakeAt,
    WarnJob,
)
from headway.jobs.model.resources import Grant, Placement

WORD_BITS = 62
WORD = (1 << WORD_BITS) - 1


class Kind(IntEnum):
    """What a row says; in brackets what its value is."""

    ARRIVED = 1
    FINISHED = 2  # work delivered in all
    FAILED = 3  # work delivered by this attempt
    CANCELLED = 4  # work delivered
    NODE_FAILED = 5
    NODE_RECOVERED = 6
    NODE_DRAINED = 7  # 1 when what ran there was evicted
    WOKE = 8
    STALE = 9  # an event that came too late; value is its kind
    WITHDRAWN = 10  # left before it was eligible
    INTERRUPTED = 11  # 1 when its work was saved; an EVICTED row follows
    PROGRESSED = 12  # all its work, as it is expected now
    START = 20  # speed in ppm
    PREEMPT = 21  # work delivered so far
    MIGRATE = 22  # speed in ppm
    WAKE_AT = 23  # the time asked for
    REALLOCATE = 25  # speed in ppm; a GRANT row follows
    REFUSED = 24  # the kind of the action that was refused; its note says why
    REQUEUE = 26  # work that is lost; detail is the job for which it was stopped
    KILL = 27  # work delivered, and lost; detail is the job for which it was stopped
    WARN = 28  # when it goes; detail is the job for which it will be stopped
    PLACE = 40  # which word of the mask
    COST = 41  # nanoseconds that the job just started stands still first
    EVICTED = 42  # work kept; detail is the work lost
    RESPEED = 43  # new speed in ppm
    QUEUED_AGAIN = 44  # a failed attempt that is retried; value is the attempt
    GRANT = 45  # thousandths of a CPU that the job now holds; detail is bytes of memory
    STORAGE = 46  # bytes a second of storage bandwidth that it holds, where that is counted
    PAUSE = 47  # nanoseconds that a job stands still because what it holds was changed


ENDS = (Kind.FINISHED, Kind.FAILED, Kind.CANCELLED, Kind.KILL)
"""With which a job ends, unless a failed attempt is queued again."""
REJOINS = (Kind.PREEMPT, Kind.REQUEUE, Kind.EVICTED)
"""With which a running job waits again."""
FOR_OTHERS = (Kind.PREEMPT, Kind.REQUEUE, Kind.KILL)
"""With which a running job is stopped so that another one can start."""
_NODES = (Kind.NODE_FAILED, Kind.NODE_RECOVERED, Kind.NODE_DRAINED)
_NOBODY = (*_NODES, Kind.WOKE, Kind.WAKE_AT, Kind.STALE, Kind.REFUSED)
JOB_KINDS = tuple(int(kind) for kind in Kind if kind not in _NOBODY)
"""Rows whose subject is a job."""
PLACED_KINDS = (int(Kind.START), int(Kind.MIGRATE), int(Kind.PLACE))
"""Rows whose place is a node."""


def placement_rows(now: int, kind: int, job: int, lease: int, placement: Placement, value: int) -> Iterator[Row]:
    """Yield the rows of a start or a move: the first word of the mask first, then PLACE rows."""
    node, mask = placement[0]
    yield (now, kind, job, lease, node, mask & WORD, value)
    for index, (node, mask) in enumerate(placement):
        if index and not mask:  # CPUs and memory alone
            yield (now, int(Kind.PLACE), job, lease, node, 0, 0)
        word = 0
        while mask:
            if (index or word) and mask & WORD:
                yield (now, int(Kind.PLACE), job, lease, node, mask & WORD, word)
            mask >>= WORD_BITS
            word += 1


def grant_rows(now: int, job: int, lease: int, grant: Grant) -> Iterator[Row]:
    """Yield the rows of a grant, which follow the row of the action."""
    yield (now, int(Kind.GRANT), job, lease, -1, grant.memory_bytes, grant.cpu_milli)
    if grant.storage:
        yield (now, int(Kind.STORAGE), job, lease, -1, 0, grant.storage)


def refused_row(now: int, action: Action) -> Row:
    """Return the row that records the refusal of an action."""
    match action:
        case StartJob() | MigrateJob():
            node, mask = action.placement[0] if action.placement else (-1, 0)
            kind = Kind.START if isinstance(action, StartJob) else Kind.MIGRATE
            return (now, int(Kind.REFUSED), action.job, 0, node, mask & WORD, int(kind))
        case PreemptJob():
            return (now, int(Kind.REFUSED), action.job, 0, -1, 0, int(Kind.PREEMPT))
        case RequeueJob() | KillJob() | WarnJob():
            kinds = {RequeueJob: Kind.REQUEUE, KillJob: Kind.KILL, WarnJob: Kind.WARN}
            return (now, int(Kind.REFUSED), action.job, 0, -1, action.by, int(kinds[type(action)]))
        case ReallocateJob():
            return (now, int(Kind.REFUSED), action.job, 0, -1, 0, int(Kind.REALLOCATE))
        case WakeAt():
            return (now, int(Kind.REFUSED), -1, 0, -1, 0, int(Kind.WAKE_AT))
        case _:
            assert_never(action)
