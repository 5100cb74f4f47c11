"""Pack the cluster map, every GPU over time, small enough for a page; ``clustermap.js`` draws it.

Time is counted in ticks. What is packed is the state at the end of each tick, exactly: a hold that begins and ends
within one tick is in no such state and left out. A longer tick therefore makes a smaller map of the same truth.
GPUs are numbered through the cluster, node by node; a hold is a job, when it began and ended, and runs of GPUs.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headway.jobs.metrics.ledger import Ledger, gpu_bits
from headway.jobs.metrics.timeline import Timeline
from headway.jobs.model.cluster import Cluster
from headway.jobs.model.job import Job
from headway.jobs.model.rows import Kind
from headway.jobs.show.page.packing import blob, differences, folded, varints
from headway.show.downsample import BUCKETS
from headway.show.page import deflated
from headway.show.training_downsample import stretched
from headway.statistics.series import IntArray
from headway.units import SECOND

LEAST_TICKS = 2_000_000
"""A tick is a power of ten of nanoseconds, at most a second, and short enough that the run has so many."""
COARSEST_TICKS = 2_000
"""A map that is too large is given longer ticks until it has no more than so many."""
CLOSED_BY = {
    0: 0,
    int(Kind.FINISHED): 1,
    int(Kind.FAILED): 2,
    int(Kind.CANCELLED): 3,
    int(Kind.PREEMPT): 4,
    int(Kind.REQUEUE): 4,
    int(Kind.KILL): 4,
    int(Kind.EVICTED): 5,
    int(Kind.MIGRATE): 6,
}
MOVED_HERE = 8
"""Set beside what closed a hold when a move opened it."""
LONGEST_NAME = 80
NO_GPUS = "without GPUs"
KIND = "GPU type"
_DOWN = {int(Kind.NODE_FAILED): 1, int(Kind.NODE_DRAINED): 2}


@dataclass(frozen=True, slots=True)
class Map:
    """One run as the page unpacks it."""

    text: str
    tick: int
    """Nanoseconds."""
    finest: int
    """The tick that it would have with room enough."""


def tick_of(horizon: int) -> int:
    """Return the length of a tick for a run that long."""
    tick = 1
    while tick < SECOND and horizon // (tick * 10) >= LEAST_TICKS:
        tick *= 10
    return tick


def pack(ledger: Ledger, lines: Timeline, shown: int, most_bytes: int) -> Map | None:
    """Pack a run into at most so many bytes of text; None if even the longest ticks do not make it fit.

    ``shown`` is how far its line goes at first.
    """
    finest = tick = tick_of(ledger.horizon)
    while True:
        text = deflated(_packed(ledger, lines, shown, tick))
        if len(text) <= most_bytes:
            return Map(text, tick, finest)
        if ledger.horizon // tick <= COARSEST_TICKS:
            return None
        tick *= 10


def _packed(ledger: Ledger, lines: Timeline, shown: int, tick: int) -> bytes:
    start, end = ledger.hold_start // tick, ledger.hold_end // tick
    kept = np.flatnonzero((end > start) | ~ledger.hold_closed)
    kept = kept[np.argsort(start[kept], kind="stable")]
    length = np.where(ledger.hold_closed, end - start, 0)[kept]
    codes = np.array([CLOSED_BY.get(kind, 0) for kind in range(64)], dtype=np.int64)
    moved = np.where(ledger.kind[ledger.hold_row] == Kind.MIGRATE, MOVED_HERE, 0)
    runs, gaps, lengths = _runs(ledger, kept)
    columns = {
        "start": varints(differences(start[kept])),
        "length": varints(length),
        "job": varints(folded(differences(ledger.hold_job[kept]))),
        "flags": varints((codes[ledger.hold_closed_by] + moved)[kept]),
        "runs": varints(runs),
        "gaps": varints(gaps),
        "lengths": varints(lengths),
        "down": varints(_down(ledger, tick).ravel()),
    }
    means = (stretched(series, shown, ledger.horizon).mean for series in (lines.allocated, lines.waiting))
    busy, waiting = ([round(value, 1) for value in values.tolist()] for values in means)
    head = {
        "tick_s": tick / SECOND,
        "ticks": ledger.horizon // tick,
        "shown": min(shown, ledger.horizon) // tick,
        "split": BUCKETS,
        "holds": len(kept),
        "busy": busy,
        "waiting": waiting,
    }
    return blob(head, columns)


def _runs(ledger: Ledger, kept: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return the number of GPU runs of each hold; for each run the gap to the run before, and its length."""
    counts = np.array([node.gpus for node in ledger.cluster.nodes], dtype=np.int64)
    first_gpu = np.cumsum(np.append(0, counts))  # of each node, and of all GPUs last
    rank = np.full(len(ledger.hold_row), -1, dtype=np.int64)
    rank[kept] = np.arange(len(kept))
    places = np.flatnonzero((ledger.place_mask != 0) & (rank[ledger.place_hold] >= 0))
    place, gpu = gpu_bits(ledger, places)
    everything = int(first_gpu[-1]) + 1
    key = np.sort(rank[ledger.place_hold[place]] * everything + first_gpu[ledger.place_node[place]] + gpu)
    if not len(key):
        return np.zeros(len(kept), dtype=np.int64), key, key
    begins = np.flatnonzero(np.append(True, np.diff(key) != 1))
    first, count = key[begins], np.diff(np.append(begins, len(key)))
    hold = first // everything
    runs = np.bincount(hold, minlength=len(kept)).astype(np.int64)
    ended = np.append(0, first[:-1] + count[:-1])
    same = np.append(False, hold[1:] == hold[:-1])
    return runs, np.where(same, first - ended, first % everything), count


def _down(ledger: Ledger, tick: int) -> IntArray:
    """Return (node, since, length or 0 until the end, 1 failed or 2 drained) for each interval without new jobs."""
    rows = ledger.rows(Kind.NODE_FAILED, Kind.NODE_DRAINED, Kind.NODE_RECOVERED)
    stretches: list[tuple[int, int, int, int]] = []
    since: dict[int, tuple[int, int]] = {}
    for time, kind, node in zip(
        (ledger.time[rows] // tick).tolist(), ledger.kind[rows].tolist(), ledger.subject[rows].tolist(), strict=True
    ):
        if node in since:
            began, how = since.pop(node)
            if time > began:
                stretches.append((node, began, time - began, how))
        if kind in _DOWN:
            since[node] = (time, _DOWN[kind])
    stretches.extend((node, began, 0, how) for node, (began, how) in since.items())
    return np.array(sorted(stretches, key=lambda each: (each[1], each[0])), dtype=np.int64).reshape(-1, 4)


# --- what runs share ------------------------------------------------------------------------------------------


def pack_workload(jobs: Sequence[Job]) -> bytes:
    """Pack what a page says about jobs: who submitted them when, under which name."""
    tenants = tenants_by_work(jobs)
    position = {name: index for index, name in enumerate(tenants)}
    tick = tick_of(jobs[-1].submit if jobs else 0)
    submit = np.array([job.submit for job in jobs], dtype=np.int64) // tick
    named = any(job.name for job in jobs)
    names = "\n".join(" ".join(job.name[:LONGEST_NAME].split()) for job in jobs) if named else ""
    columns = {
        "tenant": varints(np.array([position[job.tenant] for job in jobs], dtype=np.int64)),
        "milli": varints(np.array([job.gpu_milli for job in jobs], dtype=np.int64)),
        "submit": varints(differences(submit)),
        "names": names.encode(),
    }
    return blob({"jobs": len(jobs), "tenants": tenants, "tick_s": tick / SECOND}, columns)


def tenants_by_work(jobs: Sequence[Job]) -> list[str]:
    """Return tenants, the one that asks for the most GPU time first: the order of colours, the same in all runs."""
    work: Counter[str] = Counter()
    for job in jobs:
        work[job.tenant] += job.width_milli * job.work
    return sorted(work, key=lambda name: (-work[name], name))


def describe(cluster: Cluster) -> dict[str, Any]:
    """Return the nodes, and the frames around them, outermost first.

    These are partitions, then types of GPUs where there are several, then the levels of the topology.
    """
    names = [level.name for level in cluster.outer_levels]
    kinds = [node.gpu_type if node.gpus else NO_GPUS for node in cluster.nodes]
    several = len(set(kinds)) > 1
    partitions = [(partition.name, set(partition.nodes)) for partition in cluster.partitions]
    paths = []
    for position, node in enumerate(cluster.nodes):
        inside = ", ".join(name for name, members in partitions if position in members)
        path = [("partition", inside)] if partitions else []
        path += [(KIND, kinds[position])] if several else []
        paths.append([*path, *zip(names, node.path, strict=True)])
    return {
        "nodes": [[node.name, node.gpus, node.gpu_type] for node in cluster.nodes],
        "frame": _frame("", "", list(range(len(paths))), paths, 0),
    }


def _frame(kind: str, name: str, nodes: list[int], paths: list[list[tuple[str, str]]], depth: int) -> dict[str, Any]:
    """Return a frame with its nodes, or with the frames within; a level with one domain in a frame draws none."""
    frame: dict[str, Any] = {"kind": kind, "name": name}
    while nodes and depth < len(paths[nodes[0]]):
        inside: dict[str, list[int]] = {}
        for node in nodes:
            inside.setdefault(paths[node][depth][1], []).append(node)
        level = paths[nodes[0]][depth][0]
        if len(inside) > 1 or (level == "partition" and "" not in inside):
            frames = [_frame(level, name, members, paths, depth + 1) for name, members in inside.items()]
            return {**frame, "frames": frames}
        if level == KIND and name:
            frame["name"] = f"{next(iter(inside))} · {name}"
        depth += 1
    return {**frame, "nodes": nodes}
