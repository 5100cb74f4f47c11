"""Priorities of requests as a head start: a level counts as much as coming the shortest critical path earlier.

Of two requests that are equally urgent the one of higher priority goes first. A level is as long for all graphs, so
that requests of one priority stay in their order. A head start is bounded, so that no class starves: whoever waits that
much longer goes before it.
"""

from headway.fleet.model.request import Request
from headway.fleet.state.state import ServingState


class HeadStarts:
    """The head starts of open requests; empty where all have priority 0, which then costs nothing."""

    def __init__(self, state: ServingState) -> None:
        """Compute the head start of a level of priority: the shortest of all graphs' critical paths."""
        self._level = min(state.latency.critical_path(graph) for graph in state.catalogue.graphs)
        self._ahead: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._ahead)

    def note(self, request: Request) -> None:
        """Note a request that arrived."""
        if request.priority:
            self._ahead[request.id] = request.priority * self._level

    def forget(self, request: int) -> None:
        """Forget a request that has ended."""
        self._ahead.pop(request, None)

    def of(self, request: int) -> int:
        """Return by how much a request goes before its time, in nanoseconds."""
        return self._ahead.get(request, 0)
