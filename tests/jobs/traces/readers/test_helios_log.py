"""Helios' own log: states become outcomes, virtual clusters tenants, and times decide over stated durations."""

import gzip
from pathlib import Path

import pytest

from headway.jobs.model.job import Job, Outcome
from headway.jobs.traces import guess, load
from headway.units import DAY, HOUR, MINUTE, SECOND
from tests.jobs.traces.files import SAMPLES, refusal, written

SAMPLE = SAMPLES / "helios-log.csv"
HEADER = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
GOOD = "good,u,v,1,4,1,COMPLETED,2020-05-04 10:00:00,2020-05-04 10:00:00,2020-05-04 10:01:00,60,0\n"
LATER = "2020-05-04 10:00:00,2020-05-04 10:00:00,2020-05-04 10:01:00"


def test_the_sample_gives_the_jobs_it_describes() -> None:
    trace = load(SAMPLE, strict=True)
    assert trace.format == guess(SAMPLE) == "helios-log"
    first, failed, cpus, cancelled, timeout = trace.jobs
    assert first == Job(0, 0, 2 * HOUR, gpus=8, cpu_milli=32_000, name="500001", user="uAaaa", tenant="vcOne")
    assert (failed.outcome, failed.outcome_after, failed.gpus) == (Outcome.FAILS, 30 * SECOND, 16)
    assert (cpus.gpus, cpus.cpu_milli, cpus.work) == (0, 4000, 10 * MINUTE)
    assert (cancelled.outcome, cancelled.work) == (Outcome.CANCELLED, DAY)
    assert (timeout.outcome, timeout.work) == (Outcome.FAILS, SECOND)
    assert trace.notes == (
        "1 job ran for less than a second: taken as 1 s",
        "1 job without a GPU: they count as jobs, and wait for CPUs only",
    )


def test_columns_may_come_in_any_order_and_stamps_with_a_zone(tmp_path: Path) -> None:
    lines = [line.split(",") for line in SAMPLE.read_text().splitlines()]
    turned = "\n".join(",".join(reversed(line)) for line in lines)
    zoned = turned.replace(":00,", ":00+08:00,").replace(":20,", ":20+08:00,").replace(":30,", ":30+08:00,")
    zoned = zoned.replace(":01,", ":01+08:00,")
    assert load(written(tmp_path, turned)).jobs == load(SAMPLE).jobs
    assert load(written(tmp_path, zoned)).jobs == load(SAMPLE).jobs


@pytest.mark.parametrize(
    ("row", "column", "rule"),
    [
        (f"x,u,v,1,4,1,SUSPENDED,{LATER},60,0", "state", "must be one of completed, cancelled, failed, timeout"),
        (f"x,u,v,1,4,1,,{LATER},60,0", "state", "is empty"),
        ("x,u,v,1,4,1,CANCELLED,2020-05-04 10:00:00,,2020-05-04 10:01:00,0,60", "start_time", "it never started"),
        ("x,u,v,1,4,1,FAILED,2020-05-04 10:00:00,2020-05-04 10:00:00,None,0,0", "end_time", "it had not ended"),
        (
            "x,u,v,1,4,1,FAILED,2020-05-04 10:00:00,2020-05-04 10:05:00,2020-05-04 10:01:00,0,0",
            "end_time",
            "is before start_time",
        ),
        ("x,u,v,1,4,1,FAILED,yesterday,2020-05-04 10:00:00,2020-05-04 10:01:00,60,0", "submit_time", "is not a time"),
        (f"x,u,v,1,4,1,COMPLETED,{LATER.replace('2020', '1820')},60,0", "submit_time", "must lie in the years 1970 to"),
        (f"x,u,v,-1,4,1,COMPLETED,{LATER},60,0", "gpu_num", "must be at least 0"),
        (f"x,u,,1,4,1,COMPLETED,{LATER},60,0", "vc", "is empty"),
        (f"x,u,v,0,0,1,COMPLETED,{LATER},60,0", "row", "asks for no GPU, no CPU and no memory"),
        (f"good,u,v,1,4,1,COMPLETED,{LATER},60,0", "job_id", "occurs twice: ids must be unique"),
    ],
)
def test_a_bad_row_is_dropped_and_explained(tmp_path: Path, row: str, column: str, rule: str) -> None:
    path = written(tmp_path, HEADER + GOOD + row + "\n" + GOOD.replace("good", "last"))
    trace = load(path, skip_bad_rows=True)
    assert [job.name for job in trace.jobs] == ["good", "last"]
    (dropped,) = trace.dropped
    assert (dropped.line, dropped.column) == (3, column)
    assert rule in dropped.rule
    assert "line 3: " in refusal(path, strict=True)


def test_of_stamps_with_and_without_a_zone_the_rarer_are_dropped(tmp_path: Path) -> None:
    zoned = GOOD.replace("good", "zoned").replace(":00,", ":00+08:00,")
    few = load(written(tmp_path, HEADER + GOOD + GOOD.replace("good", "also") + zoned), skip_bad_rows=True)
    assert [job.name for job in few.jobs] == ["good", "also"]
    assert few.dropped[0].rule == "names a time zone, most others do not"
    most = load(written(tmp_path, HEADER + GOOD + zoned + zoned.replace("zoned", "too")), skip_bad_rows=True)
    assert [job.name for job in most.jobs] == ["zoned", "too"]
    assert (most.dropped[0].value, most.dropped[0].rule) == (
        "2020-05-04 10:00:00",
        "names no time zone, most others do",
    )


def test_clock_jumps_are_said(tmp_path: Path) -> None:
    early = "early,u,v,1,4,1,FAILED,2020-05-04 10:30:00,2020-05-04 10:00:00,2020-05-04 10:01:00,60,-1800\n"
    reset = "reset,u,v,1,4,1,FAILED,1970-01-01 00:00:00,1970-01-01 00:00:00,1970-01-01 00:01:00,60,0\n"
    others = "".join(GOOD.replace("good", f"good{number}") for number in range(9))
    trace = load(written(tmp_path, HEADER + GOOD + early + reset + others))
    assert len(trace.jobs) == 12
    assert "1 job started before being submitted: a clock that jumped?" in trace.notes
    assert "1 job was submitted over a year from the others (line 4): a clock that jumped?" in trace.notes


def test_times_decide_where_a_stated_duration_says_otherwise(tmp_path: Path) -> None:
    trace = load(written(tmp_path, HEADER + GOOD.replace(",60,0", ",600,0")))
    assert trace.jobs[0].work == MINUTE
    assert trace.notes == ("1 job with a duration that is not end_time - start_time: the times are taken",)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (HEADER.encode(), "there is a header but no row"),
        (HEADER.encode("utf-16"), "line 1 is not UTF-8 text"),
        (HEADER.encode("utf-16-le"), "line 1 holds NUL bytes"),
        (
            HEADER.encode() + GOOD.replace("u,v", "J\xfcrgen,v").encode("latin-1"),
            "line 2 is not UTF-8 text (byte 0xfc)",
        ),
        (gzip.compress(HEADER.encode() + GOOD.encode(), mtime=0)[:-9], "the gzip data is truncated"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path, content: bytes, line: str) -> None:
    path = written(tmp_path, content)
    assert line in refusal(path)
    assert line in refusal(path, "helios-log")
