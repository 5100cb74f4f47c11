"""Read Microsoft's Philly cluster as published, ``cluster_job_log`` (Jeon et al., ATC 2019): a JSON list.

A job lists its attempts, each with a start, an end and the GPUs of each machine. A job that passed or was killed is as
much work as its attempts took together. One that failed is tried again as often as it was then, and each attempt
fails after the mean of theirs. The GPUs are those of the last attempt that names any. An attempt without a start or an
end is a gap in the log and counts for nothing. A job without any other, or one that was still running when the log was
written, is dropped: nobody knows how long it takes. The virtual cluster becomes the tenant.
"""

import re
from operator import attrgetter
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from headway.core.collector import no_collection
from headway.errors import TraceError
from headway.formats.head import Head
from headway.formats.table import Table, text
from headway.formats.times import SHAPE, absent, stamp, stamps
from headway.jobs.model.job import Outcome
from headway.jobs.traces.lifetimes import at_least_a_second, ending
from headway.jobs.traces.sheet import Sheet
from headway.jobs.traces.trace import Trace

NAME = "philly-json"
_TEXTS = ("jobid", "status", "submitted_time", "vc", "user")
_ID = re.compile(rb'"jobid"\s*:')
_OUTCOMES = {"pass": int(Outcome.FINISHES), "killed": int(Outcome.CANCELLED), "failed": int(Outcome.FAILS)}


class _Machine(msgspec.Struct, gc=False):
    gpus: list[str] = []


class _Attempt(msgspec.Struct, gc=False):
    start_time: str | None = None
    end_time: str | None = None
    detail: list[_Machine] | None = None


class _Entry(msgspec.Struct, gc=False):
    jobid: str = ""
    status: str = ""
    submitted_time: str | None = None
    vc: str | None = None
    user: str | None = None
    attempts: list[_Attempt] | None = None


def recognises(head: Head) -> bool:
    """Return whether it is JSON with the keys of this format."""
    return head.json and all(f'"{key}"' in head.text for key in ("jobid", "attempts", "submitted_time"))


def _entries(path: Path, content: bytes) -> tuple[list[_Entry], dict[int, str]]:
    """Return the entries, and what is wrong with those that are not as they should be, by position."""
    broken: dict[int, str] = {}
    try:
        entries = msgspec.json.decode(content, type=list[_Entry])
    except msgspec.ValidationError:
        entries = _one_by_one(path, content, broken)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise TraceError(f"trace {path}: is not whole JSON ({problem})") from None
    if not entries:
        raise TraceError(f"trace {path}: the list has no entry")
    return entries, broken


def _one_by_one(path: Path, content: bytes, broken: dict[int, str]) -> list[_Entry]:
    try:
        raw = msgspec.json.decode(content, type=list[msgspec.Raw])
    except msgspec.ValidationError:
        raise TraceError(f"trace {path}: must be a JSON list, an entry a job") from None
    except (msgspec.DecodeError, RecursionError) as problem:
        raise TraceError(f"trace {path}: is not whole JSON ({problem})") from None
    decode = msgspec.json.Decoder(_Entry).decode
    entries = []
    for position, each in enumerate(raw):
        try:
            entries.append(decode(each))
        except (msgspec.DecodeError, RecursionError) as problem:
            broken[position] = str(problem)
            entries.append(_Entry())
    return entries


def _lines(content: bytes, count: int) -> pl.Series:
    """Return the line of each entry's id; the number of the entry, where lines cannot tell them apart."""
    entries = np.arange(1, count + 1)
    if content.count(b"\n") < count - 1:
        return pl.Series("line", entries, dtype=pl.Int64)
    ids = np.array([match.start() for match in _ID.finditer(content)], dtype=np.int64)
    breaks = np.flatnonzero(np.frombuffer(content, dtype=np.uint8) == ord("\n"))
    return pl.Series("line", np.searchsorted(breaks, ids) + 1 if ids.size == count else entries, dtype=pl.Int64)


def _attempts(entries: list[_Entry]) -> pl.DataFrame:
    """Return all attempts of all jobs in order: how long each lasted, on how many GPUs."""
    every = [attempt for entry in entries for attempt in entry.attempts or ()]
    start = pl.Series("start", [attempt.start_time for attempt in every], dtype=pl.String)
    end = pl.Series("end", [attempt.end_time for attempt in every], dtype=pl.String)
    began, ended = stamp(start)["time"], stamp(end)["time"]
    job = [position for position, entry in enumerate(entries) for _ in entry.attempts or ()]
    gpus = [sum([len(machine.gpus) for machine in attempt.detail or ()]) for attempt in every]
    return pl.DataFrame(
        {
            "job": pl.Series(job, dtype=pl.Int64),
            "start_time": start,
            "end_time": end,
            "lasted": ended - began,
            "gpus": pl.Series(gpus, dtype=pl.Int64),
            "open": began.is_not_null() & absent(end),
            "unread_start": began.is_null() & ~absent(start),
            "unread_end": ended.is_null() & ~absent(end),
        }
    )


def _sheet(path: Path) -> tuple[Sheet, pl.DataFrame]:
    """Return the entries as a sheet, and what their attempts come to."""
    content = text(path).encode()
    entries, broken = _entries(path, content)
    columns = zip(*map(attrgetter(*_TEXTS), entries), strict=True)
    frame = pl.DataFrame([pl.Series(name, each, dtype=pl.String) for name, each in zip(_TEXTS, columns, strict=True)])
    positions = pl.Series(range(len(entries)), dtype=pl.Int64)
    made = _summed(_attempts(entries), positions)
    frame = frame.with_columns(made["start_time"], made["end_time"])
    sheet = Sheet(Table(path, frame, _lines(content, len(entries))), ())
    for problem in dict.fromkeys(broken.values()):
        these = [position for position, each in broken.items() if each == problem]
        sheet.drop(positions.is_in(these), "entry", f"is not as this format has it: {problem}")
    return sheet, made


def _summed(attempts: pl.DataFrame, positions: pl.Series) -> pl.DataFrame:
    """Return what the attempts of each job come to; the times shown are those that are wrong, else the last."""
    named = pl.col("gpus").filter(pl.col("gpus") > 0)
    odd = pl.col("unread_start") | pl.col("unread_end") | (pl.col("lasted") < 0)
    shown = [pl.coalesce(pl.col(name).filter(odd).first(), pl.col(name).last()) for name in ("start_time", "end_time")]
    summed = attempts.group_by("job").agg(
        *shown,
        attempts=pl.len(),
        timed=pl.col("lasted").is_not_null().sum().cast(pl.Int64),
        lasted=pl.col("lasted").sum(),
        backwards=(pl.col("lasted") < 0).any(),
        unread_start=pl.col("unread_start").any(),
        unread_end=pl.col("unread_end").any(),
        open=pl.col("open").last(),
        gpus=named.last(),
    )
    return positions.to_frame("job").join(summed, on="job", how="left", maintain_order="left")


def _drop_unknown(sheet: Sheet, summed: pl.DataFrame) -> None:
    """Drop what the log does not know (left out: such jobs are in every log of this kind) or tells wrongly (bad)."""
    sheet.drop(summed["attempts"].is_null(), "attempts", "are none: its GPUs and run time are not known", fault=False)
    sheet.drop(summed["unread_start"], "start_time", f"of an attempt {SHAPE}")
    sheet.drop(summed["unread_end"], "end_time", f"of an attempt {SHAPE}")
    sheet.drop(summed["backwards"], "end_time", "of an attempt is before its start")
    sheet.drop(summed["open"], "end_time", "is missing: it was still running when the log was written", fault=False)
    untimed = "or end_time is missing in all attempts: how long it ran is not known"
    sheet.drop(summed["timed"] == 0, "start_time", untimed, fault=False)
    sheet.drop(summed["gpus"].is_null(), "gpus", "are none in all attempts", fault=False)


def read(path: Path, strict: bool) -> Trace:
    """Return the jobs of a Philly job log."""
    with no_collection():
        sheet, made = _sheet(path)
    name, _ = sheet.text("jobid"), sheet.text("status")
    outcome = sheet.choice("status", _OUTCOMES, int(Outcome.FINISHES))
    submit = stamps(sheet, ("submitted_time",))["submitted_time"]
    _drop_unknown(sheet, made)
    failed = outcome == int(Outcome.FAILS)
    tries = made["timed"].clip(lower_bound=1).zip_with(failed, pl.Series([1], dtype=pl.Int64)).fill_null(1)
    gaps = int((made["attempts"] - made["timed"]).fill_null(0).sum())
    if gaps:
        sheet.notes.append(f"{gaps:,} attempt{'s' if gaps > 1 else ''} without a start or an end: counted for nothing")
    work = at_least_a_second(sheet, made["lasted"] // tries)
    fields = {
        "name": name,
        "submit": submit,
        "work": work,
        "gpus": made["gpus"],
        "tenant": sheet.text("vc", default="default"),
        "user": sheet.text("user", default=""),
        **ending(outcome, work),
        "retries": tries - 1,
    }
    return sheet.trace(NAME, fields, strict=strict, id_column="jobid", in_order=False)
