"""The two integer programmes of Synergy-OPT, solved with HiGHS from scipy (Mohan et al., OSDI 2022, section 4.2).

Programme 1 picks a cell of its matrix for each job so that the cluster's throughput is largest, as if it were one
machine. Identical jobs are one group with an integer number in each cell, so its size depends on the number of kinds,
not of jobs. At most as many groups as there are resources are fractional in its relaxation, so that rounding it is
nearly always good enough. The answer comes with an upper bound.

Programme 2 distributes the jobs of some nodes so that they are worth most together, less what moving them costs. The
paper's splits as few jobs as it can. Here no job is split, and the cost of moves is kept small.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from headway.jobs.model.resources import Grant
from headway.jobs.policies.allocations.synergy.branch_and_bound import Floats, Programme, Table

Resources = tuple[int, int, int]
"""Thousandths of CPUs, bytes of memory, bytes per second of storage."""
Counts = tuple[tuple[int, ...], ...]
MOST_BRANCHES = 10_000
_SLACK = 1e-6


class Cell(NamedTuple):
    """A grant that a job may get, and what that is worth."""

    grant: Grant
    worth: int
    """Speed in parts per million, times its GPUs where these count."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How many of each group get which of its cells."""

    counts: Counts
    worth: int
    bound: int
    """An upper bound of the worth of all choices."""
    branches: int = 0
    """Branches taken, where the relaxation alone was not good enough."""


def undominated(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """Return the Pareto-optimal cells, by rising worth: no other takes no more of anything and is worth as much."""
    kept: list[Cell] = []
    for cell in sorted(set(cells), key=lambda cell: (-cell.worth, cell.grant)):
        if not any(within(other.grant, cell.grant) for other in kept):
            kept.append(cell)
    return tuple(reversed(kept))


def within(grant: Resources, room: Resources) -> bool:
    """Return whether a grant is at most ``room`` in every resource."""
    return grant[0] <= room[0] and grant[1] <= room[1] and grant[2] <= room[2]


def choose(
    groups: Sequence[tuple[Sequence[Cell], int]],
    capacity: Resources,
    *,
    gap: float = 0.0,
    branches: int = MOST_BRANCHES,
) -> Choice | None:
    """Solve programme 1: return how many jobs of each group get which cell; None when no choice was found.

    ``groups``: cells and number of jobs of each kind. ``gap``: stop when no choice is better by more than this
    fraction. The bound holds however early it was stopped.
    """
    programme = _Cells(groups, capacity)
    best, bound, taken = programme.solved(gap=gap, branches=branches)
    return None if best is None else Choice(best, programme.worth(best), bound, taken)


class _Cells(Programme[Counts]):
    """Programme 1: a column for each cell of each group."""

    def __init__(self, groups: Sequence[tuple[Sequence[Cell], int]], capacity: Resources) -> None:
        self.groups = groups
        self.capacity = capacity
        self.cells = [(index, cell) for index, (cells, _) in enumerate(groups) for cell in cells]
        table = Table(len(self.cells))
        for group, (_, count) in enumerate(groups):
            table.add({i: 1.0 for i, (of, _) in enumerate(self.cells) if of == group}, count, count)
        for r in range(3):
            table.limit({i: cell.grant[r] for i, (_, cell) in enumerate(self.cells)}, capacity[r])
        super().__init__([cell.worth for _, cell in self.cells], table)

    def rounded(self, values: Floats) -> Counts | None:
        """Return the numbers rounded down; jobs that are left over get the best cells that still fit."""
        whole = [int(share) for share in np.floor(values + _SLACK)]
        left = list(self.capacity)
        over = [count for _, count in self.groups]
        for n, (group, cell) in zip(whole, self.cells, strict=True):
            over[group] -= n
            take(left, cell.grant, n)
        firsts = [cells[0].grant for cells, _ in self.groups]
        for first, count in zip(firsts, over, strict=True):
            take(left, first, count)
        for column in sorted(range(len(whole)), key=lambda column: (-self.cells[column][1].worth, column)):
            group, cell = self.cells[column]
            first = firsts[group]
            while over[group] > 0 and all(left[r] + first[r] >= cell.grant[r] for r in range(3)):
                over[group] -= 1
                whole[column] += 1
                take(left, first, -1)
                take(left, cell.grant, 1)
        return self._checked(whole)

    def worth(self, answer: Counts) -> int:
        """Return the worth of a choice."""
        rows = zip(self.groups, answer, strict=True)
        return sum(n * cell.worth for (cells, _), row in rows for cell, n in zip(cells, row, strict=True))

    def _checked(self, whole: list[int]) -> Counts | None:
        """Return the numbers by group if every job has a cell and all fit; else None."""
        counts, column, left = [], 0, list(self.capacity)
        for cells, members in self.groups:
            row = tuple(whole[column : column + len(cells)])
            column += len(cells)
            if sum(row) != members or min(row, default=0) < 0:
                return None
            for cell, n in zip(cells, row, strict=True):
                take(left, cell.grant, n)
            counts.append(row)
        return tuple(counts) if min(left) >= 0 else None


def take(left: list[int], grant: Grant, count: int = 1) -> None:
    """Take a grant, so many times, out of what is left."""
    for r in range(3):
        left[r] -= count * grant[r]


@dataclass(frozen=True, slots=True)
class JobGroup:
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
    groups: Sequence[JobGroup], rooms: Sequence[Resources], gpus: Sequence[int], *, branches: int = MOST_BRANCHES
) -> Counts | None:
    """Solve programme 2: return how many jobs of each group should be on each node; None when nothing was found.

    ``rooms`` and ``gpus`` are what each node has for these jobs. Cells are chosen at the same time.
    """
    programme = _Spots(groups, rooms, gpus)
    best, _, _ = programme.solved(gap=0.0, branches=branches)
    return None if best is None else programme.counts(best)


class _Spots(Programme[tuple[int, ...]]):
    """Programme 2: a column for each cell of each group on each node, then one for the jobs that come to each node."""

    def __init__(self, groups: Sequence[JobGroup], rooms: Sequence[Resources], gpus: Sequence[int]) -> None:
        nodes = range(len(rooms))
        self.groups, self.rooms, self.gpus = groups, rooms, gpus
        self.spots = [(f, c, n) for f, group in enumerate(groups) for c in range(len(group.cells)) for n in nodes]
        comings = [(f, n) for f in range(len(groups)) for n in nodes]
        table = Table(len(self.spots) + len(comings))
        for f, group in enumerate(groups):
            table.add({i: 1.0 for i, spot in enumerate(self.spots) if spot[0] == f}, sum(group.here), sum(group.here))
        for column, (f, n) in enumerate(comings, len(self.spots)):
            there = {i: 1.0 for i, (g, _, m) in enumerate(self.spots) if (g, m) == (f, n)}
            table.add(there, groups[f].stay[n], np.inf)
            table.add({**there, column: -1.0}, -np.inf, groups[f].here[n])
        for n in nodes:
            mine = {i: (groups[f], groups[f].cells[c].grant) for i, (f, c, m) in enumerate(self.spots) if m == n}
            table.limit({i: group.gpus for i, (group, _) in mine.items()}, gpus[n])
            for r in range(3):
                table.limit({i: grant[r] for i, (_, grant) in mine.items()}, rooms[n][r])
        worths = [groups[f].cells[c].worth for f, c, _ in self.spots]
        super().__init__([*worths, *(-groups[f].price for f, _ in comings)], table)

    def rounded(self, values: Floats) -> tuple[int, ...] | None:
        """Return the numbers themselves where they are whole and fit; else None."""
        mine = values[: len(self.spots)]
        whole = np.rint(mine)
        if len(mine) and float(np.max(np.abs(mine - whole))) > _SLACK:
            return None
        answer = tuple(int(n) for n in whole)
        return answer if self._fits(answer) else None

    def _fits(self, answer: tuple[int, ...]) -> bool:
        left, free = [list(room) for room in self.rooms], list(self.gpus)
        for n, (f, c, node) in zip(answer, self.spots, strict=True):
            take(left[node], self.groups[f].cells[c].grant, n)
            free[node] -= n * self.groups[f].gpus
        return min(free) >= 0 and min(min(room) for room in left) >= 0

    def worth(self, answer: tuple[int, ...]) -> int:
        """Return the worth of the cells, less what the moves cost."""
        worth = sum(n * self.groups[f].cells[c].worth for n, (f, c, _) in zip(answer, self.spots, strict=True))
        for group, row in zip(self.groups, self.counts(answer), strict=True):
            worth -= group.price * sum(max(0, n - was) for n, was in zip(row, group.here, strict=True))
        return worth

    def counts(self, answer: tuple[int, ...]) -> Counts:
        """Return how many jobs of each group are on each node."""
        result = [[0] * len(self.rooms) for _ in self.groups]
        for n, (f, _, node) in zip(answer, self.spots, strict=True):
            result[f][node] += n
        return tuple(tuple(row) for row in result)
