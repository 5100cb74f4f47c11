"""Convert a table to jobs: type its columns one by one, and note every row that breaks a rule once.

A reader asks a ``Sheet`` for its columns, with the rule each must keep, and hands the typed columns back to
``trace``, which drops the bad rows, sorts, shifts the first submission to 0 and builds the jobs.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from math import isfinite
from typing import Any

import polars as pl

from headway.core.collector import no_collection
from headway.errors import TraceError, unknown_name
from headway.formats.dates import Calendar
from headway.formats.table import SURPLUS, Table, listed
from headway.jobs.model.job import Job, Outcome, broken_rule, workload
from headway.jobs.traces import submissions as terms
from headway.jobs.traces.build import build
from headway.jobs.traces.trace import Dropped, Trace
from headway.units import DAY

_TIME_DIGITS = 9
_SHOWN = 60
_APART = 365 * DAY
_FEW = 0.1


@cache
def _gpu_types(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(";") if part)


_DECODE: dict[str, Callable[[Any], Any]] = {"gpu_types": _gpu_types, "outcome": tuple(Outcome).__getitem__}
_BESIDE = ("start", "eligible")
"""Columns that are kept beside the jobs."""


def _why_no_number(text: str | None) -> str:
    if text is None:
        return "is empty"
    try:
        value = float(text)
    except ValueError:
        return "is not a number"
    return "is too large" if isfinite(value) else "is not a finite number"


def _why_not_whole(text: str | None) -> str:
    why = _why_no_number(text)
    return "is not a whole number" if why == "is too large" and text is not None and abs(float(text)) < 2**53 else why


class Sheet:
    """The rows of one file, and those of them that were found bad so far."""

    def __init__(self, table: Table, required: Iterable[str]) -> None:
        self._table = table
        self._bad: dict[int, tuple[str, str, bool]] = {}
        self.notes = list(table.notes)
        self.zone: str | None = None
        """Where times are dates: UTC for instants, empty for a clock that names no zone. None: they are no dates."""
        self.columns = [name for name in table.frame.columns if name != SURPLUS]
        for name in required:
            if name not in self.columns:
                raise TraceError(f"trace {table.path}: column {name!r} is missing (found: {listed(self.columns)})")
        if SURPLUS in table.frame.columns:
            rule = f"is a field too many: the header has {len(self.columns)}"
            self.drop(table.frame[SURPLUS].is_not_null(), SURPLUS, rule)

    @property
    def lines(self) -> pl.Series:
        """Return the line (of a Parquet file: the row) of each row."""
        return self._table.lines

    def only(self, valid: Iterable[str]) -> None:
        """Refuse columns that the format does not know."""
        names = set(valid)
        for name in self.columns:
            if name not in names:
                raise TraceError(f"trace {self._table.path}: {unknown_name('column', name, names)}")

    def drop(self, bad: pl.Series, column: str, rule: str | Callable[[str | None], str], *, fault: bool = True) -> None:
        """Note the rows where ``bad`` is true, unless they were noted before. Without ``fault`` they are no jobs, but
        nothing is wrong with them."""
        for position in bad.fill_null(False).arg_true().to_list():
            if position not in self._bad:
                text = rule if isinstance(rule, str) else rule(self._cell(column, position))
                self._bad[position] = (column, text, fault)

    def note(self, where: pl.Series, what: str) -> None:
        """Say of how many jobs something holds, among the rows that are not bad so far."""
        if count := int((where.fill_null(False) & self.sound()).sum()):
            self.notes.append(f"{count:,} job{'s' if count > 1 else ''} {what}")

    def _cell(self, column: str, position: int) -> str | None:
        value = self._table.frame[column][position] if column in self._table.frame.columns else None
        return None if value is None else str(value).strip() or None

    def _stripped(self, column: str) -> pl.Series:
        raw = self._table.frame[column].str.strip_chars()
        return raw.to_frame().select(pl.when(pl.first() != "").then(pl.first())).to_series()

    def text(self, column: str, *, default: str | None = None, strip: bool = True) -> pl.Series:
        """Return a column of text; an empty cell takes the default, or is bad where there is none."""
        values = self._stripped(column) if strip else self._table.frame[column]
        if default is not None:
            return values.fill_null(default)
        self.drop(values.is_null(), column, "is empty")
        return values

    def fixed(self, column: str, digits: int, *, least: int | None = None, default: int | None = None) -> pl.Series:
        """Return decimal numbers as integers in units of 10**-digits, exactly; ``least`` is in those units."""
        raw = self._stripped(column)
        values = raw.cast(pl.Decimal(38, digits), strict=False).to_physical().cast(pl.Int64, strict=False)
        self._drop_unread(raw, values, column, _why_no_number, default)
        if least is not None:
            rule = "must be above 0" if least == 1 else f"must be at least {least / 10**digits:g}"
            self.drop(values < least, column, rule)
        return values if default is None else values.fill_null(default)

    def time(self, column: str, *, least: int | None = None, default: int | None = None) -> pl.Series:
        """Return a column of seconds as nanoseconds."""
        return self.fixed(column, _TIME_DIGITS, least=least, default=default)

    def whole(self, column: str, *, least: int | None = None, default: int | None = None) -> pl.Series:
        """Return a column of whole numbers; ``2.0`` counts as one, ``2.5`` does not."""
        raw = self._stripped(column)
        exact, rough = raw.cast(pl.Int64, strict=False), raw.cast(pl.Float64, strict=False)
        integral = (rough == rough.floor()) & (rough.abs() < 2.0**53)
        floats = rough.zip_with(integral.fill_null(False), pl.Series([None], dtype=pl.Float64))
        values = exact.zip_with(exact.is_not_null(), floats.cast(pl.Int64, strict=False))
        self._drop_unread(raw, values, column, _why_not_whole, default)
        if least is not None:
            self.drop(values < least, column, f"must be at least {least}")
        return values if default is None else values.fill_null(default)

    def gpus(self, column: str) -> pl.Series:
        """Return the GPUs of a format that is about jobs with GPUs: a job without any is left out."""
        values = self.whole(column, least=0)
        self.drop(values == 0, column, "must be at least 1", fault=False)
        return values

    def _drop_unread(
        self, raw: pl.Series, values: pl.Series, column: str, why: Callable[[str | None], str], default: int | None
    ) -> None:
        self.drop(values.is_null() if default is None else values.is_null() & raw.is_not_null(), column, why)

    def choice(self, column: str, meanings: Mapping[str, Any], default: Any) -> pl.Series:
        """Return a column of a few words, in any case, as their meanings."""
        raw = self._stripped(column).str.to_lowercase()
        self.drop(~raw.is_in(list(meanings)), column, f"must be one of {', '.join(meanings)}")
        dtype = pl.Boolean if isinstance(default, bool) else pl.Int64
        return raw.replace_strict(dict(meanings), default=None, return_dtype=dtype).fill_null(default)

    def trace(
        self,
        format: str,
        fields: Mapping[str, pl.Series],
        *,
        strict: bool,
        id_column: str = "",
        in_order: bool = True,
    ) -> Trace:
        """Return the trace, from a column a field of ``Job``. Where ``id_column`` is named, ids must be unique.

        Columns ``start`` and ``eligible``, on the clock of ``submit``, are when each job really started and became
        eligible; they are kept beside the jobs. Columns of ``submissions.COLUMNS`` become the terms of jobs.
        With ``in_order`` a file of this format is expected to be sorted: ``strict`` then refuses one that is not.
        """
        if id_column:
            self._drop_repeated(fields["name"], id_column)
        frame = pl.DataFrame({name: series.alias(name) for name, series in fields.items() if name not in _BESIDE})
        jobs = self._jobs(frame, strict)
        if strict and in_order:
            self._refuse_unsorted(frame["submit"])
        self._note_apart(frame["submit"])
        starts, eligible = (
            self._times(frame, fields[each]) if {each, "name"} <= set(fields) else {} for each in _BESIDE
        )
        # Checked, in order and numbered they are; names that must be unique were looked at above.
        kept = tuple(jobs) if id_column else workload(jobs)
        return Trace(
            kept,
            format,
            frame.height,
            self.dropped,
            tuple(self.notes),
            starts,
            calendar=self._calendar(frame),
            eligible=eligible,
        )

    def _calendar(self, frame: pl.DataFrame) -> Calendar | None:
        if self.zone is None:
            return None
        first = frame.filter(self.sound())["submit"].min()
        assert isinstance(first, int)
        return Calendar(first, instants=bool(self.zone))

    def _times(self, frame: pl.DataFrame, times: pl.Series) -> dict[str, int]:
        kept = frame.select("name", "submit", times.alias("time")).filter(self.sound())
        known = kept.with_columns(pl.col("time") - pl.col("submit").min()).drop_nulls("time")
        return dict(known.select("name", "time").iter_rows())

    def kept(self, frame: pl.DataFrame, *, strict: bool) -> pl.DataFrame:
        """Return the sound rows of columns made from this sheet, for traces of other things than jobs."""
        self._refuse(strict)
        return frame.filter(self.sound())

    def _note_apart(self, submit: pl.Series) -> None:
        """Say where a few jobs were submitted years away from the others; a run would idle all that time."""
        times = pl.DataFrame({"line": self.lines, "submit": submit}).filter(self.sound()).sort("submit")
        groups = times.with_columns((pl.col("submit").diff() > _APART).fill_null(False).cum_sum().alias("group"))
        if groups["group"][-1] == 0:
            return
        away = groups.filter(pl.col("group") != groups["group"].mode()[0])
        if away.height > groups.height * _FEW:
            return
        who = f"{away.height:,} job{'s were' if away.height > 1 else ' was'}"
        where = f"{self._table.place} {away['line'].sort()[0]}{' first' if away.height > 1 else ''}"
        self.notes.append(f"{who} submitted over a year from the others ({where}): a clock that jumped?")

    def _drop_repeated(self, names: pl.Series, column: str) -> None:
        sound = self.sound() & (names != "")
        again = sound.to_frame("sound").with_columns(names.alias("name"))
        repeated = again.select(pl.col("sound") & ~pl.struct("name", "sound").is_first_distinct()).to_series()
        self.drop(repeated, column, "occurs twice: ids must be unique")

    def sound(self) -> pl.Series:
        """Return whether nothing was noted about a row so far."""
        mask = pl.repeat(True, self._table.frame.height, eager=True).alias("sound")
        return mask.scatter(list(self._bad), False) if self._bad else mask

    def _jobs(self, frame: pl.DataFrame, strict: bool) -> list[Job]:
        """Return jobs of the sound rows, in order of submission; rows that are bad only in combination are dropped."""
        self._refuse(strict)
        kept = frame.with_row_index("position").filter(self.sound())
        ordered = kept if kept["submit"].is_sorted() else kept.sort("submit", maintain_order=True)
        jobs = _built(ordered)
        with no_collection():
            broken = [(at, rule) for at, job in enumerate(jobs) if (rule := broken_rule(job)) is not None]
        if broken:
            self._bad.update({ordered["position"][at]: ("row", rule, True) for at, rule in broken})
            return self._jobs(frame, strict)
        if ordered is not kept:
            self.notes.append("the file is not sorted by submit time: sorted")
        return jobs

    def _refuse_unsorted(self, submit: pl.Series) -> None:
        late = (submit.diff() < 0).fill_null(False).arg_true()
        if len(late):
            place = f"{self._table.place} {self.lines[late[0]]}"
            raise TraceError(f"trace {self._table.path}: is not sorted: {place} was submitted before the one above it")

    def _refuse(self, strict: bool) -> None:
        if not self._bad or (not strict and len(self._bad) < self._table.frame.height):
            return
        first = str(self.dropped[0]).replace("line", self._table.place, 1)
        prefix = "" if strict else f"all {self._table.frame.height} rows are bad; the first is "
        raise TraceError(f"trace {self._table.path}: {prefix}{first}")

    @property
    def dropped(self) -> tuple[Dropped, ...]:
        """Return the bad rows found so far, in order."""
        return tuple(self._explain(position, *self._bad[position]) for position in sorted(self._bad))

    def _explain(self, position: int, column: str, rule: str, fault: bool) -> Dropped:
        value = self._cell(column, position) or ""
        shown = value if len(value) <= _SHOWN else value[:_SHOWN] + "…"
        return Dropped(self.lines[position], "row" if column == SURPLUS else column, shown, rule, fault)


def _built(ordered: pl.DataFrame) -> list[Job]:
    columns: dict[str, Any] = {name: ordered[name] for name in ordered.columns if name != "position"}
    columns["submit"] = ordered["submit"] - ordered["submit"].min()
    columns = {name: series.to_list() for name, series in columns.items()}
    if not columns.keys().isdisjoint(terms.COLUMNS):
        first = ordered["submit"].min()
        assert isinstance(first, int)
        columns["terms"] = terms.built(columns, columns["submit"], first)
    for name, decode in _DECODE.items():
        if name in columns:
            columns[name] = list(map(decode, columns[name]))
    return build(ordered.height, columns)
