"""Dates of a site: parsed, shown, in the gap of summer time, and week-ends."""

import pytest
from hypothesis import given, strategies as st

from headway.errors import InputError
from headway.formats.dates import Calendar, is_date
from headway.units import DAY, HOUR, SECOND


def test_a_wall_clock_is_shown_as_it_stands_and_an_instant_in_its_zone() -> None:
    wall = Calendar.parsed("2026-03-02T08:16:30")
    assert wall.text(DAY) == "Tue 2026-03-03 08:16:30"
    assert wall.iso(0) == "2026-03-02T08:16:30"
    instant = Calendar.parsed("2026-03-02T08:16:30Z", "Europe/Berlin")
    assert instant.iso(0) == "2026-03-02T09:16:30+01:00"
    assert instant.text(0).endswith("CET")
    assert instant.time_of("2026-03-02T10:16:30", "--at") == HOUR
    assert instant.time_of("2026-03-02T09:16:30Z", "--at") == HOUR


@given(st.integers(0, 10**18), st.booleans())
def test_what_is_written_is_read_back(begins: int, instants: bool) -> None:
    whole = Calendar(begins // SECOND * SECOND + 400 * DAY, instants)
    assert Calendar.parsed(whole.written()) == whole
    assert whole.time_of(whole.iso(5 * SECOND), "--at") == 5 * SECOND


def test_a_date_in_the_gap_of_summer_time_is_refused_in_one_line() -> None:
    berlin = Calendar.parsed("2026-03-01T00:00:00", "Europe/Berlin")
    with pytest.raises(
        InputError,
        match=r"--from '2026-03-29T02:30' does not exist in Europe/Berlin: clocks went from 02:00 to 03:00 there",
    ):
        berlin.time_of("2026-03-29T02:30", "--from")
    assert berlin.time_of("2026-03-29T03:30", "--from") == 28 * DAY + 3 * HOUR + HOUR // 2


@pytest.mark.parametrize("text", ["2026-02-30", "2026-03-05T25:00", "1200-01-01"])
def test_what_is_no_date_is_refused(text: str) -> None:
    assert is_date(text)
    with pytest.raises(InputError, match=text):
        Calendar.parsed("2026-03-01").time_of(text, "--at")
    assert not is_date("3d")


def test_a_zone_is_not_guessed() -> None:
    with pytest.raises(InputError, match=r"names a time zone.*trace.zone"):
        Calendar.parsed("2026-03-01").time_of("2026-03-02T00:00:00Z", "--at")
    with pytest.raises(InputError, match="is no time zone"):
        Calendar.parsed("2026-03-01", "Mars/Olympus")


def test_week_ends_are_from_midnight_to_midnight() -> None:
    monday = Calendar.parsed("2026-03-02T12:00:00")
    assert list(monday.week_ends(0, 7 * DAY)) == [(4 * DAY + DAY // 2, 6 * DAY + DAY // 2)]
    assert list(monday.week_ends(5 * DAY, 6 * DAY)) == [(5 * DAY, 6 * DAY)]
    assert list(monday.week_ends(0, DAY)) == []
