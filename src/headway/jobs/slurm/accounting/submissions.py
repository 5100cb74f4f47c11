"""Find what Slurm's jobs waited for and counted under: dependencies, --begin, --nice, licences, throttles of arrays.

It stands in the command of a submission (SubmitLine), or in columns of its own. A dependency is followed where all its
jobs are in the file and the record does not contradict it: such a job is submitted when it was, and is eligible when
those jobs have ended in the simulation. Any other job arrives when it was eligible, as recorded.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from headway.jobs.model.submission import AFTER, AFTER_ANY, AFTER_OK, SINGLETON, Clause, Dependency, dependency
from headway.jobs.slurm.accounting.cells import FATES, Cells
from headway.jobs.slurm.accounting.submit_line import OPTIONS, WRAPPED
from headway.jobs.slurm.output.cells import Fate
from headway.units import MINUTE

LINE = "SubmitLine"
_ANY = rf"\s(?:{'|'.join(OPTIONS.values())})(?:\s|$)"
"""Any of the options: most lines have none."""
_VALUES = {"dependency": "dependency", "nice": "nice", "licences": "licences", "throttle": "array throttle"}
_PLAIN_NICE = "100"
_FINISHED = FATES.index(Fate.FINISHED)
_SLACK = MINUTE
"""Slurm looks at dependencies from time to time, and ends are written down late."""
COLUMNS = ("after", "begin", "series", "array", "throttle", "licences", "nice")
FOLLOWED, ABSENT, CONTRADICTED, UNREAD = "followed", "absent", "contradicted", "unread"


def options(frame: pl.DataFrame) -> pl.Series:
    """Return which options the line of each row has: a bit for each of ``OPTIONS``, in their order."""
    found = pl.zeros(frame.height, dtype=pl.Int32, eager=True).alias("options")
    if not _has_lines(frame):
        return found
    likely, text = _likely(frame[LINE])
    bits = pl.DataFrame({"text": text}).select(
        pl.sum_horizontal(
            pl.col("text").str.contains(rf"\s{pattern}(?:\s|$)").cast(pl.Int32) * (1 << place)
            for place, pattern in enumerate(OPTIONS.values())
        ).alias("options")
    )
    return found.scatter(likely.arg_true(), bits["options"])


def _has_lines(frame: pl.DataFrame) -> bool:
    return LINE in frame.columns and frame[LINE].null_count() < frame.height


def _likely(lines: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return which lines may have an option at all, and those without the job's own command."""
    likely = lines.str.contains(_ANY).fill_null(False)
    return likely, own_part(lines.filter(likely))


def own_part(lines: pl.Series) -> pl.Series:
    """Return commands of submissions without the job's own command; the texts are copied only where one has any."""
    wrapped = lines.str.contains("--wrap", literal=True)
    return lines.str.replace(WRAPPED, "") if wrapped.any() else lines


def asked(frame: pl.DataFrame, cells: Cells) -> list[pl.Series]:
    """Return what jobs asked for, as text: dependency, nice, licences, throttle and the job's name; null: nothing."""
    found = {name: pl.Series(name, [None], dtype=pl.String).new_from_index(0, frame.height) for name in _VALUES}
    if _has_lines(frame):
        likely, text = _likely(frame[LINE])
        for name, option in _VALUES.items():
            values = text.str.extract(rf"\s{OPTIONS[option]}(?:\s|$)", 1)
            if option == "nice":
                bare = text.str.contains(r"\s--nice(?:\s|$)").fill_null(False)
                values = values.zip_with(values.is_not_null() | ~bare, pl.Series([_PLAIN_NICE]))
            found[name] = found[name].scatter(likely.arg_true(), values).alias(name)
    columns = {"nice": "Nice", "licences": "Licenses", "throttle": "ArrayTaskThrottle", "dependency": "Dependency"}
    for name, column in columns.items():
        if cells.has(column):
            found[name] = cells.text(column).zip_with(cells.text(column).is_not_null(), found[name]).alias(name)
    if cells.has("ReqTRES") and (tres := cells.text("ReqTRES")).str.contains("license/", literal=True).any():
        listed = tres.str.extract_all(r"license/[^=,]+=\d+").list.join(",")
        listed = listed.str.replace_all("license/", "", literal=True).str.replace_all("=", ":", literal=True)
        told = (listed != "").fill_null(False)
        found["licences"] = listed.zip_with(told, found["licences"]).alias("licences")
    return [*found.values(), _job_names(frame, cells).alias("job_name")]


def _job_names(frame: pl.DataFrame, cells: Cells) -> pl.Series:
    """Return names of jobs: of their column, else as the command gives them."""
    if cells.has("JobName") or not _has_lines(frame):
        return cells.text("JobName")
    return own_part(frame[LINE]).str.extract(r"\s(?:--job-name[= ]|-J ?)(\S+)", 1)


@dataclass(frozen=True, slots=True)
class _Record:
    """What happened to a job."""

    position: int
    start: int | None
    end: int | None
    finished: bool


def with_terms(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with ``COLUMNS`` where jobs have any, ``eligible`` as recorded, and how far each dependency goes.

    ``arrival`` becomes the submission of jobs whose wait before they were eligible is followed.
    """
    rows = rows.with_columns(pl.col("arrival").alias("eligible"), pl.lit("").alias("dependence"))
    rows = rows.with_columns(_counted(rows))
    begins = _bit("begin") & pl.col("dependency").is_null() & (pl.col("arrival") > pl.col("submit"))
    rows = rows.with_columns(pl.when(begins).then("eligible").alias("begin"))
    rows = rows.with_columns(pl.when(begins).then("submit").otherwise("arrival").alias("arrival"))
    if rows["dependency"].null_count() == rows.height:
        return rows.with_columns(pl.lit("").alias("after"), pl.lit("").alias("series"))
    return _Dependencies(rows).applied()


def _bit(option: str) -> pl.Expr:
    return (pl.col("options") & (1 << list(OPTIONS).index(option))) != 0


def _counted(rows: pl.DataFrame) -> list[pl.Expr]:
    """Return the array, its throttle, licences and nice of each row."""
    most = pl.col("throttle").cast(pl.Int64, strict=False).fill_null(0)
    array = pl.col("id").str.extract(r"^(.*?)_\d+$")
    throttled = array.is_not_null() & (most > 0)
    sound = pl.col("licences").str.contains(r"^[^:,@\s]+(?::\d{1,8})?(?:,[^:,@\s]+(?::\d{1,8})?)*$").fill_null(False)
    none = pl.col("licences").str.contains(r":0+(?:,|$)").fill_null(False)
    return [
        pl.when(throttled).then(array).otherwise(pl.lit("")).alias("array"),
        pl.when(throttled).then(most).otherwise(0).alias("throttle"),
        pl.when(sound & ~none).then("licences").otherwise(pl.lit("")).alias("licences"),
        pl.col("nice").cast(pl.Int64, strict=False).fill_null(0).alias("nice"),
    ]


class _Dependencies:
    """The dependencies of a file, against its records."""

    def __init__(self, rows: pl.DataFrame) -> None:
        self._rows = rows
        sound = rows.with_row_index("at").filter(pl.col("broken").is_null())
        cells = sound.select("id", "at", "first_start", "end", pl.col("fate") == _FINISHED).iter_rows()
        self._jobs = {name: _Record(*rest) for name, *rest in cells}
        arrays = pl.col("id").str.extract(r"^(.*?)_\d+$").alias("array")
        tasks = sound.select(arrays, "id").drop_nulls().group_by("array", maintain_order=True).agg("id")
        self._tasks: dict[str, list[str]] = dict(tasks.iter_rows())
        self._needed: set[str] = set()
        """Arrays that somebody waits for."""

    def applied(self) -> pl.DataFrame:
        """Return the rows with what they wait for."""
        rows, height = self._rows, self._rows.height
        after, states = [""] * height, [""] * height
        for at, (name, text, broken) in enumerate(rows.select("id", "dependency", "broken").iter_rows()):
            if text is not None and broken is None:
                states[at], after[at] = self._followed(name, text)
        made = rows.with_columns(pl.Series("after", after), pl.Series("dependence", states), self._array(rows))
        series = self._series(made)
        lost = (pl.Series(after) == SINGLETON) & (series == "")
        made = made.with_columns(
            series,
            pl.when(lost).then(pl.lit("")).otherwise("after").alias("after"),
            pl.when(lost).then(pl.lit(UNREAD)).otherwise("dependence").alias("dependence"),
        )
        followed = pl.col("after") != ""
        return made.with_columns(pl.when(followed).then("submit").otherwise("arrival").alias("arrival"))

    def _followed(self, name: str, text: str) -> tuple[str, str]:
        """Return how far a dependency is followed, and as what."""
        try:
            wanted = dependency(_afterok(name, text))
        except ValueError:
            return UNREAD, ""
        mine = [clause.condition == SINGLETON for clause in wanted.clauses]
        if any(mine) and not all(mine):
            return UNREAD, ""
        if any(self._members(clause) is None for clause in wanted.clauses):
            return ABSENT, ""
        if not all(mine) and not self._agrees(name, wanted):
            return CONTRADICTED, ""
        self._needed |= {clause.job for clause in wanted.clauses if clause.job not in self._jobs}
        return FOLLOWED, str(wanted)

    def _members(self, clause: Clause) -> list[str] | None:
        """Return the jobs behind a condition; None where one is not in the file."""
        if clause.condition == SINGLETON or clause.job in self._jobs:
            return [clause.job]
        return self._tasks.get(clause.job)

    def _agrees(self, name: str, wanted: Dependency) -> bool:
        """Return whether a job that started did so only when its dependency was met, by the record."""
        start = self._jobs[name].start
        if start is None:
            return True
        held = [self._held(clause, start) for clause in wanted.clauses]
        return any(held) if wanted.one_is_enough else all(held)

    def _held(self, clause: Clause, start: int) -> bool:
        records = [self._jobs[member] for member in self._members(clause) or ()]
        if clause.condition == AFTER:
            times = [each.end if each.start is None else each.start for each in records]
            return all(time is not None and time + clause.delay <= start + _SLACK for time in times)
        if any(each.end is None or each.end > start + _SLACK for each in records):
            return False
        return clause.condition == AFTER_ANY or all(each.finished for each in records) == (clause.condition == AFTER_OK)

    def _array(self, rows: pl.DataFrame) -> pl.Series:
        """Return arrays with those that somebody waits for as a whole."""
        names = rows["id"].str.extract(r"^(.*?)_\d+$")
        needed = names.is_in(list(self._needed)).fill_null(False)
        return names.zip_with(needed, rows["array"]).alias("array")

    @staticmethod
    def _series(rows: pl.DataFrame) -> pl.Series:
        """Return user and name of the jobs that a singleton may have to wait for."""
        named = rows["user"] + "/" + rows["job_name"]
        wanted = named.filter(rows["after"] == SINGLETON).drop_nulls().unique()
        chosen = named.is_in(wanted.implode()).fill_null(False)
        return named.zip_with(chosen, pl.Series([""])).fill_null("").alias("series")


def _afterok(name: str, text: str) -> str:
    """Return a dependency with ``aftercorr`` as what it is for one task: its like in the other array has finished."""
    text = text.replace("(unfulfilled)", "").replace("(failed)", "")
    parts = text.split("?" if "?" in text else ",")
    task = name.rpartition("_")[2]
    made = [_corresponding(part, task) if part.startswith("aftercorr:") else part for part in parts]
    return ("?" if "?" in text else ",").join(made)


def _corresponding(part: str, task: str) -> str:
    return ":".join(("afterok", *(f"{array}_{task}" for array in part.split(":")[1:])))


def fields(rows: pl.DataFrame) -> dict[str, pl.Series]:
    """Return those of ``COLUMNS`` in which any job has something."""
    plain: Mapping[str, object] = {"throttle": 0, "nice": 0}
    return {
        name: rows[name]
        for name in COLUMNS
        if (rows[name].is_not_null() if name == "begin" else rows[name] != plain.get(name, "")).any()
    }


def told(rows: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame, str]]:
    """Yield each option that jobs were submitted with, those jobs, and what becomes of it."""
    for option in OPTIONS:
        chosen = rows.filter(_bit(option) | (pl.col("dependence") != "" if option == "dependency" else False))
        if option == "dependency":
            for state, happens in _DEPENDENCIES.items():
                yield option, chosen.filter(pl.col("dependence") == state), happens
        else:
            yield option, chosen, _HAPPENS.get(option, "not followed")


_RECORDED = "followed as recorded, they arrive when they were eligible"
_DEPENDENCIES = {
    FOLLOWED: "followed: they wait for these jobs in the simulation too",
    ABSENT: f"on jobs that are not in the file: {_RECORDED}",
    CONTRADICTED: f"which they did not keep to: {_RECORDED}",
    UNREAD: f"of a kind that is not simulated: {_RECORDED}",
}
_HAPPENS = {
    "begin": "followed: they are not eligible before it",
    "exclusive": "followed: they hold what they were given",
    "reservation": "followed where the reservation is described (scontrol show reservation)",
    "array throttle": "followed",
    "nice": "followed by policies with Slurm's priorities",
    "licences": "followed where the cluster says how many there are (Licenses in slurm.conf, or a limit)",
}
