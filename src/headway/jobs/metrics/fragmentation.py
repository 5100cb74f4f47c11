"""Compute fragmentation over time: the share of free GPUs in partly used domains, by level; and fgd's measure."""

from dataclasses import dataclass

import numpy as np

from headway.errors import TapeError
from headway.jobs.metrics.domains import Cells, Domains
from headway.jobs.metrics.fgd import unusable
from headway.jobs.metrics.ledger import Ledger, gpu_bits
from headway.statistics.series import FloatArray, IntArray, Series
from headway.units import WHOLE_GPU_MILLI

GPU = "gpu"
"""The level inside all others: one device."""


@dataclass(frozen=True, slots=True, eq=False)
class Fragmentation:
    """What is free, and the share of it that is fragmented."""

    free: Series
    """GPUs free on nodes that take jobs, parts of shared GPUs included."""
    levels: dict[str, Series]
    """For each level, outermost first, and then ``gpu``: the share of the free GPUs in domains partly in use."""
    fgd: Series
    """The share of the free GPUs that a job drawn from the workload is expected not to be able to use."""


def fragmentation(ledger: Ledger) -> Fragmentation:
    """Measure what is free, fragmentation at every level, and fgd's measure, over time."""
    domains = Domains(ledger)
    capacity = domains.gpus * WHOLE_GPU_MILLI
    everything, each = np.arange(len(ledger.place_hold)), np.arange(len(capacity))
    node = domains.cells(everything, ledger.place_node, ledger.place_width, each, np.ones_like(capacity))
    _check(ledger, node, capacity)
    free_change = node.changes(node.up * (capacity[node.domain] - node.used), capacity[node.domain])
    free = domains.accumulate(node.tick, free_change) + float(capacity.sum())
    outside = ledger.cluster.node_level
    levels: dict[str, Series] = {}
    for position, level in enumerate(ledger.cluster.levels):
        if position < outside:
            part = _outside(domains, position, node, free_change.astype(np.int64))
        elif position == outside:
            part = _partly(domains, node, capacity)
        else:
            part = _inside(domains, position - outside - 1)
        levels[level.name] = _ratio(domains.times, part, free)
    shared = domains.shared()
    devices = np.full(int(domains.gpus.sum()), WHOLE_GPU_MILLI, dtype=np.int64)
    if bool((shared.used > WHOLE_GPU_MILLI).any()):
        raise TapeError("the tape gives more than one GPU's worth of shares on one GPU; `headway audit` says where")
    levels[GPU] = _ratio(domains.times, _partly(domains, shared, devices), free)
    return Fragmentation(
        Series(domains.times, np.rint(free).astype(np.int64), WHOLE_GPU_MILLI),
        levels,
        _ratio(domains.times, unusable(domains, shared), free),
    )


def _check(ledger: Ledger, node: Cells, capacity: IntArray) -> None:
    """Raise if a node holds more than it has: every number here would be wrong."""
    over = np.flatnonzero(node.used > capacity[node.domain])
    if len(over):
        held, named = node.used[over[0]] / WHOLE_GPU_MILLI, ledger.cluster.nodes[int(node.domain[over[0]])]
        raise TapeError(
            f"the tape has {held:g} GPUs in use on node {named.name}, which has {named.gpus}: not its cluster?"
        )


def _partly(domains: Domains, cells: Cells, capacity: IntArray) -> FloatArray:
    """Return what is free in domains in use, over time; a domain lies within one node."""
    value = cells.up * (capacity[cells.domain] - cells.used) * (cells.used > 0)
    return domains.accumulate(cells.tick, cells.changes(value))


def _outside(domains: Domains, position: int, node: Cells, free_change: IntArray) -> FloatArray:
    """Return the same for a level that groups nodes: a domain has what its nodes have together."""
    seen: dict[tuple[str, ...], int] = {}
    paths = [node.path[: position + 1] for node in domains.ledger.cluster.nodes]
    group = np.array([seen.setdefault(path, len(seen)) for path in paths], dtype=np.int64)
    capacity = np.zeros(len(seen), dtype=np.int64)
    np.add.at(capacity, group, domains.gpus * WHOLE_GPU_MILLI)
    cells = domains.run(group[node.domain], node.tick, node.changes(node.used).astype(np.int64), free_change)
    value = (capacity[cells.domain] + cells.other) * (cells.used > 0)
    return domains.accumulate(cells.tick, cells.changes(value))


def _inside(domains: Domains, depth: int) -> FloatArray:
    """Return what ``_partly`` does, for a level inside the node: its domains are runs of so many GPUs."""
    ledger = domains.ledger
    sizes = np.array([max(1, node.island_gpus[depth]) for node in ledger.cluster.nodes], dtype=np.int64)
    count = -(-domains.gpus // sizes)
    first = np.cumsum(count) - count
    place, gpu = gpu_bits(ledger, np.flatnonzero(ledger.place_mask))
    node = ledger.place_node[place]
    domain = first[node] + gpu // sizes[node]
    step = np.append(True, (place[1:] != place[:-1]) | (domain[1:] != domain[:-1]))[: len(place)]
    begins = np.flatnonzero(step)
    gpus = np.diff(np.append(begins, len(place)))
    place, domain = place[begins], domain[begins]
    used = gpus * ledger.gpu_milli[ledger.hold_job[ledger.place_hold[place]]]
    owner = np.repeat(np.arange(len(domains.gpus)), count)
    nth = np.arange(len(owner)) - first[owner]
    capacity = np.minimum(sizes[owner], domains.gpus[owner] - nth * sizes[owner]) * WHOLE_GPU_MILLI
    return _partly(domains, domains.cells(place, domain, used, first, count), capacity)


def _ratio(times: IntArray, part: FloatArray, whole: FloatArray) -> Series:
    """Return a share over time; 0 when nothing is free."""
    share = np.where(whole > 0.5, part / np.maximum(whole, 1.0), 0.0)
    kept = np.append(True, share[1:] != share[:-1])
    return Series(times[kept], share[kept])
