"""Read Alibaba's GPU-sharing cluster, openb v2023 (Weng et al., ATC 2023): one pod a row, times in seconds.

A pod's work is the time from being scheduled to being deleted; it fails where its phase says so. A pod that was deleted
before it was scheduled is kept, because it waited like the others: it is cancelled if it has not started within the
time it was there, and, as nobody knows how long it would have run, runs at most as long as that when it does start.
A pod that lived for 0 s has nothing to run: it is left out, which is no reason to refuse the file.
"""

from dataclasses import replace
from pathlib import Path

import polars as pl

from headway.errors import TraceError
from headway.formats.head import Head
from headway.formats.table import Table, csv_table
from headway.jobs.model.job import Outcome
from headway.jobs.traces.lifetimes import ending
from headway.jobs.traces.sheet import Sheet
from headway.jobs.traces.trace import Dropped, Trace
from headway.units import WHOLE_GPU_MILLI

NAME = "openb"
COLUMNS = (
    "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase",
    "creation_time", "deletion_time", "scheduled_time",
)  # fmt: skip
_NEVER = -1
_PHASES = {
    "running": Outcome.FINISHES,
    "succeeded": Outcome.FINISHES,
    "failed": Outcome.FAILS,
    "pending": Outcome.CANCELLED,
}


def recognises(head: Head) -> bool:
    """Return whether the header has all columns."""
    return head.columns() >= set(COLUMNS)


def read(path: Path, strict: bool) -> Trace:
    """Return the pods of an openb pod list."""
    table, left_out = _lived(csv_table(path))
    trace = _trace(Sheet(table, COLUMNS), strict)
    dropped = sorted((*trace.dropped, *left_out), key=lambda each: each.line)
    return replace(trace, rows=trace.rows + len(left_out), dropped=tuple(dropped))


def _lived(table: Table) -> tuple[Table, list[Dropped]]:
    """Return the rows of pods that lived, and an account of the others."""
    if not set(COLUMNS) <= set(table.frame.columns):
        return table, []  # the sheet will say which is missing
    began, gone = (pl.col(name).str.strip_chars() for name in ("scheduled_time", "deletion_time"))
    created = pl.col("creation_time").str.strip_chars()
    since = pl.when(began.fill_null("") != "").then(began).otherwise(created)
    dead = table.frame.select((gone == since).fill_null(False)).to_series()
    if dead.all():
        raise TraceError(f"trace {table.path}: none of its {table.frame.height} pods lived for more than 0 s")
    rule = "is the moment it began: the pod lived for 0 s"
    times = table.frame["deletion_time"].filter(dead)
    left_out = [
        Dropped(line, "deletion_time", time.strip(), rule, fault=False)
        for line, time in zip(table.lines.filter(dead), times, strict=True)
    ]
    return Table(table.path, table.frame.filter(~dead), table.lines.filter(~dead), notes=table.notes), left_out


def _trace(sheet: Sheet, strict: bool) -> Trace:
    outcome = sheet.choice("pod_phase", {phase: int(each) for phase, each in _PHASES.items()}, 0)
    created = sheet.time("creation_time", least=0)
    began = sheet.time("scheduled_time", least=0, default=_NEVER)
    gone = sheet.time("deletion_time", least=0)
    pending = outcome == int(Outcome.CANCELLED)
    never = began == _NEVER
    sheet.drop(never & ~pending, "scheduled_time", "is empty, but the phase says that the pod ran")
    sheet.drop(~never & pending, "scheduled_time", "must be empty: the phase says that the pod never ran")
    sheet.drop(~never & (began < created), "scheduled_time", "is before creation_time")
    since = began.zip_with(~never, created)
    sheet.drop(gone < since, "deletion_time", "is before the pod began")
    work = gone - since
    gpus = sheet.whole("num_gpu", least=0)
    fields = {
        "name": sheet.text("name"),
        "submit": created,
        "work": work,
        "gpus": gpus,
        "gpu_milli": _share(sheet, gpus),
        "nodes": (gpus > 1).cast(pl.Int64),  # the GPUs of a pod are those of one node
        "gpu_types": sheet.text("gpu_spec", default="").str.replace_all("|", ";", literal=True),
        "cpu_milli": sheet.whole("cpu_milli", least=0),
        "memory_bytes": sheet.whole("memory_mib", least=0) * 2**20,
        "qos": sheet.text("qos", default=""),
        **ending(outcome, work),
        "patience": work.zip_with(never, pl.Series([0], dtype=pl.Int64)),
    }
    _explain(sheet, never, gone)
    return sheet.trace(NAME, fields, strict=strict, id_column="name", in_order=False)


def _share(sheet: Sheet, gpus: pl.Series) -> pl.Series:
    """Return thousandths of each device; a pod without GPUs has 0 in the file."""
    share = sheet.whole("gpu_milli", least=0, default=WHOLE_GPU_MILLI)
    sheet.drop((gpus == 0) & ~share.is_in([0, WHOLE_GPU_MILLI]), "gpu_milli", "needs num_gpu 1, not 0")
    return share.zip_with(gpus > 0, pl.Series([WHOLE_GPU_MILLI], dtype=pl.Int64))


def _explain(sheet: Sheet, never: pl.Series, gone: pl.Series) -> None:
    if waited := int(never.sum()):
        sheet.notes.append(f"pods that were deleted before they ran: {waited:,}; cancelled after the time they waited")
    running = sheet.text("pod_phase", default="").str.to_lowercase() == "running"
    if last := int((running & (gone == gone.max())).sum()):
        sheet.notes.append(f"pods that still ran when the record ended: {last:,}; their work is what was recorded")
