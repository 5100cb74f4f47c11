"""The cells of Slurm's job rows, typed a column at a time, and the first rule that each row breaks.

A cell is read once for each different text that a column holds: a hundred thousand jobs share a few hundred of them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from headway.formats import slurm
from headway.formats.slurm import Fate, Resources
from headway.units import SECOND

FATES = tuple(Fate)
_YEARS = (1971, 2261)
_OFFSET = r"(?:Z|[+-]\d\d:?\d\d)$"
_NOTHING = sorted({*slurm.NOTHING, "0"})
_RESOURCES = {
    "gpus": pl.Int64,
    "types": pl.String,
    "cpus": pl.Int64,
    "memory": pl.Int64,
    "nodes": pl.Int64,
    "parts": pl.Boolean,
}
_LARGEST = 10**12
"""No number of devices, nodes or bytes times a million comes near; beyond it sums could overflow."""


class Cells:
    """Rows of text on their way to columns of numbers."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self.frame = frame
        self.rules: list[tuple[str, str]] = []
        """Column and rule; ``broken`` counts in this list."""
        self.broken = pl.Series("broken", [None] * frame.height, dtype=pl.Int32)

    def refuse(self, bad: pl.Series, column: str, rule: str) -> None:
        """Note the rows where ``bad`` is true, unless an earlier rule was broken."""
        fresh = bad.fill_null(False) & self.broken.is_null()
        if fresh.any():
            self.broken = self.broken.set(fresh, len(self.rules))
            self.rules.append((column, rule))

    def has(self, *columns: str) -> bool:
        """Whether one of these columns is in the file."""
        return any(column in self.frame.columns for column in columns)

    def text(self, column: str) -> pl.Series:
        """Text without blanks around it; null where it says that there is nothing."""
        if column not in self.frame.columns:
            return pl.Series(column, [None] * self.frame.height, dtype=pl.String)
        name = pl.col(column).str.strip_chars()
        told = ~name.str.to_lowercase().is_in(list(slurm.NOTHING))
        return self.frame.select(pl.when(told).then(name).alias(column)).to_series()

    def looked_up(
        self, column: str, parse: Callable[[str], Any], kind: Any, rule: str, *, then: str = "read"
    ) -> pl.Series:
        """Each different text parsed once; one that gives None breaks the rule."""
        return self._frame(column, lambda text: (parse(text),), {then: kind}, rule)[then]

    def number(self, column: str) -> pl.Series:
        """Whole numbers, of which Slurm writes a range ``2-4`` where it may choose: the first counts."""
        rule = "is not a whole number"
        return self.looked_up(column, _whole, pl.Int64, rule)

    def span(self, column: str) -> pl.Series:
        """Spans of time in nanoseconds; no limit is 0."""
        return self.looked_up(column, _within(slurm.span, 2**62), pl.Int64, "is not a time like 1-00:00:00")

    def resources(self, column: str, parse: Callable[[str], Resources | None]) -> pl.DataFrame:
        """What TRES or GRES texts ask for, a column each."""

        def cells(text: str) -> tuple[Any, ...] | None:
            found = parse(text)
            if found is None or max(found.gpus or 0, found.cpus or 0, found.nodes or 0) > _LARGEST:
                return None
            if (found.memory_bytes or 0) > _LARGEST * 2**20:
                return None
            types = ";".join(found.gpu_types)
            return found.gpus, types, found.cpus, found.memory_bytes, found.nodes, found.parts

        return self._frame(column, cells, _RESOURCES, "is not a list of resources like cpu=8,gres/gpu=4,mem=64G")

    def _frame(
        self, column: str, parse: Callable[[str], Sequence[Any] | None], schema: dict[str, Any], rule: str
    ) -> pl.DataFrame:
        keys = self.text(column).alias("key")
        different = keys.drop_nulls().unique().to_list()
        nothing = (None,) * len(schema)
        rows = [(text, *(parse(text) or nothing)) for text in different]
        known = pl.DataFrame(rows, schema={"key": pl.String, **schema}, orient="row")
        found = keys.to_frame().join(known, on="key", how="left", maintain_order="left")
        read = found.select(pl.any_horizontal(pl.col(list(schema)).is_not_null())).to_series()
        self.refuse(keys.is_not_null() & ~read, column, rule)
        return found.drop("key")

    def instant(self, column: str) -> pl.Series:
        """Nanoseconds since 1970, in the zone of the file or in UTC; null where there is none, or it is unreadable."""
        text = self.text(column).str.replace(" ", "T", literal=True).str.replace("Z$", "+0000")
        text = text.to_frame().select(pl.when(~pl.first().is_in(_NOTHING)).then(pl.first())).to_series()
        epoch = text.str.contains(r"^\d{9,11}(?:\.\d+)?$")
        seconds = text.to_frame().select(pl.when(epoch).then(pl.first())).to_series()
        of_epoch = seconds.cast(pl.Decimal(38, 6), strict=False).to_physical().cast(pl.Int64)
        local = text.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", time_unit="us", strict=False)
        found = local.to_physical().zip_with(local.is_not_null(), of_epoch)
        if text.str.contains(_OFFSET).any():
            zoned = text.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%z", time_unit="us", strict=False, time_zone="UTC")
            found = found.zip_with(found.is_not_null(), zoned.to_physical())
        self.refuse(text.is_not_null() & found.is_null(), column, "is not a time like 2026-03-01T12:00:00")
        year = found.cast(pl.Datetime("us")).dt.year()
        self.refuse(~year.is_between(*_YEARS), column, f"must lie in the years {_YEARS[0]} to {_YEARS[1]}")
        within = year.is_between(*_YEARS).fill_null(False)
        return found.zip_with(within, pl.Series([None], dtype=pl.Int64)) * 1000

    def refuse_mixed_zones(self, columns: Sequence[str]) -> None:
        """Times with a zone (or counted since 1970) cannot be compared with local ones: the rarer kind is refused."""
        present = [self.text(column) for column in columns if self.has(column)]
        zoned = [text.str.contains(rf"^\d{{9,11}}(?:\.\d+)?$|{_OFFSET}") for text in present]
        ours = zoned[0].drop_nulls()
        mostly = bool(ours.sum() * 2 >= ours.len())
        rule = f"has {'no ' if mostly else 'a '}time zone, other times of the file {'do' if mostly else 'do not'}"
        for column, kind in zip((column for column in columns if self.has(column)), zoned, strict=True):
            text = self.text(column)
            told = ~text.is_in(_NOTHING) & text.is_not_null()
            self.refuse(told & (kind != mostly), column, rule)

    def fate(self) -> pl.Series:
        """The place of each row's fate in ``FATES``; rows without a state have finished."""
        if not self.has("State"):
            return pl.Series("fate", [FATES.index(Fate.FINISHED)] * self.frame.height, dtype=pl.Int64)

        def place(text: str) -> int | None:
            found = slurm.fate(text)
            return None if found is None else FATES.index(found)

        found = self.looked_up("State", place, pl.Int64, "is not a state of a job", then="fate")
        self.refuse(self.text("State").is_null(), "State", "is empty")
        return found


def _whole(text: str) -> int | None:
    first = text.partition("-")[0]
    return int(first) if first.isdecimal() and len(first) < 16 else None


def _within(parse: Callable[[str], int | None], most: int) -> Callable[[str], int | None]:
    def bounded(text: str) -> int | None:
        found = parse(text)
        return None if found is None or found > most else found

    return bounded


def seconds(values: pl.Series) -> pl.Series:
    """Whole seconds as nanoseconds; what is over a hundred years stays a hundred years."""
    return values.clip(0, 100 * 365 * 86400) * SECOND
