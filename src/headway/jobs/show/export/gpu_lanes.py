"""List which job held which GPU when, one row a GPU and hold, for timelines with one line a GPU.

The tape says which GPUs a job got, so nothing is guessed. Jobs that hold part of a GPU run side by side on it; each
then has a *lane* of its own, the lowest that is free, so that nothing on one lane of one GPU overlaps. Jobs without
GPUs stand on a line of their own after the GPUs of their node.
"""

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from headway.jobs.metrics.ledger import Ledger, gpu_bits
from headway.statistics.series import IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """GPUs held, by node, GPU and time."""

    hold: IntArray
    """The hold in the ledger."""
    node: IntArray
    gpu: IntArray
    """The number of the GPU in its node; the node's number of GPUs for a job that has none."""
    lane: IntArray

    def __len__(self) -> int:
        return len(self.hold)


def slots(ledger: Ledger) -> Slots:
    """Return every GPU of every hold that lasted."""
    gpus = np.array([node.gpus for node in ledger.cluster.nodes], dtype=np.int64)
    lasted = ledger.hold_end[ledger.place_hold] > ledger.hold_start[ledger.place_hold]
    place, gpu = gpu_bits(ledger, np.flatnonzero(lasted & (ledger.place_mask != 0)))
    without = np.flatnonzero(lasted & (ledger.gpus[ledger.hold_job[ledger.place_hold]] == 0))
    place = np.concatenate((place, without))
    node = ledger.place_node[place]
    gpu = np.concatenate((gpu, gpus[ledger.place_node[without]]))
    hold = ledger.place_hold[place]
    order = np.lexsort((ledger.hold_lease[hold], ledger.hold_start[hold], gpu, node))
    hold, node, gpu = hold[order], node[order], gpu[order]
    return Slots(hold, node, gpu, _lanes(ledger, hold, node, gpu))


def _lanes(ledger: Ledger, hold: IntArray, node: IntArray, gpu: IntArray) -> IntArray:
    """Return the lowest free lane for each, in order of time on each GPU; rows come sorted by GPU and time."""
    lanes = np.zeros(len(hold), dtype=np.int64)
    start, end = ledger.hold_start[hold], ledger.hold_end[hold]
    same = np.append(False, (node[1:] == node[:-1]) & (gpu[1:] == gpu[:-1]))[: len(hold)]
    meets = same & (np.append(0, end[:-1])[: len(hold)] > start)
    if not meets.any():
        return lanes
    group = np.cumsum(~same)
    crowded = np.isin(group, group[meets])
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    before, used = -1, 0
    for row in np.flatnonzero(crowded).tolist():
        if group[row] != before:
            before, busy, free, used = int(group[row]), [], [], 0
        while busy and busy[0][0] <= start[row]:
            heappush(free, heappop(busy)[1])
        if not free:
            heappush(free, used)
            used += 1
        lanes[row] = heappop(free)
        heappush(busy, (int(end[row]), int(lanes[row])))
    return lanes
