"""Parse each row of a Slurm job table: when, how long, what it holds, and how it ended.

A row is one attempt of a job. The rules it must keep are applied here; what belongs together is put together in
``merge.py``.
"""

import polars as pl

from headway.errors import InputError
from headway.formats.table import SURPLUS
from headway.jobs.slurm.accounting.cells import FATES, Cells, seconds
from headway.jobs.slurm.output import cells as slurm, lists as slurm_lists
from headway.jobs.slurm.output.cells import Fate
from headway.units import DAY, HOUR, SECOND

TIMES = ("Submit", "Eligible", "Start", "End")
HOLDINGS = (
    *("ReqTRES", "AllocTRES", "ReqGRES", "AllocGRES", "JobGRES", "TaskGRES"),
    *("AllocCPUS", "NCPUS", "ReqCPUS"),
)
_GRES = {"n": "ReqGRES", "g": "AllocGRES", "j": "JobGRES", "t": "TaskGRES"}
"""For each node, twice, for the job and for each task."""
_ID = r"^\d+(?:_(?:\d+|\[.*\]))?(?:\+\d+)?$"
_FAILED, _BROKEN, _CANCELLED, _EVICTED, _RUNNING, _WAITING, _ELSEWHERE = (
    FATES.index(fate)
    for fate in (
        Fate.FAILED,
        Fate.BROKEN,
        Fate.CANCELLED,
        Fate.EVICTED,
        Fate.RUNNING,
        Fate.WAITING,
        Fate.ELSEWHERE,
    )
)
_SUNDAY, _SMALL_HOURS = 7, 4
NO_LIMIT = 365 * DAY
"""What Slurm counts with for a job without a time limit: a year."""
_ENDED_BADLY = [_FAILED, _BROKEN, _CANCELLED, _EVICTED]


def typed(cells: Cells, *, waiting: bool = False) -> pl.DataFrame:
    """Return the rows as typed columns; ``cells.broken`` then says which of them keep no rule.

    With ``waiting``, jobs are kept that wait and are eligible.
    """
    if cells.has(SURPLUS):
        cells.refuse(cells.frame[SURPLUS].is_not_null(), SURPLUS, "is a field too many")
    rows = pl.DataFrame({"id": _ids(cells), "fate": cells.fate()})
    if not waiting:
        unknown = "has not started: how long it would run is not known"
        cells.refuse(rows["fate"] == _WAITING, "State", unknown, fault=False)
    cells.refuse(rows["fate"] == _ELSEWHERE, "State", "ran on another cluster of the federation", fault=False)
    rows = rows.with_columns(_times(cells, rows["fate"]))
    rows = rows.with_columns(_holdings(cells, rows["ghost"] | rows["waits"]))
    rows = rows.with_columns(_owners(cells))
    _refuse_task_lists(cells, rows)
    return rows.with_columns(cells.broken)


def _ids(cells: Cells) -> pl.Series:
    column = "JobID" if cells.has("JobID") else "JobIDRaw"
    ids = cells.text(column).alias("id")
    cells.refuse(ids.is_null(), column, "is empty")
    cells.refuse(ids.str.to_lowercase() == column.lower(), column, "is the header again", fault=False)
    cells.refuse(~ids.str.contains(_ID), column, "is not the number of a job like 123, 123_4 or 123+0")
    if not cells.has("Cluster") or (clusters := cells.text("Cluster")).drop_nulls().n_unique() < 2:
        return ids
    return (clusters.fill_null("") + ":" + ids).alias("id")


def _times(cells: Cells, fate: pl.Series) -> list[pl.Series]:
    """Return submit, arrival, start, end, elapsed, estimate, ``ghost`` (it ended without a start) and ``waits``."""
    cells.refuse_mixed_zones([column for column in TIMES if cells.has(column)])
    submit, eligible, start, end = (cells.instant(column).alias(column.lower()) for column in TIMES)
    cells.refuse(submit.is_null(), "Submit", "is empty")
    raw = seconds(cells.number("ElapsedRaw", 2**62))
    elapsed = raw.zip_with(raw.is_not_null(), cells.span("Elapsed")).alias("elapsed")
    frame = pl.DataFrame([submit, eligible, start, end, fate, elapsed, _allocated(cells)])
    running, waits = pl.col("fate") == _RUNNING, (pl.col("fate") == _WAITING).fill_null(False)
    frame = frame.with_columns(
        waits.alias("waits"),
        pl.when(~running & ~waits).then(pl.col("end")),  # of a job that has not ended it is a forecast
        pl.when(~waits).then(pl.col("start")),
        pl.when(waits).then(0).otherwise(pl.col("elapsed")).alias("elapsed"),
    )
    idle = pl.col("elapsed").fill_null(0) == 0
    # Before 20.11 the start of a job that was cancelled while it waited is its end.
    at_once = (pl.col("fate") == _CANCELLED) & idle & ~pl.col("allocated") & (pl.col("start") == pl.col("end"))
    unstarted = (pl.col("start").is_null() & idle) | at_once
    frame = frame.with_columns((pl.col("fate").is_in(_ENDED_BADLY) & unstarted).alias("ghost"))
    frame = frame.with_columns(pl.when(~pl.col("ghost")).then(pl.col("start")))
    length = pl.coalesce("elapsed", pl.col("end") - pl.col("start"))
    frame = frame.with_columns(pl.when(~pl.col("ghost")).then(length).alias("elapsed"))
    frame = _mended(cells, frame)
    arrival = pl.max_horizontal("submit", "eligible")
    frame = frame.with_columns(pl.min_horizontal(arrival, "start").alias("arrival"))
    _refuse_times(cells, frame)
    estimate = cells.limit("Timelimit" if cells.has("Timelimit") else "TimelimitRaw").fill_null(0).alias("estimate")
    names = ("submit", "arrival", "start", "end", "elapsed", "ghost", "waits", "mended")
    return [frame[name] for name in names] + [estimate]


def _mended(cells: Cells, frame: pl.DataFrame) -> pl.DataFrame:
    """Return times with an hour added where local ones go back at the end of summer time; ``mended`` says where.

    Clocks are put back on a Sunday in the small hours. A start then seems to come before the submission, or an end
    before the start, which the elapsed time gives the lie.
    """
    if cells.counts_instants("Submit"):
        return frame.with_columns(pl.lit(False).alias("mended"))

    def went_back(earlier: pl.Expr, later: pl.Expr) -> pl.Expr:
        at = later.cast(pl.Datetime("ns"))
        night = (at.dt.weekday() == _SUNDAY) & (at.dt.hour() < _SMALL_HOURS)
        return ((later < earlier) & (earlier - later <= HOUR) & night).fill_null(False)

    ghost, start, end, told = pl.col("ghost"), pl.col("start"), pl.col("end"), pl.col("elapsed") >= 0
    late_start = ~ghost & told & went_back(pl.max_horizontal("submit", "eligible"), start)
    frame = frame.with_columns(late_start.alias("mended"), pl.when(late_start).then(start + HOUR).otherwise(start))
    late_end = pl.when(ghost).then(went_back(pl.col("submit"), end)).otherwise(told & went_back(start, end))
    shifted = end.is_not_null() & (pl.col("mended") | late_end)
    return frame.with_columns(
        pl.col("mended") | late_end,
        pl.when(shifted & ghost).then(end + HOUR).when(shifted).then(start + pl.col("elapsed")).otherwise(end),
    )


def _refuse_times(cells: Cells, frame: pl.DataFrame) -> None:
    def refuse(bad: pl.Expr, column: str, rule: str, *, fault: bool = True) -> None:
        cells.refuse(frame.select(bad).to_series(), column, rule, fault=fault)

    ran, ghost = ~pl.col("ghost") & ~pl.col("waits"), pl.col("ghost")
    if cells.has("Start"):
        refuse(ran & pl.col("start").is_null(), "Start", "is empty, although the job ran")
    refuse(ran & (pl.col("start") < pl.col("submit")), "Start", "is before Submit: the clock went back")
    refuse(ran & (pl.col("end") < pl.col("start")), "End", "is before Start: the clock went back")
    told = pl.col("elapsed").is_not_null()
    refuse(
        (pl.col("fate") == _RUNNING) & ~told, "State", "still runs, and nothing tells for how long so far", fault=False
    )
    refuse(ran & ~told, "Elapsed", "is empty, and Start and End do not tell it")
    refuse(ghost & pl.col("end").is_null(), "End", "is empty: when it was cancelled is not known")
    refuse(ghost & (pl.col("end") < pl.col("submit")), "End", "is before Submit: the clock went back")
    if cells.has("Eligible"):
        yet = "is not set: it is held, or waits for another job or a date"
        refuse(pl.col("waits") & pl.col("eligible").is_null(), "Eligible", yet, fault=False)
        held = pl.col("eligible").is_null() | (pl.col("eligible") > pl.col("end"))
        refuse(ghost & held, "Eligible", "is not before its end: it was cancelled while it was held", fault=False)


def _allocated(cells: Cells) -> pl.Series:
    """Return whether a row names nodes that it was given, or resources where the file does not list nodes."""
    return cells.text("NodeList" if cells.has("NodeList") else "AllocTRES").is_not_null().alias("allocated")


def _holdings(cells: Cells, ghost: pl.Series) -> list[pl.Series]:
    """Return gpus, types, cpus, memory, nodes and parts: what a job held, or asked for where it held nothing.

    Held counts before asked for: with --exclusive a job gets more than it asked for, and nobody else could have it.
    A GPU type is what it insisted on, not what it happened to be given.
    """
    tres = {"r": cells.tres("ReqTRES"), "a": cells.tres("AllocTRES")}
    told = {**tres, **{prefix: cells.gres(column) for prefix, column in _GRES.items()}}
    frame = pl.DataFrame([part.alias(f"{prefix}_{part.name}") for prefix, parts in told.items() for part in parts])
    counts = ("AllocNodes", "NNodes", "ReqNodes", "NTasks", "AllocCPUS", "NCPUS", "ReqCPUS")
    frame = frame.with_columns([ghost, *(cells.number(column).alias(column) for column in counts)])
    frame = frame.with_columns(pl.when(pl.col(column) > 0).then(pl.col(column)) for column in counts)
    held_nodes = pl.when(~pl.col("ghost")).then(pl.coalesce("AllocNodes", "a_nodes", "NNodes"))
    # GPUs that are asked for the whole job may come from any number of nodes.
    asked_nodes = pl.coalesce("ReqNodes", "r_nodes", pl.when(pl.col("j_gpus") > 0).then(1))
    frame = frame.with_columns(held_nodes.alias("held_nodes"), asked_nodes.alias("asked_nodes"))
    nodes = pl.coalesce("held_nodes", "asked_nodes", "NNodes", 1)
    asked = (pl.col("r_gpus"), pl.col("j_gpus"), pl.col("n_gpus") * nodes, pl.col("t_gpus") * pl.col("NTasks"))
    held = (pl.col("a_gpus"), pl.col("g_gpus") * nodes)
    gpus = pl.coalesce(*(pl.when(count > 0).then(count) for count in (*held, *asked)), 0)
    kinds = [pl.col(f"{prefix}_types") for prefix in "rjnt"]
    types = pl.coalesce(*(pl.when(count > 0).then(kind) for count, kind in zip(asked, kinds, strict=True)))
    silent = pl.all_horizontal(kind.is_null() for kind in kinds)
    given_types = pl.when(silent).then(pl.coalesce("a_types", "g_types"))
    frame = frame.with_columns(
        gpus.alias("gpus"),
        pl.coalesce(types, given_types, pl.lit("")).alias("types"),
        pl.coalesce("a_cpus", "AllocCPUS", "NCPUS", "r_cpus", "ReqCPUS", 0).alias("cpus"),
        pl.any_horizontal("r_parts", "a_parts").fill_null(False).alias("parts"),
    )
    frame = frame.with_columns(_memory(cells, frame))
    return [frame[name] for name in ("gpus", "types", "cpus", "memory", "held_nodes", "asked_nodes", "parts")]


def _memory(cells: Cells, frame: pl.DataFrame) -> pl.Series:
    known = frame.select(pl.coalesce("a_memory", "r_memory").alias("memory")).to_series()
    if not cells.has("ReqMem"):
        return known.fill_null(0)
    cpus = frame.select(pl.coalesce("ReqCPUS", "r_cpus", "cpus", 1)).to_series().cast(pl.String)
    nodes = frame.select(pl.coalesce("asked_nodes", "held_nodes", 1)).to_series().cast(pl.String)
    unknown = cells.text("ReqMem").zip_with(known.is_null(), pl.Series([None], dtype=pl.String))
    keyed = Cells(pl.DataFrame({"ReqMem": unknown + " " + cpus + " " + nodes}))

    def total(key: str) -> int | None:
        text, own_cpus, own_nodes = key.rsplit(" ", 2)
        amount = slurm.requested_memory(text, int(own_cpus), int(own_nodes))
        return amount if amount is not None and amount <= 2**55 else None

    asked = keyed.looked_up("ReqMem", total, pl.Int64, "")
    cells.refuse(keyed.broken.is_not_null(), "ReqMem", "is not a size like 64G, 4Gc or 64Gn")
    return known.zip_with(known.is_not_null(), asked).fill_null(0).alias("memory")


def _owners(cells: Cells) -> list[pl.Series]:
    user = cells.text("User").zip_with(cells.text("User").is_not_null(), cells.text("UID")).fill_null("")
    account = cells.text("Account")
    named = account.zip_with(account.is_not_null(), user).fill_null("")
    return [
        named.to_frame("tenant")
        .select(pl.when(pl.first() == "").then(pl.lit("default")).otherwise("tenant"))
        .to_series()
        .alias("tenant"),
        user.alias("user"),
        cells.text("Partition").fill_null("").alias("partitions"),
        cells.text("QOS").fill_null("").alias("qos"),
        cells.number("Priority", 2**62).fill_null(0).alias("priority"),
        cells.number("Restarts").fill_null(0).alias("restarts"),
        cells.text("Reason").fill_null("").alias("reason"),
        cells.text("Reservation").fill_null("").alias("reservation"),
    ]


def _refuse_task_lists(cells: Cells, rows: pl.DataFrame) -> None:
    """Refuse an id like 123_[5-10], of tasks that never started, if it says not which, or they are not such tasks."""
    column = "JobID" if cells.has("JobID") else "JobIDRaw"
    listed = rows["id"].str.ends_with("]")
    cells.refuse(
        listed & ~rows["ghost"] & ~rows["waits"], column, "stands for several tasks, which cannot have run as one"
    )
    cut = "is cut short: dump it with SLURM_BITSTR_LEN=0"
    cells.refuse(listed & rows["id"].str.contains("...", literal=True), column, cut)

    shown = Cells(
        pl.DataFrame({"id": rows["id"].zip_with(listed.fill_null(False), pl.Series([None], dtype=pl.String))})
    )
    shown.looked_up("id", lambda text: True if tasks(text) else None, pl.Boolean, "")
    cells.refuse(shown.broken.is_not_null(), column, "is not a list of tasks like 123_[1-5,9]")


def tasks(text: str) -> tuple[str, ...]:
    """Return the ids behind ``123_[5-10%2]``; none where it is not understood."""
    array, _, inside = text.partition("_[")
    try:
        return tuple(f"{array}_{task}" for task in slurm_lists.tasks(inside.removesuffix("]")))
    except InputError:
        return ()


def until_limit(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows in which jobs that have not ended run until their time limit; one without is taken to have a year.

    ``ran``: how long those have run so far; null of jobs that ended.
    """
    is_open = pl.col("fate").is_in([_RUNNING, _WAITING])
    rows = rows.with_columns(
        pl.when(pl.col("estimate") > 0).then(pl.col("estimate")).otherwise(NO_LIMIT).alias("estimate"),
        pl.when(is_open).then(pl.max_horizontal("elapsed", SECOND)).alias("ran"),
    )
    lasts = pl.max_horizontal("estimate", pl.col("ran") + SECOND)
    return rows.with_columns(pl.when(is_open).then(lasts).otherwise("elapsed").alias("elapsed"))


def ended(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the fields of ``Job`` that say how long a job runs and how it ends, from its fate."""
    wait = pl.max_horizontal(pl.col("end") - pl.col("arrival"), SECOND)
    limit = pl.when(pl.col("estimate") > 0).then(pl.col("estimate"))
    length = pl.when(pl.col("ghost")).then(pl.min_horizontal(wait, limit)).otherwise(pl.col("elapsed"))
    outcome = (
        pl.when(pl.col("ghost") | pl.col("fate").is_in([_CANCELLED, _EVICTED]))
        .then(2)
        .when(pl.col("fate").is_in([_FAILED, _BROKEN]))
        .then(1)
        .otherwise(0)
    )
    rows = rows.with_columns(pl.max_horizontal(length, SECOND).alias("work"), outcome.cast(pl.Int64).alias("outcome"))
    return rows.with_columns(
        pl.when(pl.col("outcome") > 0).then(pl.col("work")).otherwise(0).alias("outcome_after"),
        pl.when(pl.col("ghost")).then(wait).otherwise(0).alias("patience"),
        pl.when(pl.col("outcome") == 1).then(pl.col("failures")).otherwise(0).alias("retries"),
    )
