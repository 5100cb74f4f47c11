"""Kinds of rows of a serving tape, and the meaning of their columns.

Columns: time, kind, subject (a request's id), lease (the number of a batch, a fetch or a process), place (a worker),
detail (a task's position in its graph, a model or a function), value. Kinds below 20 are events, from 20 on actions,
from 40 on consequences: facts that follow from the row before and are recorded so that metrics need no model.
"""

from enum import IntEnum


class Kind(IntEnum):
    """The kind of a row; the comment says what its value and other columns hold."""

    ARRIVED = 1  # the deadline; place is where it came in, detail its graph, lease its tenant
    TASK_ARRIVED = 2  # all inputs are at the worker: the task is queued
    LOADED = 3  # a batch computes from now on; detail: tokens of its prompt that were in the key-value cache
    FINISHED = 4  # a batch ended; the number of its tasks
    FETCHED = 5  # weights came that were asked for ahead; detail is the model
    INSTANCE_STARTED = 6  # a process that was asked for ahead is there; detail is the function
    WORKER_FAILED = 7
    WORKER_RECOVERED = 8
    WOKE = 9
    STALE = 10  # an event that came too late; value is its kind
    REJECTED = 11  # an action had been stale, and did not happen; value is its kind
    REQUEST_FAILED = (
        12  # it cannot be answered; detail is the task that failed, -1: none; value the tasks that had been finished
    )
    MEASURED = 13  # a configuration takes so long; detail is the function and, from bit 16 on, its position
    MODEL_LOST = 14  # weights did not come; detail is the model, value 0: others are about to fetch or use it
    WORKER_STARTED = 15  # a worker that was off can be used; the lease is that of its start
    FIRST_TOKEN = 16  # a request of a generating function has its first token; detail is the task
    PLACE = 20  # detail is the task, place its worker
    MOVE = 21  # the same; value is where it was, -1 for nowhere
    RUN = 22  # a batch; detail is the function, value its configuration, packed; TASK rows follow
    FETCH = 23  # detail is the model, value how long it takes
    EVICT = 24  # detail is the model
    START_INSTANCE = 25  # detail is the function, value how long it takes
    STOP_INSTANCE = 26
    DROP = 27  # tasks that had been finished
    WAKE_AT = 28  # the time asked for
    REFUSED = 29  # the kind of the action that was refused; its note says why
    START_WORKER = 35  # a worker is rented; value is how long its start takes. Lease 0: it drained, and is used again
    DRAIN_WORKER = 36  # a worker takes no more tasks
    STOP_WORKER = 37  # a worker is off, its rent ends
    DECIDE = 38  # until when a controller is busy; place is its worker, lease states evaluated, detail the wait before
    TASK = 40  # a task of the batch before; detail is the task, value when its inputs are there
    LOAD = 41  # a model that the batch fetches first; detail is the model, value how long it takes
    COLD = 42  # the batch starts a process first; detail is the function, value how long it takes
    EVICTED = 43  # a model that made room; detail is the model
    EXPIRED = 44  # a process was let go; detail is the function, value since when it was idle
    DONE = 45  # a request was answered; value is its latency
    QUEUED = 46  # a task is queued at once: its inputs were there already
    LOST = 47  # a task must run again or elsewhere: its worker is gone; value 1: it had been finished
    READY = 48  # all predecessors are done, and it is placed nowhere


REQUEST_KINDS = tuple(map(int, (Kind.ARRIVED, Kind.TASK_ARRIVED, Kind.PLACE, Kind.DONE, Kind.TASK, Kind.DROP)))
"""Rows whose subject is a request."""
UNANSWERED = (Kind.DROP, Kind.REQUEST_FAILED)
"""Rows that end a request without an answer."""
PLACED_KINDS = tuple(map(int, (Kind.ARRIVED, Kind.PLACE, Kind.RUN, Kind.LOADED, Kind.FINISHED)))
"""Rows whose place is a worker."""


def pack(cpus: int, slices: int, first: int) -> int:
    """Return a batch's configuration as one number; its size is the number of its TASK rows."""
    return cpus | slices << 16 | first << 32


def unpack(value: int) -> tuple[int, int, int]:
    """Return CPUs, slices and the first place on the GPU."""
    return value & 0xFFFF, value >> 16 & 0xFFFF, value >> 32
