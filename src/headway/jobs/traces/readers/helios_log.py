"""Read SenseTime's Helios clusters as published, ``cluster_log.csv`` (Hu et al., SC 2021): a row a Slurm job.

The virtual cluster becomes the tenant. Jobs without GPUs are kept: they ask for CPUs. ``node_num`` is not taken over:
how a job is spread is what placements decide.
"""

from pathlib import Path

from headway.formats.head import Head
from headway.formats.table import csv_table
from headway.jobs.traces.lifetimes import lifetimes, note_cpu_jobs
from headway.jobs.traces.sheet import Sheet
from headway.jobs.traces.trace import Trace

NAME = "helios-log"
COLUMNS = ("job_id", "user", "vc", "gpu_num", "cpu_num", "state", "submit_time", "start_time", "end_time")


def recognises(head: Head) -> bool:
    """Return whether the header has all columns."""
    return head.columns() >= set(COLUMNS)


def read(path: Path, strict: bool) -> Trace:
    """Return the jobs of a log of Helios."""
    sheet = Sheet(csv_table(path), COLUMNS)
    fields = {
        "name": sheet.text("job_id"),
        "user": sheet.text("user", default=""),
        "tenant": sheet.text("vc"),
        "gpus": sheet.whole("gpu_num", least=0),
        "cpu_milli": sheet.fixed("cpu_num", 3, least=0, default=0),
        **lifetimes(sheet),
    }
    note_cpu_jobs(sheet, fields["gpus"])
    return sheet.trace(NAME, fields, strict=strict, id_column="job_id", in_order=False)
