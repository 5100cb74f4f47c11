"""Availability profiles of all nodes: what is free when, from expected ends of running jobs and reservations.

There is one timeline per node: times, and from each time on the GPUs (and CPUs and memory, where a cluster counts them)
that are free. A search for one node walks nodes in the order of the earliest time at which they have enough GPUs, and
stops at the first that cannot beat what was found; so it looks at a few nodes, not at all. A search over several
nodes is a sliding minimum over all timelines at once.

A GPU that is used in part counts as used until the last of its shares ends.
"""

from bisect import bisect_left, bisect_right, insort
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from headway.jobs.model.resources import Placement
from headway.jobs.policies.backfills.conservative.running import NEVER, Held
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.pool import host_share, members

Parts = tuple[tuple[int, int], ...]
"""Pairs of a node and a number of GPUs."""
_ALL = 1 << 55
"""More of anything than a node has: what a reservation of whole nodes takes besides."""


class Profile:
    """The timelines of all nodes: those of what running jobs hold, less what was reserved since."""

    stands = -1
    """A start that was found is looked for again by the next plan."""

    def __init__(self, held: Held, schedulable: int, whole_nodes: bool = False) -> None:
        """With ``whole_nodes`` a reservation takes all of its nodes: nobody else may use them in its time."""
        self._held = held
        self._whole = _ALL if whole_nodes else 0
        self._hosted = held.hosted
        self._schedulable = schedulable
        self._times = held.times.copy()
        self._gpus = held.gpus.copy()
        self._cpus = held.cpus.copy()
        self._memory = held.memory.copy()
        self._amounts = (self._gpus, self._cpus, self._memory) if held.hosted else (self._gpus,)
        """What is looked at of them."""
        self.changed = 0
        """Nodes, as a bit set, whose timelines are copies; those of the others are the ones of ``held``."""
        self._shared = held.shared.copy()
        """When the last share of a GPU ends."""
        self._orders: dict[tuple[int, int], list[tuple[int, int]]] = {}
        """By nodes and number of GPUs: (a time before which a node does not have as many, node), in order."""

    # --- changing it ------------------------------------------------------------------------------------------

    def _cut(self, node: int, time: int) -> int:
        """The position at which this time begins, made if need be."""
        times = self._times[node]
        index = bisect_left(times, time)
        if index == len(times) or times[index] != time:
            if index == 0:
                raise AssertionError(f"a profile that begins at {times[0]} ns is asked about {time} ns")
            times.insert(index, time)
            for column in self._amounts:
                amounts = column[node]
                amounts.insert(index, amounts[index - 1])
        return index

    def _change(self, node: int, start: int, end: int, gpus: int, cpu_milli: int, memory_bytes: int) -> bool:
        """Add these amounts from start to end; return whether nothing became negative."""
        if start >= end:
            return True
        if not self.changed >> node & 1:
            self.changed |= 1 << node
            self._times[node] = self._times[node].copy()
            for column in self._amounts:
                column[node] = column[node].copy()
        low = self._cut(node, start)
        high = len(self._times[node]) if end >= NEVER else self._cut(node, end)
        free = self._gpus[node]
        sound = True
        if gpus:
            free[low:high] = changed = [count + gpus for count in free[low:high]]
            sound = min(changed) >= 0
        if self._hosted:
            for free, amount in ((self._cpus[node], cpu_milli), (self._memory[node], memory_bytes)):
                if amount:
                    free[low:high] = changed = [count + amount for count in free[low:high]]
                    sound = sound and min(changed) >= 0
        if gpus > 0:  # what is taken only moves earliest times back, which is found out when one is looked at
            self._orders.clear()
        return sound

    def reset(self, nodes: int) -> None:
        """Drop all reservations on these nodes."""
        held = self._held
        for node in members(nodes):
            self._times[node], self._gpus[node] = held.times[node], held.gpus[node]
            self._cpus[node], self._memory[node] = held.cpus[node], held.memory[node]
        self.changed &= ~nodes
        for key in [key for key in self._orders if key[0] & nodes]:
            del self._orders[key]

    def forget(self, now: int) -> None:
        """Drop the past of all timelines that were changed."""
        for node, times in enumerate(self._times):
            if len(times) > 1 and times[1] <= now and self.changed >> node & 1:
                index = bisect_right(times, now) - 1
                del times[:index]
                for column in self._amounts:
                    del column[node][:index]

    def reserve(self, js: JobState, parts: Parts, start: int, end: int, sign: int = -1) -> bool:
        """Take (or with +1 give back) what a job is to have from start to end; return whether it was free."""
        besides, sound = self._whole, True
        for node, count in parts:
            cpu_milli, memory_bytes = host_share(js, count)
            gpus, cpu_milli, memory_bytes = count + besides, cpu_milli + besides, memory_bytes + besides
            sound = self._change(node, start, end, sign * gpus, sign * cpu_milli, sign * memory_bytes) and sound
        return sound

    def plan(self, js: JobState, parts: Parts, start: int, end: int) -> None:
        """Take what was found to be free for a job."""
        self.reserve(js, parts, start, end)

    def close(self, node: int, start: int, end: int) -> None:
        """Reserve all of a node, where reservations do so."""
        self._change(node, start, end, -self._whole, -self._whole, -self._whole)

    def hold(self, js: JobState, placement: Placement, start: int, end: int) -> bool:
        """Take the GPUs of a job that started; return whether no other reservation was touched."""
        if js.gpu_milli == 1000:
            sound = True
            for node, mask in placement:
                count = mask.bit_count()
                cpu_milli, memory_bytes = host_share(js, count)
                sound = self._change(node, start, end, -count, -cpu_milli, -memory_bytes) and sound
            return sound
        ((node, mask),) = placement
        gpu = (node, mask.bit_length() - 1)
        busy_until = max(start, self._shared.get(gpu, 0))
        self._shared[gpu] = max(end, busy_until)
        sound = self._change(node, busy_until, end, -1, 0, 0)
        return self._change(node, start, end, 0, -js.cpu_milli, -js.memory_bytes) and sound

    # --- looking ----------------------------------------------------------------------------------------------

    def fits(self, js: JobState, placement: Placement, start: int, length: int) -> bool:
        """Return whether a job could hold this placement from ``start`` on without touching what is reserved."""
        for node, mask in placement:
            count = mask.bit_count()
            cpu_milli, memory_bytes = host_share(js, count)
            begin = start
            if js.gpu_milli < 1000:
                begin = max(start, min(start + length, self._shared.get((node, mask.bit_length() - 1), 0)))
                if not self.has_room(node, 0, cpu_milli, memory_bytes, start, length):
                    return False
                cpu_milli = memory_bytes = 0
            if not self.has_room(node, count, cpu_milli, memory_bytes, begin, start + length - begin):
                return False
        return True

    def has_room(self, node: int, need: int, cpu_milli: int, memory_bytes: int, start: int, length: int) -> bool:
        """Return whether a node has these amounts from ``start`` on for ``length``."""
        return self._when(node, need, cpu_milli, memory_bytes, start, length)[1] == start

    def _when(
        self, node: int, need: int, cpu_milli: int, memory_bytes: int, after: int, length: int
    ) -> tuple[int, int]:
        """Return the first time from ``after`` on at which a node has so many GPUs, and the first at which it has all
        these amounts for ``length``."""
        times, free = self._times[node], self._gpus[node]
        count = len(times)
        index = bisect_right(times, after) - 1
        while free[index] < need:
            index += 1
            if index == count:
                return NEVER, NEVER
        start = first = times[index] if times[index] > after else after
        hosted = self._hosted and (cpu_milli or memory_bytes)
        cpus, memory = self._cpus[node], self._memory[node]
        while True:
            if free[index] < need or (hosted and (cpus[index] < cpu_milli or memory[index] < memory_bytes)):
                index += 1
                if index == count:
                    return first, NEVER
                start = times[index]
                continue
            index += 1
            if index == count or times[index] >= start + length:
                return first, start

    def on_one_node(self, js: JobState, now: int, length: int) -> tuple[int, Parts]:
        """Return the earliest start on one node, and the node with its GPUs; of equals the node that has the GPUs
        first."""
        need, when, cpu_milli, memory_bytes = js.gpus, self._when, js.cpu_milli, js.memory_bytes
        eligible = js.eligible & self._schedulable
        order = self._orders.get((eligible, need))
        if order is None:
            firsts = [(max(now, self._held.first(node, need)), node) for node in members(eligible)]
            order = self._orders[eligible, need] = sorted(firsts)
        best, where, index = NEVER, -1, 0
        while index < len(order) and order[index][0] < best:
            known, node = order[index]
            first, start = when(node, need, cpu_milli, memory_bytes, known if known > now else now, length)
            if first > known:
                del order[index]
                insort(order, (first, node))
                if order[index][1] != node:
                    continue
            index += 1
            if start < best:
                best, where = start, node
        return best, ((where, need),)

    def on_nodes(self, js: JobState, now: int, length: int, domain: int = -1) -> tuple[int, Parts]:
        """Return the earliest start over several nodes of a domain, and the GPUs on each: as few nodes as possible."""
        nodes = list(members(js.eligible & self._schedulable & domain))
        if js.nodes > 1:
            return self._on_equal_nodes(js, now, length, nodes)
        if not nodes:
            return NEVER, ()
        times = np.unique(np.array([now, *(t for node in nodes for t in self._times[node] if t > now)], dtype=np.int64))
        rooms = np.stack([self._rooms(js, node, times) for node in nodes], axis=1)
        enough = np.flatnonzero(rooms.sum(axis=1) >= js.gpus)
        ends = np.searchsorted(times, times + min(length, NEVER - int(times[-1])), side="left")
        for row in enough.tolist():
            least = rooms[row : max(row + 1, int(ends[row]))].min(axis=0)
            if int(least.sum()) >= js.gpus:
                return int(times[row]), _divide(js, nodes, least.tolist())
        return NEVER, ()

    def _on_equal_nodes(self, js: JobState, now: int, length: int, nodes: list[int]) -> tuple[int, Parts]:
        """Return the earliest start with the same number of GPUs on each of so many nodes, those with least room."""
        each = js.gpus // js.nodes
        need = (each, *host_share(js, each))
        firsts = sorted([(max(now, self._held.first(node, each)), node) for node in nodes], reverse=True)
        waits: list[tuple[int, int]] = []
        able: list[tuple[int, int]] = []
        """(a time, node): until then the node could begin, from where it was found on."""
        while firsts or (waits and waits[0][0] < NEVER):
            while firsts and (not waits or firsts[-1][0] <= waits[0][0]):  # the others cannot begin sooner
                first, node = firsts.pop()
                heappush(waits, (self._when(node, *need, first, length)[1], node))
            start = waits[0][0]
            if start >= NEVER:
                continue
            while waits and waits[0][0] == start:
                _, node = heappop(waits)
                able.append((self._while(node, *need, start) - length, node))
            for _, node in [wait for wait in able if wait[0] < start]:
                heappush(waits, (self._when(node, *need, start, length)[1], node))
            able = [wait for wait in able if wait[0] >= start]
            if waits and waits[0][0] <= start:
                continue
            if len(able) >= js.nodes:
                rooms = sorted((self._least_room(js, node, start, start + length), node) for _, node in able)
                return start, tuple((node, each) for _, node in rooms[: js.nodes])
        return NEVER, ()

    def _while(self, node: int, need: int, cpu_milli: int, memory_bytes: int, start: int) -> int:
        """Return until when a node has these amounts from ``start`` on."""
        first = bisect_right(self._times[node], start) - 1
        times, free, cpus, memory = self._times[node], self._gpus[node], self._cpus[node], self._memory[node]
        for index in range(first, len(times)):
            if free[index] < need or (self._hosted and (cpus[index] < cpu_milli or memory[index] < memory_bytes)):
                return times[index]
        return 2 * NEVER

    def _least_room(self, js: JobState, node: int, start: int, end: int) -> int:
        """Return how many of a job's GPUs a node can give all the time from start to end."""
        low = bisect_right(self._times[node], start) - 1
        span = slice(low, max(low + 1, bisect_left(self._times[node], end)))
        room = min(self._gpus[node][span])
        if self._hosted and js.cpu_milli:
            room = min(room, min(self._cpus[node][span]) * js.gpus // js.cpu_milli)
        if self._hosted and js.memory_bytes:
            room = min(room, min(self._memory[node][span]) * js.gpus // js.memory_bytes)
        return room

    def _rooms(self, js: JobState, node: int, times: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return how many of a job's GPUs a node can give at each time."""
        index = np.searchsorted(np.array(self._times[node], dtype=np.int64), times, side="right") - 1
        room = self._gpus[node]
        if self._hosted and js.cpu_milli:
            room = [min(r, free * js.gpus // js.cpu_milli) for r, free in zip(room, self._cpus[node], strict=True)]
        if self._hosted and js.memory_bytes:
            room = [min(r, free * js.gpus // js.memory_bytes) for r, free in zip(room, self._memory[node], strict=True)]
        at_times: npt.NDArray[np.int64] = np.array(room, dtype=np.int64)[index]
        return np.maximum(at_times, 0) if self._whole else at_times


def _divide(js: JobState, nodes: list[int], room: list[int]) -> Parts:
    left = js.gpus
    parts: list[tuple[int, int]] = []
    for count, node in sorted(((-count, node) for node, count in zip(nodes, room, strict=True))):
        if take := min(left, -count):
            parts.append((node, take))
            left -= take
    return tuple(parts)
