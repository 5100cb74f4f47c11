"""Programme 1 for the jobs of one node, exactly and at once: what they can be worth together, for every room there is.

A front holds, for some kinds of jobs together, every choice of their cells that no other choice beats. That of one more
job is the front before with each of its cells, less what is beaten. Fronts are kept by the kinds they are of, so a node
whose jobs were seen before, in whatever order, costs a look. HiGHS does a node whose front grows too large.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from headway.training.policies.allocations.programmes import Cell, Room, choose, within

MOST_CHOICES = 4_096
"""A front with more is not kept."""
_MOST_FRONTS = 50_000


class _Mark(NamedTuple):
    """One choice of a front: what it is worth and takes, and how it was come by."""

    worth: int
    cpu_milli: int
    memory_bytes: int
    storage: int
    before: int
    """Which choice of the front without the last job."""
    cell: int
    """Which cell of the last job."""


class Fronts:
    """The fronts of all kinds of jobs, on nodes that have at most so much."""

    def __init__(self, most: Room) -> None:
        self.most = most
        self.kinds: list[tuple[Cell, ...]] = []
        """Cells by the number of the kind; cheapest first, the last is the best."""
        self._numbers: dict[tuple[Cell, ...], int] = {}
        self._fronts: dict[tuple[int, ...], list[_Mark] | None] = {(): [_Mark(0, 0, 0, 0, 0, 0)]}
        self._found: dict[tuple[tuple[int, ...], Room], tuple[int, tuple[int, ...]] | None] = {}

    def number(self, cells: tuple[Cell, ...]) -> int:
        """Of the kind of job that has these cells."""
        found = self._numbers.get(cells)
        if found is None:
            found = self._numbers[cells] = len(self.kinds)
            self.kinds.append(cells)
        return found

    def best(self, kinds: tuple[int, ...], room: Room) -> tuple[int, tuple[int, ...]] | None:
        """(worth, a cell for each) of the best choice that fits; ``kinds`` in ascending order. None: nothing fits."""
        key = (kinds, room)
        if key in self._found:
            return self._found[key]
        if len(self._found) >= _MOST_FRONTS:
            self._found.clear()
        front = self._front(kinds)
        found = self._solved(kinds, room) if front is None else self._read(kinds, front, room)
        self._found[key] = found
        return found

    def _read(self, kinds: tuple[int, ...], front: list[_Mark], room: Room) -> tuple[int, tuple[int, ...]] | None:
        mark = next((each for each in front if within(each[1:4], room)), None)
        if mark is None:
            return None
        worth, cells = mark.worth, []
        for end in range(len(kinds), 0, -1):
            cells.append(mark.cell)
            before = self._front(kinds[: end - 1])
            assert before is not None
            mark = before[mark.before]
        return worth, tuple(reversed(cells))

    def _front(self, kinds: tuple[int, ...]) -> list[_Mark] | None:
        """Choices by falling worth; None: too many of them."""
        found = self._fronts.get(kinds, ())
        if found is None or found:
            return found
        before = self._front(kinds[:-1])
        if len(self._fronts) >= _MOST_FRONTS:
            self._fronts = {(): self._fronts[()]}
        made = None if before is None else self._with(before, self.kinds[kinds[-1]])
        self._fronts[kinds] = made
        return made

    def _with(self, before: list[_Mark], cells: Sequence[Cell]) -> list[_Mark] | None:
        cpus, memory, storage = self.most
        marks = [
            _Mark(mark.worth + worth, cpu, bytes_, rate, index, number)
            for number, (grant, worth) in enumerate(cells)
            for index, mark in enumerate(before)
            if (cpu := mark.cpu_milli + grant[0]) <= cpus
            and (bytes_ := mark.memory_bytes + grant[1]) <= memory
            and (rate := mark.storage + grant[2]) <= storage
        ]
        marks.sort(key=lambda mark: (-mark[0], mark[1:]))
        kept = _unbeaten(marks) if not any(mark.storage for mark in marks) else _unbeaten_of_three(marks)
        return kept if 0 < len(kept) <= MOST_CHOICES else None

    def _solved(self, kinds: tuple[int, ...], room: Room) -> tuple[int, tuple[int, ...]] | None:
        groups = [(self.kinds[kind], kinds.count(kind)) for kind in sorted(set(kinds))]
        choice = choose(groups, room)
        if choice is None:
            return None
        return choice.worth, tuple(cell for row in choice.counts for cell, n in enumerate(row) for _ in range(n))


def _unbeaten(marks: list[_Mark]) -> list[_Mark]:
    """Of choices by falling worth, those that take less of CPUs or memory than any before them."""
    kept: list[_Mark] = []
    cpus: list[int] = []
    memory: list[int] = []
    for mark in marks:
        _, cpu, bytes_, *_ = mark
        at = bisect_right(cpus, cpu)
        if at and memory[at - 1] <= bytes_:
            continue
        kept.append(mark)
        end = at
        while end < len(cpus) and memory[end] >= bytes_:
            end += 1
        start = at - 1 if at and cpus[at - 1] == cpu else at
        cpus[start:end] = [cpu]
        memory[start:end] = [bytes_]
    return kept


def _unbeaten_of_three(marks: list[_Mark]) -> list[_Mark]:
    """The same with storage as a third resource."""
    kept: list[_Mark] = []
    for mark in marks:
        if not any(within(each[1:4], mark[1:4]) for each in kept):
            kept.append(mark)
            if len(kept) > MOST_CHOICES:
                break
    return kept
