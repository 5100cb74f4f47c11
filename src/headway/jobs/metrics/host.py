"""Compute what jobs held besides GPUs: CPUs, memory and storage bandwidth, over time.

A job holds what it asked for, unless the tape says what it was given: GRANT and STORAGE rows after its start or its
move, and again whenever that was changed in the middle of a hold.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headway.jobs.metrics.ledger import Ledger
from headway.jobs.model.rows import Kind
from headway.statistics.series import IntArray, Series, joined

FIELDS = (("cpu_milli", 1000), ("memory_bytes", 1), ("storage_bytes_per_second", 1))
"""What a node may count, and in what parts of its unit."""


@dataclass(frozen=True, slots=True, eq=False)
class Grants:
    """Stretches of holds in which a job held the same all the time: by hold, then by time."""

    hold: npt.NDArray[np.intp]
    begin: IntArray
    end: IntArray
    closed: npt.NDArray[np.bool_]
    """False for what is still held when the tape ends."""
    given: npt.NDArray[np.bool_]
    """Whether the tape says what was held; else it is what the job asked for."""
    amounts: list[IntArray]
    """Thousandths of a CPU, bytes, bytes a second of storage bandwidth."""


def grants(ledger: Ledger) -> Grants:
    """Return what was held besides GPUs in each hold, from when to when."""
    rows = ledger.rows(Kind.GRANT)
    hold = np.concatenate((np.arange(len(ledger.hold_row)), ledger.holds_of(rows)))
    row = np.concatenate((ledger.hold_row, rows))
    bandwidth = ledger.added(rows, Kind.STORAGE, "storage bandwidth that belongs to no grant")
    storage = np.concatenate((np.zeros_like(ledger.hold_row), bandwidth))
    order = np.lexsort((row, hold))
    hold, row, storage = hold[order], row[order], storage[order]
    job = ledger.hold_job[hold]
    latest = np.maximum.accumulate(np.where(ledger.kind[row] == Kind.GRANT, np.arange(len(row)), -1))
    given = (latest >= 0) & (hold[latest] == hold) if len(row) else np.zeros(0, dtype=np.bool_)
    source = row[latest]
    asked = tuple(ledger.of_jobs(field)[job] for field, _ in FIELDS[:2])
    amounts = (
        np.where(given, ledger.value[source], asked[0]),
        np.where(given, ledger.detail[source], asked[1]),
        np.where(given, storage[latest], 0),
    )
    last = np.append(hold[1:] != hold[:-1], True)[: len(hold)]
    begin = ledger.time[row]
    end = np.where(last, ledger.hold_end[hold], np.append(begin[1:], 0)[: len(begin)])
    kept = last | (end > begin)  # a start's own row, where what it was given comes right after it, lasts no time
    closed = ~last | ledger.hold_closed[hold]
    held = [amount[kept] for amount in amounts]
    return Grants(hold[kept], begin[kept], end[kept], closed[kept], given[kept], held)


def at_first(ledger: Ledger) -> tuple[npt.NDArray[np.bool_], list[IntArray]]:
    """Return whether the tape says what was held when each hold began, and what that was."""
    held = grants(ledger)
    first = np.searchsorted(held.hold, np.arange(len(ledger.hold_row)))
    return held.given[first], [amount[first] for amount in held.amounts]


def host(ledger: Ledger) -> list[Series | None]:
    """Return CPUs, memory and storage bandwidth held on the nodes that count them; None for what none does.

    On each node that is the part of what the job holds that goes with its GPUs there, rounded up as it is booked.
    """
    nodes = ledger.cluster.nodes
    counts = [np.array([getattr(node, field) is not None for node in nodes], dtype=np.bool_) for field, _ in FIELDS]
    if not any(counted.any() for counted in counts):
        return [None] * len(FIELDS)
    held = grants(ledger)
    key = ledger.place_hold * len(nodes) + ledger.place_node
    distinct, inverse = np.unique(key, return_inverse=True)
    gpus = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(gpus, inverse, ledger.place_gpus)
    hold, node = distinct // len(nodes), distinct % len(nodes)
    first = np.searchsorted(hold, held.hold)
    count = np.searchsorted(hold, held.hold, side="right") - first
    stretch = np.repeat(np.arange(len(held.hold)), count)
    where = np.arange(len(stretch)) + np.repeat(first - (np.cumsum(count) - count), count)
    of = ledger.gpus[ledger.hold_job[held.hold[stretch]]]
    closed = held.closed[stretch]
    times = (held.begin[stretch], held.end[stretch][closed])
    lines: list[Series | None] = []
    for (_, unit), counted, amounts in zip(FIELDS, counts, held.amounts, strict=True):
        part = np.where(counted[node[where]], _part(amounts[stretch], gpus[where], of), 0)
        lines.append(joined(times, (part, -part[closed]), unit) if counted.any() else None)
    return lines


def _part(amount: IntArray, gpus: IntArray, of: IntArray) -> IntArray:
    """Return what of an amount goes with so many of a job's GPUs; all of it where the job has none."""
    whole = np.maximum(of, 1)
    return np.where(of == 0, amount, amount // whole * gpus + -(-(amount % whole) * gpus // whole))
