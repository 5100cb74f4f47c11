"""Branch and bound for integer programmes, over relaxations that HiGHS solves (scipy's ``milp`` without integrality).

HiGHS has its own branch and bound, but it writes to standard output when it repairs a solution, whatever its options;
standard output is where results go. This one counts branches instead of reading a clock, so that it stops at the same
point on every machine. It rounds each relaxation to a feasible answer, which for ``programs.py`` is mostly optimal.
"""

from abc import ABC, abstractmethod
from math import gcd
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Branch = tuple[int, Floats, Floats, Floats]
"""A bound, the values of the relaxation, and their lower and upper limits."""
Answer = TypeVar("Answer")
_WHOLE = 1e-6
"""How far from a whole number a value may be."""
_SLACK = 1e-7
"""How far a bound may be off, as a fraction of the largest worth."""


def milp(*args: Any, **options: Any) -> Any:
    """Call scipy's ``milp``. It is imported when first needed: that takes as long as starting all the rest."""
    from scipy.optimize import milp as solve

    return solve(*args, **options)


class Table:
    """Constraints, a row at a time."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._rows: list[Floats] = []
        self._least: list[float] = []
        self._most: list[float] = []

    def add(self, row: dict[int, float], least: float, most: float) -> None:
        """Add the constraint that the weighted sum of these columns lies between two values."""
        dense = np.zeros(self._columns)
        for column, factor in row.items():
            dense[column] = factor
        self._rows.append(dense)
        self._least.append(least)
        self._most.append(most)

    def limit(self, amounts: dict[int, int], limit: int) -> None:
        """Add a capacity constraint: each column takes so much, all together at most ``limit``."""
        unit = gcd(*amounts.values())
        if unit:
            scale = max(amounts.values()) // unit
            limited = min(limit // unit, scale << 30) / scale  # a larger limit would make no difference
            self.add({column: amount // unit / scale for column, amount in amounts.items()}, -np.inf, limited)

    def rows(self) -> tuple[Floats, list[float], list[float]]:
        """Return coefficients, lower and upper limits, as the solver expects them."""
        return np.array(self._rows), self._least, self._most


class Programme(ABC, Generic[Answer]):
    """Maximises a linear function over non-negative integers, under constraints."""

    def __init__(self, worths: list[int], table: Table) -> None:
        self._scale = float(max((abs(worth) for worth in worths), default=1) or 1)
        self._cost = np.array([-worth / self._scale for worth in worths])
        self._rows = table.rows()

    @abstractmethod
    def rounded(self, values: Floats) -> Answer | None:
        """Return a feasible integer answer near these values, checked exactly; None only where they are not whole."""

    @abstractmethod
    def worth(self, answer: Answer) -> int:
        """Return the worth of an integer answer."""

    def relaxed(self, lows: Floats, highs: Floats) -> tuple[int, Floats] | None:
        """Return (bound, values) of the relaxation between these limits; None when it is infeasible."""
        if not len(self._cost):
            return 0, self._cost
        result = milp(self._cost, constraints=self._rows, bounds=(lows, highs))
        if result.x is None:
            return None
        return int(np.floor((-result.fun * (1 + 1e-9) + _SLACK) * self._scale)), result.x

    def solved(self, *, gap: float, branches: int) -> tuple[Answer | None, int, int]:
        """Return (best answer found, bound, branches taken). It stops when no answer is better by more than ``gap``, or
        after so many branches. The bound holds in any case."""
        size = len(self._cost)
        root = self.relaxed(np.zeros(size), np.full(size, np.inf))
        best: Answer | None = None
        worth, taken, passed = 0, 0, 0
        open_branches: list[Branch] = [] if root is None else [(*root, np.zeros(size), np.full(size, np.inf))]
        while open_branches:
            bound, values, lows, highs = open_branches.pop()
            answer = self.rounded(values)
            if answer is not None and (best is None or self.worth(answer) > worth):
                best, worth = answer, self.worth(answer)
            if best is not None and bound - worth <= gap * bound:
                passed = max(passed, bound)
                continue
            off = np.abs(values - np.rint(values))
            column = int(np.argmax(off)) if size else 0
            if not size or off[column] <= _WHOLE:
                continue
            if taken >= branches:
                open_branches.append((bound, values, lows, highs))
                break
            taken += 1
            open_branches += self._branched(column, values, lows, highs)
        bounds = [worth, passed, *(branch[0] for branch in open_branches)]
        return best, max(bounds), taken

    def _branched(
        self, column: int, values: Floats, lows: Floats, highs: Floats
    ) -> list[tuple[int, Floats, Floats, Floats]]:
        """Return the two branches in which a column is rounded down or up; the better one last."""
        result: list[Branch] = []
        for low, high in ((lows[column], np.floor(values[column])), (np.ceil(values[column]), highs[column])):
            some, most = lows.copy(), highs.copy()
            some[column], most[column] = low, high
            if (relaxed := self.relaxed(some, most)) is not None:
                result.append((*relaxed, some, most))
        return sorted(result, key=lambda half: half[0])
