"""Read Shanghai AI Lab's Acme clusters, Seren and Kalos (Hu et al., NSDI 2024): a row a job of LLM development.

The type of work (Pretrain, SFT, Evaluation, …) becomes model and QOS, so that predictions and priorities can tell them
apart. Kalos has more columns; of these the memory of a pod counts, once for each node. What Kalos calls
``duration`` includes the wait, so times are taken instead.
"""

from pathlib import Path

import polars as pl

from headway.formats.head import Head
from headway.formats.table import csv_table
from headway.jobs.traces.lifetimes import lifetimes, note_cpu_jobs
from headway.jobs.traces.sheet import Sheet
from headway.jobs.traces.trace import Trace

NAME = "acme"
COLUMNS = (
    "job_id", "user", "node_num", "gpu_num", "cpu_num", "type", "state", "submit_time", "start_time", "end_time",
)  # fmt: skip
_POD_MEMORY = "mem_per_pod_GB"


def recognises(head: Head) -> bool:
    """Return whether the header has all columns."""
    return head.columns() >= set(COLUMNS)


def _memory_bytes(sheet: Sheet) -> pl.Series:
    nodes = sheet.whole("node_num", least=0, default=1)
    return sheet.fixed(_POD_MEMORY, 9, least=0, default=0) * nodes.clip(lower_bound=1)


def read(path: Path, strict: bool) -> Trace:
    """Return the jobs of an Acme file."""
    sheet = Sheet(csv_table(path), COLUMNS)
    kind = sheet.text("type", default="")
    fields = {
        "name": sheet.text("job_id"),
        "user": sheet.text("user", default=""),
        "gpus": sheet.whole("gpu_num", least=0),
        "cpu_milli": sheet.fixed("cpu_num", 3, least=0, default=0),
        "model": kind,
        "qos": kind,
        **lifetimes(sheet),
    }
    if _POD_MEMORY in sheet.columns:
        fields["memory_bytes"] = _memory_bytes(sheet)
    note_cpu_jobs(sheet, fields["gpus"])
    return sheet.trace(NAME, fields, strict=strict, id_column="job_id", in_order=False)
