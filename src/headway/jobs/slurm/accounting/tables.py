"""Convert what any Slurm command wrote about jobs to one table with the columns of ``sacct``.

``sacct --parsable2`` is such a table; ``scontrol show job`` and the log of jobcomp/filetxt are lines of ``Key=value``;
``sacct --json`` and ``squeue --json`` are JSON. Nothing is judged here, only brought into one shape.
"""

import re
from pathlib import Path

import polars as pl

from headway.core.collector import no_collection
from headway.errors import InputError, TraceError
from headway.formats.head import Head, head_of
from headway.formats.table import SURPLUS, Table, csv_table, mapped, text
from headway.jobs.slurm.output import jobs_json as slurm_jobs

COLUMNS = (
    *slurm_jobs.TEXTS,
    *slurm_jobs.NUMBERS,
    *(
        "SubmitLine",
        "JobName",
        "Licenses",
        "Dependency",
        "ArrayTaskThrottle",
        "Nice",
        "JobIDRaw",
        "Elapsed",
        "Timelimit",
        "UID",
        "AllocGRES",
        "AllocCPUS",
        "NCPUS",
        "ReqMem",
        "AllocNodes",
        "ReqNodes",
    ),
)
"""Every column that means something here; others are ignored."""

_RECORD = "JobId="
_LAYOUTS = 6
_KEYS = {
    "JobIDRaw": "JobId",
    "Array": "ArrayJobId",
    "Task": "ArrayTaskId",
    "Het": "HetJobId",
    "Offset": "HetJobOffset",
    "Cluster": "Cluster",
    "Submit": "SubmitTime",
    "Eligible": "EligibleTime",
    "Start": "StartTime",
    "End": "EndTime",
    "Elapsed": "RunTime",
    "Timelimit": "TimeLimit",
    "State": "JobState",
    "Partition": "Partition",
    "QOS": "QOS",
    "Account": "Account",
    "User": "UserId",
    "Priority": "Priority",
    "ReqTRES": "(?:ReqTRES|Tres)",
    "AllocTRES": "(?:AllocTRES|TRES)",
    "ReqGRES": "TresPerNode",
    "JobGRES": "TresPerJob",
    "TaskGRES": "TresPerTask",
    "NTasks": "NumTasks",
    "AllocCPUS": "(?:NumCPUs|ProcCnt)",
    "NNodes": "(?:NumNodes|NodeCnt)",
    "NodeList": "NodeList",
    "Restarts": "Restarts",
    "Reason": "Reason",
    "Reservation": "Reservation",
    "JobName": "JobName",
    "Licenses": "Licenses",
    "ArrayTaskThrottle": "ArrayTaskThrottle",
    "Nice": "Nice",
}
"""Where ``scontrol show job`` and jobcomp/filetxt keep what ``sacct`` calls otherwise."""


def recognises(head: Head) -> bool:
    """Return whether a file begins like one of these."""
    if head.json:
        told = any(f'"{key}"' in head.text for key in ("association", "job_state", "tres"))
        return told and '"jobs"' in head.text
    if head.first_line.startswith(_RECORD):
        return True
    names = {name.lower() for name in head.columns("|")}
    return len(names) > 1 and not names.isdisjoint({"jobid", "jobidraw"})


def table(path: Path) -> Table:
    """Return the rows of a file; those of ``sacct`` steps are still among them."""
    head = head_of(path)
    if head.json:
        return _from_json(path)
    if head.first_line.startswith(_RECORD):
        return _from_records(path)
    if "|" not in head.first_line and "JobID" in head.first_line:
        raise TraceError(f"trace {path}: is sacct output in columns of spaces: write it with sacct --parsable2")
    return _from_sacct(path)


def _from_sacct(path: Path) -> Table:
    read = csv_table(path, separator="|")
    known = {name.lower(): name for name in COLUMNS}
    names = {name: known.get(name.lower(), name) for name in read.frame.columns if name != SURPLUS}
    if len(set(names.values())) < len(names):
        raise TraceError(f"trace {path}: a column occurs twice in the header, in different spelling")
    frame = read.frame.rename(names)
    if SURPLUS in frame.columns and names and list(names.values())[-1] == "SubmitLine":
        frame = frame.drop(SURPLUS)  # the rest of a command with a | in it
    if SURPLUS in frame.columns:  # with --parsable each line ends in a separator, and so in an empty field
        frame = frame.with_columns(pl.col(SURPLUS).str.strip_chars().replace("", None))
    return Table(path, frame, read.lines, read.place, read.notes)


def _from_json(path: Path) -> Table:
    try:
        with no_collection():
            columns = slurm_jobs.read(mapped(path))
    except InputError as problem:
        raise TraceError(f"trace {path}: {problem}") from None
    if not columns:
        raise TraceError(f"trace {path}: holds no job")
    texts = [pl.Series(name, columns[name], dtype=pl.String) for name in slurm_jobs.TEXTS]
    numbers = [pl.Series(name, columns[name], dtype=pl.Int64) for name in slurm_jobs.NUMBERS]
    frame = pl.DataFrame([*texts, *numbers])
    return Table(path, frame, pl.Series("line", range(1, frame.height + 1), dtype=pl.Int64), place="job")


def _from_records(path: Path) -> Table:
    content = text(path).replace("\r\n", "\n").replace("\t", " ")
    lines = pl.DataFrame({"text": content.split("\n")}).with_row_index("line", offset=1)
    lines = lines.filter(pl.col("text").str.strip_chars() != "").cast({"line": pl.Int64})
    # Without -o a job goes on in lines that are indented.
    opens = ~pl.col("text").str.contains(r"^\s")
    if not lines.select(opens.all()).item():
        jobs = lines.group_by(opens.cum_sum().alias("job"), maintain_order=True)
        lines = jobs.agg(pl.col("line").first(), pl.col("text").str.join(" "))
    frame = _values(lines["text"]).with_columns(pl.col("User").str.replace(r"\(\d+\)$", ""), _id().alias("JobID"))
    return Table(path, frame.drop("Array", "Task", "Het", "Offset"), lines["line"])


def _values(records: pl.Series) -> pl.DataFrame:
    """Return the values of ``_KEYS`` in each record.

    Records that one command wrote have their keys at the same places, apart from those of array tasks and the like.
    Cutting at blanks and taking what is at these places needs a fifth of the time of searching each record for each
    key, which is left for the records that are like no other.
    """
    left = pl.DataFrame({"text": records, "words": records.str.split(" ")}).with_row_index("row")
    values = []
    for _ in range(_LAYOUTS):
        if left.is_empty():
            break
        cells, alike = _at_places(left["words"][0])
        like = left.select(alike.fill_null(False)).to_series()
        values.append(left.filter(like).select("row", **cells))
        left = left.filter(~like)
    values.append(left.select("row", **{name: _searched(name) for name in _KEYS}))
    return pl.concat(values).sort("row").drop("row")


def _at_places(words: pl.Series) -> tuple[dict[str, pl.Expr], pl.Expr]:
    """Return what to read where in records that are like this one, and which those are."""
    places: dict[str, int] = {}
    for place, word in enumerate(words):
        places.setdefault(word.partition("=")[0], place)
    cells, alike = {}, pl.col("words").list.len() == len(words)
    for name, pattern in _KEYS.items():
        key = next((key for key in places if re.fullmatch(pattern, key)), None)
        if key is None:
            cells[name] = _searched(name)
            continue
        word = pl.col("words").list.get(places[key], null_on_oob=True)
        cells[name] = word.str.strip_prefix(f"{key}=")
        alike &= word.str.starts_with(f"{key}=")
    return cells, alike


def _searched(name: str) -> pl.Expr:
    # A blank before the key is literal text to look for, much faster than a choice; the id has none: it comes first.
    return pl.col("text").str.extract(rf"{'^' if name == 'JobIDRaw' else ' '}{_KEYS[name]}=(\S*)")


def _id() -> pl.Expr:
    """Return a job's id: ``3_1``, ``3_[5-10%2]``, ``6+1`` or the plain number."""
    array, task, het, offset = (pl.col(name) for name in ("Array", "Task", "Het", "Offset"))
    one = task.str.contains(r"^\d+$")
    return (
        pl.when((array != "0") & one)
        .then(array + "_" + task)
        .when((array != "0") & task.is_not_null() & (task != "N/A"))
        .then(array + "_[" + task + "]")
        .when((het != "0") & offset.is_not_null())
        .then(het + "+" + offset)
        .otherwise(pl.col("JobIDRaw"))
    )
