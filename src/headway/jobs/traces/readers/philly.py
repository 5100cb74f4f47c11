"""Read Microsoft's Philly cluster as a table (Jeon et al., ATC 2019): ``timestamp,duration,num_gpus,gpu_time,cluster``.

Rows have no id: a job is called ``philly-<line>``, and rows that are equal are different jobs. The virtual cluster
becomes the tenant. ``gpu_time`` is duration times GPUs and is not needed; timestamps name no zone, only their
differences count.
"""

from dataclasses import replace
from pathlib import Path

import polars as pl

from headway.formats.head import Head
from headway.formats.table import csv_table
from headway.formats.times import YEARS
from headway.jobs.traces.sheet import Sheet
from headway.jobs.traces.trace import Trace

NAME = "philly-csv"
COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")


def _submit(sheet: Sheet) -> pl.Series:
    when = sheet.text("timestamp").str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", strict=False)
    sheet.drop(when.is_null(), "timestamp", "is not a time like 2017-10-09 07:01:55")
    within = when.dt.year().is_between(*YEARS)
    sheet.drop(~within, "timestamp", f"must lie in the years {YEARS[0]} to {YEARS[1]}")
    return when.to_physical().zip_with(within.fill_null(False), pl.Series([None], dtype=pl.Int64)) * 1000


def recognises(head: Head) -> bool:
    """Return whether the header has all columns."""
    return head.columns() >= set(COLUMNS)


def read(path: Path, strict: bool) -> Trace:
    """Return the jobs of a Philly file."""
    sheet = Sheet(csv_table(path), COLUMNS)
    fields = {
        "submit": _submit(sheet),
        "work": sheet.time("duration", least=1),
        "gpus": sheet.gpus("num_gpus"),
        "tenant": sheet.text("cluster"),
        "name": "philly-" + sheet.lines.cast(pl.String),
    }
    trace = sheet.trace(NAME, fields, strict=strict, in_order=False)
    if not (repeated := len(trace.jobs) - len({(job.submit, job.work, job.gpus, job.tenant) for job in trace.jobs})):
        return trace
    return replace(trace, notes=(*trace.notes, f"{repeated} duplicate row{'s' if repeated > 1 else ''} kept"))
