"""Thin the tape of a broker, so that it is bounded however long the broker runs: older and newer moments alike."""

import numpy as np
import numpy.typing as npt

from headway.core.tape import Tape
from headway.gpu.share.tape.rows import EVENTS, PLACED, ShareKind

_KIND, _SUBJECT, _PLACE = 1, 2, 4


def thinned(tape: Tape) -> Tape:
    """Return a tape of about half of the numbers: of two in a row of a kind the later one; events and names all stay.

    Where these are most of it, the programs that left first go.
    """
    rows = tape.rows
    place = np.where(np.isin(rows[:, _KIND], PLACED), rows[:, _PLACE] + 1, 0)
    _, series = np.unique(np.stack([rows[:, _KIND], rows[:, _SUBJECT], place]), axis=1, return_inverse=True)
    order = np.argsort(series.reshape(-1), kind="stable")
    begins = np.searchsorted(series.reshape(-1)[order], series.reshape(-1)[order])
    from_end = np.bincount(series.reshape(-1))[series.reshape(-1)[order]] - 1 - (np.arange(len(rows)) - begins)
    keep = np.isin(rows[:, _KIND], EVENTS)
    keep[list(tape.notes)] = True
    keep[order[from_end % 2 == 0]] = True  # of each series the last one, and every second before it
    keep &= ~np.isin(rows[:, _SUBJECT], _forgotten(rows, keep, len(rows) * 3 // 4))
    kept = np.flatnonzero(keep)
    notes = {at: text for at, row in enumerate(kept.tolist()) if (text := tape.notes.get(row)) is not None}
    return Tape(rows[kept], notes)


def _forgotten(rows: npt.NDArray[np.int64], keep: npt.NDArray[np.bool_], most: int) -> npt.NDArray[np.int64]:
    """Return the programs that left first, as many as must go so that no more than ``most`` rows are kept."""
    left: npt.NDArray[np.int64] = rows[rows[:, _KIND] == ShareKind.LEFT, _SUBJECT]
    surplus = int(keep.sum()) - most
    if surplus <= 0 or not len(left):
        return left[:0]
    count = np.bincount(rows[keep, _SUBJECT] + 1)[left + 1]
    return left[: int(np.searchsorted(np.cumsum(count), surplus)) + 1]
