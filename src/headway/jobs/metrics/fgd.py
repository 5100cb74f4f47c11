"""Compute the measure of fragmentation gradient descent (Weng et al., ATC 2023) over a whole run.

``headway.jobs.policies.placements.fragmentation`` says what it is, for one moment; this is the same for every moment at
once. A job drawn from the workload cannot use what is free on a node where it may not run or that has too few whole
GPUs for it, nor a partly used GPU that has less left than it asks for. Whole and partly used GPUs contribute apart from
each other, so both are sums over domains. Departure: CPUs and memory are left out; a free GPU counts even where they
ran out.
"""

import numpy as np
import numpy.typing as npt

from headway.jobs.metrics.domains import Cells, Domains
from headway.jobs.metrics.ledger import Ledger
from headway.statistics.series import FloatArray, IntArray
from headway.units import WHOLE_GPU_MILLI


def unusable(domains: Domains, shared: Cells) -> FloatArray:
    """Return thousandths of a GPU that a job drawn from the workload is expected not to be able to use, over time."""
    ledger, gpus = domains.ledger, domains.gpus
    node_class, whole, part = _tables(ledger, int(gpus.max()))
    owner = np.repeat(np.arange(len(gpus)), gpus)[shared.domain]
    value = shared.up * part[node_class[owner], shared.used]
    partial = domains.accumulate(shared.tick, shared.changes(value))
    place = np.flatnonzero(~ledger.place_shared)
    node, tick, amount = domains.taken(place, ledger.place_node[place], ledger.place_gpus[place])
    broken = shared.changes((shared.used > 0).astype(np.int64)).astype(np.int64)
    still = np.zeros(len(node) + len(owner), dtype=np.int64)
    cells = domains.run(
        np.concatenate((node, owner, domains.change_node)),
        np.concatenate((tick, shared.tick, domains.change_tick)),
        np.concatenate((amount, broken, np.zeros_like(domains.change_node))),
        np.concatenate((still, domains.change_up)),
    )
    empty = whole[node_class, gpus]
    value = cells.up * whole[node_class[cells.domain], gpus[cells.domain] - cells.used]
    rest = domains.accumulate(cells.tick, cells.changes(value, empty[cells.domain])) + float(empty.sum())
    return np.maximum(partial + rest, 0.0)


def _tables(ledger: Ledger, largest: int) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return each node's class (nodes of one class admit the same jobs), and two tables a class.

    The first gives, for so many whole GPUs free, the thousandths of them that a job is expected not to be able to use;
    the second the same for one GPU of which so many thousandths are used.
    """
    asking = ledger.gpus > 0
    nodes_wanted = np.maximum(ledger.of_jobs("nodes"), 1)
    size = np.minimum(ledger.gpus // nodes_wanted, largest)
    shares = ledger.gpu_milli < WHOLE_GPU_MILLI
    where, allowed = _admissions(ledger)
    patterns, node_class = np.unique(allowed, axis=1, return_inverse=True)
    number = max(1, int(asking.sum()))
    whole, part = [], []
    for admits in patterns.T:
        admitted = asking & admits[where]
        barred = 1.0 - float(admitted.sum()) / number if asking.any() else 0.0
        more = _more(size[admitted & ~shares], largest) / number
        larger = _more(ledger.gpu_milli[admitted & shares], WHOLE_GPU_MILLI) / number
        whole.append(np.arange(largest + 1) * WHOLE_GPU_MILLI * (barred + more))
        rest = np.arange(WHOLE_GPU_MILLI, -1, -1)
        stuck = rest * (barred + float((admitted & ~shares).sum()) / number + larger[rest])
        stuck[0] = 0.0  # a GPU that nobody uses is a whole one
        part.append(stuck)
    return node_class.reshape(-1).astype(np.int64), np.stack(whole), np.stack(part)


def _more(sizes: IntArray, largest: int) -> FloatArray:
    """Return, for each number up to ``largest``, how many sizes are above it."""
    counts = np.bincount(sizes, minlength=largest + 1)
    return (len(sizes) - np.cumsum(counts)).astype(np.float64)


def _admissions(ledger: Ledger) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Return each job's wish (partition and GPU types), and for each wish and node whether the node is in it."""
    cluster = ledger.cluster
    members = {partition.name: set(partition.nodes) for partition in cluster.partitions}
    wishes, codes = ledger.codes("partition", "gpu_types")
    allowed = np.zeros((max(1, len(wishes)), len(cluster.nodes)), dtype=np.bool_)
    for row, (partition, types) in enumerate(wishes):
        inside = members.get(partition, set()) if partition else range(len(cluster.nodes))
        for index in inside:
            allowed[row, index] = not types or cluster.nodes[index].gpu_type in types
    return codes, allowed
