"""Node failures and repairs of a simulated run, drawn from named streams of the run's seed; maintenance and outages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headway.jobs.model.events import NodeDrained, NodeFailed, NodeRecovered
from headway.jobs.model.outages import Outage
from headway.streams import small_stream
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
    """Maintenance or outage of a node: no new jobs from ``start``, none at all from ``emptied``, back at ``end``."""

    node: int
    start: int
    emptied: int
    """``end``: jobs that run there run on."""
    end: int
    fails: bool = False
    """Whether it is emptied by a failure: jobs fall back to their last periodic checkpoints."""

    def events(self) -> Iterator[tuple[int, NodeFailed | NodeRecovered | NodeDrained]]:
        """Yield what happens to the node."""
        if self.start < self.emptied:
            yield self.start, NodeDrained(self.node)
        if self.emptied < self.end:
            yield self.emptied, NodeFailed(self.node) if self.fails else NodeDrained(self.node, evict=True)
        yield self.end, NodeRecovered(self.node)


class Faults:
    """Node failures, maintenance and outages in one run.

    No failure is drawn for a node under maintenance or out of service, and a failed node is repaired by it. Where such
    windows overlap, the node is back when the last of them ends.
    """

    def __init__(
        self,
        nodes: int,
        seed: int,
        failures: FailureModel | None = None,
        maintenance: Sequence[Maintenance] = (),
        outages: Sequence[Outage] = (),
    ) -> None:
        self._seed = seed
        self._failures = failures
        self._streams = [small_stream(seed, f"failures/{node}") for node in range(nodes)]
        self._windows = _windows(maintenance, outages)
        self._closed: list[list[tuple[int, int]]] = [[] for _ in range(nodes)]
        """(start, end) of each node's maintenance and outages, in order of time."""
        for window in sorted(self._windows, key=lambda window: window.start):
            self._closed[window.node].append((window.start, window.end))
        self._repairs: dict[int, int] = {}
        """The time at which each failed node will be repaired."""

    def first(self) -> Iterator[tuple[int, NodeFailed | NodeRecovered | NodeDrained]]:
        """Yield the node events known from the start: the first failure of each node, all maintenance and outages."""
        if self._failures is not None:
            for node in range(len(self._streams)):
                yield self._next_failure(0, node, self._failures.mtbf), NodeFailed(node)
        for window in self._windows:
            yield from window.events()

    def after(
        self, now: int, event: NodeFailed | NodeRecovered | NodeDrained
    ) -> tuple[int, NodeFailed | NodeRecovered] | None:
        """Return the event that follows: the repair of a failure, or the next failure after a repair; else None."""
        node = event.node
        if self._failures is None or isinstance(event, NodeDrained):
            return None
        if isinstance(event, NodeFailed):
            if any(start <= now < end for start, end in self._closed[node]):
                return None
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


def _windows(maintenance: Sequence[Maintenance], outages: Sequence[Outage]) -> list[_Window]:
    """Return the windows of all nodes, in the given order; overlapping windows of one node are merged."""
    given = [
        _Window(node, max(0, work.start - work.lead), work.start, work.start + work.length)
        for work in maintenance
        for node in work.nodes
    ]
    given += [
        _Window(node, max(0, away.start), max(0, away.start) if away.down else away.end, away.end, away.down)
        for away in outages
        for node in away.nodes
        if away.end > 0
    ]
    last: dict[int, _Window] = {}
    absorbed: set[int] = set()
    for window in sorted(given, key=lambda window: window.start):
        before = last.get(window.node)
        if before is None or before.end <= window.start:
            last[window.node] = window
        else:
            _merge(before, window)
            absorbed.add(id(window))
    return [window for window in given if id(window) not in absorbed]


def _merge(window: _Window, later: _Window) -> None:
    """Make one window of two that overlap: emptied as soon as one of them says so."""
    emptied = [each for each in (window, later) if each.emptied < each.end]
    window.end = max(window.end, later.end)
    first = min(emptied, key=lambda each: each.emptied, default=None)
    window.emptied, window.fails = (window.end, False) if first is None else (first.emptied, first.fails)
