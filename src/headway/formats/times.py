"""Parse columns of times as logs write them, to nanoseconds: timestamps with or without a zone, spans like 1-02:03:04.

A stamp without a zone is a clock on a wall: it can be compared with others of its kind, not with one that names its
zone. Where a file holds both, those of the rarer kind are bad.
"""

from collections.abc import Collection, Sequence

import polars as pl

from headway.jobs.traces.sheet import Sheet
from headway.units import DAY, HOUR, MINUTE, SECOND

YEARS = (1970, 2261)
"""What nanoseconds since 1970 in 63 bits can hold."""
ABSENT = ("", "none", "null", "nat", "nan", "unknown", "n/a")
"""How logs write that there is no time, in lower case."""
SHAPE = "is not a time like 2023-05-18 12:34:56"

_PLAIN = "%Y-%m-%d %H:%M:%S"
_STAMP = (
    r"^(\d{4}[-/]\d{1,2}[-/]\d{1,2})[ T](\d{1,2}:\d{2})(:[0-5]\d)?(?:[.,](\d+))?"
    r"\s*(Z|UTC|GMT)?(?:([+-])(\d{2}):?(\d{2})?)?$"
)
_SPAN = r"^(?:(\d{1,4})(?:-| days?,? +))?(?:(\d{1,5}):)?(\d{1,6}):(\d{2})(?:\.(\d+))?$"
_FRACTION_DIGITS = 9


def _nanoseconds(fraction: pl.Expr) -> pl.Expr:
    """Return the digits after the point of a number of seconds; those beyond nanoseconds are cut."""
    digits = fraction.str.slice(0, _FRACTION_DIGITS).str.pad_end(_FRACTION_DIGITS, "0")
    return digits.cast(pl.Int64, strict=False).fill_null(0)


def _whole(name: str) -> pl.Expr:
    return pl.col(name).cast(pl.Int64, strict=False).fill_null(0)


def stamp(text: pl.Series) -> pl.DataFrame:
    """Return ``time`` (nanoseconds since 1970; null where the text is none), ``year`` and ``zoned`` by stamp."""
    plain = text.str.to_datetime(_PLAIN, time_unit="us", strict=False)
    if bool((plain.is_null() & ~absent(text)).any()):
        return _any_stamp(text)
    return plain.to_frame("when").select(time=_epoch(pl.col("when")), year=pl.col("when").dt.year(), zoned=False)


def _epoch(when: pl.Expr) -> pl.Expr:
    return pl.when(when.dt.year().is_between(*YEARS)).then(when.dt.epoch("us")) * 1000


def _any_stamp(text: pl.Series) -> pl.DataFrame:
    """Return the same for stamps of any kind; a regular expression over each costs several times as much."""
    names = ["date", "minute", "second", "fraction", "universal", "sign", "hours", "minutes"]
    parts = text.str.extract_groups(_STAMP).struct.rename_fields(names).struct.unnest()
    clock = pl.concat_str("date", pl.lit(" "), "minute", pl.col("second").fill_null(":00")).str.replace_all("/", "-")
    when = clock.str.to_datetime(_PLAIN, time_unit="us", strict=False)
    offset = (_whole("hours") * HOUR + _whole("minutes") * MINUTE) * pl.when(sign="-").then(-1).otherwise(1)
    return parts.select(
        time=_epoch(when) + _nanoseconds(pl.col("fraction")) - offset,
        year=when.dt.year(),
        zoned=pl.col("universal").is_not_null() | pl.col("sign").is_not_null(),
    )


def absent(text: pl.Series) -> pl.Series:
    """Return where a log says that there is no time."""
    return text.fill_null("").str.to_lowercase().is_in(ABSENT)


def stamps(sheet: Sheet, columns: Sequence[str], optional: Collection[str] = ()) -> dict[str, pl.Series]:
    """Return columns of stamps as nanoseconds since 1970, null where an optional one is absent; note bad ones."""
    read: dict[str, pl.DataFrame] = {}
    for column in columns:
        text = sheet.text(column, default="")
        missing = absent(text)
        read[column] = stamp(text)
        if column not in optional:
            sheet.drop(missing, column, "is empty")
        sheet.drop(read[column]["year"].is_null() & ~missing, column, SHAPE)
        sheet.drop(~read[column]["year"].is_between(*YEARS), column, f"must lie in the years {YEARS[0]} to {YEARS[1]}")
    _same_kind(sheet, read)
    return {column: frame["time"] for column, frame in read.items()}


def _same_kind(sheet: Sheet, read: dict[str, pl.DataFrame]) -> None:
    """Note the rows whose stamps name a zone where most do not, or the other way round."""
    zoned = sum(int((frame["zoned"] & frame["time"].is_not_null()).sum()) for frame in read.values())
    plain = sum(int((~frame["zoned"] & frame["time"].is_not_null()).sum()) for frame in read.values())
    if zoned or plain:
        sheet.zone = "UTC" if zoned > plain else ""
    if not zoned or not plain:
        return
    rule = "names a time zone, most others do not" if plain >= zoned else "names no time zone, most others do"
    for column, frame in read.items():
        rare = frame["zoned"] if plain >= zoned else ~frame["zoned"]
        sheet.drop(rare & frame["time"].is_not_null(), column, rule)


def span(text: pl.Series) -> pl.Series:
    """Parse ``[days-]hours:minutes:seconds`` or ``minutes:seconds`` into nanoseconds; null for anything else."""
    names = ["days", "hours", "minutes", "seconds", "fraction"]
    parts = text.str.extract_groups(_SPAN).struct.rename_fields(names).struct.unnest()
    whole = _whole("days") * DAY + _whole("hours") * HOUR + _whole("minutes") * MINUTE + _whole("seconds") * SECOND
    return parts.select(
        pl.when(pl.col("minutes").is_not_null()).then(whole + _nanoseconds(pl.col("fraction")))
    ).to_series()
