"""Headway's own trace format: a column a field of ``Job``, CSV or Parquet by the file's suffix.

Only ``submit_s``, ``work_s`` and ``gpus`` are required; an empty cell or a missing column takes the field's default.
Times are decimal seconds (``work_s``), read exactly, or integer nanoseconds (``work_ns``). ``write`` writes the
first into CSV and the second into Parquet, and leaves out optional columns in which every job has the default.
``start_s`` and ``eligible_s`` are not part of a job: they are when it really started and became eligible, where that is
known.
"""

import gzip
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from headway.errors import TraceError
from headway.files import write_whole
from headway.formats.head import Head
from headway.formats.table import csv_table, listed, parquet_table
from headway.jobs.model.job import Job, Outcome, workload
from headway.jobs.rules.eligibility.check import check_dependencies
from headway.jobs.traces.build import DEFAULTS
from headway.jobs.traces.mapping import FLAGS
from headway.jobs.traces.sheet import Sheet
from headway.jobs.traces.submissions import TERM_DEFAULTS, taken_apart, wrong_licences
from headway.jobs.traces.trace import Trace

NAME = "headway"
_REQUIRED = ("submit", "work", "gpus")
_OUTCOMES = {outcome.name.lower(): int(outcome) for outcome in Outcome}
_LONGEST = 2**63 - 1
_TIME_DIGITS = 9


@dataclass(frozen=True)
class _Column:
    name: str
    field: str
    kind: str
    digits: int = 0
    """Decimal digits between the column's unit and the field's."""

    @property
    def spellings(self) -> tuple[str, ...]:
        return (f"{self.name}_s", f"{self.name}_ns") if self.kind == "time" else (self.name,)

    @property
    def default(self) -> Any:
        return {**TERM_DEFAULTS, **DEFAULTS}.get(self.field) if self.field not in _REQUIRED else None


_COLUMNS = (
    _Column("submit", "submit", "time"),
    _Column("work", "work", "time"),
    _Column("gpus", "gpus", "whole"),
    _Column("gpu_milli", "gpu_milli", "whole"),
    _Column("tenant", "tenant", "text"),
    _Column("partition", "partition", "text"),
    _Column("gpu_types", "gpu_types", "types"),
    _Column("nodes", "nodes", "whole"),
    _Column("cpus", "cpu_milli", "fixed", digits=3),
    _Column("memory_bytes", "memory_bytes", "whole"),
    _Column("estimate", "estimate", "time"),
    _Column("priority", "priority", "any whole"),
    _Column("qos", "qos", "text"),
    _Column("user", "user", "text"),
    _Column("preemptible", "preemptible", "flag"),
    _Column("checkpoint", "checkpoint", "time"),
    _Column("restore", "restore", "time"),
    _Column("checkpoint_every", "checkpoint_every", "time"),
    _Column("communication", "communication_ppm", "fixed", digits=6),
    _Column("outcome", "outcome", "outcome"),
    _Column("outcome_after", "outcome_after", "time"),
    _Column("retries", "retries", "whole"),
    _Column("patience", "patience", "time"),
    _Column("model", "model", "text"),
    _Column("reservation", "reservation", "text"),
    _Column("open_end", "open_end", "flag"),
    _Column("name", "name", "text"),
)
_TERMS = (
    _Column("after", "after", "text"),
    _Column("begin", "begin", "time"),
    _Column("series", "series", "text"),
    _Column("array", "array", "text"),
    _Column("throttle", "throttle", "whole"),
    _Column("licences", "licences", "text"),
    _Column("nice", "nice", "any whole"),
)
"""What becomes ``Job.terms``."""
_BESIDE = (_Column("start", "start", "time"), _Column("eligible", "eligible", "time"))
"""When jobs really started, and became eligible."""
_PLAIN = Job(id=0, submit=0, work=1)
"""A job with the default in every optional field."""


def _is_parquet(path: Path) -> bool:
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    return plain.suffix.lower() in (".parquet", ".pq")


def _typed(sheet: Sheet, column: _Column, name: str) -> pl.Series:
    """Return one column as the values of its field."""
    least = 1 if column.field in ("work", "throttle") else 0
    match column.kind:
        case "time" if name.endswith("_s"):
            return sheet.time(name, least=least, default=column.default)
        case "time" | "whole":
            return sheet.whole(name, least=least, default=column.default)
        case "any whole":
            return sheet.whole(name, default=column.default)
        case "fixed":
            return sheet.fixed(name, column.digits, least=0, default=column.default)
        case "flag":
            return sheet.choice(name, FLAGS, column.default)
        case "outcome":
            return sheet.choice(name, _OUTCOMES, int(column.default))
        case _:
            return sheet.text(name, default=column.default or "", strip=False)


def recognises(head: Head) -> bool:
    """Return whether the header has the required columns; a Parquet file is taken for one of ours."""
    times = [{f"{name}_s", f"{name}_ns"} for name in ("submit", "work")]
    columns = head.columns()
    return head.parquet or ("gpus" in columns and all(names & columns for names in times))


def read(path: Path, strict: bool) -> Trace:
    """Return the jobs of a file in headway's own format."""
    sheet = Sheet(parquet_table(path) if _is_parquet(path) else csv_table(path, multiline=True), ())
    for column in _COLUMNS:
        if column.field in _REQUIRED and not set(column.spellings) & set(sheet.columns):
            raise TraceError(
                f"trace {path}: column {column.spellings[0]!r} is missing (found: {listed(sheet.columns)}); "
                "of any other table --map says which column is what"
            )
    sheet.only(name for column in (*_COLUMNS, *_TERMS, *_BESIDE) for name in column.spellings)
    fields: dict[str, pl.Series] = {}
    for column in (*_COLUMNS, *_TERMS):
        given = [name for name in column.spellings if name in sheet.columns]
        if len(given) > 1:
            raise TraceError(f"trace {path}: columns {given[0]!r} and {given[1]!r} say the same: give one of them")
        if given:
            fields[column.field] = _typed(sheet, column, given[0])
    for column in _BESIDE:
        for name in set(column.spellings) & set(sheet.columns):
            times = sheet.time(name, default=-1) if name.endswith("_s") else sheet.whole(name, default=-1)
            fields[column.field] = times.to_frame("at").select(pl.when(pl.col("at") >= 0).then("at")).to_series()
    if "licences" in fields and (wrong := wrong_licences(fields["licences"].unique())):
        sheet.drop(fields["licences"].is_in(wrong), "licences", "is not a list like matlab:2,ansys")
    trace = sheet.trace(NAME, fields, strict=strict, id_column="name" if "name" in fields else "")
    if "after" in fields and not trace.dropped:
        check_dependencies(trace.jobs)
    return trace


def _decimal(value: int, digits: int) -> str:
    """Write a whole number of 10**-digits in full, e.g. 1500 with 3 digits as ``1.5``."""
    whole, part = divmod(value, 10**digits)
    return f"{whole}.{part:0{digits}d}".rstrip("0").rstrip(".")


def _joined(job: Job) -> str:
    if any(not name or ";" in name for name in job.gpu_types):
        raise TraceError(
            f"job {job.name or job.id}: gpu_types {job.gpu_types} cannot be written: a name is empty or holds ';'"
        )
    return ";".join(job.gpu_types)


def _cells(column: _Column, jobs: tuple[Job, ...], values: list[Any], parquet: bool) -> Sequence[Any]:
    """Return the values of a field as they are written: exact, times in nanoseconds in Parquet and seconds in CSV."""
    match column.kind:
        case "time":
            if max(values) > _LONGEST:
                raise TraceError(f"{column.field} {max(values)} ns cannot be written: it is over 292 years")
            return values if parquet else [_decimal(value, _TIME_DIGITS) for value in values]
        case "fixed":
            power = 10**column.digits
            return [value / power if parquet else _decimal(value, column.digits) for value in values]
        case "types":
            return [_joined(job) for job in jobs]
        case "outcome":
            return [Outcome(value).name.lower() for value in values]
        case "flag":
            return ["true" if value else "false" for value in values]
        case _:
            return values


def _left_out(jobs: tuple[Job, ...]) -> list[str]:
    """Return the optional fields in which every job has the default.

    They are looked at together, and less those in which a job differs from there on: a job is passed once, not once a
    field.
    """
    fields = [column.field for column in _COLUMNS if column.field not in _REQUIRED]
    rest = iter(jobs)
    while fields:
        values = attrgetter(*fields)
        defaults = values(_PLAIN)
        other = next((job for job in rest if values(job) != defaults), None)
        if other is None:
            break
        fields = [field for field in fields if getattr(other, field) == DEFAULTS[field]]
    return fields


def _written(jobs: tuple[Job, ...], parquet: bool, starts: Mapping[str, int], eligible: Mapping[str, int]) -> bytes:
    columns: dict[str, Sequence[Any]] = {}
    left_out = _left_out(jobs)
    for column in _COLUMNS:
        if column.field not in left_out:
            values = list(map(attrgetter(column.field), jobs))
            columns[column.spellings[-1 if parquet else 0]] = _cells(column, jobs, values, parquet)
    parts = taken_apart(jobs) if any(job.terms is not None for job in jobs) else {}
    for column in _TERMS:
        if column.field in parts:
            columns[column.spellings[-1 if parquet else 0]] = _cells(column, jobs, parts[column.field], parquet)
    for column, times in zip(_BESIDE, (starts, eligible), strict=True):
        if times:
            found = [times.get(job.name, -1) for job in jobs]
            name = column.spellings[-1 if parquet else 0]
            columns[name] = [None if at < 0 else at if parquet else _decimal(at, _TIME_DIGITS) for at in found]
    if parquet:
        sink = io.BytesIO()
        texts = [name for name, values in columns.items() if isinstance(values[0], str) and name != "name"]
        quick = {"compression": "lz4", "use_dictionary": texts, "write_statistics": False}
        pq.write_table(pa.table(columns), sink, write_page_checksum=True, **quick)
        return sink.getvalue()
    return pl.DataFrame(columns).write_csv().encode()


def _put(path: Path, content: bytes) -> None:
    """Write all of a file or nothing of it: under another name beside it, which becomes its name at the end."""
    if path.exists() and not path.is_file():  # a device or a pipe has no name to take over
        path.write_bytes(content)
        return
    write_whole(path.resolve(), content, TraceError, f"trace {path}")


def write(
    jobs: Iterable[Job],
    path: str | Path,
    starts: Mapping[str, int] | None = None,
    eligible: Mapping[str, int] | None = None,
) -> None:
    """Write jobs to a CSV or (suffix ``.parquet``) Parquet file; ``.gz`` packs it. What is read back is equal.

    ``starts`` is when jobs really started and ``eligible`` when they became so, by name, as in ``Trace``.
    """
    write_workload(workload(jobs), Path(path), starts, eligible)


def write_workload(
    jobs: tuple[Job, ...],
    path: Path,
    starts: Mapping[str, int] | None = None,
    eligible: Mapping[str, int] | None = None,
) -> None:
    """Write jobs that are a workload already: in order, numbered and checked."""
    if not jobs:
        raise TraceError(f"trace {path}: there are no jobs to write")
    try:
        data = _written(jobs, _is_parquet(path), starts or {}, eligible or {})
        _put(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    except (pa.ArrowException, pl.exceptions.PolarsError, OSError, OverflowError, UnicodeError) as problem:
        raise TraceError(f"trace {path}: cannot be written ({str(problem).splitlines()[0]})") from None
