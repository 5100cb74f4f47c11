"""Read any table of jobs, CSV or Parquet: a mapping says which column is what, ``gpus=num_gpus,submit=timestamp,…``.

A field is one of ``Job``, or ``start`` and ``end``, whose difference is the work. Times are numbers (seconds, or what
the map says: ``submit=created:ms``) or stamps; spans are numbers or ``[days-]hours:minutes:seconds``. Which of them a
column holds is decided by most of its cells. An empty cell takes the field's default, where it has one. The map itself
is read by ``mapping``.
"""

from dataclasses import replace
from pathlib import Path

import polars as pl

from headway.errors import ExperimentError
from headway.formats import times as clock
from headway.formats.head import Head
from headway.formats.table import SURPLUS, Table, contents, csv_table, parquet_table, text
from headway.jobs.model.job import Outcome
from headway.jobs.traces.build import DEFAULTS
from headway.jobs.traces.lifetimes import ending
from headway.jobs.traces.mapping import EXAMPLE, FLAGS, KINDS, STATES, Mapped, mapping
from headway.jobs.traces.sheet import Sheet
from headway.jobs.traces.trace import Trace
from headway.units import SECOND, WHOLE_GPU_MILLI

__all__ = ["KINDS", "NAME", "header", "read", "recognises"]

NAME = "table"
SEPARATORS = (",", ";", "\t", "|")
_MOST = 2**63 - 1
_NOTHING = pl.Series([None], dtype=pl.Int64)
_NO_TEXT = pl.Series([None], dtype=pl.String)
_NAMED = 5
"""So many unknown words are named."""


def recognises(head: Head) -> bool:
    """Return False: without a mapping nobody knows what the columns mean."""
    return False


def header(head: Head) -> list[str]:
    """Return the names in the first line of a text that could be a table; none for other files."""
    if head.parquet or head.json:
        return []
    return [name.strip().strip('"') for name in head.first_line.split(_separator(head.first_line))]


def _separator(first: str) -> str:
    return max(SEPARATORS, key=first.count)


def _table(path: Path) -> Table:
    if contents(path)[:4] == b"PAR1":
        return parquet_table(path)
    return csv_table(path, separator=_separator(text(path).partition("\n")[0]), multiline=True)


class _Reading:
    """A sheet whose columns are found by field."""

    def __init__(self, table: Table, fields: dict[str, Mapped]) -> None:
        constants = [pl.lit(each.constant).alias(each.column) for each in fields.values() if each.constant is not None]
        open_ended = [each.column for each in fields.values() if each.edge]
        frame = table.frame.with_columns(constants)
        blanks = [
            frame[column].zip_with(~clock.absent(frame[column].str.strip_chars()), _NO_TEXT) for column in open_ended
        ]
        self.sheet = Sheet(replace(table, frame=frame.with_columns(blanks)), ())
        self.fields = fields

    def refuse_constants(self) -> None:
        """Refuse a value of the map that breaks a rule: it would break it in every row."""
        constants = {each.column: each for each in self.fields.values() if each.constant is not None}
        for dropped in self.sheet.dropped if constants else ():
            if dropped.column in constants:
                raise ExperimentError(f"map: {constants[dropped.column].field} {dropped.value!r} {dropped.rule}")

    def typed(self, mapped: Mapped) -> pl.Series:
        """Return a column as the values of its field."""
        match mapped.kind:
            case "span":
                return self.span(mapped, default=None if mapped.field == "work" else DEFAULTS[mapped.field])
            case "whole":
                return self.sheet.whole(mapped.column, least=0, default=DEFAULTS[mapped.field])
            case "any whole":
                return self.sheet.whole(mapped.column, default=DEFAULTS[mapped.field])
            case "cpus":
                return self.scaled(mapped.column, mapped.unit or 1000, least=0, default=0)
            case "share":
                return self.sheet.fixed(mapped.column, 6, least=0, default=0)
            case "size":
                return self.scaled(mapped.column, mapped.unit or 1, default=0)
            case "flag":
                return self.sheet.choice(mapped.column, FLAGS, DEFAULTS[mapped.field])
            case "state":
                return self.outcome(mapped)
            case _:
                default = "" if mapped.field == "gpu_types" else DEFAULTS[mapped.field]
                return self.sheet.text(mapped.column, default=default)

    def outcome(self, mapped: Mapped) -> pl.Series:
        """Return outcomes by word: as the map says, else the usual one. A job whose end is not known was running."""
        running = {"running": int(Outcome.FINISHES)} if "end" in self.fields and self.fields["end"].edge else {}
        meanings = {**STATES, **running, **mapped.words}
        cells = self.sheet.text(mapped.column, default="")
        words = cells.str.to_lowercase().str.replace_all(r"[\s_-]+", "_")
        unknown = (cells != "") & ~words.is_in(list(meanings))
        named = [" ".join(word.split())[:20] for word in cells.filter(unknown).unique(maintain_order=True)[:_NAMED]]
        example = f"outcome={mapped.column}:{(named or [''])[0]}=completed"
        rule = f"is no outcome that is known (such are: {', '.join(named)}): say what each means, e.g. {example}"
        self.sheet.drop(unknown, mapped.column, rule)
        codes = words.replace_strict(meanings, default=None, return_dtype=pl.Int64)
        return codes.fill_null(int(Outcome.FINISHES))

    def scaled(self, column: str, unit: int, *, least: int | None = None, default: int | None = None) -> pl.Series:
        """Return decimal numbers of a unit as integers, exactly: digits first, then what is left of the unit."""
        digits = 0
        while unit % 10 == 0 and digits < 9:
            unit, digits = unit // 10, digits + 1
        values = self.sheet.fixed(column, digits, least=least, default=default)
        self.sheet.drop(values.abs() > _MOST // unit, column, "is too large")
        return values * unit

    def numeric(self, mapped: Mapped) -> bool:
        """Return whether a column holds numbers, as its unit says or as most of its cells do."""
        cells = self.sheet.text(mapped.column, default="")
        given = cells.filter(cells != "")
        return bool(mapped.unit) or 2 * given.cast(pl.Float64, strict=False).is_not_null().sum() > len(given)

    def moments(self, names: tuple[str, ...]) -> dict[str, pl.Series]:
        """Return times that are numbers or stamps in nanoseconds; empty starts and ends are null."""
        mapped = [self.fields[name] for name in names if name in self.fields]
        numbers = {each.field: each for each in mapped if self.numeric(each)}
        self.same_clock(mapped, numbers)
        written = [each.column for each in mapped if each.field not in numbers]
        stamps = clock.stamps(self.sheet, written, [each.column for each in mapped if each.edge])
        times = {each.field: stamps[each.column] for each in mapped if each.field not in numbers}
        for name, each in numbers.items():
            values = self.scaled(each.column, each.unit or SECOND, default=0 if each.edge else None)
            times[name] = values.zip_with(~self.blank(name), _NOTHING)
        return times

    def same_clock(self, mapped: list[Mapped], numbers: dict[str, Mapped]) -> None:
        """Refuse to take the edge of a record from some times that are numbers and some that are stamps."""
        if any(each.edge for each in mapped) and 0 < len(numbers) < len(mapped):
            stamp = next(each.field for each in mapped if each.field not in numbers)
            raise ExperimentError(
                f"map: blank=edge needs one clock, but {next(iter(numbers))} is in numbers and {stamp} in stamps"
            )

    def blank(self, name: str) -> pl.Series:
        """Return where a start or an end is blank, and the map says that this is the edge of the record."""
        none = pl.repeat(False, len(self.sheet.lines), dtype=pl.Boolean, eager=True)
        each = self.fields.get(name)
        return self.sheet.text(each.column, default="") == "" if each is not None and each.edge else none

    def span(self, mapped: Mapped, default: int | None) -> pl.Series:
        """Return a length of time; the work must be above 0."""
        least = 1 if mapped.field == "work" else 0
        if self.numeric(mapped):
            return self.scaled(mapped.column, mapped.unit or SECOND, least=least, default=default)
        cells = self.sheet.text(mapped.column, default="" if default is not None else None)
        values = clock.span(cells)
        unread = values.is_null() & (cells != "")
        self.sheet.drop(unread, mapped.column, "is neither a number nor a time like 1-02:03:04")
        self.sheet.drop(values < least, mapped.column, "must be above 0")
        return values if default is None else values.fill_null(default)

    def gpus(self) -> dict[str, pl.Series]:
        """Return whole GPUs, or a share of one where a cell is like ``0.5``; 0 where no column tells."""
        if "gpus" not in self.fields:
            return {"gpus": pl.repeat(0, len(self.sheet.lines), dtype=pl.Int64, eager=True)}
        each = self.fields["gpus"]
        milli = self.scaled(each.column, each.unit or WHOLE_GPU_MILLI, least=0)
        part = milli.is_between(1, WHOLE_GPU_MILLI - 1)
        uneven = (milli % WHOLE_GPU_MILLI != 0) & ~part
        self.sheet.drop(uneven, each.column, "must be whole GPUs, or less than one: a share never spans devices")
        one, whole = pl.Series([1], dtype=pl.Int64), pl.Series([WHOLE_GPU_MILLI], dtype=pl.Int64)
        known = part.fill_null(False)
        columns = {"gpus": one.zip_with(known, milli // WHOLE_GPU_MILLI)}
        return columns if "gpu_milli" in self.fields else {**columns, "gpu_milli": milli.zip_with(known, whole)}


def _work(reading: _Reading) -> dict[str, pl.Series]:
    """Return when jobs were submitted and how long they ran."""
    times = reading.moments(("submit", "start", "end"))
    if "work" in reading.fields:
        return {"submit": times["submit"], "work": reading.typed(reading.fields["work"])}
    start, end = _within(reading, times)
    column, begin = reading.fields["end"].column, reading.fields["start"].column.strip("\x00")
    work = end - start
    reading.sheet.drop(work < 0, column, f"is before {begin}")
    reading.sheet.drop(work == 0, column, f"is {begin}: the work must be above 0")
    return {"submit": times["submit"], "start": times["start"], "work": work}


def _within(reading: _Reading, times: dict[str, pl.Series]) -> tuple[pl.Series, pl.Series]:
    """Return starts and ends; those beyond the record are put at its edge, the earliest or latest time in it."""
    sheet, early, late = reading.sheet, reading.blank("start"), reading.blank("end")
    if not (early | late).any():
        return times["start"], times["end"]
    never = "is blank, as is the end: it never started, or the record tells nothing of it"
    sheet.drop(early & late, reading.fields["start"].column, never, fault=False)
    frame = pl.DataFrame(times).with_columns(sheet.sound().alias("sound"))
    known = frame.filter("sound").select(
        pl.min_horizontal("submit", "start", "end").min().alias("first"),
        pl.max_horizontal("submit", "start", "end").max().alias("last"),
    )
    filled = frame.select(
        pl.col("start").fill_null(pl.max_horizontal(pl.lit(known["first"][0]), "submit")),
        pl.col("end").fill_null(pl.lit(known["last"][0])),
    )
    sheet.note(early, "already running when the record began: taken to start then")
    sheet.note(late, "still running when the record was cut: taken to end then")
    return filled["start"], filled["end"]


def read(path: Path, strict: bool, columns: str = "") -> Trace:
    """Return the jobs of any table, its columns as mapped."""
    if not columns.strip():
        raise ExperimentError(f"format {NAME!r} needs a mapping of columns (--map), e.g. {EXAMPLE}")
    table = _table(path)
    fields = mapping(columns, [name for name in table.frame.columns if name != SURPLUS], path)
    reading = _Reading(table, fields)
    read = {**_work(reading), **reading.gpus()}
    names = {"cpus": "cpu_milli", "memory": "memory_bytes", "communication": "communication_ppm"}
    for field, each in fields.items():
        if each.kind != "moment" and field not in ("work", "gpus"):
            read[names.get(field, field)] = reading.typed(each)
    reading.refuse_constants()
    if "outcome" in read and "outcome_after" not in read:
        read |= ending(read["outcome"], read["work"])
    id_column = fields["name"].column if "name" in fields else ""
    return reading.sheet.trace(NAME, read, strict=strict, id_column=id_column)
