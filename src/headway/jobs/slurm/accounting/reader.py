"""Read Slurm's job records: ``sacct --parsable2`` or ``--json``, ``scontrol show job``, the jobcomp/filetxt log.

Columns may come in any order; needed are JobID, Submit and what tells the run time. ``docs/guides/slurm.md`` says what
each becomes. A job is named by its JobID: ``123``, ``123_4`` for a task of an array, ``123`` for all components of a
heterogeneous job.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

import polars as pl

from headway.errors import NoJobsError, TraceError
from headway.formats.table import Table
from headway.jobs.slurm.accounting.cells import FATES, Cells
from headway.jobs.slurm.accounting.merge import folded, without_steps
from headway.jobs.slurm.accounting.rows import HOLDINGS, ended, tasks, typed, until_limit
from headway.jobs.slurm.accounting.slurm_submit import submitted, with_reservations
from headway.jobs.slurm.accounting.submissions import LINE, asked, fields, options, with_terms
from headway.jobs.slurm.accounting.tables import recognises as recognises, table
from headway.jobs.slurm.output.cells import Fate
from headway.jobs.traces.sheet import Sheet
from headway.jobs.traces.trace import SLURM, Dropped, Trace
from headway.units import SECOND

NAME = SLURM
_RECORDED = ("id", "submit", "eligible", "first_start", "end", "attempts")
_RUNNING = FATES.index(Fate.RUNNING)
_NO_REASONS = ("", "None", "Priority", "Resources")
"""What sacct keeps of a job is its last reason other than the last two; these say nothing."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """When a job of the trace was really submitted, started and ended: nanoseconds on the clock of its trace.

    ``submit`` may lie before ``arrival``, which is when the job became eligible. That is ``Job.submit`` too, unless
    what it waited for is followed in the simulation. ``submit`` is below 0 where the first jobs of a file waited for
    others. ``start`` is the first start of a job that was requeued.
    """

    name: str
    submit: int
    arrival: int
    start: int | None
    """None where it was cancelled before it started."""
    end: int | None
    """None where it still ran when the file was written."""
    attempts: int
    """More than 1 where it was requeued: ``Job.work`` is then the last attempt, not all of them."""


@dataclass(frozen=True, slots=True)
class History:
    """A trace and what really happened: ``recorded[i]`` belongs to ``trace.jobs[i]``."""

    trace: Trace
    recorded: tuple[Recorded, ...]

    def by_name(self) -> Mapping[str, Recorded]:
        """Return the records by the name of the job, for when jobs were left out or renumbered since."""
        return {each.name: each for each in self.recorded}


def read(path: Path, strict: bool) -> Trace:
    """Return the jobs of a file, and when they really started."""
    return read_rows(path, strict)[0]


def history(path: str | Path, *, strict: bool = False) -> History:
    """Return the jobs of a file, as ``read`` gives them, with the times at which they really started and ended."""
    trace, rows = read_rows(Path(path), strict)
    known = {record.name: record for record in map(Recorded, *(rows[name].to_list() for name in _RECORDED))}
    return History(trace, tuple(known[job.name] for job in trace.jobs))


def read_rows(path: Path, strict: bool, *, unfinished: bool = False) -> tuple[Trace, pl.DataFrame]:
    """Return the jobs of a file and the rows that they were made of.

    With ``unfinished`` jobs that wait are kept, and all that have not ended run until their time limit.
    """
    source = table(path)
    column, height = _checked(source), source.frame.height
    frame, own, notes = without_steps(source.frame, column)
    if not frame.height:
        raise TraceError(f"trace {path}: all {height:,} rows are steps, of no job in the file")
    source = replace(source, frame=frame.clear(), lines=source.lines.filter(own))  # texts are large: what was read goes
    cells = Cells(with_reservations(frame).drop(LINE, strict=False))  # the longest of texts, and no other use of it
    found = [options(frame), *asked(frame, cells)]
    frame = cells.frame
    rows = typed(cells, waiting=unfinished)
    rows = rows.with_columns(*found, source.lines.alias("line")).with_row_index("position")
    rows, aside = _apart(folded(rows, notes), cells, path)
    rows = with_terms(_placed(rows, notes))
    rows = ended(until_limit(rows) if unfinished else rows)
    sheet = Sheet(Table(path, _in_order_of(rows["position"], frame), rows["line"], source.place, source.notes), ())
    sheet.zone = "UTC" if cells.counts_instants("Submit") else ""
    for number, rule in enumerate(cells.rules):
        sheet.drop(rows["broken"] == number, rule.column, rule.text)
    trace = sheet.trace(NAME, _fields(rows), strict=strict, id_column=column, in_order=False)
    kept = _since_first(rows, {job.name for job in trace.jobs})
    starts = dict(kept.filter(pl.col("first_start").is_not_null()).select("id", "first_start").iter_rows())
    late = kept.filter(pl.col("eligible") > pl.col("arrival")).select("id", "eligible")
    told = kept.filter(~pl.col("reason").is_in(_NO_REASONS)).select("id", "reason")
    dropped = tuple(sorted((*trace.dropped, *aside), key=attrgetter("line")))
    notes = [*trace.notes, *notes, *_remarks(kept, unfinished=unfinished), *submitted(kept)]
    reasons = dict(told.iter_rows())
    ran = dict(kept.filter(pl.col("ran").is_not_null()).select("id", "ran").iter_rows()) if unfinished else {}
    repeated = kept.filter(pl.col("attempts") > 1).select("id", "later", "lost")
    read = replace(trace, rows=height, dropped=dropped, notes=tuple(notes), starts=starts, reasons=reasons, ran=ran)
    again = {name: (later, min(later, lost)) for name, later, lost in repeated.iter_rows()}
    passed = height - frame.height
    return replace(read, passed_over=passed, eligible=dict(late.iter_rows()), requeued=again), kept


def _in_order_of(positions: pl.Series, frame: pl.DataFrame) -> pl.DataFrame:
    """Return these rows of a table; the table itself, which is large, where they are all of it as they come."""
    return frame if len(positions) == frame.height and positions.is_sorted() else frame[positions]


def _apart(rows: pl.DataFrame, cells: Cells, path: Path) -> tuple[pl.DataFrame, list[Dropped]]:
    """Return the rows without jobs that cannot be simulated though their rows are valid, and what was dropped."""
    innocent = [number for number, rule in enumerate(cells.rules) if not rule.fault]
    aside = rows.filter(pl.col("broken").is_in(innocent))
    dropped = []
    for line, position, number, name in aside.select("line", "position", "broken", "id").iter_rows():
        rule = cells.rules[number]
        value = cells.frame[rule.column][position] if cells.has(rule.column) else None
        text = "" if value is None else str(value).strip()
        dropped.append(Dropped(line, rule.column, text, rule.text, fault=False, jobs=len(tasks(name)) or 1))
    if len(dropped) == rows.height:
        raise NoJobsError(f"trace {path}: none of its {rows.height:,} jobs can be played; the first: {dropped[0]}")
    return rows.filter(~pl.col("broken").is_in(innocent).fill_null(False)), dropped


def _since_first(rows: pl.DataFrame, names: set[str]) -> pl.DataFrame:
    """Return the rows that became jobs, their times counted from the first arrival, as the trace counts."""
    kept = rows.filter(pl.col("broken").is_null())
    if kept.height != len(names):  # some were dropped for what only their fields together make bad
        kept = kept.filter(pl.col("id").is_in(names)).unique("id", keep="first", maintain_order=True)
    return kept.with_columns(
        pl.col(name) - kept["arrival"].min() for name in ("submit", "arrival", "eligible", "first_start", "end")
    )


def _checked(source: Table) -> str:
    """Return the column with the ids, of a table that has the columns it needs."""
    column = "JobID" if "JobID" in source.frame.columns else "JobIDRaw"
    Sheet(source, (column if column in source.frame.columns else "JobID", "Submit"))
    columns = set(source.frame.columns)
    if columns.isdisjoint({"Elapsed", "ElapsedRaw"}) and not columns >= {"Start", "End"}:
        raise TraceError(f"trace {source.path}: nothing tells the run time: add Elapsed, or Start and End")
    if columns.isdisjoint(HOLDINGS):
        raise TraceError(f"trace {source.path}: nothing tells what jobs ask for: add ReqTRES and AllocTRES")
    return column


def _placed(rows: pl.DataFrame, notes: list[str]) -> pl.DataFrame:
    """Add nodes, cpu_milli and memory_bytes of jobs, as the model counts them.

    A number of nodes binds where a job asked for it and got it; where Slurm divided the job by itself, or unevenly,
    it is left to the placement. CPUs and memory go with the GPUs; a job without any takes the same on each node.
    """
    several = pl.when(pl.col("asked_nodes") > 1).then(pl.col("asked_nodes")).otherwise(0)
    wanted = (
        pl.when(pl.col("ghost"))
        .then(several)
        .when(pl.col("waits"))
        .then(pl.coalesce("asked_nodes", 0))
        .when(pl.col("held_nodes") > pl.col("asked_nodes"))
        .then(0)
        .otherwise(pl.coalesce("held_nodes", "asked_nodes", 0))
    )
    cpu_only = pl.col("gpus") == 0
    rows = rows.with_columns(
        pl.when(cpu_only).then(pl.coalesce("held_nodes", "asked_nodes", 1)).otherwise(wanted).alias("nodes")
    )
    uneven = ~cpu_only & (pl.col("nodes") > 0) & (pl.col("gpus") % pl.max_horizontal("nodes", 1) != 0)
    if count := rows.filter(uneven & pl.col("broken").is_null()).height:
        notes.append(
            f"{count:,} job{'s' if count > 1 else ''} divided unevenly over nodes: how is left to the placement"
        )
    rows = rows.with_columns(pl.when(uneven).then(0).otherwise(pl.col("nodes")).alias("nodes"))
    share = pl.when(cpu_only).then(pl.max_horizontal("nodes", 1)).otherwise(1)
    return rows.with_columns(
        ((pl.col("cpus") * 1000 + share - 1) // share).alias("cpu_milli"),
        ((pl.col("memory") + share - 1) // share).alias("memory_bytes"),
        pl.col("partitions").str.split(",").list.first().fill_null("").alias("partition"),
    )


def _fields(rows: pl.DataFrame) -> dict[str, pl.Series]:
    same = ("work", "gpus", "nodes", "cpu_milli", "memory_bytes", "tenant", "user", "partition", "qos", "priority")
    ends = ("estimate", "outcome", "outcome_after", "retries", "patience", "reservation")
    own = {name: rows[name] for name in (*same, *ends)}
    return {"name": rows["id"], "submit": rows["arrival"], "gpu_types": rows["types"], **own, **fields(rows)}


def _remarks(rows: pl.DataFrame, *, unfinished: bool) -> list[str]:
    """Return notes for a reader of results about the jobs that were kept."""
    short = ~pl.col("ghost") & ~pl.col("waits") & (pl.col("elapsed") < SECOND)
    said = (
        (
            pl.col("fate") == _RUNNING,
            f"still running when the file was written: taken to {'run to the limit' if unfinished else 'end then'}",
        ),
        (pl.col("waits"), "waiting when the file was written: taken to run to the limit"),
        (pl.col("mended"), "around the end of summer time mended: an hour added to what came after it"),
        (pl.col("ghost"), "cancelled before the start: kept, with as much patience as it took"),
        (short, "shorter than a second: taken as 1 s"),
        (
            pl.col("arrival") > pl.col("submit"),
            "eligible later than submitted (held, or waiting for another): arriving then",
        ),
        (pl.col("partitions").str.contains(",", literal=True), "with several partitions: the first counts"),
        (pl.col("gpus") == 0, "without a GPU: kept with CPUs and memory"),
        (pl.col("parts") & (pl.col("gpus") == 0), "with shards or MPS of a GPU, which are not modelled"),
    )
    if not rows["gpus"].sum():
        return ["no job of the file has a GPU: Slurm records them where AccountingStorageTRES lists gres/gpu"]
    counts = rows.select(mask.sum().alias(str(place)) for place, (mask, _) in enumerate(said)).row(0)
    return [
        f"{count:,} job{'s' if count > 1 else ''} {text}"
        for count, (_, text) in zip(counts, said, strict=True)
        if count
    ]
