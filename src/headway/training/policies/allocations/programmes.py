"""The two programmes of Synergy-OPT, solved by HiGHS (Mohan et al., OSDI 2022, section 4.2; solver: scipy's).

Programme 1 picks a cell of its matrix for each job so that the cluster's throughput is largest, as if it were one
machine. Identical jobs are one group with an integer number in each cell, so its size depends on how many kinds of jobs
run, not on how many jobs. The relaxation comes first: as few groups as there are resources are fractional in it, so
that rounding it is nearly always good enough; branch and bound runs only where it is not. What comes back says how good
it is at worst.

Programme 2 puts the jobs of some nodes where they are worth most together, less what moving them costs. The paper's
splits as few jobs as it can; here a job that is whole stays whole, and what is kept small is the moving.

Everything is deterministic: the limits are numbers of branches, not times. Branch and bound sees amounts as whole
numbers, and what comes back is checked in bytes and thousandths.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headway.training.actions import Grant

Room = tuple[int, int, int]
"""CPUs in thousandths, bytes of memory, bytes a second of storage."""
MOST_BRANCHES = 20_000
"""Of branch and bound; a limit that no machine's speed moves."""
NO_BOUND = 1 << 80
_SLACK = 1e-6
_LARGEST, _COARSE = 1 << 18, 1 << 16
"""The largest whole number in a programme, and what larger ones are brought down to."""


class Cell(NamedTuple):
    """What a job may be given, and what that is worth."""

    grant: Grant
    worth: int
    """Speed in parts per million, times its GPUs where these count."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How many of each group get which of its cells."""

    counts: tuple[tuple[int, ...], ...]
    worth: int
    bound: int
    """No choice is worth more than this."""
    branched: bool = False
    """Whether the relaxation alone was not good enough."""


def milp(*given: Any, **options: Any) -> Any:
    """scipy's, imported when it is first needed: it takes as long to load as all the rest."""
    from scipy.optimize import milp as solve

    return solve(*given, **options)


def undominated(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """Without those that another one beats: no dearer in anything and worth as much. In order of their worth."""
    kept: list[Cell] = []
    for cell in sorted(set(cells), key=lambda cell: (-cell.worth, cell.grant)):
        if not any(within(other.grant, cell.grant) for other in kept):
            kept.append(cell)
    return tuple(reversed(kept))


def within(grant: Room, room: Room) -> bool:
    """Whether there is room for a grant."""
    return grant[0] <= room[0] and grant[1] <= room[1] and grant[2] <= room[2]


def choose(
    groups: Sequence[tuple[Sequence[Cell], int]], capacity: Room, *, gap: float = 0.0, seconds: float = 0.0
) -> Choice | None:
    """Programme 1: a cell for each of so many jobs of each kind, worth most in all; None when nothing fits.

    ``gap``: good enough when no choice is worth more than this part more. ``seconds``: stop there (0: never) with the
    best that was found, whose bound still holds; how far that is depends on the machine.
    """
    programme = _Programme(groups, capacity)
    relaxed = programme.relaxed()
    if relaxed is None:
        return None
    bound, shares = relaxed
    rounded = programme.rounded(shares)
    if rounded is not None and bound - programme.worth(rounded) <= gap * bound:
        return Choice(rounded, programme.worth(rounded), bound)
    best, least = programme.branched(gap, seconds)
    found = [counts for counts in (best, rounded, programme.plain()) if counts is not None]
    if not found:
        return None
    counts = max(found, key=programme.worth)
    return Choice(counts, programme.worth(counts), max(min(bound, least), programme.worth(counts)), branched=True)


class _Programme:
    """Programme 1 as matrices."""

    def __init__(self, groups: Sequence[tuple[Sequence[Cell], int]], capacity: Room) -> None:
        self.groups = groups
        self.capacity = capacity
        self.cells = [(index, cell) for index, (cells, _) in enumerate(groups) for cell in cells]
        self._scale = float(max((cell.worth for _, cell in self.cells), default=1) or 1)
        self._cost = np.array([-cell.worth / self._scale for _, cell in self.cells])
        self._exact = True
        """Whether branch and bound sees amounts as they are."""

    def relaxed(self) -> tuple[int, npt.NDArray[np.float64]] | None:
        """(bound, shares of each cell) when jobs may be divided between cells; None when nothing fits."""
        if not self.cells:
            return 0, np.zeros(0)
        found = milp(self._cost, constraints=self._rows(coarse=False))
        return None if found.x is None else (self._bound(found.fun), found.x)

    def branched(self, gap: float, seconds: float) -> tuple[tuple[tuple[int, ...], ...] | None, int]:
        """(the best whole numbers found, a bound) by branch and bound."""
        rows = self._rows(coarse=True)
        whole = np.ones(len(self.cells))
        found = milp(self._cost, constraints=rows, integrality=whole, options=_options(gap, seconds))
        best = None if found.x is None else self._checked(np.rint(found.x).astype(int))
        return best, self._bound(found.mip_dual_bound) if self._exact else NO_BOUND

    def _rows(self, *, coarse: bool) -> tuple[npt.NDArray[np.float64], list[float], list[float]]:
        """That everybody has a cell, and that there is enough of everything."""
        table = _Table(len(self.cells))
        for group, (_, count) in enumerate(self.groups):
            table.add({i: 1.0 for i, (of, _) in enumerate(self.cells) if of == group}, count, count)
        for r in range(3):
            amounts = [cell.grant[r] for _, cell in self.cells]
            if any(amounts):
                exact = table.limit(dict(enumerate(amounts)), self.capacity[r], coarse=coarse)
                self._exact = self._exact and exact
        return table.rows()

    def rounded(self, shares: npt.NDArray[np.float64]) -> tuple[tuple[int, ...], ...] | None:
        """Shares rounded down; whoever is left over gets the best that still fits, who gains most by it first."""
        whole = np.floor(shares + _SLACK).astype(int)
        left = list(self.capacity)
        over = [count for _, count in self.groups]
        for column, (group, cell) in enumerate(self.cells):
            over[group] -= int(whole[column])
            for r in range(3):
                left[r] -= int(whole[column]) * cell.grant[r]
        floors = [cells[0].grant for cells, _ in self.groups]
        for group, count in enumerate(over):
            for r in range(3):
                left[r] -= count * floors[group][r]
        columns = range(len(self.cells))
        for column in sorted(columns, key=lambda column: (-self.cells[column][1].worth, column)):
            group, cell = self.cells[column]
            while over[group] > 0 and all(left[r] + floors[group][r] >= cell.grant[r] for r in range(3)):
                over[group] -= 1
                whole[column] += 1
                for r in range(3):
                    left[r] += floors[group][r] - cell.grant[r]
        return self._checked(whole)

    def plain(self) -> tuple[tuple[int, ...], ...] | None:
        """Everybody's first cell."""
        whole = [0 if index else count for cells, count in self.groups for index in range(len(cells))]
        return self._checked(np.array(whole, dtype=int))

    def worth(self, counts: tuple[tuple[int, ...], ...]) -> int:
        """Of a choice."""
        rows = zip(self.groups, counts, strict=True)
        return sum(n * cell.worth for (cells, _), row in rows for cell, n in zip(cells, row, strict=True))

    def _bound(self, least: float | None) -> int:
        """The largest whole worth that a lower bound of the cost allows."""
        if least is None or not np.isfinite(least):
            return NO_BOUND
        return int(np.floor(-least * self._scale * (1 + 1e-9) + _SLACK * self._scale))

    def _checked(self, whole: npt.NDArray[np.int_]) -> tuple[tuple[int, ...], ...] | None:
        """By group, if everybody has a cell and all of it fits, in whole numbers."""
        counts, column = [], 0
        used = [0, 0, 0]
        for cells, members in self.groups:
            row = tuple(int(n) for n in whole[column : column + len(cells)])
            column += len(cells)
            if sum(row) != members or min(row, default=0) < 0:
                return None
            for cell, n in zip(cells, row, strict=True):
                for r in range(3):
                    used[r] += n * cell.grant[r]
            counts.append(row)
        return tuple(counts) if within((used[0], used[1], used[2]), self.capacity) else None


def _options(gap: float, seconds: float, branches: int = MOST_BRANCHES) -> dict[str, float | bool]:
    """For branch and bound. Without presolve: a solution that has to be mended when it is mapped back through it is
    announced on the standard output, whatever HiGHS is told."""
    limits = {"mip_rel_gap": gap, "node_limit": branches, "presolve": False}
    return limits | ({"time_limit": seconds} if seconds else {})


@dataclass(frozen=True, slots=True)
class Flock:
    """Jobs of one kind on some nodes."""

    cells: tuple[Cell, ...]
    gpus: int
    here: tuple[int, ...]
    """How many are on each node."""
    stay: tuple[int, ...]
    """How many of these cannot move."""
    price: int
    """What one move costs, in worth."""


def rearrange(
    flocks: Sequence[Flock],
    rooms: Sequence[Room],
    gpus: Sequence[int],
    *,
    seconds: float = 0.0,
    branches: int = MOST_BRANCHES,
) -> tuple[tuple[int, ...], ...] | None:
    """Programme 2: how many of each flock are best on each node; None when nothing was found.

    ``rooms`` and ``gpus`` are what each node has for these jobs. The best cells are chosen along with it.
    """
    nodes = range(len(rooms))
    spots = [(f, c, n) for f, flock in enumerate(flocks) for c in range(len(flock.cells)) for n in nodes]
    comings = {(f, n): len(spots) + i for i, (f, n) in enumerate((f, n) for f in range(len(flocks)) for n in nodes)}
    scale = max((flock.cells[-1].worth for flock in flocks), default=1) or 1
    cost = [-flocks[f].cells[c].worth / scale for f, c, _ in spots]
    cost += [flocks[f].price / scale for f, _ in comings]
    table = _Table(len(cost))
    for f, flock in enumerate(flocks):
        table.add({i: 1.0 for i, spot in enumerate(spots) if spot[0] == f}, sum(flock.here), sum(flock.here))
        for n in nodes:
            there = {i: 1.0 for i, (g, _, m) in enumerate(spots) if (g, m) == (f, n)}
            table.add(there, flock.stay[n], np.inf)
            table.add({**there, comings[f, n]: -1.0}, -np.inf, flock.here[n])
    for n in nodes:
        mine = {i: (flocks[f].gpus, flocks[f].cells[c].grant) for i, (f, c, m) in enumerate(spots) if m == n}
        table.add({i: float(count) for i, (count, _) in mine.items()}, -np.inf, gpus[n])
        for r in range(3):
            if any(grant[r] for _, grant in mine.values()):
                table.limit({i: grant[r] for i, (_, grant) in mine.items()}, rooms[n][r], coarse=True)
    found = milp(
        cost, constraints=table.rows(), integrality=np.ones(len(cost)), options=_options(0.0, seconds, branches)
    )
    if found.x is None:
        return None
    counts = [[0] * len(rooms) for _ in flocks]
    for (f, _, n), share in zip(spots, found.x, strict=False):
        counts[f][n] += round(float(share))
    return tuple(tuple(row) for row in counts)


class _Table:
    """Constraints, a row at a time."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._rows: list[npt.NDArray[np.float64]] = []
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

    def limit(self, amounts: dict[int, int], limit: int, *, coarse: bool) -> bool:
        """There is this much of something of which each column takes so much; whether that is told exactly.

        In multiples of the greatest common divisor, and ``coarse`` in whole numbers that are not too large, rounded up:
        in these a solution that is whole but for the solver's tolerance stays feasible when it is made so.
        """
        unit = gcd(*amounts.values())
        largest = max(amounts.values()) // unit
        if coarse and largest > _LARGEST:
            unit *= -(-largest // _COARSE)
            self.add({i: float(-(-amount // unit)) for i, amount in amounts.items()}, -np.inf, limit // unit)
            return False
        scale = 1.0 if largest <= _LARGEST else largest / _COARSE
        self.add({i: amount // unit / scale for i, amount in amounts.items()}, -np.inf, limit // unit / scale)
        return True

    def rows(self) -> tuple[npt.NDArray[np.float64], list[float], list[float]]:
        """As the solver wants them."""
        return np.array(self._rows), self._least, self._most
