"""Azure's LLM inference traces of 2023 and 2024."""

import gzip
from pathlib import Path

import pytest

from headway.errors import TraceError
from headway.jobs.traces import load_requests
from headway.units import SECOND
from tests.jobs.traces.files import SAMPLES, written

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
GOOD = "2023-11-16 10:00:00.0000000,100,10\n"


def test_seven_digits_of_a_second_are_kept_and_the_last_line_needs_no_end() -> None:
    trace = load_requests(SAMPLES / "azure-llm.csv", "azure-llm", strict=True)
    assert trace.arrival.tolist() == [0, 100, 6_876_543_300]
    assert trace.input_tokens.tolist() == [500, 4000, 12]
    assert trace.output_tokens.tolist() == [20, 1, 800]
    assert trace.hash_ids == ()


def test_the_stamps_of_2024_name_their_zone() -> None:
    trace = load_requests(SAMPLES / "azure-llm-2024.csv", strict=True)
    assert trace.format == "azure-llm"
    assert trace.arrival.tolist() == [0, 5 * SECOND // 4]


def test_requests_out_of_order_are_sorted(tmp_path: Path) -> None:
    trace = load_requests(written(tmp_path, HEADER + GOOD + "2023-11-16 09:59:58.0000000,7,8\n"))
    assert trace.input_tokens.tolist() == [7, 100]
    assert trace.arrival.tolist() == [0, 2 * SECOND]
    assert trace.notes == ("the file is not sorted by arrival: sorted",)


@pytest.mark.parametrize(
    ("row", "column", "rule"),
    [
        ("yesterday,1,1", "TIMESTAMP", "is not a time like 2023-05-18 12:34:56"),
        ("2023-11-16 10:00:01.0000000,-1,1", "ContextTokens", "must be at least 0"),
        ("2023-11-16 10:00:01.0000000,1,", "GeneratedTokens", "is empty"),
        ("2023-11-16 10:00:01.0000000+00:00,1,1", "TIMESTAMP", "names a time zone, most others do not"),
    ],
)
def test_a_bad_row_is_dropped_and_explained(tmp_path: Path, row: str, column: str, rule: str) -> None:
    path = written(tmp_path, HEADER + GOOD + row + "\n" + GOOD)
    trace = load_requests(path, skip_bad_rows=True)
    assert (len(trace), trace.rows) == (2, 3)
    (dropped,) = trace.dropped
    assert (dropped.line, dropped.column, dropped.rule) == (3, column, rule)
    with pytest.raises(TraceError, match="line 3"):
        load_requests(path, strict=True)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (HEADER.encode(), "there is a header but no row"),
        (HEADER.encode() + b"a,b,c\n", "all 1 rows are bad; the first is line 2"),
        (HEADER.encode("utf-16"), "line 1 is not UTF-8 text"),
        (gzip.compress((HEADER + GOOD * 99).encode(), mtime=0)[:-9], "the gzip data is truncated"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path, content: bytes, line: str) -> None:
    with pytest.raises(TraceError) as caught:
        load_requests(written(tmp_path, content), "azure-llm")
    assert line in str(caught.value)
