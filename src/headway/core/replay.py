"""Compare two tapes, whatever their rows mean: where do they part?"""

from collections.abc import Callable, Sequence
from enum import IntEnum

import numpy as np

from headway.core.tape import COLUMNS, Tape
from headway.units import format_duration

About = Callable[[Sequence[int]], str]
"""Returns what a row is about: 'job 7', or nothing."""


def first_difference(a: Tape, b: Tape, kinds: type[IntEnum], about: About) -> str | None:
    """Return where two tapes part, in one line; None when they are equal."""
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
    """``step 3 at 1.5s (1500000000 ns), START of job 7``."""
    values = tape.rows[row].tolist()
    step = len(np.unique(tape.column("time")[: row + 1]))
    of = f" of {subject}" if (subject := about(values)) else ""
    return f"step {step} at {format_duration(values[0])} ({values[0]} ns), {_value('kind', values[1], kinds)}{of}"


def _value(column: str, value: int, kinds: type[IntEnum]) -> str:
    return kinds(value).name if column == "kind" and value in set(kinds) else str(value)
