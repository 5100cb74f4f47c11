"""Kinds of rows on the tape of a broker, which shares a real GPU, and the meaning of their columns.

Columns: time, kind, subject (a program that shared, numbered in the order in which they joined), lease, place, detail,
value. Counters run since the program joined, and times are those that have passed, so that rows may be left out.
Kinds below 20 are events, from 20 on actions. Names are notes: a row that names something is never left out.
"""

from enum import IntEnum


class ShareKind(IntEnum):
    """The kind of a row; the comment says what its columns hold. Shares and slow-downs are in parts per million."""

    JOINED = 1  # lease: its limit on SMs, 0: none; place: its slot; detail: its priority; value: its process;
    # note: its name and program, as JSON
    LEFT = 2  # detail: how, as in ``Ending``
    MEASURED = 3  # lease: holds; place: steps; value: its slow-down
    INTERVAL = 4  # detail: the lower end, value: the upper end of the slow-down measured
    COUNTED = 5  # lease: launches; place: launches that waited; detail: time waited; value: GPU time launched
    HARVESTED = 6  # place: 1 where it is ungated; detail: delay caused above; value: GPU time while others were above
    DELAYED = 7  # place: a kernel of it; value: delay that this caused above; note: its name, once
    TAILED = 8  # lease: steps; place: the lower end, detail: the upper end, value: its slow-down at p99
    AIMED = 20  # of all: lease: the slow-down aimed at for p99, 0: none; detail: the floor; value: the one for p50
    RULED = 21  # place: a rule; value: what it is set to; note: its name, once
    HELD = 22  # of all: value: all time in which programs below were held
    CHARGED = 23  # place: a kernel of it; value: delay above charged beyond waiting, of its time; note: its name, once


class Ending(IntEnum):
    """How a program ended its part in sharing."""

    LEFT = 0
    DIED = 1


OF_ALL = -1
"""The subject of rows that are about no program."""
EVENTS = (ShareKind.JOINED, ShareKind.LEFT, ShareKind.AIMED)
PROGRAM_KINDS = tuple(int(kind) for kind in ShareKind if kind not in (ShareKind.AIMED, ShareKind.HELD))
"""Rows whose subject is a program."""
PLACED = (ShareKind.DELAYED, ShareKind.RULED, ShareKind.CHARGED)
"""Rows of which a program has one for each place at a time."""
