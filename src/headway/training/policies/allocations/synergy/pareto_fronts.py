"""Programme 1 for the jobs of one node, at once: what they can be worth together, for every room there is.

A front holds, for some kinds of jobs together, every choice of their cells that no other choice beats. That of one more
job is the front before with each of its cells, less what is beaten. Fronts are kept by the kinds they are of, so a node
whose jobs were seen before, in whatever order, costs a look. A front of very many choices is thinned out: of two that
take about as much the better one is kept. All others, and so what is read off them, are exact.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from headway.training.policies.allocations.shared.caching import cached
from headway.training.policies.allocations.synergy.programs import Cell, Resources, within

MOST_CHOICES = 400
"""A front with more is thinned out; one with storage as a third resource from a quarter of that on."""
LEVELS = 24
"""In how many steps of what a node has "about as much" is told apart then."""


class FrontPoint(NamedTuple):
    """One choice of a front: what it is worth and takes, and how it was come by."""

    worth: int
    cpu_milli: int
    memory_bytes: int
    storage: int
    before: int
    """Which choice of the front without the last job."""
    cell: int
    """Which cell of the last job."""


class ParetoFronts:
    """The fronts of all kinds of jobs, on nodes that have at most so much."""

    def __init__(self, most: Resources) -> None:
        self.most = most
        self.kinds: list[tuple[Cell, ...]] = []
        """Cells by the number of the kind; the first is the least that such a job can have."""
        self._numbers: dict[tuple[Cell, ...], int] = {}
        self._fronts: dict[tuple[int, ...], list[FrontPoint]] = {}
        """By falling worth; last comes the choice of all first cells, which is there in any case if it fits."""
        self._found: dict[tuple[tuple[int, ...], Resources], tuple[int, tuple[int, ...]] | None] = {}

    def number(self, cells: tuple[Cell, ...]) -> int:
        """Of the kind of job that has these cells."""
        found = self._numbers.get(cells)
        if found is None:
            found = self._numbers[cells] = len(self.kinds)
            self.kinds.append(cells)
        return found

    def best(self, kinds: tuple[int, ...], room: Resources) -> tuple[int, tuple[int, ...]] | None:
        """(worth, a cell for each) of the best choice that fits; ``kinds`` in ascending order. None: nothing fits."""
        return cached(self._found, (kinds, room), lambda: self._best(kinds, room))

    def _best(self, kinds: tuple[int, ...], room: Resources) -> tuple[int, tuple[int, ...]] | None:
        mark = next((each for each in self.front(kinds) if within(each[1:4], room)), None)
        return None if mark is None else (mark.worth, self._cells(kinds, mark))

    def _cells(self, kinds: tuple[int, ...], mark: FrontPoint) -> tuple[int, ...]:
        cells = []
        for end in range(len(kinds), 0, -1):
            cells.append(mark.cell)
            mark = self.front(kinds[: end - 1])[mark.before]
        return tuple(reversed(cells))

    def front(self, kinds: tuple[int, ...]) -> list[FrontPoint]:
        """Choices by falling worth."""
        if not kinds:
            return [FrontPoint(0, 0, 0, 0, 0, 0)]
        return cached(self._fronts, kinds, lambda: self._with(self.front(kinds[:-1]), self.kinds[kinds[-1]]))

    def _with(self, before: list[FrontPoint], cells: Sequence[Cell]) -> list[FrontPoint]:
        cpus, memory, storage = self.most
        marks = [
            FrontPoint(mark.worth + worth, cpu, bytes_, rate, index, number)
            for number, (grant, worth) in enumerate(cells)
            for index, mark in enumerate(before)
            if (cpu := mark.cpu_milli + grant[0]) <= cpus
            and (bytes_ := mark.memory_bytes + grant[1]) <= memory
            and (rate := mark.storage + grant[2]) <= storage
        ]
        first = next((mark for mark in marks if (mark.before, mark.cell) == (len(before) - 1, 0)), None)
        marks.sort(key=lambda mark: (-mark.worth, mark[1:]))
        kept = pareto_optimal(marks, [mark[1:4] for mark in marks])
        if len(kept) > (MOST_CHOICES // 4 if any(mark.storage for mark in kept) else MOST_CHOICES):
            steps = [max(1, -(-most // LEVELS)) for most in self.most]
            kept = pareto_optimal(kept, [tuple(-(-mark[r + 1] // steps[r]) for r in range(3)) for mark in kept])
        return kept if first is None or kept[-1] == first else [*kept, first]


def pareto_optimal(marks: Sequence[FrontPoint], taken: Sequence[tuple[int, ...]]) -> list[FrontPoint]:
    """Of choices by falling worth, those that take less of something than any before them; ``taken``: what each takes
    of CPUs, memory and storage."""
    if not any(storage for _, _, storage in taken):
        staircase = Staircase()
        return [mark for mark, (cpu, memory, _) in zip(marks, taken, strict=True) if staircase.put(cpu, memory)]
    levels = {cpu: rank for rank, cpu in enumerate(sorted({cpu for cpu, _, _ in taken}), start=1)}
    tree = [Staircase() for _ in range(len(levels) + 1)]
    kept = []
    for mark, (cpu, memory, storage) in zip(marks, taken, strict=True):
        rank = levels[cpu]
        at = rank  # those with no more CPUs are in the stairs at at, at without its last bit, and so on
        while at and not tree[at].beats(memory, storage):
            at &= at - 1
        if not at:
            kept.append(mark)
            while rank < len(tree):
                tree[rank].put(memory, storage)
                rank += rank & -rank
    return kept


class Staircase:
    """Pairs none of which is larger than another in both."""

    __slots__ = ("_high", "_low")

    def __init__(self) -> None:
        self._low: list[int] = []
        self._high: list[int] = []

    def beats(self, low: int, high: int) -> bool:
        """Return whether there is a pair that is no larger in either."""
        at = bisect_right(self._low, low)
        return at > 0 and self._high[at - 1] <= high

    def put(self, low: int, high: int) -> bool:
        """Add a pair, unless there is one no larger in either; whether it was added."""
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
