"""Philly's own job log: attempts become work, GPUs and retries, and what nobody knows is dropped."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from headway.jobs.model.job import Job, Outcome
from headway.jobs.traces import Trace, guess, load
from headway.units import HOUR, MINUTE, SECOND
from tests.jobs.traces.files import SAMPLES, refusal, written

SAMPLE = SAMPLES / "philly-json.json"


def attempt(start: str | None, end: str | None, *machines: int) -> dict[str, Any]:
    """An attempt on so many GPUs of each machine, at these times of one day."""
    day = "2017-11-06 "
    detail = [{"ip": f"m{at}", "gpus": [f"gpu{gpu}" for gpu in range(gpus)]} for at, gpus in enumerate(machines)]
    return {"start_time": start and day + start, "end_time": end and day + end, "detail": detail}


def entry(name: str, *attempts: dict[str, Any], **other: Any) -> dict[str, Any]:
    """A job that passed."""
    fixed = {"status": "Pass", "vc": "v", "user": "u", "submitted_time": "2017-11-06 08:00:00"}
    return {**fixed, "jobid": name, "attempts": list(attempts), **other}


def read(folder: Path, *entries: Any, indent: int | None = None) -> Trace:
    """These entries as a trace, after one that is good."""
    good = entry("good", attempt("08:00:00", "08:10:00", 1))
    return load(
        written(folder, json.dumps([good, *entries], indent=indent), "log.json"), "philly-json", skip_bad_rows=True
    )


def test_the_sample_gives_the_jobs_it_describes() -> None:
    trace = load(SAMPLE, strict=True)
    failed, passed, killed = trace.jobs
    assert trace.format == guess(SAMPLE) == "philly-json"
    assert passed == Job(
        1, 150 * SECOND, 70 * MINUTE, gpus=2, name="application_1700000000001_00001", tenant="a1b2c3", user="u0d1e2"
    )
    assert failed == Job(
        0, 0, 10 * MINUTE, gpus=16, name="application_1700000000001_00002", tenant="d4e5f6", user="u3f4a5",
        outcome=Outcome.FAILS, outcome_after=10 * MINUTE, retries=1,
    )  # fmt: skip
    assert (killed.outcome, killed.work, killed.outcome_after, killed.retries) == (Outcome.CANCELLED, SECOND, SECOND, 0)
    assert trace.notes == (
        "1 attempt without a start or an end: counted for nothing",
        "1 job ran for less than a second: taken as 1 s",
        "the file is not sorted by submit time: sorted",
    )


def test_a_packed_log_and_one_on_a_single_line_are_the_same_jobs(tmp_path: Path) -> None:
    packed = written(tmp_path, gzip.compress(SAMPLE.read_bytes(), mtime=0), "log.gz")
    flat = written(tmp_path, json.dumps(json.loads(SAMPLE.read_text())), "flat")
    assert load(packed) == load(flat) == load(SAMPLE)


@pytest.mark.parametrize(
    ("made", "column", "rule"),
    [
        (entry("x"), "attempts", "are none: its GPUs and run time are not known"),
        (entry("x", attempt("08:00:00", None, 1)), "end_time", "it was still running when the log was written"),
        (entry("x", attempt("08:00:00", "None", 1)), "end_time", "of an attempt is not a time like"),
        (entry("x", attempt(None, None, 1)), "start_time", "is missing in all attempts: how long it ran is not known"),
        (entry("x", attempt("8 h", "09:00:00", 1), attempt("09:00:00", "09:01:00", 1)), "start_time", "is not a time"),
        (entry("x", attempt("08:10:00", "08:00:00", 1)), "end_time", "of an attempt is before its start"),
        (entry("x", attempt("08:00:00", "08:01:00")), "gpus", "are none in all attempts"),
        (entry("x", attempt("08:00:00", "08:01:00", 1), status="Odd"), "status", "must be one of pass, killed, failed"),
        (entry("x", attempt("08:00:00", "08:01:00", 1), submitted_time=None), "submitted_time", "is empty"),
        (entry("x", attempt("08:00:00", "08:01:00", 1), submitted_time="once"), "submitted_time", "is not a time like"),
        (entry("", attempt("08:00:00", "08:01:00", 1)), "jobid", "is empty"),
        (entry("good", attempt("08:00:00", "08:01:00", 1)), "jobid", "occurs twice: ids must be unique"),
        (entry("x", {"start_time": 7}), "entry", "Expected `str | null`, got `int` - at `$.attempts[0].start_time`"),
        (17, "entry", "Expected `object`, got `int`"),
    ],
)
def test_what_cannot_be_replayed_is_dropped_and_explained(tmp_path: Path, made: Any, column: str, rule: str) -> None:
    trace = read(tmp_path, made, entry("last", attempt("09:00:00", "09:10:00", 2, 2)))
    assert [job.name for job in trace.jobs] == ["good", "last"]
    (dropped,) = trace.dropped
    assert (dropped.line, dropped.column) == (2, column)
    assert rule in dropped.rule
    assert rule in refusal(tmp_path / "log.json", strict=True)


def test_the_time_that_is_wrong_is_shown(tmp_path: Path) -> None:
    back, on = attempt("08:10:00", "08:00:00", 1), attempt("09:00:00", "09:10:00", 1)
    assert read(tmp_path, entry("x", back, on)).dropped[0].value == "2017-11-06 08:00:00"


def test_none_as_text_means_no_time(tmp_path: Path) -> None:
    made = entry("x", {"start_time": "None", "end_time": "None", "detail": []}, attempt("08:00:00", "09:00:00", 1))
    assert [job.work for job in read(tmp_path, made).jobs] == [10 * MINUTE, HOUR]


def test_lines_are_those_of_the_file_where_entries_have_their_own(tmp_path: Path) -> None:
    trace = read(tmp_path, entry("x"), indent=4)
    text = (tmp_path / "log.json").read_text().splitlines()
    assert '"x"' in text[trace.dropped[0].line - 1]


def test_the_load_of_a_job_is_kept_whatever_its_end(tmp_path: Path) -> None:
    tries = attempt("08:00:00", "08:10:00", 4), attempt("08:20:00", "08:50:00", 4)
    passed, failed = entry("p", *tries), entry("f", *tries, status="Failed")
    jobs = {job.name: job for job in read(tmp_path, passed, failed).jobs}
    assert jobs["p"].work == 40 * MINUTE
    assert jobs["f"].ends_after * (jobs["f"].retries + 1) == 40 * MINUTE


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"[]", "the list has no entry"),
        (b'{"jobid": "x"}', "must be a JSON list, an entry a job"),
        (b'[{"jobid": "x", "attempts": [', "is not whole JSON"),
        (b"\xff\xfe[\x00", "line 1 is not UTF-8 text"),
        (b'[\n{"jobid": "caf\xe9"}]', "line 2 is not UTF-8 text (byte 0xe9)"),
        (b"", "the file is empty"),
    ],
)
def test_a_log_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path, content: bytes, line: str) -> None:
    assert line in refusal(written(tmp_path, content, "log"), "philly-json")


def test_a_truncated_gzip_is_named(tmp_path: Path) -> None:
    assert "truncated" in refusal(
        written(tmp_path, gzip.compress(SAMPLE.read_bytes(), mtime=0)[:-20], "log.gz"), "philly-json"
    )
