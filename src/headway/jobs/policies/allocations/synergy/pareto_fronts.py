"""Pareto fronts of the jobs on one node: programme 1 solved for every capacity at once.

A front holds, for a multiset of kinds of jobs, every Pareto-optimal choice of their cells. The front with one more job
combines the front before with each of its cells, and keeps what is not dominated. Fronts are cached by their kinds, so
a node whose jobs were seen before, in any order, costs one lookup. A front of very many points is thinned out: of two
that take about as much, the better one is kept. All other fronts are exact.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from headway.jobs.policies.allocations.shared.caching import cached
from headway.jobs.policies.allocations.synergy.programs import Cell, Resources, within

MOST_CHOICES = 400
"""A front with more is thinned out; one with storage as a third resource from a quarter of that on."""
LEVELS = 24
"""Steps of a node's capacity into which amounts are rounded when a front is thinned out."""


class FrontPoint(NamedTuple):
    """One choice of a front: its worth, what it takes, and the choice it was made from."""

    worth: int
    cpu_milli: int
    memory_bytes: int
    storage: int
    before: int
    """Index of the choice in the front without the last job."""
    cell: int
    """Index of the last job's cell."""


class ParetoFronts:
    """The fronts of multisets of jobs, on nodes that have at most ``most``."""

    def __init__(self, most: Resources) -> None:
        self.most = most
        self.kinds: list[tuple[Cell, ...]] = []
        """Cells by the number of the kind; the first is the fallback of such a job."""
        self._numbers: dict[tuple[Cell, ...], int] = {}
        self._fronts: dict[tuple[int, ...], list[FrontPoint]] = {}
        """Points by falling worth; the last is the choice of all first cells, which is always kept if it fits."""
        self._best_choices: dict[tuple[tuple[int, ...], Resources], tuple[int, tuple[int, ...]] | None] = {}

    def number(self, cells: tuple[Cell, ...]) -> int:
        """Return the number of the kind of job that has these cells."""
        number = self._numbers.get(cells)
        if number is None:
            number = self._numbers[cells] = len(self.kinds)
            self.kinds.append(cells)
        return number

    def best(self, kinds: tuple[int, ...], room: Resources) -> tuple[int, tuple[int, ...]] | None:
        """Return (worth, index of a cell for each job) of the best choice that fits; None if none does.

        ``kinds`` in ascending order.
        """
        return cached(self._best_choices, (kinds, room), lambda: self._best(kinds, room))

    def _best(self, kinds: tuple[int, ...], room: Resources) -> tuple[int, tuple[int, ...]] | None:
        point = next((point for point in self.front(kinds) if within(point[1:4], room)), None)
        return None if point is None else (point.worth, self._cells(kinds, point))

    def _cells(self, kinds: tuple[int, ...], point: FrontPoint) -> tuple[int, ...]:
        cells = []
        for end in range(len(kinds), 0, -1):
            cells.append(point.cell)
            point = self.front(kinds[: end - 1])[point.before]
        return tuple(reversed(cells))

    def front(self, kinds: tuple[int, ...]) -> list[FrontPoint]:
        """Return the points of the front of these kinds, by falling worth."""
        if not kinds:
            return [FrontPoint(0, 0, 0, 0, 0, 0)]
        return cached(self._fronts, kinds, lambda: self._with(self.front(kinds[:-1]), self.kinds[kinds[-1]]))

    def _with(self, before: list[FrontPoint], cells: Sequence[Cell]) -> list[FrontPoint]:
        cpus, memory, storage = self.most
        points = [
            FrontPoint(point.worth + worth, cpu, bytes_, rate, index, number)
            for number, (grant, worth) in enumerate(cells)
            for index, point in enumerate(before)
            if (cpu := point.cpu_milli + grant[0]) <= cpus
            and (bytes_ := point.memory_bytes + grant[1]) <= memory
            and (rate := point.storage + grant[2]) <= storage
        ]
        first = next((point for point in points if (point.before, point.cell) == (len(before) - 1, 0)), None)
        points.sort(key=lambda point: (-point.worth, point[1:]))
        kept = pareto_optimal(points, [point[1:4] for point in points])
        if len(kept) > (MOST_CHOICES // 4 if any(point.storage for point in kept) else MOST_CHOICES):
            steps = [max(1, -(-most // LEVELS)) for most in self.most]
            kept = pareto_optimal(kept, [tuple(-(-point[r + 1] // steps[r]) for r in range(3)) for point in kept])
        return kept if first is None or kept[-1] == first else [*kept, first]


def pareto_optimal(points: Sequence[FrontPoint], taken: Sequence[tuple[int, ...]]) -> list[FrontPoint]:
    """Return the Pareto-optimal points, of points by falling worth; ``taken``: the CPUs, memory and storage of each."""
    if not any(storage for _, _, storage in taken):
        staircase = Staircase()
        return [point for point, (cpu, memory, _) in zip(points, taken, strict=True) if staircase.put(cpu, memory)]
    levels = {cpu: rank for rank, cpu in enumerate(sorted({cpu for cpu, _, _ in taken}), start=1)}
    tree = [Staircase() for _ in range(len(levels) + 1)]
    kept = []
    for point, (cpu, memory, storage) in zip(points, taken, strict=True):
        rank = levels[cpu]
        at = rank  # a Fenwick tree: points with no more CPUs are at ``at``, at ``at`` without its last bit, and so on
        while at and not tree[at].beats(memory, storage):
            at &= at - 1
        if not at:
            kept.append(point)
            while rank < len(tree):
                tree[rank].put(memory, storage)
                rank += rank & -rank
    return kept


class Staircase:
    """A Pareto front of pairs, smaller being better: sorted by the first, falling in the second."""

    __slots__ = ("_high", "_low")

    def __init__(self) -> None:
        self._low: list[int] = []
        self._high: list[int] = []

    def beats(self, low: int, high: int) -> bool:
        """Return whether a pair of the front dominates this one."""
        at = bisect_right(self._low, low)
        return at > 0 and self._high[at - 1] <= high

    def put(self, low: int, high: int) -> bool:
        """Add a pair unless it is dominated; return whether it was added."""
        at = bisect_right(self._low, low)
        if at and self._high[at - 1] <= high:
            return False
        start = at - 1 if at and self._low[at - 1] == low else at
        end = at
        while end < len(self._low) and self._high[end] >= high:
            end += 1
        self._low[start:end] = [low]
        self._high[start:end] = [high]
        return True
