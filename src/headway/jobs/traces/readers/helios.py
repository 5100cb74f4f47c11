"""Read SenseTime's Helios cluster as a short table (Hu et al., SC 2021): ``job_id,arrival_s,service_sec,gpu_count``."""

from pathlib import Path

from headway.formats.head import Head
from headway.formats.table import csv_table
from headway.jobs.traces.sheet import Sheet
from headway.jobs.traces.trace import Trace

NAME = "helios-csv"
COLUMNS = ("job_id", "arrival_s", "service_sec", "gpu_count")


def recognises(head: Head) -> bool:
    """Return whether the header has all columns."""
    return head.columns() >= set(COLUMNS)


def read(path: Path, strict: bool) -> Trace:
    """Return the jobs of a Helios file."""
    sheet = Sheet(csv_table(path), COLUMNS)
    fields = {
        "name": sheet.text("job_id"),
        "submit": sheet.time("arrival_s", least=0),
        "work": sheet.time("service_sec", least=1),
        "gpus": sheet.gpus("gpu_count"),
    }
    return sheet.trace(NAME, fields, strict=strict, id_column="job_id")
