"""Read the Standard Workload Format of the Parallel Workloads Archive: ``;`` comments, 18 fields a job, -1 unknown.

Its machines have processors, not GPUs: a job asks for so many CPUs. Processors are a pool there; a cluster
of one node with as many CPUs (``MaxProcs`` in the header) behaves the same. The requested time becomes
the estimate, the group the tenant, the queue the QOS. Where the run time is unknown, the CPU time of a processor is
taken. What a job waits for (fields 17 and 18) is not played out: submit times are taken as they are.
"""

import re
from pathlib import Path

import polars as pl

from headway.errors import TraceError
from headway.formats.head import Head
from headway.formats.table import SURPLUS, Table, text
from headway.jobs.model.job import Outcome
from headway.jobs.traces.lifetimes import at_least_a_second, ending
from headway.jobs.traces.sheet import Sheet
from headway.jobs.traces.trace import Trace

NAME = "swf"
FIELDS = (
    "job", "submit", "wait", "run", "processors", "cpu_time", "used_memory", "requested_processors", "requested_time",
    "requested_memory", "status", "user", "group", "application", "queue", "partition", "preceding_job", "think_time",
)  # fmt: skip
_HEADER = re.compile(r"^;\s*(Version|Computer|Installation|MaxJobs|MaxProcs|MaxNodes|UnixStartTime)\s*:", re.MULTILINE)
_SIZE = re.compile(r"^;\s*(MaxProcs|MaxNodes)\s*:\s*(\d+)", re.MULTILINE)
_OUTCOMES = {-1: Outcome.FINISHES, 0: Outcome.FAILS, 1: Outcome.FINISHES, 5: Outcome.CANCELLED}
_CANCELLED = 5
_PARTS = (2, 3, 4)
_KIBI = 1024


def recognises(head: Head) -> bool:
    """Return whether it has a header of this format, or lines of 18 numbers."""
    lines = [line for line in head.text.splitlines() if line.strip() and not line.startswith(";")]
    if not lines:
        return _HEADER.search(head.text) is not None
    fields = lines[0].split()
    return len(fields) == len(FIELDS) and all(re.fullmatch(r"-?[\d.]+", field) for field in fields)


def _table(path: Path, content: str) -> Table:
    lines = pl.Series("line", content.split("\n"), dtype=pl.String).str.strip_chars()
    numbered = pl.DataFrame({"text": lines, "line": pl.Series(range(1, len(lines) + 1), dtype=pl.Int64)})
    rows = numbered.filter((pl.col("text") != "") & ~pl.col("text").str.starts_with(";"))
    if not rows.height:
        raise TraceError(f"trace {path}: there are comments but no job")
    spaced = rows["text"].str.replace_all(r"\s+", " ")
    fields = spaced.str.splitn(" ", len(FIELDS) + 1).struct.rename_fields([*FIELDS, SURPLUS]).struct.unnest()
    return Table(path, fields, rows["line"])


def _known(values: pl.Series) -> pl.Series:
    """Return the values, null for what the format calls unknown."""
    return values.to_frame("x").select(pl.when(pl.col("x") >= 0).then("x")).to_series()


def _label(sheet: Sheet, field: str, prefix: str, unknown: str) -> pl.Series:
    return (prefix + _known(sheet.whole(field, default=-1)).cast(pl.String)).fill_null(unknown)


def _work(sheet: Sheet, status: pl.Series) -> pl.Series:
    run, used = _known(sheet.time("run")), _known(sheet.time("cpu_time", default=-1))
    never = (status == _CANCELLED) & (run.fill_null(0) == 0)
    rule = "of a job that was cancelled: it never started, how long it would have run is not known"
    sheet.drop(never, "run", rule, fault=False)
    work = run.fill_null(used)
    sheet.drop(work.is_null(), "run", "is unknown, as is the CPU time", fault=False)
    sheet.note(run.is_null() & used.is_not_null(), "without a run time: the CPU time of a processor is taken")
    return at_least_a_second(sheet, work)


def _fields(sheet: Sheet) -> dict[str, pl.Series]:
    status = sheet.whole("status", default=-1)
    sheet.drop(status.is_in(_PARTS), "status", "is a part of a job: another line is the whole", fault=False)
    sheet.drop(~status.is_in(list(_OUTCOMES)), "status", "must be one of -1, 0, 1, 2, 3, 4, 5")
    allocated, requested = _known(sheet.whole("processors")), _known(sheet.whole("requested_processors", default=-1))
    processors = allocated.replace(0, None).fill_null(requested)
    sheet.drop(~(processors > 0).fill_null(False), "processors", "must be above 0, where none are requested either")
    work = _work(sheet, status)
    outcome = status.replace_strict({key: int(value) for key, value in _OUTCOMES.items()}, default=0)
    memory = _known(sheet.whole("requested_memory", default=-1)).fill_null(0)
    depends = sheet.whole("preceding_job", default=-1) > 0
    sheet.note(depends, "that waited for another to end (preceding job, think time): not played out")
    submit = sheet.time("submit", least=0)
    return {
        "name": sheet.text("job"),
        "submit": submit,
        "start": submit + _known(sheet.time("wait", default=-1)),
        "work": work,
        "gpus": pl.repeat(0, len(work), dtype=pl.Int64, eager=True),
        "cpu_milli": processors * 1000,
        "memory_bytes": memory * processors * _KIBI,
        "estimate": _known(sheet.time("requested_time", default=-1)).fill_null(0),
        **ending(outcome, work),
        "user": _label(sheet, "user", "u", ""),
        "tenant": _label(sheet, "group", "g", "default"),
        "model": _label(sheet, "application", "app", ""),
        "qos": _label(sheet, "queue", "q", ""),
        "partition": _label(sheet, "partition", "p", ""),
    }


def read(path: Path, strict: bool) -> Trace:
    """Return the jobs of a log in the Standard Workload Format."""
    content = text(path)
    sheet = Sheet(_table(path, content), ())
    sheet.drop(sheet.text("think_time", default="") == "", "job", f"has fewer than {len(FIELDS)} fields on its line")
    size = dict(_SIZE.findall(content))
    if procs := size.get("MaxProcs") or size.get("MaxNodes"):
        sheet.notes.append(f"the machine had {int(procs):,} processors: one node with as many CPUs is like it")
    return sheet.trace(NAME, _fields(sheet), strict=strict, id_column="job", in_order=False)
