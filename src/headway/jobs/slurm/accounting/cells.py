"""Parse the cells of Slurm's job rows a column at a time, and find the first rule that each row breaks.

A cell is read once for each different text that a column holds: a hundred thousand jobs share a few hundred of them.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import polars as pl

from headway.jobs.slurm.output import cells as slurm
from headway.jobs.slurm.output.cells import Fate, Resources
from headway.units import SECOND

FATES = tuple(Fate)
_YEARS = (1971, 2261)
_OFFSET = r"(?:Z|[+-]\d\d:?\d\d)$"
_NOTHING = sorted({spelt for word in slurm.NOTHING for spelt in (word, word.capitalize(), word.upper())})
_EPOCH = r"^\d{9,11}(?:\.\d+)?$"
_SECONDS = r"^[0-9]{9,11}$"
_LOCAL_LENGTH = len("2026-03-01T12:00:00")
_NO_TEXT = pl.Series([None], dtype=pl.String)
_NO_NUMBER = pl.Series([None], dtype=pl.Int64)
_READ = {"read": pl.Int64}
_SCHEMA = {
    "gpus": pl.Int64,
    "types": pl.String,
    "cpus": pl.Int64,
    "memory": pl.Int64,
    "nodes": pl.Int64,
    "parts": pl.Boolean,
}
_SPAN_RULE = "is not a time like 1-00:00:00"
_RESOURCES = "is not a list of resources like cpu=8,gres/gpu=4,mem=64G"
_LARGEST = 10**9
"""No number of devices, CPUs or nodes comes near; beyond it products could overflow."""
_MOST_BYTES = 2**55


class Rule(NamedTuple):
    """A rule that rows broke. It is a fault of the file, or only a job that cannot be played."""

    column: str
    text: str
    fault: bool


class Cells:
    """Rows of text on their way to columns of numbers. A column may hold whole numbers already."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self.frame = frame
        self.rules: list[Rule] = []
        """``broken`` counts in this list."""
        self.broken = pl.Series("broken", [], dtype=pl.Int32).clear(frame.height)
        self._texts: dict[str, pl.Series] = {}

    def refuse(self, bad: pl.Series, column: str, rule: str, *, fault: bool = True) -> None:
        """Note the rows where ``bad`` is true, unless an earlier rule was broken."""
        fresh = bad.fill_null(False) & self.broken.is_null()
        if fresh.any():
            self.broken = self.broken.set(fresh, len(self.rules))
            self.rules.append(Rule(column, rule, fault))

    def has(self, *columns: str) -> bool:
        """Return whether one of these columns is in the file."""
        return any(column in self.frame.columns for column in columns)

    def text(self, column: str) -> pl.Series:
        """Return a column's text without blanks around it; null where it says that there is nothing."""
        if column not in self.frame.columns:
            return pl.Series(column, [], dtype=pl.String).clear(self.frame.height)
        if column not in self._texts:
            text = self.frame[column].cast(pl.String).str.strip_chars()
            self._texts[column] = text.zip_with(~text.is_in(_NOTHING), _NO_TEXT)
        return self._texts[column]

    def _sound(self, column: str, least: int, most: int, nothing: int | None = None) -> pl.Series | None:
        """Return a column that holds numbers and no text, as JSON has them, if all of them lie within these bounds."""
        if column not in self.frame.columns or self.frame.schema[column] != pl.Int64:
            return None
        values = self.frame[column]
        values = values if nothing is None else values.zip_with(values != nothing, _NO_NUMBER)
        return values if values.is_between(least, most).all() else None

    def _seconds(self, column: str) -> pl.Series | None:
        """Return the same for times in seconds since 1970, where 0 is none."""
        return self._sound(column, 10**8, 10**11 - 1, nothing=0)

    def looked_up(self, column: str, parse: Callable[[str], Any], kind: Any, rule: str) -> pl.Series:
        """Parse each different text of a column once; one that gives None breaks the rule."""
        return self._frame(column, self.text(column), lambda text: (parse(text),), {"read": kind}, rule)["read"]

    def number(self, column: str, most: int = _LARGEST) -> pl.Series:
        """Return whole numbers, of which Slurm writes a range ``2-4`` where it may choose: the first counts."""

        def whole(text: str) -> int | None:
            first = text.partition("-")[0]
            return int(first) if first.isdecimal() and len(first) < 20 and int(first) <= most else None

        if (sound := self._sound(column, 0, most)) is not None:
            return sound
        text = self.text(column)
        plain = text.cast(pl.Int64, strict=False)
        signed = text.str.starts_with("+") | text.str.starts_with("-")
        plain = plain.zip_with((plain <= most) & ~signed, _NO_NUMBER)
        others = text.zip_with(plain.is_null(), _NO_TEXT)
        values = self._frame(column, others, lambda text: (whole(text),), _READ, "is not a whole number")["read"]
        return plain.zip_with(plain.is_not_null(), values)

    def limit(self, column: str) -> pl.Series:
        """Return time limits in nanoseconds, which many jobs share; no limit is 0."""
        return self.looked_up(column, _span, pl.Int64, _SPAN_RULE)

    def span(self, column: str) -> pl.Series:
        """Return spans of time in nanoseconds, nearly all of them different."""
        text = self.text(column)
        groups = text.str.extract_groups(r"^(?:(\d{1,6})-)?(\d{1,6}):(\d\d):(\d\d)$").struct
        days, hours, minutes, rest = (groups.field(str(place)).cast(pl.Int64) for place in range(1, 5))
        usual = (((days.fill_null(0) * 24 + hours) * 60 + minutes) * 60 + rest) * SECOND
        others = text.zip_with(usual.is_null(), _NO_TEXT)
        values = self._frame(column, others, lambda text: (_span(text),), _READ, _SPAN_RULE)["read"]
        return usual.zip_with(usual.is_not_null(), values)

    def tres(self, column: str) -> pl.DataFrame:
        """Return what TRES texts ask for, a column each. Memory differs from job to job: it is read apart."""
        text = self.text(column)
        own = Cells(pl.DataFrame({column: text.drop_nulls().unique()}))
        read = own._tres(column).with_columns(own.frame[column].alias("key"), own.broken.is_not_null().alias("bad"))
        resources = text.to_frame("key").join(read, on="key", how="left", maintain_order="left")
        self.refuse(resources["bad"], column, _RESOURCES)
        return resources.drop("key", "bad")

    def _tres(self, column: str) -> pl.DataFrame:
        text = self.frame[column]
        rest = text.str.replace_all(r"(?:^|,)(?:billing|energy|mem)=[^,]*", "")
        memory = text.str.extract(r"(?:^|,)mem=([^,]*)")
        sizes = self._frame(column, memory, lambda text: (_bounded(slurm.size(text)),), _READ, _RESOURCES)
        return self._resources(column, rest, slurm.tres).with_columns(sizes["read"].alias("memory"))

    def gres(self, column: str) -> pl.DataFrame:
        """Return what GRES texts ask for, in the same columns."""
        return self._resources(column, self.text(column), slurm.gres)

    def _resources(self, column: str, texts: pl.Series, parse: Callable[[str], Resources | None]) -> pl.DataFrame:
        def cells(text: str) -> tuple[Any, ...] | None:
            resources = parse(text)
            if resources is None or max(resources.gpus or 0, resources.cpus or 0, resources.nodes or 0) > _LARGEST:
                return None
            return resources.gpus, ";".join(resources.gpu_types), resources.cpus, None, resources.nodes, resources.parts

        return self._frame(column, texts, cells, _SCHEMA, _RESOURCES)

    def _frame(
        self,
        column: str,
        texts: pl.Series,
        parse: Callable[[str], Sequence[Any] | None],
        schema: dict[str, Any],
        rule: str,
    ) -> pl.DataFrame:
        keys = texts.alias("key")
        different = keys.drop_nulls().unique().to_list()
        if not different:
            return pl.DataFrame(schema=schema).clear(len(keys))
        nothing = (None,) * len(schema)
        rows = [(text, *(parse(text) or nothing)) for text in different]
        known = pl.DataFrame(rows, schema={"key": pl.String, **schema}, orient="row")
        parsed = keys.to_frame().join(known, on="key", how="left", maintain_order="left")
        read = parsed.select(pl.any_horizontal(pl.col(list(schema)).is_not_null())).to_series()
        self.refuse(keys.is_not_null() & ~read, column, rule)
        return parsed.drop("key")

    def instant(self, column: str) -> pl.Series:
        """Return nanoseconds since 1970, in the zone of the file or in UTC; null where there is none, or no time."""
        if (seconds := self._seconds(column)) is not None:
            instants = seconds * 1_000_000
        else:
            text = self.text(column)
            instants = _microseconds(text)
            self.refuse(told(text) & instants.is_null(), column, "is not a time like 2026-03-01T12:00:00")
        year = instants.cast(pl.Datetime("us")).dt.year()
        self.refuse(~year.is_between(*_YEARS), column, f"must lie in the years {_YEARS[0]} to {_YEARS[1]}")
        within = year.is_between(*_YEARS).fill_null(False)
        return instants.zip_with(within, _NO_NUMBER) * 1000

    def counts_instants(self, column: str) -> bool:
        """Return whether times are instants: seconds since 1970, or stamps with a zone."""
        times = self.text(column)
        zoned = times.filter(told(times)).head(1).str.contains(f"{_EPOCH}|{_OFFSET}")
        return bool(zoned.any())

    def refuse_mixed_zones(self, columns: Sequence[str]) -> None:
        """Refuse the rarer kind where times with a zone (or counted since 1970) stand beside local ones."""
        if all(self._seconds(column) is not None for column in columns):
            return
        texts = {column: self.text(column) for column in columns if self.has(column)}
        if all((text.str.len_bytes() == _LOCAL_LENGTH).all() for text in texts.values()):
            return
        zoned = {column: text.str.contains(f"{_EPOCH}|{_OFFSET}") for column, text in texts.items()}
        ours = next(iter(zoned.values())).drop_nulls()
        mostly = bool(ours.sum() * 2 >= ours.len())
        rule = f"has {'no ' if mostly else 'a '}time zone, other times of the file {'do' if mostly else 'do not'}"
        for column, text in texts.items():
            self.refuse(told(text) & (zoned[column] != mostly), column, rule)

    def fate(self) -> pl.Series:
        """Return the place of each row's fate in ``FATES``; rows without a state have finished."""
        if not self.has("State"):
            return pl.Series("fate", [FATES.index(Fate.FINISHED)] * self.frame.height, dtype=pl.Int64)

        def place(text: str) -> int | None:
            state = slurm.fate(text)
            return None if state is None else FATES.index(state)

        states = self.looked_up("State", place, pl.Int64, "is not a state of a job")
        self.refuse(self.text("State").is_null(), "State", "is empty")
        return states.alias("fate")


def told(times: pl.Series) -> pl.Series:
    """Return whether a text is a time at all: JSON writes 0 where there is none."""
    return times.is_not_null() & (times != "0")


def _microseconds(text: pl.Series) -> pl.Series:
    """Parse times into microseconds since 1970, in the zone of the file or in UTC."""
    counted = text.str.contains(_SECONDS)
    if (counted | ~told(text)).all():
        return text.zip_with(counted, _NO_TEXT).cast(pl.Int64) * 1_000_000
    local = text.str.to_datetime("%Y-%m-%dT%H:%M:%S", time_unit="us", strict=False)
    return local.to_physical().zip_with(local.is_not_null(), _unusual(text.zip_with(local.is_null(), _NO_TEXT)))


def _unusual(text: pl.Series) -> pl.Series:
    """Parse the same of times that count seconds, have a fraction, a blank for the T or a zone."""
    if text.null_count() == len(text):
        return _NO_NUMBER
    epoch = text.str.contains(_EPOCH).fill_null(False)
    counted = text.zip_with(epoch, _NO_TEXT).cast(pl.Decimal(38, 6), strict=False).to_physical().cast(pl.Int64)
    text = text.str.replace(" ", "T", literal=True).str.replace("Z$", "+0000")
    local = text.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", time_unit="us", strict=False).to_physical()
    zoned = text.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%z", time_unit="us", strict=False, time_zone="UTC").to_physical()
    return pl.DataFrame({"a": counted, "b": local, "c": zoned}).select(pl.coalesce("a", "b", "c")).to_series()


def _bounded(size_bytes: int | None) -> int | None:
    return None if size_bytes is None or size_bytes > _MOST_BYTES else size_bytes


def _span(text: str) -> int | None:
    length = slurm.span(text)
    return None if length is None or length >= 2**62 else length


def seconds(values: pl.Series) -> pl.Series:
    """Return whole seconds as nanoseconds; what is over a hundred years stays a hundred years."""
    return values.clip(0, 100 * 365 * 86400) * SECOND
