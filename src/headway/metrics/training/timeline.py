"""What went on over time, as step functions: GPUs, queue, running jobs, CPUs and memory, nodes.

Each is built from changes (a time and by how much), never by replaying the tape.
"""

from dataclasses import dataclass

import numpy as np

from headway.metrics.series import IntArray, Series, from_changes, joined
from headway.metrics.training.ledger import Ledger
from headway.training.rows import Kind
from headway.units import REFERENCE_SPEED_PPM, WHOLE_GPU_MILLI


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """All step functions of a run but fragmentation."""

    allocated: Series
    """GPUs held."""
    effective: Series
    """GPUs at reference speed that do the same work: held times speed, without standstill."""
    waiting: Series
    """Jobs in the queue."""
    waiting_gpus: Series
    """GPUs that they ask for."""
    running: Series
    """Jobs that hold what they asked for."""
    nodes_up: Series
    """Nodes that take jobs: neither failed nor drained."""
    gpus_up: Series
    """GPUs on those nodes."""
    cpus: Series | None
    """CPUs held on nodes that count them; None when none does."""
    memory_bytes: Series | None
    """Memory held on nodes that count it; None when none does."""


def timeline(ledger: Ledger) -> Timeline:
    """All step functions of a run but fragmentation."""
    widths = ledger.width[ledger.hold_job]
    times, nodes, changes = ledger.node_changes
    gpus = np.array([node.gpus for node in ledger.cluster.nodes], dtype=np.int64)
    return Timeline(
        allocated=_held(ledger, widths, WHOLE_GPU_MILLI),
        effective=effective(ledger),
        waiting=waiting(ledger, np.ones_like(ledger.width)),
        waiting_gpus=waiting(ledger, ledger.width, WHOLE_GPU_MILLI),
        running=_held(ledger, np.ones_like(widths)),
        nodes_up=from_changes(times, changes, first=len(gpus)),
        gpus_up=from_changes(times, changes * gpus[nodes], first=int(gpus.sum())),
        cpus=_host(ledger, "cpu_milli", 1000),
        memory_bytes=_host(ledger, "memory_bytes", 1),
    )


def waiting(ledger: Ledger, weights: IntArray, unit: int = 1) -> Series:
    """The queue over time, each job counted with its weight."""
    joins = ledger.rows(Kind.ARRIVED, Kind.PREEMPT, Kind.EVICTED, Kind.QUEUED_AGAIN)
    leaves = ledger.rows(Kind.START, Kind.CANCELLED)
    leaves = leaves[(ledger.kind[leaves] == Kind.START) | (ledger.lease[leaves] == 0)]
    return joined(
        (ledger.time[joins], ledger.time[leaves]),
        (weights[ledger.subject[joins]], -weights[ledger.subject[leaves]]),
        unit,
    )


def living(ledger: Ledger) -> Series:
    """Live jobs, waiting or running."""
    here, gone = np.flatnonzero(ledger.arrived), np.flatnonzero(ledger.ended)
    return joined((ledger.submit[here], ledger.end[gone]), (np.ones_like(here), -np.ones_like(gone)))


def effective(ledger: Ledger) -> Series:
    """Thousandths of a GPU held times speed in ppm, while the job makes progress."""
    respeeds = ledger.rows(Kind.RESPEED)
    hold = np.concatenate((np.arange(len(ledger.hold_row)), ledger.holds_of(respeeds)))
    rows = np.concatenate((ledger.hold_row, respeeds))
    order = np.lexsort((rows, hold))
    hold, rows = hold[order], rows[order]
    base = ledger.hold_start[hold] + ledger.hold_cost[hold]
    end = ledger.hold_end[hold]
    begins = np.minimum(np.maximum(ledger.time[rows], base), end)
    last = np.append(hold[1:] != hold[:-1], True)[: len(hold)]
    ends = np.where(last, end, np.append(begins[1:], 0)[: len(hold)])
    rate = np.where(base > end, 0, ledger.width[ledger.hold_job[hold]] * ledger.value[rows])
    stops = ~last | ledger.hold_closed[hold]
    return joined((begins, ends[stops]), (rate, -rate[stops]), WHOLE_GPU_MILLI * REFERENCE_SPEED_PPM)


def _held(ledger: Ledger, weights: IntArray, unit: int = 1) -> Series:
    closed = ledger.hold_closed
    return joined((ledger.hold_start, ledger.hold_end[closed]), (weights, -weights[closed]), unit)


def _host(ledger: Ledger, field: str, unit: int) -> Series | None:
    """CPUs or memory: on each node the part of the request that goes with the GPUs there, rounded up as booked."""
    nodes = ledger.cluster.nodes
    counts = np.array([getattr(node, field) is not None for node in nodes], dtype=np.bool_)
    if not counts.any():
        return None
    key = ledger.place_hold * len(nodes) + ledger.place_node
    distinct, inverse = np.unique(key, return_inverse=True)
    gpus = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(gpus, inverse, ledger.place_gpus)
    hold, node = distinct // len(nodes), distinct % len(nodes)
    job = ledger.hold_job[hold]
    wanted, of = ledger.of_jobs(field)[job], np.maximum(ledger.gpus[job], 1)
    part = np.where(ledger.gpus[job] == 0, wanted, wanted // of * gpus + -(-(wanted % of) * gpus // of))
    part = np.where(counts[node], part, 0)
    closed = ledger.hold_closed[hold]
    return joined((ledger.hold_start[hold], ledger.hold_end[hold][closed]), (part, -part[closed]), unit)
