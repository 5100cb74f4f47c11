"""Merge rows of Slurm jobs into one row a job: steps, attempts, tasks of an array, parts of a heterogeneous job."""

import polars as pl

from headway.jobs.slurm.accounting.cells import FATES
from headway.jobs.slurm.accounting.rows import tasks
from headway.jobs.slurm.output.cells import Fate
from headway.units import HOUR

_OWN_FAILURE = FATES.index(Fate.FAILED)
_PART = r"^(.*)\+\d+$"


def without_steps(frame: pl.DataFrame, column: str) -> tuple[pl.DataFrame, pl.Series, list[str]]:
    """Return the rows of jobs, which rows they are, and what to say about the steps."""
    ids = frame[column].str.strip_chars()
    step = ids.str.contains(r"^\d+(?:_\d+)?(?:\+\d+)?\.").fill_null(False)
    count = int(step.sum())
    if not count:
        return frame, ~step, []
    notes = [f"{count:,} row{'s' if count > 1 else ''} of steps counted with their jobs"]
    owners = ids.filter(step).str.replace(r"\..*$", "").unique()
    if lost := owners.is_in(ids.filter(~step).implode()).not_().sum():
        notes.append(f"{lost:,} job{'s' if lost > 1 else ''} left out: only steps of them are in the file")
    return frame.filter(~step), ~step, notes


def folded(rows: pl.DataFrame, notes: list[str]) -> pl.DataFrame:
    """Return one row a job; rows that broke a rule stay as they are, in their place."""
    bad = rows.filter(pl.col("broken").is_not_null())
    sound = _tasks(rows.filter(pl.col("broken").is_null()), notes)
    sound = _parts(_attempts(sound, notes), notes)
    return pl.concat([sound, bad], how="diagonal").sort("position", maintain_order=True)


def _tasks(rows: pl.DataFrame, notes: list[str]) -> pl.DataFrame:
    """Return tasks that stand in one row, as none of them has started, each as a job."""
    listed = pl.col("id").str.ends_with("]")
    several = rows.filter(listed)
    if not several.height:
        return rows
    each = several.with_columns(pl.Series("id", [list(tasks(text)) for text in several["id"]])).explode("id")
    if cancelled := each["ghost"].sum():
        lines = f"{several['ghost'].sum():,} row{'s' if several['ghost'].sum() > 1 else ''}"
        notes.append(f"{cancelled:,} array tasks that were cancelled while they waited stand in {lines}")
    return pl.concat([rows.filter(~listed), each]).sort("position", maintain_order=True)


def _attempts(rows: pl.DataFrame, notes: list[str]) -> pl.DataFrame:
    """Return the last attempt that ran, with the first submission and start; drop rows that are repeated."""
    rows = rows.with_columns(
        pl.lit(1, pl.Int64).alias("attempts"),
        pl.lit(0, pl.Int64).alias("failures"),
        pl.lit(0, pl.Int64).alias("later"),
        pl.lit(0, pl.Int64).alias("lost"),
        pl.col("start").alias("first_start"),
    )
    again = rows.filter(pl.len().over("id") > 1)
    if not again.height:
        return _restarted(rows, notes)
    once = again.unique(["id", "submit", "start"], keep="last", maintain_order=True)
    if same := again.height - once.height:
        notes.append(f"{same:,} row{'s' if same > 1 else ''} repeated in the file counted once")
    ordered = once.sort("ghost", "submit", "start", "position", descending=[True, False, False, False])
    gathered = ordered.group_by("id").agg(
        pl.all().exclude("submit", "arrival", "attempts", "failures", "first_start", "later", "lost").last(),
        pl.col("submit", "arrival", "first_start").min(),
        pl.len().cast(pl.Int64).alias("attempts"),
        (pl.col("fate") == _OWN_FAILURE).slice(0, pl.len() - 1).sum().cast(pl.Int64).alias("failures"),
        (pl.col("start").last() - pl.col("start").min()).fill_null(0).alias("later"),
        pl.col("elapsed").slice(0, pl.len() - 1).sum().cast(pl.Int64).alias("lost"),
    )
    if requeued := int((gathered["attempts"] > 1).sum()):
        hours = _held_hours(once) - _held_hours(gathered)
        notes.append(
            f"{requeued:,} requeued job{'s' if requeued > 1 else ''} taken as one each: the last attempt counts, the "
            f"{hours:,.1f} GPU-hours of earlier ones do not"
        )
    alone = rows.filter(pl.len().over("id") == 1)
    return _restarted(pl.concat([alone, gathered.select(alone.columns)]), notes)


def _held_hours(rows: pl.DataFrame) -> float:
    return float((rows["elapsed"].fill_null(0) / HOUR * rows["gpus"].fill_null(0)).sum())


def _restarted(rows: pl.DataFrame, notes: list[str]) -> pl.DataFrame:
    """Count earlier attempts that are not in the file: without --duplicates only a number tells of them."""
    if unseen := rows.filter(pl.col("restarts") >= pl.col("attempts")).height:
        notes.append(
            f"{unseen:,} job{'s were' if unseen > 1 else ' was'} requeued before the attempt that is in the file"
        )
    return rows.with_columns(pl.max_horizontal("attempts", pl.col("restarts") + 1))


def _parts(rows: pl.DataFrame, notes: list[str]) -> pl.DataFrame:
    """Merge the components of a heterogeneous job, which start together, into one job with what all of them hold."""
    whole = pl.col("id").str.extract(_PART)
    parts = rows.filter(whole.is_not_null()).with_columns(whole.alias("id"))
    if not parts.height:
        return rows
    types = pl.col("types").filter(pl.col("types") != "")
    nodes = pl.coalesce("held_nodes", "asked_nodes")
    alike = (pl.col("gpus") * nodes.first() == pl.col("gpus").first() * nodes).all()
    merged = (
        parts.sort("position")
        .group_by("id", maintain_order=True)
        .agg(
            pl.all().exclude("gpus", "cpus", "memory", "types", "end", "elapsed", "held_nodes", "asked_nodes").first(),
            pl.col("gpus", "cpus", "memory").sum(),
            pl.col("end", "elapsed").max(),
            types.unique(maintain_order=True).str.join(";").alias("types"),
            pl.when(alike).then(nodes.sum()).otherwise(pl.lit(None)).first().alias("held_nodes"),
            pl.when(alike).then(nodes.sum()).otherwise(pl.lit(None)).first().alias("asked_nodes"),
        )
    )
    notes.append(
        f"{merged.height:,} heterogeneous job{'s' if merged.height > 1 else ''} of {parts.height:,} components "
        "taken as one each, with what the components hold together"
    )
    return pl.concat([rows.filter(whole.is_null()), merged.select(rows.columns)])
