"""Branch and bound over relaxations that HiGHS solves (scipy's ``milp`` without whole numbers).

HiGHS has a branch and bound of its own, which writes to the standard output when it has to mend a solution, whatever it
is told; standard output is where results go. This one is small, counts its branches instead of reading a clock, so that
it ends at the same place on every machine, and asks for a whole answer near each relaxation, which for the programmes
of ``programmes.py`` is mostly the best one already.
"""

from abc import ABC, abstractmethod
from math import gcd
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Branch = tuple[int, Floats, Floats, Floats]
"""A bound, the numbers of the relaxation, and what they lie between."""
Answer = TypeVar("Answer")
_WHOLE = 1e-6
"""How far from a whole number one may be."""
_SLACK = 1e-7
"""How far a bound may be off, in parts of the largest worth."""


def milp(*given: Any, **options: Any) -> Any:
    """scipy's, imported when it is first needed: that takes as long as starting all the rest."""
    from scipy.optimize import milp as solve

    return solve(*given, **options)


class Table:
    """Constraints, a row at a time."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._rows: list[Floats] = []
        self._least: list[float] = []
        self._most: list[float] = []

    def add(self, row: dict[int, float], least: float, most: float) -> None:
        """What these columns add up to lies between the two."""
        dense = np.zeros(self._columns)
        for column, factor in row.items():
            dense[column] = factor
        self._rows.append(dense)
        self._least.append(least)
        self._most.append(most)

    def limit(self, amounts: dict[int, int], limit: int) -> None:
        """There is this much of something of which each column takes so much."""
        unit = gcd(*amounts.values())
        if unit:
            scale = max(amounts.values()) // unit
            limited = min(limit // unit, scale << 30) / scale  # so much is as good as any more
            self.add({column: amount // unit / scale for column, amount in amounts.items()}, -np.inf, limited)

    def rows(self) -> tuple[Floats, list[float], list[float]]:
        """As the solver wants them."""
        return np.array(self._rows), self._least, self._most


class Programme(ABC, Generic[Answer]):
    """The most of a linear function over whole numbers from 0 on, under constraints."""

    def __init__(self, worths: list[int], table: Table) -> None:
        self._scale = float(max((abs(worth) for worth in worths), default=1) or 1)
        self._cost = np.array([-worth / self._scale for worth in worths])
        self._rows = table.rows()

    @abstractmethod
    def near(self, shares: Floats) -> Answer | None:
        """A whole answer near these numbers, checked exactly; at least where they are whole."""

    @abstractmethod
    def worth(self, answer: Answer) -> int:
        """Of a whole answer."""

    def relaxed(self, lows: Floats, highs: Floats) -> tuple[int, Floats] | None:
        """(a bound, the numbers) when these need not be whole, but lie between the two; None when nothing does."""
        if not len(self._cost):
            return 0, self._cost
        found = milp(self._cost, constraints=self._rows, bounds=(lows, highs))
        if found.x is None:
            return None
        return int(np.floor((-found.fun * (1 + 1e-9) + _SLACK) * self._scale)), found.x

    def solved(self, *, gap: float, branches: int) -> tuple[Answer | None, int, int]:
        """(the best answer found, a bound, branches taken): none better by more than ``gap`` of it, unless there were
        too many branches. The bound holds in any case."""
        size = len(self._cost)
        root = self.relaxed(np.zeros(size), np.full(size, np.inf))
        best: Answer | None = None
        worth, taken, passed = 0, 0, 0
        ahead: list[Branch] = [] if root is None else [(*root, np.zeros(size), np.full(size, np.inf))]
        while ahead:
            bound, shares, lows, highs = ahead.pop()
            answer = self.near(shares)
            if answer is not None and (best is None or self.worth(answer) > worth):
                best, worth = answer, self.worth(answer)
            if best is not None and bound - worth <= gap * bound:
                passed = max(passed, bound)
                continue
            off = np.abs(shares - np.rint(shares))
            column = int(np.argmax(off)) if size else 0
            if not size or off[column] <= _WHOLE:
                continue
            if taken >= branches:
                ahead.append((bound, shares, lows, highs))
                break
            taken += 1
            ahead += self._halves(column, shares, lows, highs)
        bounds = [worth, passed, *(each[0] for each in ahead)]
        return best, max(bounds), taken

    def _halves(
        self, column: int, shares: Floats, lows: Floats, highs: Floats
    ) -> list[tuple[int, Floats, Floats, Floats]]:
        """Return what is left when a column is no more than, or more than, its share now; the better half last."""
        found: list[Branch] = []
        for low, high in ((lows[column], np.floor(shares[column])), (np.ceil(shares[column]), highs[column])):
            some, most = lows.copy(), highs.copy()
            some[column], most[column] = low, high
            if (relaxed := self.relaxed(some, most)) is not None:
                found.append((*relaxed, some, most))
        return sorted(found, key=lambda half: half[0])
