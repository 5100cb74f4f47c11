"""Common parts of all audits: findings, and the rules that hold for any tape whatever its rows mean."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from headway.core.replay import rows_of
from headway.core.tape import Tape

CONSEQUENCE = -1
"""The rank of a row that may stand anywhere in its instant: it follows from another row."""
ACTION = 100
"""The rank of a row that records an action: actions come after all events of their instant."""
MOST_FINDINGS = 1000
"""The most findings that are returned: one mistake breaks many later rules."""
PROGRESS_EVERY_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Finding:
    """A contradiction on a tape."""

    row: int
    """The row of the tape where it was found."""
    time: int
    rule: str
    """The rule that is broken, as a short name."""
    text: str

    def __str__(self) -> str:
        return f"row {self.row} at {self.time} ns, {self.rule}: {self.text}"


def order_findings(tape: Tape, ranks: npt.NDArray[np.int64]) -> list[Finding]:
    """Return a finding for each row that comes before its time, or within an instant before its rank.

    ``ranks`` has a number for each row: an event's place among the events of an instant, a larger one
    for actions, ``CONSEQUENCE`` for rows that only follow from others.
    """
    time = tape.column("time")
    findings = [
        Finding(row, int(time[row]), "time", f"comes after a row of {int(time[row - 1])} ns: time ran backwards")
        for row in (np.flatnonzero(np.diff(time) < 0) + 1).tolist()
    ]
    ranked = np.flatnonzero(ranks != CONSEQUENCE)
    when, rank = time[ranked], ranks[ranked]
    early = np.flatnonzero((np.diff(when) == 0) & (np.diff(rank) < 0)) + 1
    for row in ranked[early].tolist():
        text = "comes late: events of an instant come in the order of their ranks, and before its actions"
        findings.append(Finding(row, int(time[row]), "order", text))
    return findings


def row_ranks(
    tape: Tape, events: Mapping[int, int], actions: Iterable[int], stale: int | None = None
) -> npt.NDArray[np.int64]:
    """Return a rank for each row, by kinds.

    ``events``: the ranks of events; ``stale``: the kind of a row whose value is the kind of an event.
    """
    table = np.full(64, CONSEQUENCE, dtype=np.int64)
    table[list(actions)] = ACTION
    table[list(events)] = list(events.values())
    kinds = tape.column("kind")
    if stale is not None:
        kinds = np.where(kinds == stale, tape.column("value"), kinds)
    ranks: npt.NDArray[np.int64] = table[np.clip(kinds, 0, 63)]
    return ranks


class Auditor(ABC):
    """Reads a tape row by row, follows its state, and notes contradictions."""

    opens: ClassVar[tuple[int, ...]]
    """Kinds of rows that start a group."""
    follows: ClassVar[tuple[int, ...]]
    """Kinds of rows that may belong to the group before them."""
    shared: ClassVar[slice]
    """The columns in which rows of a group are equal."""

    def __init__(self) -> None:
        self.found: list[Finding] = []
        self._row = self._now = 0
        self._group: list[list[int]] = []
        """The rows of the group that is being read."""
        self._rows: dict[int, Callable[[list[int]], None]] = {}
        """By kind: the handler of a row outside groups."""

    def enter(self, index: int, row: list[int]) -> None:
        """Enter the next row."""
        kind = row[1]
        if self._group and not (kind in self.follows and row[self.shared] == self._group[0][self.shared]):
            self._close_group()
        if row[0] != self._now:
            self._end_instant()
            self._now = row[0]
        self._row = index
        self._expect(kind)
        if kind in self.opens or self._group:
            self._group.append(row)
        elif (handler := self._rows.get(kind)) is not None:
            handler(row)
        else:
            self._find("kind", f"a row of kind {kind} cannot stand here")

    def close(self, *, complete: bool) -> None:
        """Check the end of the tape; ``complete``: the run went to its end."""
        if self._group:
            self._close_group()
        self._end_instant()
        if complete:
            self._find_open()

    def _find(self, rule: str, text: str) -> None:
        self.found.append(Finding(self._row, self._now, rule, text))

    def _find_all(self, broken: Iterable[tuple[str, str]], about: str = "") -> None:
        """Note a finding for each (rule, text); ``about`` goes before the text."""
        for rule, text in broken:
            self._find(rule, about + text)

    def _close_group(self) -> None:
        group, self._group = self._group, []
        self._settle(group)

    def _expect(self, kind: int) -> None:  # noqa: B027 - most have no such rule
        """Check that a row of this kind may come next."""

    @abstractmethod
    def _settle(self, rows: list[list[int]]) -> None:
        """Enter the rows of a group."""

    @abstractmethod
    def _end_instant(self) -> None:
        """Check what must hold at the end of an instant."""

    def _find_open(self) -> None:  # noqa: B027 - not every one asks
        """Note what a complete run must not leave open."""


def audited(
    tape: Tape,
    ranks: npt.NDArray[np.int64],
    auditor: Auditor,
    *,
    complete: bool,
    progress: Callable[[int], None] | None = None,
) -> list[Finding]:
    """Return an auditor's findings on a tape, and rows out of order; ``progress`` is called with the row at times."""
    for index, row in enumerate(rows_of(tape)):
        auditor.enter(index, row)
        if progress is not None and index % PROGRESS_EVERY_ROWS == 0:
            progress(index)
        if len(auditor.found) > MOST_FINDINGS:
            break
    auditor.close(complete=complete and len(auditor.found) <= MOST_FINDINGS)
    findings = [*order_findings(tape, ranks), *auditor.found]
    return sorted(findings, key=lambda finding: finding.row)[:MOST_FINDINGS]
