"""Availability profiles of all nodes: what is free when, from expected ends of running jobs and reservations.

There is one timeline per node: times, and from each time on the GPUs (and CPUs and memory, where a cluster counts them)
that are free. A search for one node walks nodes in the order of the earliest time at which they have enough GPUs, and
stops at the first that cannot beat what was found; so it looks at a few nodes, not at all. A search over several
nodes is a sliding minimum over all timelines at once.

A GPU that is used in part counts as used until the last of its shares ends.
"""

from bisect import bisect_left, bisect_right, insort

import numpy as np
import numpy.typing as npt

from headway.training.jobstate import JobState
from headway.training.pool import host_share, members
from headway.training.resources import Placement
from headway.training.state import TrainingState

NEVER = 1 << 62
Parts = tuple[tuple[int, int], ...]
"""Pairs of a node and a number of GPUs."""


class Profile:
    """The timelines of all nodes."""

    def __init__(self, now: int, state: TrainingState) -> None:
        pool = state.pool
        nodes = state.cluster.nodes
        self._hosted = any(node.cpu_milli is not None or node.memory_bytes is not None for node in nodes)
        self._schedulable = pool.schedulable
        self._times = [[now] for _ in nodes]
        self._gpus = [[count] for count in pool.free_count]
        self._cpus = [[free] for free in pool.cpu_free]
        self._memory = [[free] for free in pool.memory_free]
        self._shared: dict[tuple[int, int], int] = {}
        """When the last share of a GPU ends."""
        self._earliest: dict[int, list[tuple[int, int]]] = {}
        """By number of GPUs: (a time before which a node does not have as many, node), in order."""
        self._earliest_of: dict[int, list[int]] = {}
        for end, job in state.ends.of_rate(0):
            self._release(state.running[job], max(end, now + 1))

    def _release(self, js: JobState, end: int) -> None:
        for node, mask in js.placement:
            if js.gpu_milli < 1000:
                gpu = (node, mask.bit_length() - 1)
                known = self._shared.get(gpu)
                self._shared[gpu] = end
                if known is not None:
                    self._change(node, known, end, -1, 0, 0)
                    self._change(node, end, NEVER, 0, *host_share(js, mask.bit_count()))
                    continue
            self._change(node, end, NEVER, mask.bit_count(), *host_share(js, mask.bit_count()))

    # --- changing it ------------------------------------------------------------------------------------------

    def _cut(self, node: int, time: int) -> int:
        """The position at which this time begins, made if need be."""
        times = self._times[node]
        index = bisect_left(times, time)
        if index == len(times) or times[index] != time:
            if index == 0:
                raise AssertionError(f"a profile that begins at {times[0]} ns is asked about {time} ns")
            times.insert(index, time)
            self._gpus[node].insert(index, self._gpus[node][index - 1])
            if self._hosted:
                self._cpus[node].insert(index, self._cpus[node][index - 1])
                self._memory[node].insert(index, self._memory[node][index - 1])
        return index

    def _change(self, node: int, start: int, end: int, gpus: int, cpu_milli: int, memory_bytes: int) -> bool:
        """Add these amounts from start to end; return whether nothing became negative."""
        if start >= end:
            return True
        low = self._cut(node, start)
        high = len(self._times[node]) if end >= NEVER else self._cut(node, end)
        free = self._gpus[node]
        sound = True
        for index in range(low, high):
            free[index] += gpus
            sound = sound and free[index] >= 0
        if self._hosted:
            for index in range(low, high):
                self._cpus[node][index] += cpu_milli
                self._memory[node][index] += memory_bytes
                sound = sound and self._cpus[node][index] >= 0 and self._memory[node][index] >= 0
        if gpus > 0:  # what is taken only moves earliest times back, which is found out when one is looked at
            for need, earliest in self._earliest_of.items():
                if earliest[node] > start:
                    self._reset(need, earliest, node, self._times[node][0])
        return sound

    def _reset(self, need: int, earliest: list[int], node: int, after: int) -> None:
        order = self._earliest[need]
        del order[bisect_left(order, (earliest[node], node))]
        earliest[node] = self._first(node, need, after)
        insort(order, (earliest[node], node))

    def _first(self, node: int, need: int, after: int) -> int:
        times, free = self._times[node], self._gpus[node]
        index = max(0, bisect_right(times, after) - 1)
        while index < len(times):
            if free[index] >= need:
                return max(times[index], after)
            index += 1
        return NEVER

    def forget(self, now: int) -> None:
        """Drop the past of all timelines."""
        for node, times in enumerate(self._times):
            if (index := bisect_right(times, now) - 1) > 0:
                for column in (times, self._gpus[node]):
                    del column[:index]
                if self._hosted:
                    for column in (self._cpus[node], self._memory[node]):
                        del column[:index]

    def reserve(self, js: JobState, parts: Parts, start: int, end: int, sign: int = -1) -> bool:
        """Take (or with +1 give back) whole GPUs from start to end; return whether they were free."""
        sound = True
        for node, count in parts:
            cpu_milli, memory_bytes = host_share(js, count)
            sound = self._change(node, start, end, sign * count, sign * cpu_milli, sign * memory_bytes) and sound
        return sound

    def hold(self, js: JobState, placement: Placement, start: int, end: int) -> bool:
        """Take the GPUs of a job that started; return whether no other reservation was touched."""
        if js.gpu_milli == 1000:
            return self.reserve(js, tuple((node, mask.bit_count()) for node, mask in placement), start, end)
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
                if self._when(node, 0, cpu_milli, memory_bytes, start, length) != start:
                    return False
                cpu_milli = memory_bytes = 0
            if self._when(node, count, cpu_milli, memory_bytes, begin, start + length - begin) != begin:
                return False
        return True

    def _when(self, node: int, need: int, cpu_milli: int, memory_bytes: int, after: int, length: int) -> int:
        """Return the first time from ``after`` on at which a node has these amounts for ``length``."""
        times, free = self._times[node], self._gpus[node]
        hosted = self._hosted and (cpu_milli or memory_bytes)
        cpus, memory = self._cpus[node], self._memory[node]
        index = bisect_right(times, after) - 1
        start, count = after, len(times)
        while True:
            if free[index] < need or (hosted and (cpus[index] < cpu_milli or memory[index] < memory_bytes)):
                index += 1
                if index == count:
                    return NEVER
                start = times[index]
                continue
            index += 1
            if index == count or times[index] >= start + length:
                return start

    def on_one_node(self, js: JobState, now: int, length: int) -> tuple[int, Parts]:
        """Return the earliest start on one node, and the node with its GPUs."""
        need = js.gpus
        eligible = js.eligible & self._schedulable
        if need not in self._earliest:
            firsts = [self._first(node, need, now) for node in range(len(self._times))]
            self._earliest_of[need] = firsts
            self._earliest[need] = sorted((first, node) for node, first in enumerate(firsts))
        order, earliest = self._earliest[need], self._earliest_of[need]
        best, where, index = NEVER, -1, 0
        while index < len(order) and order[index][0] < best:
            first, node = order[index]
            if self._first(node, need, max(first, now)) != first:
                self._reset(need, earliest, node, max(first, now))
                continue
            index += 1
            if eligible >> node & 1:
                start = self._when(node, need, js.cpu_milli, js.memory_bytes, first, length)
                if start < best:
                    best, where = start, node
        return best, ((where, need),)

    def on_nodes(self, js: JobState, now: int, length: int, domain: int = -1) -> tuple[int, Parts]:
        """Return the earliest start over several nodes of a domain, and the GPUs on each: as few nodes as possible."""
        nodes = list(members(js.eligible & self._schedulable & domain))
        if not nodes:
            return NEVER, ()
        times = np.unique(np.array([now, *(t for node in nodes for t in self._times[node] if t > now)], dtype=np.int64))
        rooms = np.stack([self._rooms(js, node, times) for node in nodes], axis=1)
        enough = np.flatnonzero(_total(js, rooms) >= js.gpus)
        ends = np.searchsorted(times, times + min(length, NEVER - int(times[-1])), side="left")
        for row in enough.tolist():
            least = rooms[row : max(row + 1, int(ends[row]))].min(axis=0)
            if int(_total(js, least[np.newaxis])[0]) >= js.gpus:
                return int(times[row]), _divide(js, nodes, least.tolist())
        return NEVER, ()

    def _rooms(self, js: JobState, node: int, times: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return how many of a job's GPUs a node can give at each time."""
        index = np.searchsorted(np.array(self._times[node], dtype=np.int64), times, side="right") - 1
        room = self._gpus[node]
        if self._hosted and js.cpu_milli:
            room = [min(r, free * js.gpus // js.cpu_milli) for r, free in zip(room, self._cpus[node], strict=True)]
        if self._hosted and js.memory_bytes:
            room = [min(r, free * js.gpus // js.memory_bytes) for r, free in zip(room, self._memory[node], strict=True)]
        at_times: npt.NDArray[np.int64] = np.array(room, dtype=np.int64)[index]
        return at_times


def _total(js: JobState, rooms: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the GPUs that a job could get in each row; with a fixed number of nodes, all it needs or -1."""
    if js.nodes <= 1:
        summed: npt.NDArray[np.int64] = rooms.sum(axis=1)
        return summed
    able = (rooms >= js.gpus // js.nodes).sum(axis=1)
    counted: npt.NDArray[np.int64] = np.where(able >= js.nodes, js.gpus, -1)
    return counted


def _divide(js: JobState, nodes: list[int], room: list[int]) -> Parts:
    if js.nodes > 1:
        per_node = js.gpus // js.nodes
        able = sorted((count, node) for node, count in zip(nodes, room, strict=True) if count >= per_node)
        return tuple((node, per_node) for _, node in able[: js.nodes])
    left = js.gpus
    parts: list[tuple[int, int]] = []
    for count, node in sorted(((-count, node) for node, count in zip(nodes, room, strict=True))):
        if take := min(left, -count):
            parts.append((node, take))
            left -= take
    return tuple(parts)
