"""The shim's file: read whole, its clocks brought together; refused in one line where it is not what it should be."""

import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from headway.errors import ProfileError
from headway.gpu.profiling.recording import read
from tests.gpu.profiling.recordings import file_of, section, written


def launches(*rows: tuple[int, int, int, int]) -> bytes:
    return section(2, 24, len(rows), b"".join(struct.pack("<QqII", *row) for row in rows))


def clocks(*rows: tuple[int, int]) -> bytes:
    return section(8, 16, len(rows), b"".join(struct.pack("<qQ", *row) for row in rows))


def kernel(start: int, end: int, correlation: int = 1) -> bytes:
    shape = (10, 1, 1, 128, 1, 1)
    return section(6, 64, 1, struct.pack("<QQIIII6iQ", start, end, correlation, 0, 0, 10, *shape, 0))


def test_what_threads_wrote_is_read_in_the_order_of_the_launches(tmp_path: Path) -> None:
    about = b"gpu Stub GPU\nsms 132\nwhy \n"
    content = file_of(
        section(1, 1, len(about), about), launches((1, 50, 1, 9), (2, 10, 2, 8)), section(99, 4, 1, b"abcd")
    )
    found = read(written(tmp_path, content))
    assert found.launches["launch_ns"].tolist() == [10, 50]
    assert found.about == {"gpu": "Stub GPU", "sms": "132", "why": ""}
    assert (found.process, found.number("sms"), found.number("gpu"), len(found.activities)) == (7, 132, 0, 0)


@given(
    ahead=st.integers(0, 10**18),
    span=st.integers(10**6, 10**12),
    drift_ppm=st.integers(-50, 50),
    share=st.integers(0, 1000),
    took=st.integers(0, 10**9),
)
def test_cuptis_times_are_moved_into_the_machines_clock(
    tmp_path_factory: pytest.TempPathFactory, ahead: int, span: int, drift_ppm: int, share: int, took: int
) -> None:
    longer = span + span * drift_ppm // 1_000_000
    at = longer * share // 1000
    ran = kernel(ahead + at + 1, ahead + at + 1 + took)
    content = file_of(clocks((5_000, ahead), (5_000 + span, ahead + longer)), ran)
    found = read(written(tmp_path_factory.mktemp("trace"), content)).activities[0]
    assert abs(int(found["start_ns"]) - (5_000 + span * share // 1000)) <= 3
    assert int(found["end_ns"] - found["start_ns"]) == took


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "is not a trace of headway's shim"),
        (file_of(magic=b"PARQUET!"), "is not a trace of headway's shim"),
        (file_of(version=9), "is of version 9, this headway reads 1"),
        (file_of(launches((1, 2, 1, 1)))[:-1], "is cut off in section 2"),
        (file_of(b"\1\0\0"), "is cut off at byte 16"),
        (file_of(section(2, 25, 1, bytes(25))), "section 2 has rows of 25 bytes, 24 are known"),
    ],
)
def test_a_broken_file_is_refused_in_one_line(tmp_path: Path, content: bytes, line: str) -> None:
    with pytest.raises(ProfileError, match=line) as said:
        read(written(tmp_path, content))
    assert "\n" not in str(said.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"none\.1: cannot be read"):
        read(tmp_path / "none.1")


@given(st.binary(max_size=200))
def test_whatever_a_file_holds_it_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = written(tmp_path_factory.mktemp("trace"), file_of() + content)
    with suppress(ProfileError):
        assert read(path).process == 7
