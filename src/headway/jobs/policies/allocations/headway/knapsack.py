"""The multiple-choice knapsack of one node: divides its CPUs, memory and storage bandwidth optimally among its jobs.

Each job chooses one of several grants, all of which keep it at least as fast as its proportional share would. What the
node has beyond the minimum is handed out so that the total speed is largest. Gains are not concave (the last steps of a
matrix may be its steepest), so marginal gains do not find the optimum. Dynamic programming does: a table over units of
the resources holds the largest gain of a multiset of jobs for each amount, and the table with one more job follows
from it. A multiset is coded as an integer with a count for each kind of job. Tables are cached by this code, so all
nodes of a kind share them, and trying a job on a node, or without it, is one lookup.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headway.jobs.model.cluster import Node
from headway.jobs.model.proportional_share import scaled
from headway.jobs.model.resources import UNCOUNTED, Grant
from headway.units import WHOLE_GPU_MILLI

IMPOSSIBLE = -(1 << 50)
"""The gain where not even the minimum of all jobs fits."""
_UNITS = (48, 16, 6)
"""The largest number of units that a node's CPUs, memory and storage are divided into."""
_CPU_MILLI = 1000
"""The smallest unit of CPUs; on nodes with less than one for each GPU one of ``_PARTS_MILLI``."""
_PARTS_MILLI = (50, 100, 125, 200, 250, 500, 1000)
_COUNT_BITS = 20
"""Bits of a code for the count of one kind of job: up to a million."""
_MOST_CELLS = 1 << 23
"""The largest number of cells of all cached tables together."""


class Choices:
    """The grants that a job may choose from, per GPU or for its share of one, and its speed with each; undominated."""

    __slots__ = ("amounts", "fallback", "grants", "rates", "speeds")

    def __init__(self, grants: Sequence[Grant], speeds: Sequence[int], proportional: Grant) -> None:
        """``proportional`` covers at least one of the grants."""
        self.grants = tuple(grants)
        self.amounts = np.array(self.grants, dtype=np.int64)
        self.rates = np.array(speeds, dtype=np.int64)
        self.speeds = tuple(speeds)
        """In parts per million, ascending."""
        self.fallback = next(
            grant for grant in grants if all(has <= own for has, own in zip(grant, proportional, strict=True))
        )
        """A grant within the proportional share: if all jobs of a node have theirs, they fit."""


class Item:
    """The choices of a job of some width and weight, on nodes of one kind."""

    __slots__ = ("base", "choices", "code", "fallback", "gains", "grants", "minimum", "steps", "value_per_ppm")

    def __init__(self, choices: Choices, width: int, weight: int) -> None:
        self.choices = choices
        self.grants = (
            choices.grants if width <= WHOLE_GPU_MILLI else tuple(scaled(grant, width) for grant in choices.grants)
        )
        self.fallback = choices.fallback if width <= WHOLE_GPU_MILLI else scaled(choices.fallback, width)
        self.minimum = Grant(*(min(each) for each in zip(*self.grants, strict=True)))
        """The least amount of each resource in any of the grants."""
        self.value_per_ppm = width * weight
        """The value of one part per million of speed."""
        self.base = choices.speeds[0] * self.value_per_ppm // WHOLE_GPU_MILLI
        self.gains = tuple(speed * self.value_per_ppm // WHOLE_GPU_MILLI - self.base for speed in choices.speeds)
        self.code = 0
        """What one such job adds to the code of a multiset; 0 when there is nothing to choose."""
        self.steps: tuple[tuple[int, int, int], ...] = ()
        """Units above the minimum that each grant takes."""


class NodeKnapsack:
    """The knapsack of nodes of one kind, with cached tables for multisets of jobs."""

    def __init__(self, node: Node) -> None:
        has = (node.cpu_milli, node.memory_bytes, node.storage_bytes_per_second)
        self.counted = tuple(amount is not None for amount in has)
        self.capacity = node.host
        self.units = (
            _unit(node.cpu_milli, _UNITS[0], _CPU_MILLI) if _has_whole_cpus(node) else _part_unit(node.cpu_milli),
            _unit(node.memory_bytes, _UNITS[1]),
            _unit(node.storage_bytes_per_second, _UNITS[2]),
        )
        """The amount of one unit of each resource; larger than any amount for what is not counted here."""
        cpu, memory, storage = (amount // unit + 1 for amount, unit in zip(self.capacity, self.units, strict=True))
        self.shape = (cpu, memory, storage)
        self._strides = (memory * storage, storage)
        self._steps = np.array(self.units, dtype=np.int64)
        self._jumps = np.array((*self._strides, 1), dtype=np.int64)
        self._items: dict[tuple[Choices, int, int], Item] = {}
        self._coded: list[Item] = []
        self._nothing = np.zeros(self.shape, dtype=np.int64)
        self._tables: dict[int, NDArray[np.int64]] = {0: self._nothing}
        self._picks: dict[tuple[int, int], dict[Item, list[int]]] = {}
        self._most = max(64, _MOST_CELLS // self._nothing.size)

    def item(self, choices: Choices, width: int, weight: int) -> Item:
        """Return the item of a job with these choices; ``width`` in thousandths of a GPU."""
        found = self._items.get((choices, width, weight))
        if found is None:
            found = self._items[(choices, width, weight)] = Item(choices, width, weight)
            if len(choices.grants) > 1:
                found.code = 1 << len(self._coded) * _COUNT_BITS
                found.steps = tuple(self._step(grant, found.minimum) for grant in found.grants)
                self._coded.append(found)
        return found

    def _step(self, grant: Grant, minimum: Grant) -> tuple[int, int, int]:
        cpu, memory, storage = (
            -(-(amount - least) // unit) if counts else 0
            for amount, least, unit, counts in zip(grant, minimum, self.units, self.counted, strict=True)
        )
        return cpu, memory, storage

    # --- looking up -------------------------------------------------------------------------------------------

    def _place(self, spare: Sequence[int]) -> int:
        """Return the index of an amount in a table; -1 when an amount is negative."""
        cpu, memory, storage = spare
        if cpu < 0 or memory < 0 or storage < 0:
            return -1
        units, strides = self.units, self._strides
        return cpu // units[0] * strides[0] + memory // units[1] * strides[1] + storage // units[2]

    def gain(self, jobs: int, spare: Sequence[int]) -> int:
        """Return the largest gain of a multiset of jobs; ``spare`` is what the minimum of each job leaves."""
        place = self._place(spare)
        if place < 0:
            return IMPOSSIBLE
        table = self._tables.get(jobs)
        if table is None:
            table = self._table(jobs)
        return table.item(place)

    def gains(self, jobs: int, spare: Sequence[int], takes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the same for each of several amounts that are taken from ``spare`` first."""
        left = np.array(spare, dtype=np.int64) - takes
        found = self._table(jobs).ravel().take((left // self._steps) @ self._jumps, mode="clip")
        found[left.min(axis=1) < 0] = IMPOSSIBLE
        return found

    def picks(self, jobs: int, spare: Sequence[int]) -> dict[Item, list[int]] | None:
        """Return the indexes of the grants of the best division, a list for each item; None if no division fits."""
        place = self._place(spare)
        found = self._picks.get((jobs, place))
        if found is None:
            if place < 0 or self._table(jobs).item(place) < 0:
                return None
            if len(self._picks) >= self._most:
                self._picks.clear()
            found = self._picks[(jobs, place)] = self._walk(jobs, place)
        return found

    def _walk(self, jobs: int, place: int) -> dict[Item, list[int]]:
        found: dict[Item, list[int]] = {}
        left = list(np.unravel_index(place, self.shape))
        while jobs:
            item = self._first(jobs)
            rest = self._table(jobs - item.code)
            whole = int(self._table(jobs)[tuple(left)])
            for index, (step, gain) in enumerate(zip(item.steps, item.gains, strict=True)):
                after = tuple(has - takes for has, takes in zip(left, step, strict=True))
                if min(after) >= 0 and int(rest[after]) + gain == whole:
                    found.setdefault(item, []).append(index)
                    left = list(after)
                    break
            else:
                raise AssertionError("a table that does not follow from the one before")
            jobs -= item.code
        return found

    # --- tables -----------------------------------------------------------------------------------------------

    def _first(self, jobs: int) -> Item:
        return self._coded[((jobs & -jobs).bit_length() - 1) // _COUNT_BITS]

    def _table(self, jobs: int) -> NDArray[np.int64]:
        """Return the largest gain of a multiset of jobs for each amount of the resources."""
        missing: list[tuple[int, Item]] = []
        while (found := self._tables.get(jobs)) is None:
            item = self._first(jobs)
            missing.append((jobs, item))
            jobs -= item.code
        if len(self._tables) + len(missing) > self._most:
            self._tables = {0: self._nothing}
        for whole, item in reversed(missing):
            found = self._tables[whole] = self._joined(found, item)
        return found

    def _joined(self, table: NDArray[np.int64], item: Item) -> NDArray[np.int64]:
        cpus, memory, storage = self.shape
        found = np.full(self.shape, IMPOSSIBLE, dtype=np.int64)
        for (cpu, mem, read), gain in zip(item.steps, item.gains, strict=True):
            if cpu < cpus and mem < memory and read < storage:
                part = found[cpu:, mem:, read:]
                np.maximum(part, table[: cpus - cpu, : memory - mem, : storage - read] + gain, out=part)
        return found


def _has_whole_cpus(node: Node) -> bool:
    return node.cpu_milli is None or node.cpu_milli >= _CPU_MILLI * node.gpus


def _part_unit(cpu_milli: int | None) -> int:
    """Return the smallest part of a CPU that divides it and of which a node has few enough."""
    finest = _unit(cpu_milli, _UNITS[0])
    return next((part for part in _PARTS_MILLI if part >= finest), finest)


def _unit(has: int | None, most: int, least: int = 1) -> int:
    return 2 * UNCOUNTED if has is None else max(least, -(-has // most))
