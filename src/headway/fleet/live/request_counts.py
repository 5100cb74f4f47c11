"""Count the requests at the doors of a server by graph and outcome, and how long they took.

Wrong requests and those answered by their key are here too; the server's own counts know those that it was handed.
"""

from bisect import bisect_left
from collections import deque
from typing import Any

from headway.units import MILLISECOND

OUTCOMES = {200: "ok", 429: "refused", 500: "failed", 503: "unavailable", 504: "late"}
"""What a status is counted as; any other is a request that was wrong."""
INVALID = "invalid"
REPEATED = "repeated"
"""Answered with what is kept, or on its way, under the key of the request."""
EVERY_OUTCOME = (*OUTCOMES.values(), INVALID, REPEATED)
BOUNDS = tuple(
    round(each * MILLISECOND) for each in (0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 60_000)
)
"""Upper bounds of the histogram."""
_LATEST = 1024
"""Answers that the percentiles of a status are over."""


class GraphCounts:
    """What is counted of one graph."""

    __slots__ = ("buckets", "latest", "outcomes", "total")

    def __init__(self) -> None:
        self.outcomes: dict[str, int] = {}
        self.buckets = [0] * (len(BOUNDS) + 1)
        """Answers by latency, each in the first bound that it is not above; the last: above all."""
        self.total = 0
        """Nanoseconds of all answers together."""
        self.latest: deque[int] = deque(maxlen=_LATEST)


class RequestCounts:
    """Requests since the server began."""

    def __init__(self) -> None:
        self.graphs: dict[str, GraphCounts] = {}

    def add(self, graph: str, status: int, latency: int = 0) -> None:
        """Count an answer; an empty graph is one that does not exist."""
        row = self._count(graph, OUTCOMES.get(status, INVALID))
        if status == 200:
            row.buckets[bisect_left(BOUNDS, latency)] += 1
            row.total += latency
            row.latest.append(latency)

    def add_repeated(self, graph: str, status: int) -> None:
        """Count an answer that an earlier request under the same key has, or 422 where that was another request."""
        self._count(graph, INVALID if status == 422 else REPEATED)

    def _count(self, graph: str, outcome: str) -> GraphCounts:
        if (row := self.graphs.get(graph)) is None:
            row = self.graphs[graph] = GraphCounts()
        row.outcomes[outcome] = row.outcomes.get(outcome, 0) + 1
        return row

    def rows(self) -> dict[str, dict[str, Any]]:
        """Return the counts of each graph, and percentiles over its latest answers in milliseconds."""
        return {name: _row(row) for name, row in sorted(self.graphs.items())}


def _row(row: GraphCounts) -> dict[str, Any]:
    shown: dict[str, Any] = {outcome: row.outcomes.get(outcome, 0) for outcome in EVERY_OUTCOME}
    latest = sorted(row.latest)
    for percent in (50, 99):
        shown[f"p{percent}_ms"] = percentile(latest, percent) / MILLISECOND if latest else None
    return shown


def percentile(values: list[int], percent: int) -> float:
    """Return a percentile of sorted values, interpolated linearly."""
    place = (len(values) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)
