"""Mooncake's JSON lines: milliseconds, tokens and the hashes of prompt blocks."""

import gzip
from pathlib import Path

import pytest

from headway.errors import TraceError
from headway.jobs.traces import load_requests
from headway.units import MILLISECOND
from tests.jobs.traces.files import SAMPLES, written

GOOD = '{"timestamp": 10, "input_length": 1, "output_length": 2, "hash_ids": [3]}\n'


def test_the_sample_gives_the_requests_it_describes() -> None:
    trace = load_requests(SAMPLES / "mooncake.jsonl", strict=True)
    assert trace.arrival.tolist() == [0, 250 * MILLISECOND, 3000 * MILLISECOND]
    assert trace.input_tokens.tolist() == [1500, 1100, 400]
    assert trace.output_tokens.tolist() == [300, 20, 1]
    assert trace.hash_ids == ((0, 1, 2), (0, 1, 3), (4,))


def test_requests_out_of_order_are_sorted_with_their_hashes(tmp_path: Path) -> None:
    early = GOOD.replace("10,", "4.5,").replace("[3]", "[8, 9]")
    trace = load_requests(written(tmp_path, GOOD + "\n" + early))
    assert trace.arrival.tolist() == [0, 5_500_000]
    assert trace.hash_ids == ((8, 9), (3,))
    assert trace.notes == ("the file is not sorted by arrival: sorted",)


def test_hashes_may_be_missing(tmp_path: Path) -> None:
    trace = load_requests(written(tmp_path, GOOD.replace(', "hash_ids": [3]', "")), "mooncake", strict=True)
    assert trace.hash_ids == ()


@pytest.mark.parametrize(
    ("row", "column", "rule"),
    [
        ('{"timestamp": 5, "input_length": 1}', "row", "missing required field `output_length`"),
        (GOOD.replace("10,", "-10,"), "timestamp", "must be milliseconds, at least 0"),
        (GOOD.replace("10,", '"soon",'), "row", "Expected `int | float`, got `str`"),
        (GOOD.replace(" 1,", " -1,"), "input_length", "must be at least 0"),
        ('{"timestamp": 5, "input_le', "row", "is no request"),
        (GOOD.replace("10,", "9e99,"), "timestamp", "must be milliseconds, at least 0"),
    ],
)
def test_a_bad_row_is_dropped_and_explained(tmp_path: Path, row: str, column: str, rule: str) -> None:
    path = written(tmp_path, GOOD + row.strip() + "\n" + GOOD)
    trace = load_requests(path, skip_bad_rows=True)
    assert (len(trace), trace.rows) == (2, 3)
    (dropped,) = trace.dropped
    assert (dropped.line, dropped.column) == (2, column)
    assert rule in dropped.rule
    with pytest.raises(TraceError, match="line 2"):
        load_requests(path, strict=True)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"{}\n", "all 1 rows are bad; the first is line 1"),
        (GOOD.encode("utf-16"), "line 1 is not UTF-8 text"),
        (GOOD.encode() + b"\xe9", "line 2 is not UTF-8 text"),
        (gzip.compress(GOOD.encode() * 99, mtime=0)[:-9], "the gzip data is truncated"),
        (b"", "the file is empty"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path, content: bytes, line: str) -> None:
    with pytest.raises(TraceError) as caught:
        load_requests(written(tmp_path, content), "mooncake")
    assert line in str(caught.value)


def test_a_line_that_is_nested_too_deeply_is_a_bad_row(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD + '{"timestamp": 1, "hash_ids": ' + "[" * 100_000 + "\n")
    assert [each.line for each in load_requests(path, "mooncake", skip_bad_rows=True).dropped] == [2]
