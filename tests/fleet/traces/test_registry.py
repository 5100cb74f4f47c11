"""Request traces: told apart from jobs, and refused where jobs are wanted."""

from pathlib import Path

import numpy as np
import pytest

from headway.errors import ExperimentError, TraceError
from headway.jobs.traces import REQUEST_FORMATS, REQUEST_READERS, load_requests
from tests.jobs.traces.files import SAMPLES, refusal, written

FILES = {"azure-llm": "azure-llm.csv", "mooncake": "mooncake.jsonl", "requests": "requests.csv"}


@pytest.mark.parametrize("format", REQUEST_FORMATS)
def test_every_format_has_a_sample_that_reads_without_a_dropped_row(format: str) -> None:
    path = SAMPLES / FILES[format]
    trace = load_requests(path, strict=True)
    assert trace.format == format
    assert len(trace) == trace.rows == 3
    assert trace.dropped == trace.notes == ()
    assert trace.arrival[0] == 0
    assert (np.diff(trace.arrival) >= 0).all()
    for column in (trace.arrival, trace.input_tokens, trace.output_tokens):
        assert column.dtype == np.int64
        assert column.size == 3


@pytest.mark.parametrize("format", REQUEST_FORMATS)
def test_requests_are_no_jobs(format: str) -> None:
    path = SAMPLES / FILES[format]
    assert refusal(path) == refusal(path, format) == f"trace {path}: holds requests ({format}), not jobs"


def test_each_reader_recognises_only_its_own(tmp_path: Path) -> None:
    assert {reader.NAME for reader in REQUEST_READERS} == set(FILES) == set(REQUEST_FORMATS)
    with pytest.raises(TraceError, match="is no trace of requests that is known"):
        load_requests(SAMPLES / "philly.csv")
    with pytest.raises(ExperimentError, match="did you mean 'mooncake'"):
        load_requests(SAMPLES / "mooncake.jsonl", "moncake")
    with pytest.raises(TraceError, match="there is no such file"):
        load_requests(tmp_path / "absent")
    with pytest.raises(TraceError, match="the file is empty"):
        load_requests(written(tmp_path, ""))
