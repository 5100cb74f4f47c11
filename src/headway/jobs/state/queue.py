"""Jobs that wait and jobs that run, kept in the order that the policy asked for.

A policy's order gives each waiting job a key; a smaller one comes first. Jobs wait in lanes: a backfill that looks only
at the head of the queue asks for one lane a partition, one that skips what does not fit asks for a lane a shape of
demand, because of two jobs of one shape the later one never fits when the earlier one does not. Finding the next
candidate then costs the number of shapes, not the number of jobs.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Iterator
from heapq import merge
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

from headway.errors import ExperimentError

Key: TypeAlias = Any
"""Anything that can be compared with the other keys of one order: a number or a tuple of numbers."""
Entry: TypeAlias = tuple[Key, int]
"""A key and the job's id."""


class Tiered(NamedTuple):
    """A key behind the tier of the job's partition, where tiers differ; the higher tier comes first."""

    tier: int
    """Minus the tier."""
    own: Key


def own_key(key: Key) -> Key:
    """Return a key as the order made it, without a tier."""
    return key.own if type(key) is Tiered else key


def tier_of(key: Key) -> int:
    """Return minus the tier that a key begins with; 0 where there are no tiers."""
    return key.tier if type(key) is Tiered else 0


_SLACK = 256
_GENERATION = 1 << 40
"""More changes than a lane will ever see."""
_FEW = 64
"""So many values are sorted; of more, most are never looked at."""


class Lane:
    """A sorted list whose head is cheap to see and to take."""

    __slots__ = ("_entries", "_first", "head", "name", "version")

    def __init__(self, name: Hashable, entries: list[Entry], version: int = 0) -> None:
        """``entries`` are sorted, and at least one."""
        self.name = name
        self.head = entries[0]
        """The entry that comes first."""
        self.version = version
        """Grows whenever its jobs or their order are others."""
        self._entries = entries
        self._first = 0

    def __len__(self) -> int:
        return len(self._entries) - self._first

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries[self._first :])

    def before(self, entry: Entry) -> int:
        """Return how many entries come before this one."""
        return bisect_left(self._entries, entry, lo=self._first) - self._first

    def add(self, entry: Entry) -> None:
        """Insert in order."""
        self.version += 1
        entries = self._entries
        if entry > entries[-1]:
            entries.append(entry)
            return
        insort(entries, entry, lo=self._first)
        if entry < self.head:
            self.head = entry

    def rekey(self, keys: Iterable[Key]) -> None:
        """Give the entries new keys, in the order in which they come."""
        before = list(zip(keys, [job for _, job in self], strict=True))
        entries = sorted(before)
        self._entries, self._first, self.head = entries, 0, entries[0]
        self.version += entries != before

    def remove(self, entry: Entry) -> bool:
        """Take out an entry that is there; return whether it was the last one."""
        self.version += 1
        entries, first = self._entries, self._first
        if self.head != entry:
            index = bisect_left(entries, entry, lo=first)
            assert entries[index] == entry, f"{entry} is not in lane {self.name!r}"
            del entries[index]
            return False
        first += 1
        if first == len(entries):
            return True
        self.head = entries[first]
        if first > _SLACK and first * 2 > len(entries):
            del entries[:first]
            first = 0
        self._first = first
        return False


class Queue:
    """All waiting jobs, by lane."""

    __slots__ = ("_made", "aside", "lanes", "size")

    def __init__(self) -> None:
        self.lanes: dict[Hashable, Lane] = {}
        """Of jobs that may start, as far as limits go."""
        self.aside: dict[Hashable, Lane] = {}
        """Of jobs that a limit holds back: these are in no order with the others, and not counted by ``size``."""
        self.size = 0
        self._made = 0
        """Lanes so far."""

    def __len__(self) -> int:
        return self.size

    def add(self, lane_name: Hashable, entry: Entry) -> None:
        """Add a job that starts to wait."""
        self.size += 1
        lane = self.lanes.get(lane_name)
        if lane is None:
            self.lanes[lane_name] = self._lane(lane_name, entry)
        else:
            try:
                lane.add(entry)
            except TypeError as problem:
                raise _incomparable(entry, problem) from None

    def _lane(self, name: Hashable, entry: Entry) -> Lane:
        """Return a new lane: no version of it was one of another lane of its name."""
        self._made += 1
        return Lane(name, [entry], self._made * _GENERATION)

    def remove(self, lane_name: Hashable, entry: Entry) -> None:
        """Remove a job that waits no longer; an empty lane goes away."""
        if self.aside and lane_name in self.aside:
            if self.aside[lane_name].remove(entry):
                del self.aside[lane_name]
            return
        self.size -= 1
        if self.lanes[lane_name].remove(entry):
            del self.lanes[lane_name]

    def add_aside(self, lane_name: Hashable, entry: Entry) -> None:
        """Add a job that starts to wait and is held back."""
        lane = self.aside.get(lane_name)
        if lane is None:
            self.aside[lane_name] = self._lane(lane_name, entry)
        else:
            lane.add(entry)

    def set_aside(self, lane_name: Hashable) -> None:
        """Hold back all jobs of a lane."""
        lane = self.aside[lane_name] = self.lanes.pop(lane_name)
        self.size -= len(lane)

    def bring_back(self, lane_name: Hashable) -> None:
        """Let the jobs of a lane go on waiting with the others."""
        lane = self.lanes[lane_name] = self.aside.pop(lane_name)
        self.size += len(lane)

    def held_back(self) -> int:
        """Return how many jobs wait that a limit holds back."""
        return sum(map(len, self.aside.values()))

    def waiting(self) -> list[int]:
        """Return all jobs that wait, those that are held back too, lane by lane."""
        return [job for lane in self._all() for _, job in lane]

    def rekey(self, lane_names: Iterable[Hashable], key_of: Callable[[int], Key]) -> None:
        """Put the jobs of these lanes, of which some have new keys, in order."""
        for name in lane_names:
            lane = self.lanes[name] if name in self.lanes else self.aside[name]
            try:
                lane.rekey([key_of(job) for _, job in lane])
            except TypeError as problem:
                raise _incomparable(lane.head, problem) from None

    def _all(self) -> Iterable[Lane]:
        return chain(self.lanes.values(), self.aside.values())

    def head(self) -> Entry | None:
        """Return the first entry of all lanes; None when nobody waits."""
        if not self.size:
            return None
        if len(self.lanes) == 1:
            return next(iter(self.lanes.values())).head
        return min(lane.head for lane in self.lanes.values())

    def in_order(self) -> Iterator[Entry]:
        """Yield all entries in order; the queue must not change meanwhile."""
        if len(self.lanes) == 1:
            return iter(next(iter(self.lanes.values())))
        return merge(*self.lanes.values())


def _incomparable(entry: Entry, problem: TypeError) -> ExperimentError:
    return ExperimentError(
        f"the policy's key {entry[0]!r} of job {entry[1]} cannot be compared with that of another job ({problem})"
    )


class Ranked:
    """Running jobs by a value that moves with time: ``offset + rate * now``.

    Jobs of one rate keep their order among themselves for ever, so each rate has one sorted list and only the lists'
    ends have to be compared: attained service grows with a job's width, remaining work shrinks at its speed.
    """

    __slots__ = ("_by_rate", "_largest", "_largest_at")

    def __init__(self) -> None:
        self._by_rate: dict[int, list[tuple[Key, int]]] = {}
        self._largest: Key | None = None
        self._largest_at = -1
        """When ``largest`` was computed last, if nothing has changed since; else -1."""

    def add(self, rate: int, offset: Key, job: int) -> None:
        """Add a job that started."""
        self._largest_at = -1
        insort(self._by_rate.setdefault(rate, []), (offset, job))

    def remove(self, rate: int, offset: Key, job: int) -> None:
        """Remove a job that runs no longer."""
        self._largest_at = -1
        entries = self._by_rate[rate]
        del entries[bisect_left(entries, (offset, job))]
        if not entries:
            del self._by_rate[rate]

    def of_rate(self, rate: int) -> list[tuple[Key, int]]:
        """Return (offset, job) of all jobs of one rate, smallest first: the list itself, for reading only."""
        return self._by_rate.get(rate, [])

    def largest(self, now: int) -> Key | None:
        """Return the largest value of any job; None when nothing runs."""
        if self._largest_at == now:
            return self._largest
        best: Key | None = None
        for rate, entries in self._by_rate.items():
            value = entries[-1][0] + rate * now if rate else entries[-1][0]
            if best is None or value > best:
                best = value
        self._largest, self._largest_at = best, now
        return best

    def descending(self, now: int) -> Iterator[tuple[Key, int]]:
        """Yield (value, job), largest value first; among equal values the job with the larger id first."""
        runs = [_values(reversed(entries), rate * now) for rate, entries in self._by_rate.items()]
        return runs[0] if len(runs) == 1 else merge(*runs, reverse=True)

    def above(self, now: int, bound: Key) -> Iterator[tuple[Key, int]]:
        """Yield (value, job) of values not below a bound, largest first; among equal values the larger id first."""
        runs = []
        count = 0
        for rate, entries in self._by_rate.items():
            moved = rate * now
            first = bisect_left(entries, (bound - moved,))
            if first < len(entries):
                runs.append((entries, first, moved))
                count += len(entries) - first
        if count > _FEW:
            return merge(*(_values(reversed(entries[first:]), moved) for entries, first, moved in runs), reverse=True)
        values = [(offset + moved, job) for entries, first, moved in runs for offset, job in entries[first:]]
        values.sort(reverse=True)
        return iter(values)

    def ascending(self, now: int) -> Iterator[tuple[Key, int]]:
        """Yield (value, job), smallest value first."""
        runs = [_values(iter(entries), rate * now) for rate, entries in self._by_rate.items()]
        return runs[0] if len(runs) == 1 else merge(*runs)


def _values(entries: Iterator[tuple[Key, int]], moved: int) -> Iterator[tuple[Key, int]]:
    for offset, job in entries:
        yield offset + moved if moved else offset, job
