"""Node failures, repairs and maintenance of a simulated run, drawn from named streams of the run's seed."""

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
    """Maintenance of nodes: no new jobs from ``lead`` before ``start``, emptied at ``start``, back after ``length``."""

    nodes: tuple[int, ...]
    start: int
    length: int
    lead: int = 0


@dataclass(slots=True)
class _Window:
    """Maintenance of one node: no new jobs from ``start``, no jobs at all from ``emptied``, back at ``end``."""

    node: int
    start: int
    emptied: int
    end: int


class Faults:
    """Node failures and maintenance in one run.

    A node does not fail under maintenance, and a failed node is repaired by it. Where maintenance windows overlap, the
    node is back when the last of them ends.
    """

    def __init__(
        self, nodes: int, seed: int, failures: FailureModel | None = None, maintenance: Sequence[Maintenance] = ()
    ) -> None:
        self._seed = seed
        self._failures = failures
        self._streams = [small_stream(seed, f"failures/{node}") for node in range(nodes)]
        self._windows = _windows(maintenance)
        self._closed: list[list[tuple[int, int]]] = [[] for _ in range(nodes)]
        """(start, end) of each node's maintenance, in order of time."""
        for window in sorted(self._windows, key=lambda window: window.start):
            self._closed[window.node].append((window.start, window.end))
        self._repairs: dict[int, int] = {}
        """The time at which each failed node will be repaired."""

    def first(self) -> Iterator[tuple[int, NodeFailed | NodeRecovered | NodeDrained]]:
        """Yield the node events known from the start: the first failure of each node, and all maintenance."""
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
        """Return the event that follows: the repair of a failure, or the next failure after a repair; else None."""
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
        """Use another failure model from now on; yield the next failure of each node, which replaces the earlier ones.

        A node that is down comes back at the time drawn before, and then fails by the new model.
        """
        self._failures = failures
        if failures is not None:
            for node in range(len(self._streams)):
                if node not in self._repairs:
                    yield self._next_failure(now, node, failures.mtbf), NodeFailed(node)

    def grow(self, now: int, nodes: int) -> Iterator[tuple[int, NodeFailed]]:
        """Grow to so many nodes; yield the first failure of each new node."""
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
    """Return the maintenance windows of all nodes, in the given order; overlapping windows of one node are merged."""
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
