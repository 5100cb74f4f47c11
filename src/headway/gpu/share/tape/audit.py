"""Audit of the tape of a broker: a finding for each contradiction.

What happened on the GPU cannot be worked out again. What can be checked: programs join once, before anything else is
said of them, and nothing follows their end; counters never go back; a slow-down lies within its interval; holds are
never longer than the time that has passed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from headway.core.audit import MOST_FINDINGS, Finding
from headway.core.tape import Tape
from headway.gpu.share.tape.rows import PROGRAM_KINDS, ShareKind

_COUNTERS = {
    ShareKind.COUNTED: {"launches": 3, "launches that waited": 4, "time waited": 5, "GPU time": 6},
    ShareKind.HARVESTED: {"delay caused": 5, "GPU time harvested": 6},
    ShareKind.DELAYED: {"delay caused by a kernel": 6},
    ShareKind.HELD: {"time held": 6},
}
"""Counters by the kind of their row, and their columns."""


@dataclass(slots=True)
class _Books:
    there: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    counters: dict[tuple[int, int, int, str], int] = field(default_factory=dict)
    slowdown: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Of each program the time and the value that was measured last."""


def audit(tape: Tape) -> list[Finding]:
    """Return the contradictions on the tape; empty for a sound one."""
    books, findings = _Books(), list[Finding]()
    for number, row in enumerate(tape.rows.tolist()):
        for rule, text in (*_membership(books, row), *_counted(books, row), *_measured(books, row)):
            findings.append(Finding(number, row[0], rule, text))
        if len(findings) >= MOST_FINDINGS:
            break
    return findings[:MOST_FINDINGS]


def _membership(books: _Books, row: Sequence[int]) -> list[tuple[str, str]]:
    _, kind, subject = row[:3]
    if kind not in PROGRAM_KINDS:
        return []
    if kind == ShareKind.JOINED:
        known = subject in books.there or subject in books.gone
        books.there.add(subject)
        return [("joins once", f"program {subject} joins again")] if known else []
    if subject not in books.there:
        why = "has ended" if subject in books.gone else "has not joined"
        return [("member", f"program {subject} {why}")]
    if kind == ShareKind.LEFT:
        books.there.remove(subject)
        books.gone.add(subject)
    return []


def _counted(books: _Books, row: Sequence[int]) -> list[tuple[str, str]]:
    time, kind, subject = row[:3]
    found = []
    for name, column in _COUNTERS.get(ShareKind(kind), {}).items():
        key = kind, subject, row[4] if kind == ShareKind.DELAYED else 0, name
        before, now = books.counters.get(key, 0), row[column]
        books.counters[key] = now
        if now < before:
            found.append(("counters grow", f"{name} of program {subject} goes from {before:,} to {now:,}"))
    if kind == ShareKind.HELD and row[6] > time:
        found.append(("time held", f"{row[6]:,} ns were held in {time:,} ns"))
    return found


def _measured(books: _Books, row: Sequence[int]) -> list[tuple[str, str]]:
    time, kind, subject = row[:3]
    if kind == ShareKind.MEASURED:
        books.slowdown[subject] = time, row[6]
    if kind != ShareKind.INTERVAL:
        return []
    when, value = books.slowdown.get(subject, (-1, 0))
    if when != time:
        return [("interval", f"of program {subject}, of which nothing is measured at this time")]
    low, high = row[5], row[6]
    inside = low <= value <= high
    return [] if inside else [("interval", f"{low:,} to {high:,} of program {subject} is not around {value:,}")]
