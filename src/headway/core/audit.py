"""What every audit shares: a finding, and the rules that hold for any tape whatever its rows mean."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headway.core.tape import Tape

CONSEQUENCE = -1
"""The rank of a row that may stand anywhere in its instant: it follows from another row."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something on a tape that cannot be."""

    row: int
    """Which row of the tape gave it away."""
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
    found = [
        Finding(row, int(time[row]), "time", f"comes after a row of {int(time[row - 1])} ns: time ran backwards")
        for row in (np.flatnonzero(np.diff(time) < 0) + 1).tolist()
    ]
    ranked = np.flatnonzero(ranks != CONSEQUENCE)
    when, rank = time[ranked], ranks[ranked]
    early = np.flatnonzero((np.diff(when) == 0) & (np.diff(rank) < 0)) + 1
    for row in ranked[early].tolist():
        text = "comes late: events of an instant come in the order of their ranks, and before its actions"
        found.append(Finding(row, int(time[row]), "order", text))
    return found
