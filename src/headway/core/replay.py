"""Replay a tape and compare two tapes, whatever their rows mean."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import IntEnum
from itertools import groupby
from operator import itemgetter
from typing import Any, Generic, TypeVar

import numpy as np

from headway.core.policy import Policy
from headway.core.scheduler import Scheduler
from headway.core.state import State
from headway.core.tape import COLUMNS, Tape, TapeWriter
from headway.errors import StalledRunError
from headway.units import format_duration

EventT = TypeVar("EventT")
Instant = tuple[int, Sequence[EventT]]
"""A time, and the events that happened then."""
CHUNK_ROWS = 65_536
About = Callable[[Sequence[int]], str]
"""Returns what a row is about: 'job 7', or nothing."""


def rows_of(tape: Tape) -> Iterator[list[int]]:
    """Yield the rows as plain lists, with one chunk of them in memory at a time."""
    for start in range(0, len(tape), CHUNK_ROWS):
        yield from tape.rows[start : start + CHUNK_ROWS].tolist()


def instants(tape: Tape, first_action: int, event: Callable[[list[int]], EventT]) -> Iterator[Instant[EventT]]:
    """Yield every instant of a tape with its events; rows of kinds from ``first_action`` on are no events."""
    for now, rows in groupby(rows_of(tape), key=itemgetter(0)):
        yield now, [event(row) for row in rows if row[1] < first_action]


class RecordedEvents(Generic[EventT]):
    """An executor whose events come from a tape. It carries no action out: the consequences are on the tape."""

    def __init__(self, recorded: Iterator[Instant[EventT]]) -> None:
        self._recorded = recorded

    def next(self) -> Instant[EventT] | None:
        """Return the next recorded instant; None at the end."""
        return next(self._recorded, None)

    def execute(self, now: int, action: Any) -> None:
        """Do nothing."""

    def follow(self, now: int, caused: Any) -> None:
        """Do nothing."""

    def refused(self, now: int, action: Any) -> None:
        """Do nothing: where it became an event, that is on the tape."""


def decide_again(state: State[EventT, Any, Any], policy: Policy[Any, Any], recorded: Iterator[Instant[EventT]]) -> Tape:
    """Return the tape that a policy writes when it is shown recorded events; state and policy are at their start."""
    writer = TapeWriter()
    with suppress(StalledRunError):  # a recording may end before its run did
        Scheduler(state, policy, RecordedEvents(recorded), writer, exact=False).run()
    return writer.close()


def first_difference(a: Tape, b: Tape, kinds: type[IntEnum], about: About) -> str | None:
    """Return the first difference of two tapes, in one line; None when they are equal."""
    common = min(len(a), len(b))
    unequal = np.flatnonzero((a.rows[:common] != b.rows[:common]).any(axis=1))
    if not len(unequal):
        if len(a) == len(b):
            return None
        longer, which = (a, "second") if len(a) > len(b) else (b, "first")
        return f"{_whereabouts(longer, common, kinds, about)}: the {which} tape ends here, the other goes on"
    at = int(unequal[0])
    parts = [
        f"{name} {_value(name, x, kinds)} against {_value(name, y, kinds)}"
        for name, x, y in zip(COLUMNS, a.rows[at].tolist(), b.rows[at].tolist(), strict=True)
        if x != y
    ]
    return f"{_whereabouts(a, at, kinds, about)}: {', '.join(parts)}"


def _whereabouts(tape: Tape, row: int, kinds: type[IntEnum], about: About) -> str:
    """Return the place of a row, as ``step 3 at 1.5s (1500000000 ns), START of job 7``."""
    values = tape.rows[row].tolist()
    step = len(np.unique(tape.column("time")[: row + 1]))
    of = f" of {subject}" if (subject := about(values)) else ""
    return f"step {step} at {format_duration(values[0])} ({values[0]} ns), {_value('kind', values[1], kinds)}{of}"


def _value(column: str, value: int, kinds: type[IntEnum]) -> str:
    return kinds(value).name if column == "kind" and value in set(kinds) else str(value)
