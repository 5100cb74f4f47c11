"""Compute step functions of a run: GPUs, queue, running jobs, CPUs, memory and storage, nodes.

Each is built from changes (a time and by how much), never by replaying the tape.
"""

from dataclasses import dataclass

import numpy as np

from headway.jobs.metrics.host import host
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.model.rows import REJOINS, Kind
from headway.statistics.series import IntArray, Series, from_changes, joined
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
    storage: Series | None
    """Bytes a second of storage bandwidth held on nodes that count it; None when none does."""


def timeline(ledger: Ledger) -> Timeline:
    """Return all step functions of a run but fragmentation."""
    widths = ledger.width[ledger.hold_job]
    times, nodes, changes = ledger.node_changes
    gpus = np.array([node.gpus for node in ledger.cluster.nodes], dtype=np.int64)
    cpus, memory_bytes, storage = host(ledger)
    return Timeline(
        allocated=_held(ledger, widths, WHOLE_GPU_MILLI),
        effective=effective(ledger),
        waiting=waiting(ledger, np.ones_like(ledger.width)),
        waiting_gpus=waiting(ledger, ledger.width, WHOLE_GPU_MILLI),
        running=_held(ledger, np.ones_like(widths)),
        nodes_up=from_changes(times, changes, first=len(gpus)),
        gpus_up=from_changes(times, changes * gpus[nodes], first=int(gpus.sum())),
        cpus=cpus,
        memory_bytes=memory_bytes,
        storage=storage,
    )


def waiting(ledger: Ledger, weights: IntArray, unit: int = 1) -> Series:
    """Return the queue over time, each job counted with its weight."""
    joins = ledger.rows(Kind.ARRIVED, *REJOINS, Kind.QUEUED_AGAIN)
    leaves = ledger.rows(Kind.START, Kind.CANCELLED)
    leaves = leaves[(ledger.kind[leaves] == Kind.START) | (ledger.lease[leaves] == 0)]
    return joined(
        (ledger.time[joins], ledger.time[leaves]),
        (weights[ledger.subject[joins]], -weights[ledger.subject[leaves]]),
        unit,
    )


def living(ledger: Ledger) -> Series:
    """Return the number of live jobs, waiting or running, over time."""
    here, gone = np.flatnonzero(ledger.arrived), np.flatnonzero(ledger.ended)
    return joined((ledger.submit[here], ledger.end[gone]), (np.ones_like(here), -np.ones_like(gone)))


def effective(ledger: Ledger) -> Series:
    """Return thousandths of a GPU held times speed in ppm, while the job makes progress."""
    hold, rows, base = ledger.paces
    end = ledger.hold_end[hold]
    last = np.append(hold[1:] != hold[:-1], True)[: len(hold)]
    ends = np.where(last, end, np.append(ledger.time[rows[1:]], 0)[: len(hold)])
    begins = np.minimum(np.maximum(ledger.time[rows], base), ends)
    rate = np.where(base > ends, 0, ledger.width[ledger.hold_job[hold]] * ledger.value[rows])
    stops = ~last | ledger.hold_closed[hold]
    times, changes = [begins, ends[stops]], [rate, -rate[stops]]
    if (written := ledger.written) is not None:
        paused = ledger.width[ledger.hold_job[written.hold]] * written.speed
        times += [written.begin, written.end]
        changes += [-paused, paused]
    return joined(times, changes, WHOLE_GPU_MILLI * REFERENCE_SPEED_PPM)


def _held(ledger: Ledger, weights: IntArray, unit: int = 1) -> Series:
    closed = ledger.hold_closed
    return joined((ledger.hold_start, ledger.hold_end[closed]), (weights, -weights[closed]), unit)
