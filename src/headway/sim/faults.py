"""Nodes that fail, are repaired and are drained for maintenance, drawn from named streams of the run's seed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headway.streams import small_stream
from headway.training.events import NodeDrained, NodeFailed, NodeRecovered
from headway.units import HOUR


@dataclass(frozen=True, slots=True)
class FailureModel:
    """Mean time between failures of one node and mean time to repair it, both exponential."""

    mtbf: int
    repair: int = 4 * HOUR


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Work on some nodes: no new jobs from ``lead`` before ``start``, emptied at ``start``, back after ``length``."""

    nodes: tuple[int, ...]
    start: int
    length: int
    lead: int = 0


@dataclass(slots=True)
class _Window:
    """One node closed: no new jobs from ``start``, none at all from ``emptied``, back at ``end``."""

    node: int
    start: int
    emptied: int
    end: int


class Faults:
    """All that befalls nodes in one run.

    A node under maintenance does not run, so it does not fail; and whoever works on a node that had failed repairs it.
    Where times of maintenance overlap, the node is back when the last of them is over.
    """

    def __init__(
        self, nodes: int, seed: int, failures: FailureModel | None = None, maintenance: Sequence[Maintenance] = ()
    ) -> None:
        self._seed = seed
        self._failures = failures
        self._streams = [small_stream(seed, f"failures/{node}") for node in range(nodes)]
        self._windows = _windows(maintenance)
        self._closed: list[list[tuple[int, int]]] = [[] for _ in range(nodes)]
        """When each node is under maintenance, first times first."""
        for window in sorted(self._windows, key=lambda window: window.start):
            self._closed[window.node].append((window.start, window.end))
        self._repairs: dict[int, int] = {}
        """When each failed node will be repaired."""

    def first(self) -> Iterator[tuple[int, NodeFailed | NodeRecovered | NodeDrained]]:
        """Yield what is known from the start: each node's first failure, and all maintenance."""
        if self._failures is not None:
            for node in range(len(self._streams)):
                yield self._next_failure(0, node, self._failures.mtbf), NodeFailed(node)
        for window in self._windows:
            if window.start < window.emptied:
                yield window.start, NodeDrained(window.node)
            yield window.emptied, NodeDrained(window.node, evict=True)
            yield window.end, NodeRecovered(window.node)

    def after(
        self, now: int, event: NodeFailed | NodeRecovered | NodeDrained
    ) -> tuple[int, NodeFailed | NodeRecovered] | None:
        """What follows from a failure (its repair) and from that (the next failure); nothing from maintenance."""
        node = event.node
        if self._failures is None or isinstance(event, NodeDrained):
            return None
        if isinstance(event, NodeFailed):
            self._repairs[node] = self._repaired(now, node, self._failures.repair)
            return self._repairs[node], NodeRecovered(node)
        if self._repairs.get(node) != now:
            return None
        del self._repairs[node]
        return self._next_failure(now, node, self._failures.mtbf), NodeFailed(node)

    def change(self, now: int, failures: FailureModel | None) -> Iterator[tuple[int, NodeFailed]]:
        """Nodes fail by another model from now on: the next failure of each node, in place of those said before.

        A node that is down comes back as it was to, and fails by the new model after that.
        """
        self._failures = failures
        if failures is not None:
            for node in range(len(self._streams)):
                if node not in self._repairs:
                    yield self._next_failure(now, node, failures.mtbf), NodeFailed(node)

    def grow(self, now: int, nodes: int) -> Iterator[tuple[int, NodeFailed]]:
        """There are so many nodes from now on: the first failure of each new one."""
        for node in range(len(self._streams), nodes):
            self._streams.append(small_stream(self._seed, f"failures/{node}"))
            self._closed.append([])
            if self._failures is not None:
                yield self._next_failure(now, node, self._failures.mtbf), NodeFailed(node)

    def _drawn(self, node: int, mean: int) -> int:
        return max(1, round(self._streams[node].expovariate(1 / mean)))

    def _next_failure(self, now: int, node: int, mtbf: int) -> int:
        time = now + self._drawn(node, mtbf)
        for start, end in self._closed[node]:
            if start <= time <= end:
                time = end + self._drawn(node, mtbf)
        return time

    def _repaired(self, now: int, node: int, repair: int) -> int:
        time = now + self._drawn(node, repair)
        for start, end in self._closed[node]:
            if start <= time and end > now:
                time = end
        return time


def _windows(maintenance: Sequence[Maintenance]) -> list[_Window]:
    """Each node's times of maintenance, as given; those of one node that overlap are one, which ends with the last."""
    given = [
        _Window(node, max(0, work.start - work.lead), work.start, work.start + work.length)
        for work in maintenance
        for node in work.nodes
    ]
    last: dict[int, _Window] = {}
    absorbed: set[int] = set()
    for window in sorted(given, key=lambda window: window.start):
        before = last.get(window.node)
        if before is None or before.end <= window.start:
            last[window.node] = window
        else:
            before.emptied, before.end = min(before.emptied, window.emptied), max(before.end, window.end)
            absorbed.add(id(window))
    return [window for window in given if id(window) not in absorbed]
