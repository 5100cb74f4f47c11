"""Compute the time that jobs stand still to write periodic checkpoints.

The tape has no rows for it, which would outnumber all others: it follows from a job's speed, from what it had done and
from its own interval and writing time. Only jobs whose checkpoints take time are looked at, one by one.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from headway.jobs.model.periodic_checkpoints import Stretch
from headway.jobs.model.rows import Kind
from headway.statistics.series import IntArray

if TYPE_CHECKING:
    from headway.jobs.metrics.ledger import Ledger


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """What writing periodic checkpoints took."""

    base: IntArray
    """For each pace: from when on the job makes progress."""
    held: IntArray
    """For each hold: nanoseconds in all."""
    rest: IntArray
    """For each hold: of these, those right after a change of speed or of what the job holds."""
    hold: IntArray
    speed: IntArray
    begin: IntArray
    end: IntArray
    """Of each time at which a job that made progress stood still to write."""


def written(
    ledger: "Ledger", hold: npt.NDArray[np.intp], rows: npt.NDArray[np.intp], base: IntArray, still: IntArray
) -> Written:
    """Return what writing took, over paces.

    Each pace says of which hold, set by which row, from when on without any writing, and how long the job stands still
    at that row for other reasons.
    """
    periodic = (ledger.of_jobs("checkpoint") > 0) & (ledger.of_jobs("checkpoint_every") > 0)
    base, (held, rest) = base.copy(), np.zeros((2, len(ledger.hold_row)), dtype=np.int64)
    stood: list[tuple[int, int, int, int]] = []
    evicted = ledger.rows(Kind.EVICTED)
    kept = dict(zip(ledger.holds_of(evicted).tolist(), ledger.value[evicted].tolist(), strict=True))
    chosen = np.flatnonzero(periodic[ledger.hold_job[hold]])
    paces = zip(
        *(chosen.tolist(), hold[chosen].tolist(), still[chosen].tolist()),
        *(column[rows[chosen]].tolist() for column in (ledger.time, ledger.value)),
        strict=True,
    )
    stretch, before = Stretch(ledger.jobs[0]), -1

    def close(of: int, end: int) -> None:
        times = list(stretch.writes(end))
        held[of] += sum(until - since for since, until in times)
        stood.extend((of, stretch.speed, since, until) for since, until in times)

    for pace, of, pause, time, speed in paces:
        if of != before:
            if before >= 0:
                close(before, int(ledger.hold_end[before]))
                stretch.settle(int(ledger.hold_end[before]))
            stretch = _following(ledger, stretch, before, of, kept)
            stretch.base = time
        elif speed != stretch.speed or pause:
            close(of, time)
            rest[of] += min(stretch.settle(time), int(ledger.hold_end[of]) - time)
            stretch.base = max(stretch.base, time)
        stretch.base += pause
        stretch.speed, before = max(1, speed), of
        base[pace] = stretch.base
    if before >= 0:
        close(before, int(ledger.hold_end[before]))
    columns = np.array(stood, dtype=np.int64).reshape(-1, 4).T
    return Written(base, held + rest, rest, *columns)


def _following(ledger: "Ledger", last: Stretch, before: int, of: int, kept: dict[int, int]) -> Stretch:
    """Return a job at the beginning of a hold, with what it had done."""
    job = ledger.jobs[int(ledger.hold_job[of])]
    if before < 0 or ledger.hold_job[before] != ledger.hold_job[of]:
        return Stretch(job)
    closed_by = ledger.hold_closed_by[before]
    return Stretch(job, 0 if closed_by in (Kind.FAILED, Kind.REQUEUE) else kept.get(before, last.done))
