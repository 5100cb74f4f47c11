"""The backfill scheduler's map of the future: which nodes are spoken for, from when to when.

As in Slurm a planned job takes its nodes whole in the map, and when a node is free enough for a job is told by the
time limits of what runs there. For a job that may preempt, what it may preempt counts as gone.
"""

from bisect import bisect_right
from typing import NamedTuple

from examples.slurm.site.jobs import Job

NEVER = 1 << 60
Size = tuple[int, int, int]
"""GPUs, CPUs and memory on one node."""


class Held(NamedTuple):
    """What a running job holds of a node."""

    end: int
    """By its time limit."""
    job: int
    size: Size
    weak: bool
    """Whether others may preempt it."""


def size_of(job: Job) -> Size:
    """Return what a job holds of each of its nodes."""
    return job.gpus // job.nodes, -(-job.cpus // job.nodes), -(-job.memory_gb // job.nodes)


def fits(free: Size, size: Size) -> bool:
    """Return whether so much is within what is free."""
    return free[0] >= size[0] and free[1] >= size[1] and free[2] >= size[2]


def added(free: Size, size: Size, sign: int = 1) -> Size:
    """Return what is free after something was given back."""
    return free[0] + sign * size[0], free[1] + sign * size[1], free[2] + sign * size[2]


def tightest(nodes: list[int], count: int) -> tuple[int, ...]:
    """Return so many of these nodes as Slurm picks them: from the shortest run of neighbours that is enough.

    Where none is, the longest run is taken whole, and the rest in the same way. Nothing where there are too few.
    """
    runs: list[list[int]] = []
    for node in nodes:
        if runs and runs[-1][-1] == node - 1:
            runs[-1].append(node)
        else:
            runs.append([node])
    place: list[int] = []
    while runs and len(place) < count:
        enough = [run for run in runs if len(run) >= count - len(place)]
        run = min(enough, key=len) if enough else max(runs, key=len)
        place += run[: count - len(place)]
        runs.remove(run)
    return tuple(place) if len(place) == count else ()


class Resources:
    """What is free on each node, and who holds the rest."""

    def __init__(self, sizes: list[Size]) -> None:
        self.free = sizes
        self.held: list[list[Held]] = [[] for _ in sizes]
        """Of each node, the first end first."""

    def take(self, job: Job, place: tuple[int, ...], end: int, weak: bool) -> None:
        """Give a job its part of some nodes."""
        size = size_of(job)
        for node in place:
            self.free[node] = added(self.free[node], size, -1)
            entry = Held(end, job.number, size, weak)
            self.held[node].insert(bisect_right(self.held[node], entry), entry)

    def give(self, job: Job) -> None:
        """Take back what a job holds."""
        size = size_of(job)
        for node in job.place:
            self.free[node] = added(self.free[node], size)
            self.held[node] = [held for held in self.held[node] if held.job != job.number]

    def free_at(self, node: int, size: Size, now: int, preempts: bool) -> int:
        """Return when a node will have so much free, if nothing new starts there."""
        free = self.free[node]
        if preempts:
            for held in self.held[node]:
                free = added(free, held.size) if held.weak else free
        if fits(free, size):
            return now
        for held in self.held[node]:
            if not (preempts and held.weak):
                free = added(free, held.size)
                if fits(free, size):
                    return max(now + 1, held.end)  # one that is about to be killed still holds what it has
        return NEVER


class Plan:
    """One pass of the backfill scheduler."""

    def __init__(self, now: int, nodes: int, resources: Resources) -> None:
        self._now = now
        self._nodes = nodes
        self._resources = resources
        self._times = [now]
        self._masks = [(1 << nodes) - 1]
        self._known: dict[tuple[Size, bool], list[int | None]] = {}

    def find(self, job: Job, nodes: tuple[int, ...], preempts: bool) -> tuple[int, tuple[int, ...]]:
        """Return when and where a job can start without delaying one that was planned before."""
        size = size_of(job)
        start = self._now
        while start < NEVER:
            mask = self._open(start, start + job.limit)
            ready = [(max(start, self._free_at(node, size, preempts)), node) for node in nodes if mask >> node & 1]
            at = sorted(ready)[job.nodes - 1][0] if len(ready) >= job.nodes else NEVER
            if at >= NEVER:
                start = self._next(start)
                continue
            place = tightest([node for ready_at, node in ready if ready_at <= at], job.nodes)
            wanted = sum(1 << node for node in place)
            if at == start or self._open(at, at + job.limit) & wanted == wanted:
                return at, place
            start = at
        return NEVER, ()

    def reserve(self, start: int, end: int, place: tuple[int, ...]) -> None:
        """Keep nodes for a job."""
        first, last = self._cut(start), self._cut(end)
        wanted = sum(1 << node for node in place)
        for at in range(first, last):
            self._masks[at] &= ~wanted

    def changed(self, place: tuple[int, ...]) -> None:
        """Forget what was known of some nodes: something started there."""
        for known in self._known.values():
            for node in place:
                known[node] = None

    def _free_at(self, node: int, size: Size, preempts: bool) -> int:
        known = self._known.get((size, preempts))
        if known is None:
            known = self._known[size, preempts] = [None] * self._nodes
        found = known[node]
        if found is None:
            found = known[node] = self._resources.free_at(node, size, self._now, preempts)
        return found

    def _open(self, start: int, end: int) -> int:
        """Return the nodes that are not kept at any time between."""
        mask = -1
        for at in range(bisect_right(self._times, start) - 1, len(self._times)):
            if self._times[at] >= end:
                break
            mask &= self._masks[at]
        return mask

    def _next(self, start: int) -> int:
        at = bisect_right(self._times, start)
        return self._times[at] if at < len(self._times) else NEVER

    def _cut(self, time: int) -> int:
        at = bisect_right(self._times, time) - 1
        if self._times[at] != time:
            self._times.insert(at + 1, time)
            self._masks.insert(at + 1, self._masks[at])
            at += 1
        return at
