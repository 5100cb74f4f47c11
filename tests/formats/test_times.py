"""Stamps and spans as logs write them."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given, strategies as st

from headway.formats.times import span, stamp
from headway.units import DAY, HOUR, MINUTE, SECOND

NOON = int(datetime(2023, 5, 18, 12, 34, 56, tzinfo=UTC).timestamp()) * SECOND


def _stamp(text: str) -> tuple[int | None, bool]:
    row = stamp(pl.Series([text])).row(0, named=True)
    return row["time"], row["zoned"]


@pytest.mark.parametrize(
    ("text", "time", "zoned"),
    [
        ("2023-05-18 12:34:56", NOON, False),
        ("2023-05-18T12:34:56", NOON, False),
        ("2023/5/18 12:34:56", NOON, False),
        ("2023-05-18 12:34", NOON - 56 * SECOND, False),
        ("2023-05-18 12:34:56.1234567", NOON + 123_456_700, False),
        ("2023-05-18 12:34:56,5", NOON + SECOND // 2, False),
        ("2023-05-18 12:34:56.1234567891", NOON + 123_456_789, False),
        ("2023-05-18T12:34:56Z", NOON, True),
        ("2023-05-18 12:34:56 UTC", NOON, True),
        ("2023-05-18 20:34:56+08:00", NOON, True),
        ("2023-05-18 20:34:56+0800", NOON, True),
        ("2023-05-18T09:04:56.5-03:30", NOON + SECOND // 2, True),
        ("2023-05-18 20:34:56+08", NOON, True),
    ],
)
def test_a_stamp_is_read_exactly(text: str, time: int, zoned: bool) -> None:
    assert _stamp(text) == (time, zoned)


@pytest.mark.parametrize(
    "text", ["", "soon", "2023-13-01 00:00:00", "2023-02-30 00:00:00", "2023-05-18", "12:34:56", "2023-05-18 25:00:00"]
)
def test_what_is_no_stamp_is_null(text: str) -> None:
    assert _stamp(text)[0] is None


@pytest.mark.parametrize("text", ["1969-12-31 23:59:59", "2262-01-01 00:00:00", "9999-01-01 00:00:00Z"])
def test_years_that_nanoseconds_cannot_hold_are_null_and_named(text: str) -> None:
    row = stamp(pl.Series([text])).row(0, named=True)
    assert row["time"] is None
    assert row["year"] == int(text[:4])


@given(
    st.integers(10**15, 9 * 10**15),
    st.integers(-14 * 60, 14 * 60),
    st.booleans(),
)
def test_every_stamp_comes_back(microseconds: int, offset_minutes: int, with_zone: bool) -> None:
    sign, (hours, minutes) = "-" if offset_minutes < 0 else "+", divmod(abs(offset_minutes), 60)
    zone = f"{sign}{hours:02d}:{minutes:02d}" if with_zone else ""
    told = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
    when = told + timedelta(minutes=offset_minutes if with_zone else 0)
    assert _stamp(f"{when:%Y-%m-%d %H:%M:%S.%f}{zone}") == (microseconds * 1000, with_zone)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("01:02:03", HOUR + 2 * MINUTE + 3 * SECOND),
        ("1-00:00:00", DAY),
        ("2-03:04:05.25", 2 * DAY + 3 * HOUR + 4 * MINUTE + 5 * SECOND + SECOND // 4),
        ("1 day, 1:00:00", DAY + HOUR),
        ("3 days 00:00:01", 3 * DAY + SECOND),
        ("100:00:00", 100 * HOUR),
        ("90:00", 90 * MINUTE),
        ("90", None),
        ("1h", None),
        ("", None),
    ],
)
def test_a_span_is_read_exactly_or_not_at_all(text: str, time: int | None) -> None:
    assert span(pl.Series([text])).to_list() == [time]
