"""Work in flight of a gated client, as far as the CUDA events of its shim tell.

This is native/flight.cpp: an event is recorded in the stream after a certain amount of predicted work. The driver is
queried for events that were reached only where the answer matters. Work whose event has not been reached never counts
as nearly done, however long it has run.
"""

from collections import deque

MARK_NS = 60_000
"""An event is recorded after half of the work that may be in flight, at least this; half of this where other clients
are gated too."""
IDLE_MARK_NS = 400_000
"""And always after less than this; with no client above after this much."""
LONG_NS = 30_000
"""A kernel of this length, and of half a mark, has its own event, unless no client is above."""
STUCK_NS = 20_000_000
"""Work that is late by this much waits for something else than the GPU: it is not counted."""


def mark(depth: int, alone: bool, crowd: bool) -> int:
    """Return after how much work an event is recorded, where ``depth`` may be in flight."""
    if alone:
        return IDLE_MARK_NS
    return MARK_NS // 2 if crowd else min(max(MARK_NS, depth // 2), IDLE_MARK_NS - 1)


class Flight:
    """The launched work of one client."""

    __slots__ = ("free", "looked", "marked", "total", "unmarked", "unmarked_go")

    def __init__(self) -> None:
        self.marked: deque[tuple[int, int, int]] = deque()
        """Stretches of work that end with an event: (number of the last launch, when the first started, duration)."""
        self.total = 0
        self.unmarked = self.unmarked_go = self.free = self.looked = 0

    def launch(self, number: int, go: int, fill: int, mark: int = MARK_NS) -> None:
        """Count a launch that went to the GPU."""
        if not self.marked and self.unmarked:
            self.unmarked = max(0, self.unmarked_go + self.unmarked - go)
            self.unmarked_go = go
        elif not self.unmarked:
            self.unmarked_go = go
        self.unmarked += fill
        if self.unmarked >= mark or (mark < IDLE_MARK_NS and fill >= max(LONG_NS, mark // 2)):
            self.marked.append((number, self.unmarked_go, self.unmarked))
            self.total += self.unmarked
            self.unmarked = 0

    def overdue(self, now: int, latency: int) -> bool:
        """Return whether the first stretch in flight should have ended by now."""
        if not self.marked:
            return False
        _, go, fill = self.marked[0]
        return now >= max(go + latency, self.free) + fill

    def collect(self, now: int, finished: int) -> None:
        """Remove the launches that the driver reports as ended.

        Each counts as ended when it was expected to, unless it was seen running after that.
        """
        marked = self.marked
        while marked:
            number, go, fill = marked[0]
            if number >= finished:
                self.looked = now
                return
            marked.popleft()
            self.total -= fill
            self.free = max(min(now, max(go, self.free) + fill), min(now, self.looked))

    def end(self, now: int, latency: int) -> int:
        """Return when all work in flight is expected to end; 0: there is none."""
        left = self.unmarked
        if self.marked:
            _, go, fill = self.marked[0]
            ran = max(0, now - max(go + latency, self.free))
            if ran > 4 * fill + STUCK_NS:
                return 0
            left += self.total
            left += -ran if ran < fill * 9 // 10 else max(fill // 10, (ran - fill) // 2) - fill
        elif left:
            left = max(0, self.unmarked_go + latency + left - now)
        return now + left if left > 0 else 0
