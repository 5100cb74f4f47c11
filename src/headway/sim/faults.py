"""Nodes that fail, are repaired and are drained for maintenance, drawn from named streams of the run's seed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headway.errors import ExperimentError, unknown_name
from headway.streams import small_stream
from headway.training.events import NodeDrained, NodeFailed, NodeRecovered
from headway.units import HOUR, parse_duration


@dataclass(frozen=True, slots=True)
class FailureModel:
    """Mean time between failures of one node and mean time to repair it, both exponential."""

    mtbf: int
    repair: int = 4 * HOUR


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Work on some nodes: drained at ``start`` (no new jobs), emptied ``lead`` later, back after ``length``."""

    nodes: tuple[int, ...]
    start: int
    length: int
    lead: int = 0


class Faults:
    """All that befalls nodes in one run.

    A node under maintenance does not run, so it does not fail; and whoever works on a node that had failed repairs it.
    """

    def __init__(
        self, nodes: int, seed: int, failures: FailureModel | None = None, maintenance: Sequence[Maintenance] = ()
    ) -> None:
        self._failures = failures
        self._maintenance = tuple(maintenance)
        self._streams = [small_stream(seed, f"failures/{node}") for node in range(nodes)]
        self._closed: list[list[tuple[int, int]]] = [[] for _ in range(nodes)]
        """When each node is under maintenance, first times first."""
        for work in sorted(self._maintenance, key=lambda work: work.start):
            for node in work.nodes:
                self._closed[node].append((work.start, work.start + work.lead + work.length))
        self._repairs: dict[int, int] = {}
        """When each failed node will be repaired."""

    def first(self) -> Iterator[tuple[int, NodeFailed | NodeRecovered | NodeDrained]]:
        """What is known from the start: each node's first failure, and all maintenance."""
        if self._failures is not None:
            for node in range(len(self._streams)):
                yield self._next_failure(0, node, self._failures.mtbf), NodeFailed(node)
        for work in self._maintenance:
            for node in work.nodes:
                if work.lead:
                    yield work.start, NodeDrained(node)
                yield work.start + work.lead, NodeDrained(node, evict=True)
                yield work.start + work.lead + work.length, NodeRecovered(node)

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


def parse_failures(text: str) -> FailureModel:
    """``mtbf=30d,repair=4h``."""
    given: dict[str, int] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name.strip() not in ("mtbf", "repair"):
            raise ExperimentError(unknown_name("failures key", name.strip(), ("mtbf", "repair")))
        given[name.strip()] = parse_duration(value, what=f"failures {name.strip()}")
    if given.get("mtbf", 0) <= 0 or given.get("repair", HOUR) <= 0:
        raise ExperimentError(f"failures {text!r}: mtbf and repair must be above 0, e.g. mtbf=30d,repair=4h")
    return FailureModel(given["mtbf"], given.get("repair", 4 * HOUR))
