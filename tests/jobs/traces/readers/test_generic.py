"""Any table with a mapping: fields, units, times and outcomes in the ways that people write them."""

import gzip
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from headway.errors import InputError
from headway.jobs.model.job import Job, Outcome
from headway.jobs.traces import load
from headway.jobs.traces.readers.generic import KINDS
from headway.units import DAY, HOUR, MINUTE, SECOND
from tests.jobs.traces.files import SAMPLES, refusal, written

SAMPLE = SAMPLES / "table.csv"
MAP = "name=id,submit=queue entered,start=began,end=ended,gpus=devices,outcome=state,tenant=team"
SMALL = "submit=t,work=d,gpus=g"
OTHERS = ("submit:ms=t,work:h=d,gpus:percent=g", "submit=t,start=d,end=g,gpus=g", "submit:d=t,work:d=d,cpus=g")
CELLS = ("", "0", "1", "-1", "9" * 30, "1e400", "nan", "1:00", "2024-01-01 00:00:00", "x")


def only(path: Path, columns: str) -> Job:
    """The one job of a table."""
    (job,) = load(path, columns=columns, strict=True).jobs
    return job


def test_the_sample_gives_the_jobs_it_describes() -> None:
    trace = load(SAMPLE, columns=MAP, strict=True)
    assert trace.format == "table"
    assert trace.jobs == (
        Job(0, 0, HOUR, gpus=4, name="train-1", tenant="vision"),
        Job(
            1, 30 * MINUTE, 10 * MINUTE + SECOND // 2, gpus=1, gpu_milli=500, name="train-2", tenant="speech",
            outcome=Outcome.FAILS, outcome_after=10 * MINUTE + SECOND // 2,
        ),
        Job(2, 45 * MINUTE, DAY, gpus=16, name="train-3", outcome=Outcome.CANCELLED, outcome_after=DAY),
    )  # fmt: skip
    assert load(SAMPLE, "table", columns=MAP) == trace


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_separator_is_guessed(tmp_path: Path, separator: str) -> None:
    path = written(tmp_path, "t,d,g\n0,60,2\n".replace(",", separator))
    assert only(path, SMALL) == Job(0, 0, MINUTE, gpus=2)


@pytest.mark.parametrize(
    ("unit", "cell", "time"),
    [
        ("", "1.5", 3 * SECOND // 2),
        (":s", "2", 2 * SECOND),
        (":ms", "1500.5", 1_500_500_000),
        (":us", "7", 7000),
        (":ns", "7", 7),
        (":min", "0.5", 30 * SECOND),
        (":h", "1.25", 75 * MINUTE),
        (":d", "2", 2 * DAY),
        ("", "1-02:03:04", DAY + 2 * HOUR + 3 * MINUTE + 4 * SECOND),
        ("", "10:00", 10 * MINUTE),
    ],
)
def test_spans_are_numbers_of_a_unit_or_days_and_hours(tmp_path: Path, unit: str, cell: str, time: int) -> None:
    assert only(written(tmp_path, f"t,d,g\n0,{cell},1\n"), f"submit=t,work{unit}=d,gpus=g").work == time


@pytest.mark.parametrize(
    ("target", "first", "second", "apart"),
    [
        ("submit", "1700000000", "1700000001.5", 3 * SECOND // 2),
        ("submit:ms", "1700000000000", "1700000000001", SECOND // 1000),
        ("submit:h", "1", "1.5", 30 * MINUTE),
        ("submit", "2024-01-01 00:00:00", "2024-01-01 00:00:01.25", 5 * SECOND // 4),
        ("submit", "2024-01-01T00:00:00Z", "2024-01-01T02:00:00+01:00", HOUR),
        ("submit", "-5", "5", 10 * SECOND),
    ],
)
def test_moments_are_numbers_or_stamps(tmp_path: Path, target: str, first: str, second: str, apart: int) -> None:
    path = written(tmp_path, f"t,d,g\n{first},60,1\n{second},60,1\n")
    assert [job.submit for job in load(path, columns=f"{target}=t,work=d,gpus=g").jobs] == [0, apart]


@pytest.mark.parametrize(
    ("target", "cell", "gpus", "gpu_milli"),
    [
        ("gpus", "8", 8, 1000),
        ("gpus", "2.0", 2, 1000),
        ("gpus", "0.25", 1, 250),
        ("gpus:percent", "50", 1, 500),
        ("gpus:percent", "400", 4, 1000),
        ("gpus:milli", "125", 1, 125),
    ],
)
def test_gpus_are_whole_or_a_share_of_one(tmp_path: Path, target: str, cell: str, gpus: int, gpu_milli: int) -> None:
    job = only(written(tmp_path, f"t,d,g\n0,60,{cell}\n"), f"submit=t,work=d,{target}=g")
    assert (job.gpus, job.gpu_milli) == (gpus, gpu_milli)


def test_every_field_can_be_mapped(tmp_path: Path) -> None:
    cells = {
        "submit": "0", "work": "60", "gpus": "1", "gpu_milli": "500", "estimate": "02:00", "checkpoint": "5",
        "restore": "6", "checkpoint_every": "7", "outcome": "FAILED", "outcome_after": "30", "patience": "9",
        "nodes": "1", "retries": "2", "priority": "-3", "cpus": "2.5", "memory": "64", "communication": "0.25",
        "preemptible": "no", "name": "a", "tenant": "b", "user": "c", "partition": "d", "qos": "e", "model": "f",
        "gpu_types": "x;y", "reservation": "g",
    }  # fmt: skip
    assert set(cells) | {"start", "end"} == set(KINDS)
    text = ",".join(f"c_{field}" for field in cells) + "\n" + ",".join(cells.values()) + "\n"
    columns = ",".join(f"{field}{':GiB' if field == 'memory' else ''}=c_{field}" for field in cells)
    assert only(written(tmp_path, text), columns) == Job(
        0, 0, MINUTE, gpus=1, gpu_milli=500, name="a", tenant="b", partition="d", gpu_types=("x", "y"), nodes=1,
        cpu_milli=2500, memory_bytes=64 * 2**30, estimate=2 * MINUTE, priority=-3, qos="e", user="c", preemptible=False,
        checkpoint=5 * SECOND, restore=6 * SECOND, checkpoint_every=7 * SECOND, communication_ppm=250_000,
        outcome=Outcome.FAILS, outcome_after=30 * SECOND, retries=2, patience=9 * SECOND, model="f",
        reservation="g",
    )  # fmt: skip


def test_jobs_without_gpus_ask_for_cpus(tmp_path: Path) -> None:
    job = only(written(tmp_path, "t,d,c\n0,60,4\n"), "submit=t,work=d,cpus=c")
    assert (job.gpus, job.cpu_milli) == (0, 4000)


def test_parquet_keeps_its_types(tmp_path: Path) -> None:
    start = datetime(2024, 3, 1, 9, tzinfo=UTC)
    frame = pl.DataFrame(
        {
            "asked": pl.Series([start, start + timedelta(hours=1)]).dt.convert_time_zone("Asia/Shanghai"),
            "took": [timedelta(seconds=90), timedelta(days=1, microseconds=1)],
            "n": [1, 8],
            "when": [start.replace(tzinfo=None)] * 2,
        }
    )
    pq.write_table(frame.to_arrow(), tmp_path / "t.parquet")
    trace = load(tmp_path / "t.parquet", columns="submit=asked,work=took,gpus=n", strict=True)
    assert [(job.submit, job.work, job.gpus) for job in trace.jobs] == [
        (0, 90 * SECOND, 1),
        (HOUR, DAY + 1000, 8),
    ]
    assert load(tmp_path / "t.parquet", columns="submit=when,work=took,gpus=n").jobs[1].submit == 0


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ("submit=t,work=d,gpu=g", "unknown field 'gpu'; did you mean 'gpus'?"),
        ("submit=t,work=d,gpus=gg", "unknown column 'gg'; did you mean 'g'? (valid: d, g, t)"),
        ("submit=t,work=d", "field 'gpus' is missing"),
        ("work=d,gpus=g", "field 'submit' is missing"),
        ("submit=t,gpus=g", "field 'work' is missing (or start and end"),
        ("submit=t,start=d,gpus=g", "field 'work' is missing (or start and end"),
        ("submit=t,work=d,end=d,gpus=g", "give work, or start and end, not both"),
        ("submit=t,work=d,gpus=g,gpus=t", "field 'gpus' is given twice"),
        ("submit=t,work:weeks=d,gpus=g", "unknown unit of work 'weeks'"),
        ("submit=t,work=d,gpus=g,name:ms=t", "field 'name' takes no unit ('ms')"),
        ("submit=t,work,gpus=g", "map 'work' is not understood: write field=column"),
        ("submit=t,,gpus=g", "map '' is not understood"),
    ],
)
def test_a_wrong_mapping_is_named(tmp_path: Path, columns: str, line: str) -> None:
    assert line in refusal(written(tmp_path, "t,d,g\n0,60,1\n"), columns=columns)


def test_a_mapping_is_for_tables_and_tables_need_one(tmp_path: Path) -> None:
    path = written(tmp_path, "t,d,g\n0,60,1\n")
    assert "needs a mapping of columns (--map)" in refusal(path, "table")
    assert "format 'synergy' knows its columns" in refusal(path, "synergy", columns=SMALL)
    assert "say with --map which column is what" in refusal(path)


@pytest.mark.parametrize(
    ("row", "column", "rule"),
    [
        ("x,60,1", "t", "is not a number"),
        (",60,1", "t", "is empty"),
        ("5,0,1", "d", "must be above 0"),
        ("5,-1,1", "d", "must be above 0"),
        ("5,1:00,1", "d", "is not a number"),
        ("5,60,1.5", "g", "must be whole GPUs, or less than one: a share never spans devices"),
        ("5,60,-1", "g", "must be at least 0"),
        ("5,60,many", "g", "is not a number"),
        ("1e30,60,1", "t", "is too large"),
        ("5,60,1,7", "row", "is a field too many: the header has 3"),
    ],
)
def test_a_bad_row_is_dropped_and_explained(tmp_path: Path, row: str, column: str, rule: str) -> None:
    path = written(tmp_path, f"t,d,g\n0,60,1\n1,60,1\n{row}\n")
    trace = load(path, columns=SMALL, skip_bad_rows=True)
    assert len(trace.jobs) == 2
    (dropped,) = trace.dropped
    assert (dropped.line, dropped.column, dropped.rule) == (4, column, rule)
    assert rule in refusal(path, strict=True, columns=SMALL)


@pytest.mark.parametrize(
    ("row", "column", "rule"),
    [
        ("2024-01-01 01:00:00,2024-01-01 00:59:59", "e", "is before s"),
        ("2024-01-01 01:00:00,2024-01-01 01:00:00", "e", "is s: the work must be above 0"),
        ("2024-01-01 01:00:00+01:00,2024-01-01 02:00:00+01:00", "s", "names a time zone, most others do not"),
        ("2024-01-01 01:00:00,", "e", "is empty"),
        ("2024-01-01 01:00:00,tomorrow", "e", "is not a time like 2023-05-18 12:34:56"),
    ],
)
def test_bad_starts_and_ends_are_explained(tmp_path: Path, row: str, column: str, rule: str) -> None:
    good = "2024-01-01 00:00:00,2024-01-01 00:10:00,1\n"
    path = written(tmp_path, f"s,e,g\n{good}{good}{row},1\n")
    trace = load(path, columns="submit=s,start=s,end=e,gpus=g", skip_bad_rows=True)
    assert len(trace.jobs) == 2
    (dropped,) = trace.dropped
    assert (dropped.line, dropped.column, dropped.rule) == (4, column, rule)


def test_states_that_nobody_knows_are_bad(tmp_path: Path) -> None:
    path = written(tmp_path, "t,d,g,s\n0,60,1,Completed\n0,60,1,RUNNING\n0,60,1,\n")
    trace = load(path, columns=SMALL + ",outcome=s", skip_bad_rows=True)
    assert [job.outcome for job in trace.jobs] == [Outcome.FINISHES] * 2
    assert trace.dropped[0].rule.startswith("is no outcome that is known (such are: RUNNING)")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"t,d,g\n", "there is a header but no row"),
        ("t,d,g\n0,60,1\n".encode("utf-16"), "line 1 is not UTF-8 text"),
        (b"t,d,g\n0,60,\xe9\n", "line 2 is not UTF-8 text (byte 0xe9)"),
        (gzip.compress(b"t,d,g\n" + b"0,60,1\n" * 99, mtime=0)[:-9], "the gzip data is truncated"),
        (b"PAR1 and no more", "cannot be read as Parquet"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path, content: bytes, line: str) -> None:
    assert line in refusal(written(tmp_path, content), columns=SMALL)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(st.sampled_from(CELLS), min_size=3, max_size=3), max_size=6),
    st.sampled_from([SMALL, *OTHERS]),
)
def test_any_table_gives_jobs_or_one_line(tmp_path: Path, rows: list[list[str]], columns: str) -> None:
    path = written(tmp_path, "t,d,g\n" + "".join(",".join(row) + "\n" for row in rows))
    try:
        trace = load(path, columns=columns, skip_bad_rows=True)
    except InputError as refused:
        line = str(refused)
    else:
        line = ""
        assert len(trace.jobs) + len(trace.dropped) == trace.rows
    assert "\n" not in line
