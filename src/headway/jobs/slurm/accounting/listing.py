"""Read what Slurm printed of its jobs as rows of text, one for each line that is no step, and when it was printed."""

from pathlib import Path
from typing import NamedTuple

import polars as pl

from headway.errors import TraceError
from headway.formats.head import head_of
from headway.jobs.slurm.accounting.cells import FATES, Cells
from headway.jobs.slurm.accounting.merge import without_steps
from headway.jobs.slurm.accounting.tables import COLUMNS, table
from headway.jobs.slurm.output.cells import Fate
from headway.units import SECOND

NAMES = (*(name for name in COLUMNS if name not in ("SubmitLine", "JobIDRaw")), "SubmitLine")
"""Columns of a row, as ``sacct`` names them; a command may have anything in it, and comes last."""
_RUNNING, _WAITING = FATES.index(Fate.RUNNING), FATES.index(Fate.WAITING)


class Listing(NamedTuple):
    """Jobs as they were at a time."""

    at: int
    """Nanoseconds since 1970, on the clock that the times are of."""
    rows: list[dict[str, str]]
    whole: bool
    """Whether it lists every job that waits or runs; what sacct prints may leave some out."""
    instants: bool
    """Whether times are seconds since 1970; else they are those of a clock on a wall."""


def listing(path: Path) -> Listing:
    """Return what a file holds that sacct, squeue or scontrol printed."""
    source = table(path)
    column = "JobID" if "JobID" in source.frame.columns else "JobIDRaw"
    if column not in source.frame.columns or "Submit" not in source.frame.columns:
        raise TraceError(f"dump {path}: has no JobID and Submit: write it with sacct --parsable2, or squeue --json")
    frame, _, _ = without_steps(source.frame, column)
    cells = Cells(frame)
    at = _printed(cells)
    if at is None:
        raise TraceError(f"dump {path}: no time in it can be read, so when it was written is not known")
    names = [name for name in NAMES if name in frame.columns and name != "JobID"]
    texts = frame.select(
        pl.col(column).cast(pl.String).alias("JobID"), *(pl.col(name).cast(pl.String) for name in names)
    )
    rows = [{name: value for name, value in row.items() if value is not None} for row in texts.iter_rows(named=True)]
    head = head_of(path)
    whole = head.first_line.startswith("JobId=") or (head.json and '"association"' not in head.text)
    return Listing(at, rows, whole, cells.counts_instants("Submit"))


def _printed(cells: Cells) -> int | None:
    """Return when a listing was printed: a job that runs tells it, else the last thing that happened in it."""
    fates = cells.fate()
    submit, start, end = (cells.instant(name) for name in ("Submit", "Start", "End"))
    raw = cells.number("ElapsedRaw", 2**62) * SECOND
    elapsed = raw.zip_with(raw.is_not_null(), cells.span("Elapsed"))
    over = ~fates.is_in([_RUNNING, _WAITING])
    times = [submit, (start + elapsed).filter(fates == _RUNNING), end.filter(over), start.filter(over)]
    found = [value for values in times if isinstance(value := values.max(), int)]
    return max(found, default=None)
