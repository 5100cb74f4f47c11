"""Read Synergy's job lists: iterations and the time of one at a fair share of CPU and memory (Mohan et al., OSDI 2022).

``job_id,model,arrival_s,total_iters,iter_time_s_at_fair_share,gpus``. A job's work is iterations times iteration
time, rounded to whole seconds, as the published simulator does.
"""

from pathlib import Path

import polars as pl

from headway.formats.head import Head
from headway.formats.table import csv_table
from headway.jobs.traces.sheet import Sheet
from headway.jobs.traces.trace import Trace
from headway.units import SECOND

NAME = "synergy"
COLUMNS = ("job_id", "model", "arrival_s", "total_iters", "iter_time_s_at_fair_share", "gpus")


def recognises(head: Head) -> bool:
    """Return whether the header has all columns."""
    return head.columns() >= set(COLUMNS)


def read(path: Path, strict: bool) -> Trace:
    """Return the jobs of a Synergy file."""
    sheet = Sheet(csv_table(path), COLUMNS)
    name, model = sheet.text("job_id"), sheet.text("model", default="")
    submit = sheet.time("arrival_s", least=0)
    iterations = sheet.whole("total_iters", least=1)
    iteration = sheet.time("iter_time_s_at_fair_share", least=1)
    gpus = sheet.gpus("gpus")
    exact = iterations.cast(pl.Float64) * (iteration.cast(pl.Float64) / SECOND)
    duration = exact.round(mode="half_to_even")
    sheet.drop(duration < 1, "iter_time_s_at_fair_share", "times total_iters rounds to 0 s: the work must be above 0")
    sheet.drop(duration >= 2**63 / SECOND, "total_iters", "times iter_time_s_at_fair_share is too large")
    work = duration.cast(pl.Int64, strict=False) * SECOND
    fields = {"submit": submit, "work": work, "gpus": gpus, "name": name, "model": model}
    return sheet.trace(NAME, fields, strict=strict, id_column="job_id")
