"""Which waiting tasks of a function run together, and whether it pays to wait for more.

For each way to go on, what all requests concerned are then expected to cost is added up from the tables: run some or
all of those that wait, now; or wait for the next companions, those under way whose times are known and those expected
to arrive, and run with them. Who is not in the batch counts with what it costs on its own. The least sum decides.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from headway.serving.policies.headway.offers import Array, Menu, Outlook


class Lot(NamedTuple):
    """One task of one request that waits, or will."""

    deadline: int
    request: int
    """-1: one that is only expected."""
    graph: int
    task: int
    when: int = 0
    """When it can run."""


class Choice(NamedTuple):
    """What to do about a function's waiting tasks."""

    lots: tuple[Lot, ...]
    """Who runs together; with ``until`` who shall, the first of them waiting already."""
    values: Array
    """By offer: what it all costs, if they run with it."""
    until: int
    """When they run; now, or later."""


class Batching:
    """Weighs batches of one function by the tables of an outlook."""

    def __init__(self, menus: Sequence[Menu], usd: Sequence[Array], outlook: Outlook) -> None:
        self.menus = menus
        self._usd = usd
        self.sizes = tuple(menu.size for menu in menus)
        self.largest = self.sizes[-1]
        self._tables = outlook.tables
        self._position = [
            next(index for index, size in enumerate(self.sizes) if size >= count)
            for count in range(1, self.largest + 1)
        ]

    def menu(self, count: int) -> Menu:
        """The offers for so many requests at once: those of the next size that was measured."""
        return self.menus[self._position[count - 1]]

    def values(self, lots: Sequence[Lot], at: int) -> Array:
        """By offer: what these cost together, and all that follows, if they run at this time."""
        position = self._position[len(lots) - 1]
        found = self._usd[position].copy()
        for lot in lots:
            table = self._tables[lot.graph][lot.task]
            found += table.after[position][table.index(lot.deadline - at)]
        return found

    def alone(self, lot: Lot, at: int) -> float:
        """What one costs from here on, left to itself."""
        table = self._tables[lot.graph][lot.task]
        return float(table.rest[table.index(lot.deadline - at)])

    def choose(self, now: int, lots: Sequence[Lot], coming: Sequence[Lot]) -> Choice:
        """The best way to go on. ``lots``: who waits, tightest first; ``coming``: who will, soonest first."""
        first = lots[: self.largest]
        best, chosen = self._now(now, first)
        if len(first) == len(lots) and len(first) < self.largest and coming:
            companions = coming[: self.largest - len(first)]
            apart = [0.0]
            for lot in reversed(companions):
                apart.append(apart[-1] + self.alone(lot, max(now, lot.when)))
            apart.reverse()  # apart[k]: all companions from the k-th on
            best += apart[0]
            for more in self._worth_trying(len(first), len(companions)):
                at = max(now, companions[more - 1].when)
                together = (*first, *companions[:more])
                values = self.values(together, at)
                total = float(values.min()) + apart[more]
                if total < best:
                    best, chosen = total, Choice(together, values, at)
        return chosen

    def _now(self, now: int, first: Sequence[Lot]) -> tuple[float, Choice]:
        """The best of those that wait, and what all who wait then cost."""
        best, chosen = np.inf, None
        apart = [self.alone(lot, now) for lot in first]
        for count in (*(size for size in self.sizes if size < len(first)), len(first)):
            together = tuple(first[:count])
            values = self.values(together, now)
            total = float(values.min()) + sum(apart[count:])
            if total < best:
                best, chosen = total, Choice(together, values, now)
        assert chosen is not None
        return best, chosen

    def _worth_trying(self, waiting: int, coming: int) -> list[int]:
        """Numbers of companions that fill a batch, or all there are."""
        full = [size - waiting for size in self.sizes if 0 < size - waiting <= coming]
        return full if coming in full else [*full, coming]
