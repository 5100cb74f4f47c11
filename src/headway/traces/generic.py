"""Any table of jobs, CSV or Parquet: a mapping says which column is what, ``gpus=num_gpus,submit=timestamp,…``.

A field is one of ``Job``, or ``start`` and ``end``, whose difference is the work. Times are numbers (seconds, or what
the field says: ``submit:ms=…``) or stamps; spans are numbers or ``[days-]hours:minutes:seconds``. Which of them a
column holds is decided by most of its cells. An empty cell takes the field's default, where it has one.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from headway.errors import ExperimentError, TraceError, unknown_name
from headway.traces import clock
from headway.traces.build import DEFAULTS
from headway.traces.head import Head
from headway.traces.lifetimes import ending
from headway.traces.sheet import Sheet
from headway.traces.table import SURPLUS, Table, contents, csv_table, parquet_table, text
from headway.traces.trace import Trace
from headway.training.job import Outcome
from headway.units import DAY, HOUR, MICROSECOND, MILLISECOND, MINUTE, SECOND, WHOLE_GPU_MILLI

NAME = "table"
SEPARATORS = (",", ";", "\t", "|")
EXAMPLE = "submit=timestamp,work=duration,gpus=num_gpus"
TIME_UNITS = {
    "ns": 1, "us": MICROSECOND, "ms": MILLISECOND, "s": SECOND, "min": MINUTE, "h": HOUR, "d": DAY,
}  # fmt: skip
SIZE_UNITS = {
    "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
GPU_UNITS = {"gpus": 1000, "percent": 10, "milli": 1}
_WORDS = {
    Outcome.FINISHES: "finishes finished completed complete success succeeded successful pass passed done",
    Outcome.FAILS: "fails failed fail failure error timeout node_fail boot_fail out_of_memory oom",
    Outcome.CANCELLED: "cancelled canceled killed stopped aborted terminated revoked",
}
STATES = {word: int(outcome) for outcome, words in _WORDS.items() for word in words.split()}
_FLAGS = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}
_MOST = 2**63 - 1

_FIELDS = {
    "moment": "submit start end",
    "span": "work estimate checkpoint restore checkpoint_every outcome_after patience",
    "gpus": "gpus",
    "whole": "gpu_milli nodes retries",
    "any whole": "priority",
    "cpus": "cpus",
    "size": "memory",
    "share": "communication",
    "flag": "preemptible",
    "state": "outcome",
    "text": "name tenant user partition qos model gpu_types",
}
KINDS = {field: kind for kind, fields in _FIELDS.items() for field in fields.split()}
"""What may be mapped, and how its cells are read."""
_UNITS = {"moment": TIME_UNITS, "span": TIME_UNITS, "size": SIZE_UNITS, "gpus": GPU_UNITS}
_ALIASES = {"memory_bytes": "memory"}


@dataclass(frozen=True, slots=True)
class Mapped:
    """One field, the column it is read from, and the unit of numbers in it (0: what is usual)."""

    field: str
    column: str
    unit: int = 0

    @property
    def kind(self) -> str:
        return KINDS[self.field]


def mapping(columns: str) -> dict[str, Mapped]:
    """``gpus=num_gpus,submit:ms=timestamp`` by field; a column with a comma in its name is quoted with its field."""
    if not columns.strip():
        raise ExperimentError(f"format {NAME!r} needs a mapping of columns (--map), e.g. {EXAMPLE}")
    found: dict[str, Mapped] = {}
    for part in next(csv.reader([columns], skipinitialspace=True)):
        target, equals, column = (piece.strip() for piece in part.partition("="))
        if not equals or not target or not column:
            raise ExperimentError(f"map {part!r} is not understood: write field=column, e.g. {EXAMPLE}")
        each = _mapped(target, column)
        if each.field in found:
            raise ExperimentError(f"map: field {each.field!r} is given twice")
        found[each.field] = each
    return _complete(found)


def _mapped(target: str, column: str) -> Mapped:
    field, colon, unit = (piece.strip() for piece in target.partition(":"))
    field = _ALIASES.get(field, field)
    if field not in KINDS:
        raise ExperimentError(f"map: {unknown_name('field', field, KINDS)}")
    units = _UNITS.get(KINDS[field])
    if not colon:
        return Mapped(field, column)
    if units is None:
        raise ExperimentError(f"map: field {field!r} takes no unit ({unit!r})")
    if unit.lower() not in units:
        raise ExperimentError(f"map: {unknown_name(f'unit of {field}', unit, units)}")
    return Mapped(field, column, units[unit.lower()])


def _complete(found: dict[str, Mapped]) -> dict[str, Mapped]:
    if "submit" not in found:
        raise ExperimentError(f"map: field 'submit' is missing, e.g. {EXAMPLE}")
    if "work" in found and ("start" in found or "end" in found):
        raise ExperimentError("map: give work, or start and end, not both")
    if "work" not in found and not {"start", "end"} <= set(found):
        raise ExperimentError("map: field 'work' is missing (or start and end, whose difference it is)")
    if "gpus" not in found and "cpus" not in found:
        raise ExperimentError("map: field 'gpus' is missing (or cpus, for jobs without GPUs)")
    return found


def recognises(head: Head) -> bool:
    """Never: without a mapping nobody knows what its columns mean."""
    return False


def _table(path: Path) -> Table:
    if contents(path)[:4] == b"PAR1":
        return parquet_table(path)
    first = text(path).partition("\n")[0]
    return csv_table(path, separator=max(SEPARATORS, key=first.count), multiline=True)


class _Reading:
    """A sheet whose columns are found by field."""

    def __init__(self, sheet: Sheet, path: Path, fields: dict[str, Mapped]) -> None:
        self.sheet = sheet
        self.fields = fields
        for each in fields.values():
            if each.column not in sheet.columns or each.column == SURPLUS:
                raise TraceError(f"trace {path}: map: {unknown_name('column', each.column, sheet.columns)}")

    def typed(self, each: Mapped) -> pl.Series:
        """A column as the values of its field."""
        match each.kind:
            case "span":
                return self.span(each, default=None if each.field == "work" else DEFAULTS[each.field])
            case "whole":
                return self.sheet.whole(each.column, least=0, default=DEFAULTS[each.field])
            case "any whole":
                return self.sheet.whole(each.column, default=DEFAULTS[each.field])
            case "cpus":
                return self.sheet.fixed(each.column, 3, least=0, default=0)
            case "share":
                return self.sheet.fixed(each.column, 6, least=0, default=0)
            case "size":
                return self.scaled(each.column, each.unit or 1, default=0)
            case "flag":
                return self.sheet.choice(each.column, _FLAGS, DEFAULTS[each.field])
            case "state":
                return self.sheet.choice(each.column, STATES, int(Outcome.FINISHES))
            case _:
                default = "" if each.field == "gpu_types" else DEFAULTS[each.field]
                return self.sheet.text(each.column, default=default)

    def scaled(self, column: str, unit: int, *, least: int | None = None, default: int | None = None) -> pl.Series:
        """Decimal numbers of a unit, exactly: digits first, then what is left of the unit."""
        digits = 0
        while unit % 10 == 0 and digits < 9:
            unit, digits = unit // 10, digits + 1
        values = self.sheet.fixed(column, digits, least=least, default=default)
        self.sheet.drop(values.abs() > _MOST // unit, column, "is too large")
        return values * unit

    def numeric(self, each: Mapped) -> bool:
        """Whether a column holds numbers, as its unit says or as most of its cells do."""
        cells = self.sheet.text(each.column, default="")
        given = cells.filter(cells != "")
        return bool(each.unit) or 2 * given.cast(pl.Float64, strict=False).is_not_null().sum() > len(given)

    def moments(self, names: tuple[str, ...]) -> dict[str, pl.Series]:
        """Times that are numbers or stamps, in nanoseconds; empty starts and ends are null."""
        mapped = [self.fields[name] for name in names if name in self.fields]
        numbers = {each.field: each for each in mapped if self.numeric(each)}
        written = [each.column for each in mapped if each.field not in numbers]
        stamps = clock.stamps(self.sheet, written)
        found = {name: self.scaled(each.column, each.unit or SECOND) for name, each in numbers.items()}
        return {each.field: found[each.field] if each.field in found else stamps[each.column] for each in mapped}

    def span(self, each: Mapped, default: int | None) -> pl.Series:
        """A length of time; the work must be above 0."""
        least = 1 if each.field == "work" else 0
        if self.numeric(each):
            return self.scaled(each.column, each.unit or SECOND, least=least, default=default)
        cells = self.sheet.text(each.column, default="" if default is not None else None)
        values = clock.span(cells)
        unread = values.is_null() & (cells != "")
        self.sheet.drop(unread, each.column, "is neither a number nor a time like 1-02:03:04")
        self.sheet.drop(values < least, each.column, "must be above 0")
        return values if default is None else values.fill_null(default)

    def gpus(self) -> dict[str, pl.Series]:
        """Whole GPUs, or a share of one: ``0.5``; none where no column tells."""
        if "gpus" not in self.fields:
            return {"gpus": pl.repeat(0, len(self.sheet.lines), dtype=pl.Int64, eager=True)}
        each = self.fields["gpus"]
        unit = each.unit or WHOLE_GPU_MILLI
        milli = self.scaled(each.column, unit, least=0)
        part = milli.is_between(1, WHOLE_GPU_MILLI - 1)
        uneven = (milli % WHOLE_GPU_MILLI != 0) & ~part
        self.sheet.drop(uneven, each.column, "must be whole GPUs, or less than one: a share never spans devices")
        one, whole = pl.Series([1], dtype=pl.Int64), pl.Series([WHOLE_GPU_MILLI], dtype=pl.Int64)
        known = part.fill_null(False)
        found = {"gpus": one.zip_with(known, milli // WHOLE_GPU_MILLI)}
        return found if "gpu_milli" in self.fields else {**found, "gpu_milli": milli.zip_with(known, whole)}


def _work(reading: _Reading) -> dict[str, pl.Series]:
    """When jobs were submitted and how long they ran."""
    times = reading.moments(("submit", "start", "end"))
    if "work" in reading.fields:
        return {"submit": times["submit"], "work": reading.typed(reading.fields["work"])}
    column = reading.fields["end"].column
    work = times["end"] - times["start"]
    reading.sheet.drop(work < 0, column, f"is before {reading.fields['start'].column}")
    reading.sheet.drop(work == 0, column, f"is {reading.fields['start'].column}: the work must be above 0")
    return {"submit": times["submit"], "start": times["start"], "work": work}


def read(path: Path, strict: bool, columns: str = "") -> Trace:
    """The jobs of any table, its columns as mapped."""
    fields = mapping(columns)
    reading = _Reading(Sheet(_table(path), ()), path, fields)
    read = {**_work(reading), **reading.gpus()}
    names = {"cpus": "cpu_milli", "memory": "memory_bytes", "communication": "communication_ppm"}
    for field, each in fields.items():
        if each.kind != "moment" and field not in ("work", "gpus"):
            read[names.get(field, field)] = reading.typed(each)
    if "outcome" in read and "outcome_after" not in read:
        read |= ending(read["outcome"], read["work"])
    id_column = fields["name"].column if "name" in fields else ""
    return reading.sheet.trace(NAME, read, strict=strict, id_column=id_column)
