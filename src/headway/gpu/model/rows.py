"""Kinds of rows of a kernel tape, and the meaning of their columns.

Columns: time, kind, subject (a client), lease (the number of a launch or a request of that client), place (a kernel of
its program), detail, value. Kinds below 20 are events, from 20 on actions.
"""

from enum import IntEnum


class Kind(IntEnum):
    """The kind of a row; the comment says what its detail and value hold."""

    FINISHED = 1  # detail: its duration alone; value: when it started
    HELD_UP = 2  # place is the kernel in its way, detail that kernel's client; value: the delay
    REQUEST_ENDED = 3  # lease is the request of the program; value: when it began
    LEFT = 4
    LAUNCHED = 5
    REACHED = 6
    WOKE = 7
    LET_GO = 20  # detail: the reason; value: the delay expected above
    WAKE_AT = 21  # the time asked for
    REFUSED = 22  # the kind of the action that was refused; its note says why


CLIENT_KINDS = tuple(int(kind) for kind in Kind if kind not in (Kind.WOKE, Kind.WAKE_AT, Kind.REFUSED))
"""Rows whose subject is a client."""
KERNEL_KINDS = tuple(map(int, (Kind.FINISHED, Kind.HELD_UP, Kind.LAUNCHED, Kind.REACHED, Kind.LET_GO)))
"""Rows whose place is a kernel."""
