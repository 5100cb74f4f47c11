"""What is free when, where a reservation takes all of its nodes: what running jobs hold, and reserved intervals.

The same as a ``Profile`` with ``whole_nodes``, and quicker. Running jobs only give back as time passes, so that a node
has enough for a job from some time on for ever; and nobody else uses a node while it is reserved. The earliest start is
then the first gap between reserved intervals, from that time on, that is long enough.
"""

from bisect import insort
from heapq import heappop, heappush

from headway.jobs.model.resources import Placement
from headway.jobs.policies.backfills.conservative.availability import Parts, Profile
from headway.jobs.policies.backfills.conservative.running import NEVER, Held
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.pool import host_share, members
from headway.jobs.state.state import TrainingState


class WholeNodes:
    """Reserved intervals of all nodes beside what running jobs of whole GPUs hold."""

    def __init__(self, held: Held, state: TrainingState) -> None:
        self._held = held
        self._state = state
        self._intervals: list[list[tuple[int, int]]] = [[] for _ in held.times]
        """(start, end) of reservations, in order."""
        self.changed = 0
        """Nodes, as a bit set, on which something is reserved."""
        self.stands = NEVER
        """Of the start that was found last: until then time alone makes no other node the better one."""

    # --- changing it ------------------------------------------------------------------------------------------

    def plan(self, js: JobState, parts: Parts, start: int, end: int) -> None:
        """Reserve nodes."""
        for node, _ in parts:
            insort(self._intervals[node], (start, end))
            self.changed |= 1 << node

    def reserve(self, js: JobState, parts: Parts, start: int, end: int, sign: int = -1) -> bool:
        """Reserve nodes from start to end, or with +1 what is left of a reservation no longer."""
        if start >= end:
            return True
        if sign < 0:
            self.plan(js, parts, start, end)
            return True
        for node, _ in parts:
            intervals = self._intervals[node]
            index = next(index for index, (first, last) in enumerate(intervals) if first <= start and last == end)
            first, _ = intervals.pop(index)
            if first < start:
                insort(intervals, (first, start))
        return True

    def hold(self, js: JobState, placement: Placement, start: int, end: int) -> bool:
        """Take note of a job that started; return whether no reservation was touched."""
        sound = True
        for node, _ in placement:
            self._held.hold(node, start, self._state)
            sound = sound and self._gap(node, start, end - start) == start
        return sound

    def reset(self, nodes: int) -> None:
        """Drop all reservations on these nodes."""
        for node in members(nodes):
            self._intervals[node] = []
        self.changed &= ~nodes

    def forget(self, now: int) -> None:
        """Drop what is past, of which there is little."""

    # --- looking ----------------------------------------------------------------------------------------------

    def fits(self, js: JobState, placement: Placement, start: int, length: int) -> bool:
        """Return whether a job could hold this placement from ``start`` on without touching what is reserved."""
        for node, mask in placement:
            count = mask.bit_count()
            if not self.has_room(node, count, *host_share(js, count), start, length):
                return False
        return True

    def has_room(self, node: int, need: int, cpu_milli: int, memory_bytes: int, start: int, length: int) -> bool:
        """Return whether a node has these amounts from ``start`` on for ``length``."""
        enough = self._held.enough(node, need, cpu_milli, memory_bytes)
        return enough <= start and self._gap(node, start, length) == start

    def _gap(self, node: int, start: int, length: int) -> int:
        """Return the first time from ``start`` on at which a node is not reserved for ``length``."""
        for first, last in self._intervals[node]:
            if last > start:
                if first >= start + length:
                    break
                start = last
        return start

    def on_one_node(self, js: JobState, now: int, length: int) -> tuple[int, Parts]:
        """Return the earliest start on one node, and the node with its GPUs; of equals the node that has the GPUs
        first."""
        need, every = js.gpus, self._intervals
        best, where, since = NEVER, -1, None
        self.stands = NEVER
        for start, node in self._held.in_order(js.eligible, need, js.cpu_milli, js.memory_bytes):
            if start > best:
                break
            if start < now:
                start = now
            for first, last in every[node]:
                if last > start:
                    if first >= start + length:
                        break
                    start = last
            if start < best:
                best, where, since = start, node, None
            elif start == best < NEVER:
                since = since or self._since(where, need, now)
                if (sooner := self._since(node, need, now)) < since:
                    where, since = node, sooner
        if since is not None:
            self.stands = since[0]
        return best, ((where, need),)

    def among(self, js: JobState, now: int, length: int, nodes: int, latest: int) -> tuple[int, int]:
        """Return the earliest start of a job, or of its part for one node, on one of these nodes, and the node, as
        ``on_one_node`` does; (NEVER, -1) if there is none by ``latest``."""
        each = js.gpus // js.nodes if js.nodes > 1 else js.gpus
        cpu_milli, memory_bytes = host_share(js, each)
        enough, known, every = self._held.enough, self._held.known, self._intervals
        amounts = each, cpu_milli, memory_bytes
        best, where, since = latest + 1, -1, None
        nodes &= js.eligible
        while nodes:
            low = nodes & -nodes
            nodes ^= low
            node = low.bit_length() - 1
            if (start := known[node].get(amounts)) is None:
                start = enough(node, each, cpu_milli, memory_bytes)
            if start > best:
                continue
            if start < now:
                start = now
            for first, last in every[node]:
                if last > start:
                    if first >= start + length:
                        break
                    start = last
            if start < best:
                best, where, since = start, node, None
            elif start == best and where >= 0:
                since = since or self._since(where, each, now)
                if (sooner := self._since(node, each, now)) < since:
                    where, since = node, sooner
        self.stands = NEVER if since is None else since[0]
        return (best, where) if where >= 0 else (NEVER, -1)

    def _since(self, node: int, need: int, now: int) -> tuple[int, int]:
        """Return from when on a node has so many GPUs and is not reserved, and the node."""
        return self._gap(node, max(now, self._held.first(node, need)), 1), node

    def on_nodes(self, js: JobState, now: int, length: int, domain: int = -1) -> tuple[int, Parts]:
        """Return the earliest start over several nodes of a domain, and the GPUs on each."""
        if js.nodes <= 1:
            self.stands = -1
            return self.to_profile().on_nodes(js, now, length, domain)
        self.stands = NEVER
        each = js.gpus // js.nodes
        order = self._held.in_order(js.eligible & domain, each, *host_share(js, each))
        fed, count = 0, len(order)
        opening = self._opening
        waits: list[tuple[int, int, int]] = []
        """(first start, until when the node could begin from there on, node)."""
        able: list[tuple[int, int]] = []
        """(until when, node) of those that can begin now."""
        while True:
            while fed < count and (first := order[fed][0]) < NEVER and (not waits or first <= waits[0][0]):
                heappush(waits, opening(order[fed][1], first if first > now else now, length))
                fed += 1
            if not waits:
                return NEVER, ()
            start = waits[0][0]
            for until, node in able:
                if until < start:
                    heappush(waits, opening(node, start, length))
            able = [wait for wait in able if wait[0] >= start]
            while waits and waits[0][0] == start:
                able.append(heappop(waits)[1:])
            if len(able) >= js.nodes:
                rooms = sorted([(self._held.room(js, node, start), node) for _, node in able])
                return start, tuple([(node, each) for _, node in rooms[: js.nodes]])

    def _opening(self, node: int, start: int, length: int) -> tuple[int, int, int]:
        """Return what ``_gap`` does, until when the node could begin from there on, and the node."""
        for first, last in self._intervals[node]:
            if last > start:
                if first >= start + length:
                    return start, first - length, node
                start = last
        return start, NEVER, node

    def to_profile(self) -> Profile:
        """Return the same as timelines."""
        profile = Profile(self._held, self._state.pool.schedulable, whole_nodes=True)
        for node in members(self.changed):
            for start, end in self._intervals[node]:
                profile.close(node, start, end)
        return profile
