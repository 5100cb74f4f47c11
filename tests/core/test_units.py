"""Times and sizes at the edge, and named random streams."""

import pytest
from hypothesis import given, strategies as st

from headway.errors import InputError
from headway.streams import small_stream, stream
from headway.units import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    exact_duration,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
    seconds,
    to_seconds,
)


@given(time=st.integers(0, 10**20))
def test_nanoseconds_come_back_exactly(time: int) -> None:
    assert parse_duration(f"{time}ns") == time


@given(time=st.integers(0, 10**20))
def test_an_exact_text_comes_back_exactly(time: int) -> None:
    assert parse_duration(exact_duration(time)) == time


def test_an_exact_text_is_short_where_it_can_be() -> None:
    times = (0, 5 * MINUTE, 90 * MINUTE, 90 * SECOND, 7 * DAY, 500_000, 1_500_000_001)
    assert [exact_duration(time) for time in times] == ["0s", "5m", "1h30m", "1m30s", "7d", "500us", "1s500ms1ns"]


@given(parts=st.tuples(st.integers(0, 999), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59)))
def test_days_hours_minutes_and_seconds_add_up(parts: tuple[int, int, int, int]) -> None:
    days, hours, minutes, rest = parts
    assert (
        parse_duration(f"{days}d{hours}h{minutes}m{rest}s")
        == days * DAY + hours * HOUR + minutes * MINUTE + rest * SECOND
    )


@given(time=st.integers(0, 10**18))
def test_what_people_read_is_close_to_what_was_meant(time: int) -> None:
    read = parse_duration(format_duration(time).replace(" ", ""))
    assert abs(read - time) <= max(time * 0.05, 1), format_duration(time)
    assert format_duration(-time - 1).startswith("-")


@given(value=st.integers(0, 10**9))
def test_whole_seconds_are_exact(value: int) -> None:
    assert seconds(value) == value * SECOND
    assert to_seconds(seconds(value)) == value
    assert parse_duration(str(value)) == parse_duration(f"{value}s") == value * SECOND


@given(size=st.integers(0, 10**18))
def test_bytes_come_back_exactly(size: int) -> None:
    assert parse_size(str(size)) == parse_size(f"{size}B") == size
    assert abs(parse_size(format_size(size)) - size) <= size * 0.001


def test_units_of_size() -> None:
    assert parse_size("500GB") == 500 * 10**9
    assert parse_size("64GiB") == parse_size("64G") == 64 * 2**30
    assert parse_size("1.5 kb") == 1500


@pytest.mark.parametrize("text", ["", " ", "-5m", "5x", "m", "5m!", "nan", "inf", "1e999s", "5 5", "1h30"])
def test_a_duration_that_is_none_is_named(text: str) -> None:
    with pytest.raises(InputError, match="quantum"):
        parse_duration(text, what="quantum")


@pytest.mark.parametrize("text", ["", "-5GB", "5XB", "GB", "nan", "1e999GB"])
def test_a_size_that_is_none_is_named(text: str) -> None:
    with pytest.raises(InputError, match="memory"):
        parse_size(text, what="memory")


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_seconds_must_be_finite(value: float) -> None:
    with pytest.raises(InputError, match="finite"):
        seconds(value)


def test_streams_are_told_apart_by_seed_and_name_and_draw_nothing_from_each_other() -> None:
    first = stream(1, "a").random(4).tolist()
    assert stream(1, "a").random(4).tolist() == first
    assert stream(1, "b").random(4).tolist() != first
    assert stream(2, "a").random(4).tolist() != first
    small = small_stream(1, "a")
    small_stream(1, "b").random()
    assert small.random() == small_stream(1, "a").random()
    assert small_stream(1, "a").random() != small_stream(1, "b").random()
