"""Detect overload, where arrivals exceed capacity: waits then measure the length of the trace, not the policy.

Work that arrives is compared with what the cluster could do by then if nothing were ever idle or lost, so the answer is
about the workload and the cluster, whatever the policy. A partition is looked at in the same way, with the jobs that
name it.

Where what jobs hold besides GPUs is divided, how long they take depends on what they were given, and work at reference
speed says nothing. There it is what they really took that counts, and the queue must have grown.
"""

import numpy as np
import numpy.typing as npt

from headway.jobs.metrics.ledger import Ledger
from headway.jobs.metrics.timeline import waiting
from headway.jobs.metrics.window import grew
from headway.jobs.model.job import Outcome
from headway.jobs.model.rows import Kind
from headway.statistics.series import FloatArray, IntArray
from headway.units import WHOLE_GPU_MILLI

FEWEST_JOBS = 10
"""Fewer arrivals say nothing about a rate."""


def overload(ledger: Ledger) -> str | None:
    """Return one line when arrivals outgrow the cluster or a partition of it, else None."""
    cluster = ledger.cluster
    everyone = ledger.arrived & (ledger.width > 0)
    divided = bool(len(ledger.rows(Kind.GRANT)))
    work = _taken(ledger) if divided else _work(ledger).astype(np.float64)
    lines = [(_load(ledger, work, everyone, cluster.gpus), "the cluster", everyone)]
    names, codes = ledger.codes("partition")
    for partition in cluster.partitions:
        if partition.name in names:
            members = everyone & (codes == names.index(partition.name))
            gpus = sum(cluster.nodes[node].gpus for node in partition.nodes)
            lines.append((_load(ledger, work, members, gpus), f"partition {partition.name}", members))
    load, where, members = max(lines, key=lambda line: line[0])
    if load <= 1:
        return None
    queue = waiting(ledger, members.astype(np.int64))
    submitted = ledger.submit[members]
    first, last = int(submitted.min()), int(submitted.max())
    quarter = (last - first) // 4
    if divided and not grew(queue.mean(first, first + quarter), queue.mean(last - quarter, last)):
        return None
    length = round(queue.at(last))
    if not length:  # long jobs brought more than there is, and nobody waited for it
        return None
    asked = f"arrivals {'take' if divided else 'ask for'} {load:.2f} of {where}'s GPU time"
    return f"{asked}; the queue grew to {length} job{'' if length == 1 else 's'} by the last arrival"


def _load(ledger: Ledger, lasting: FloatArray, members: npt.NDArray[np.bool_], gpus: int) -> float:
    """Return GPU time asked for over GPU time available, first to last arrival; 0 without overload.

    Each job asks for its GPUs for as long as ``lasting`` says. Overload is a load above 1 whose backlog at the last
    arrival is larger than after a quarter of that time: one large batch that is being worked off is none.
    """
    order = np.argsort(ledger.submit[members], kind="stable")
    time = ledger.submit[members][order]
    if len(time) < FEWEST_JOBS or time[-1] == time[0] or not gpus:
        return 0.0
    work = (lasting * (ledger.width / WHOLE_GPU_MILLI))[members][order]
    before_last = time < time[-1]
    load = float(work[before_last].sum()) / (gpus * float(time[-1] - time[0]))
    quarter = int(time[0] + (time[-1] - time[0]) // 4)
    early, late = _backlog(time, work, gpus, quarter), _backlog(time, work, gpus, int(time[-1]))
    return load if load > 1 and late > early else 0.0


def _backlog(time: IntArray, work: FloatArray, gpus: int, until: int) -> float:
    """Return the GPU time that arrived before ``until`` and cannot be done by then, even without idle GPUs."""
    count = int(np.searchsorted(time, until, side="left"))
    if not count:
        return 0.0
    ahead = np.cumsum(work[:count]) - work[:count] - gpus * (time[:count] - time[0])
    end = float(work[:count].sum()) - gpus * float(until - time[0])
    return max(0.0, end - float(ahead.min()))


def _work(ledger: Ledger) -> IntArray:
    """Return how long each job runs, alone and at reference speed, until it leaves for good."""
    plain = ledger.of_jobs("work")
    outcome = ledger.of_jobs("outcome")
    if not outcome.any():
        return plain
    attempts = np.where(outcome == Outcome.FAILS, 1 + ledger.of_jobs("retries"), 1)
    return np.where(outcome == Outcome.FINISHES, plain, ledger.of_jobs("outcome_after") * attempts)


def _taken(ledger: Ledger) -> FloatArray:
    """Return how long each job held its GPUs; for jobs that have not ended, their work at the others' speed."""
    reference, held = _work(ledger).astype(np.float64), ledger.held.astype(np.float64)
    done = ledger.completed
    ideal = float((reference * ledger.width)[done].sum())
    stretch = float((held * ledger.width)[done].sum()) / ideal if ideal else 1.0
    return np.where(done, held, np.maximum(held, reference * stretch))
