"""What is wrong with a file or a row is one line that names it; nothing else than TraceError ever comes out."""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from headway.errors import TraceError
from headway.jobs.model.job import Job
from headway.jobs.traces import Trace, load, write

HELIOS = "job_id,arrival_s,service_sec,gpu_count\n"
OWN = "submit_s,work_s,gpus\n"
HEADERS = {
    "headway": OWN,
    "helios-csv": HELIOS,
    "philly-csv": "timestamp,duration,num_gpus,cluster\n",
    "synergy": "job_id,model,arrival_s,total_iters,iter_time_s_at_fair_share,gpus\n",
    "acme": "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time\n",
    "helios-log": "job_id,user,vc,gpu_num,cpu_num,state,submit_time,start_time,end_time\n",
    "swf": "",
    "philly-json": "",
}
CELLS = [
    "",
    "0",
    "1",
    "-1",
    "1e400",
    "1e99999999",
    "9" * 40,
    '"',
    "a\nb",
    "é",
    "nan",
    "\x00",
    " 2 ",
    "2017-10-09 07:01:55",
]
GOOD = "good,0,60,1\n"


def _file(folder: Path, content: str | bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def _refusal(path: Path, format: str = "helios-csv", strict: bool = False) -> str:
    with pytest.raises(TraceError) as caught:
        load(path, format, strict=strict)
    line = str(caught.value)
    assert "\n" not in line
    assert str(path) in line
    return line


def _outcome(path: Path, format: str) -> Trace | None:
    """The trace, or None where it was refused in one line; any other exception passes through."""
    try:
        return load(path, format, skip_bad_rows=True)
    except TraceError as refusal:
        line = str(refusal)
    assert "\n" not in line
    return None


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "the file is empty"),
        (b"\n \n", "the file is empty"),
        (HELIOS.encode(), "there is a header but no row"),
        (HELIOS.encode() + b"\n\n", "there is a header but no row"),
        (b"\xff\xfej\x00o\x00", "line 1 is not UTF-8 text (byte 0xff)"),
        (HELIOS.encode() + b"caf\xe9,0,1,1\n", "line 2 is not UTF-8 text (byte 0xe9)"),
        (b"j\x00o\x00b\x00\n\x00", "line 1 holds NUL bytes"),
        (b"job_id\rarrival_s\r", "line 1 cannot be read as a header"),
        (b"PAR1abc", "is a Parquet file"),
        (
            b"job_id,arrival_s,service_sec\na,1,1\n",
            "column 'gpu_count' is missing (found: job_id, arrival_s, service_sec)",
        ),
        (b"job_id,arrival_s,arrival_s\na,1,1\n", "column 'arrival_s' occurs twice"),
        (b"job_id,,gpu_count\na,1,1\n", "column 2 of the header has no name"),
        (b"\n" + HELIOS.encode() + GOOD.encode(), "line 1 is blank"),
        (
            HELIOS.encode() + b"a,0,0,1\nb,0,1,0\n",
            "all 2 rows are bad; the first is line 2: service_sec '0' must be above 0",
        ),
    ],
)
@pytest.mark.parametrize("strict", [False, True])
def test_a_file_that_cannot_be_used_is_refused_in_one_line(
    tmp_path: Path, content: bytes, rule: str, strict: bool
) -> None:
    expected = rule.removeprefix("all 2 rows are bad; the first is ") if strict else rule
    assert expected in _refusal(_file(tmp_path, content), strict=strict)


@pytest.mark.parametrize("strict", [False, True])
def test_missing_files_and_directories_are_named(tmp_path: Path, strict: bool) -> None:
    assert "there is no such file" in _refusal(tmp_path / "absent.csv", strict=strict)
    assert "is a directory" in _refusal(tmp_path, strict=strict)
    assert "cannot be read" in _refusal(Path(str(tmp_path) + "/a" * 3000), strict=strict)


@pytest.mark.parametrize("strict", [False, True])
def test_damaged_gzip_is_named(tmp_path: Path, strict: bool) -> None:
    packed = gzip.compress((HELIOS + GOOD * 50).encode(), mtime=0)
    damaged = packed[:20] + b"\xff\xff\xff" + packed[23:]
    assert "truncated" in _refusal(_file(tmp_path, packed[:-12], "cut.csv.gz"), strict=strict)
    assert "damaged" in _refusal(_file(tmp_path, damaged, "bad.csv.gz"), strict=strict)
    assert "not gzip data" in _refusal(_file(tmp_path, HELIOS, "plain.csv.gz"), strict=strict)


@pytest.mark.parametrize(
    ("row", "column", "value", "rule"),
    [
        ("a,,60,1", "arrival_s", "", "is empty"),
        ("a,soon,60,1", "arrival_s", "soon", "is not a number"),
        ("a,-1,60,1", "arrival_s", "-1", "must be at least 0"),
        ("a,0,nan,1", "service_sec", "nan", "is not a finite number"),
        ("a,0,inf,1", "service_sec", "inf", "is not a finite number"),
        ("a,0,1e30,1", "service_sec", "1e30", "is too large"),
        ("a,0,-5,1", "service_sec", "-5", "must be above 0"),
        ("a,0,0.0,1", "service_sec", "0.0", "must be above 0"),
        ("a,0,60,1.5", "gpu_count", "1.5", "is not a whole number"),
        ("a,0,60,0", "gpu_count", "0", "must be at least 1"),
        ("a,0,60", "gpu_count", "", "is empty"),
        (",0,60,1", "job_id", "", "is empty"),
        ("good,5,60,1", "job_id", "good", "occurs twice: ids must be unique"),
        ("a,0,60,1,7", "row", "7", "is a field too many: the header has 4"),
        ('"a,0,60,1', "job_id", '"a', None),
    ],
)
def test_a_bad_row_is_dropped_and_explained_and_strict_stops_at_it(
    tmp_path: Path, row: str, column: str, value: str, rule: str | None
) -> None:
    path = _file(tmp_path, HELIOS + GOOD + row + "\n" + "last,9,60,2\n")
    trace = load(path, "helios-csv", skip_bad_rows=True)
    if rule is None:  # a stray quote costs no other row
        assert [job.name for job in trace.jobs] == ["good", '"a', "last"]
        return
    assert [job.name for job in trace.jobs] == ["good", "last"]
    assert trace.rows == 3
    (dropped,) = trace.dropped
    assert (dropped.line, dropped.column, dropped.value, dropped.rule) == (3, column, value, rule)
    assert _refusal(path, strict=True).endswith(f"line 3: {column} {value!r} {rule}")


def test_quotes_that_span_lines_do_not_swallow_rows(tmp_path: Path) -> None:
    path = _file(tmp_path, HELIOS + '"a,0,60,1\nb,1,60,1\nc,2,60,1\nd",3,60,1\n')
    trace = load(path, "helios-csv")
    assert len(trace.jobs) == 4
    assert "quotes do not match: read as ordinary characters" in trace.notes


def test_a_row_whose_namesake_was_dropped_is_kept(tmp_path: Path) -> None:
    trace = load(_file(tmp_path, HELIOS + "a,0,bad,1\na,5,60,1\n"), "helios-csv", skip_bad_rows=True)
    assert [job.name for job in trace.jobs] == ["a"]


@pytest.mark.parametrize("stamp", ["2017-13-01 00:00:00", "09/10/2017", "2017-10-09", "9999-01-01 00:00:00", ""])
def test_philly_timestamps_that_are_none_are_dropped(tmp_path: Path, stamp: str) -> None:
    text = f"timestamp,duration,num_gpus,cluster\n{stamp},1,1,a\n2017-10-09 07:01:55,2,1,a\n"
    trace = load(_file(tmp_path, text), "philly-csv", skip_bad_rows=True)
    assert [dropped.column for dropped in trace.dropped] == ["timestamp"]
    assert len(trace.jobs) == 1


def test_synergy_work_that_rounds_to_nothing_or_overflows_is_dropped(tmp_path: Path) -> None:
    header = "job_id,model,arrival_s,total_iters,iter_time_s_at_fair_share,gpus\n"
    text = header + "a,m,0,1,0.4,1\nb,m,0,9000000000000000,1000,1\nc,m,0,10,1,1\n"
    trace = load(_file(tmp_path, text), "synergy", skip_bad_rows=True)
    assert [job.name for job in trace.jobs] == ["c"]
    assert [dropped.line for dropped in trace.dropped] == [2, 3]


def test_headway_columns_are_checked_by_name(tmp_path: Path) -> None:
    unknown = _refusal(_file(tmp_path, "submit_s,work_s,gpus,tennant\n0,1,1,a\n"), "headway")
    assert "unknown column 'tennant'; did you mean 'tenant'?" in unknown
    assert "say the same" in _refusal(_file(tmp_path, "submit_s,submit_ns,work_s,gpus\n0,0,1,1\n"), "headway")
    assert "column 'work_s' is missing" in _refusal(_file(tmp_path, "submit_s,gpus\n0,1\n"), "headway")


@pytest.mark.parametrize(
    ("columns", "cells", "rule"),
    [
        ("gpu_milli", "500", None),
        ("gpu_milli", "1500", "gpu_milli 1500 must lie in 1..1000"),
        ("nodes", "2", "gpus 1 cannot be divided evenly over nodes 2"),
        ("preemptible", "maybe", "must be one of true, false, yes, no, 1, 0"),
        ("outcome", "explodes", "must be one of finishes, fails, cancelled"),
        ("outcome,outcome_after_s", "fails,99", "outcome_after 99000000000 must lie in 1..work (60000000000)"),
        ("communication", "1.5", "communication_ppm 1500000 must lie in 0..1000000"),
        ("retries", "-1", "must be at least 0"),
        ("cpus", "-0.5", "must be at least 0"),
    ],
)
def test_headway_rows_keep_the_rules_of_a_job(tmp_path: Path, columns: str, cells: str, rule: str | None) -> None:
    blanks = "," * cells.count(",")
    path = _file(tmp_path, f"submit_s,work_s,gpus,{columns}\n5,60,1,{cells}\n7,60,1,{blanks}\n")
    trace = load(path, "headway", skip_bad_rows=True)
    assert [dropped.rule for dropped in trace.dropped] == ([] if rule is None else [rule])
    assert len(trace.jobs) == (2 if rule is None else 1)
    assert trace.jobs[0].submit == 0


def test_lines_are_counted_past_fields_that_hold_line_breaks(tmp_path: Path) -> None:
    path = _file(tmp_path, 'submit_s,work_s,gpus,name\n0,1,1,"two\nlines"\nx,1,1,b\n')
    trace = load(path, "headway", skip_bad_rows=True)
    assert trace.jobs[0].name == "two\nlines"
    assert [dropped.line for dropped in trace.dropped] == [4]


def test_broken_parquet_is_refused_in_one_line(tmp_path: Path) -> None:
    for content in (b"PAR1", b"PAR1" + b"\x00" * 40 + b"PAR1", b"no parquet at all"):
        assert "cannot be read as Parquet" in _refusal(_file(tmp_path, content, "t.parquet"), "headway")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 2000), value=st.integers(0, 255), checked=st.booleans())
def test_a_changed_byte_in_a_parquet_file_never_gives_another_exception(
    tmp_path: Path, at: int, value: int, checked: bool
) -> None:
    path = tmp_path / "t.parquet"
    if checked:
        write([Job(0, 0, 60, user="ada", tenant="vision"), Job(1, 5, 60, user="bo")], path)
    else:
        columns = {"submit_s": [0, 5], "work_s": [60, 60], "gpus": [1, 2], "user": ["ada", "bo"]}
        pq.write_table(pa.table(columns), path, compression="none")
    content = bytearray(path.read_bytes())
    content[at % len(content)] = value
    _outcome(_file(tmp_path, bytes(content), "t.parquet"), "headway")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    format=st.sampled_from(sorted(HEADERS)),
    cells=st.lists(st.lists(st.sampled_from(CELLS), max_size=7), max_size=5),
)
def test_any_text_gives_jobs_or_one_line(tmp_path: Path, format: str, cells: list[list[str]]) -> None:
    path = _file(tmp_path, HEADERS[format] + "\n".join(",".join(row) for row in cells))
    trace = _outcome(path, format)
    assert trace is None or len(trace.jobs) + len(trace.dropped) == trace.rows


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=80), suffix=st.sampled_from([".csv", ".csv.gz", ".parquet"]))
def test_any_bytes_are_refused_in_one_line(tmp_path: Path, content: bytes, suffix: str) -> None:
    assert _refusal(_file(tmp_path, content, "t" + suffix), "headway")


SAMPLES = Path(__file__).parents[2] / "samples"
SAMPLE_FORMATS = {
    "acme.csv": "acme",
    "headway.csv": "headway",
    "helios-log.csv": "helios-log",
    "openb-pods.csv": "openb",
    "philly-json.json": "philly-json",
    "pods.json": "kubernetes",
    "sacct.json": "slurm",
    "sacct.txt": "slurm",
    "scontrol-jobs.txt": "slurm",
    "swf.swf": "swf",
}
ODD = (
    "-8",
    "8.5",
    "²",
    "9" * 30,
    "1e400",
    "null",
    "",
    "[",
    "]",
    ":",
    ",",
    "=",
    "|",
    "\n",
    "\x00",
    '"',
    "{",
    "2024-13-01",
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(sorted(SAMPLE_FORMATS)),
    cuts=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 12), st.sampled_from(ODD)), min_size=1, max_size=3),
)
def test_a_sample_that_was_tampered_with_gives_jobs_or_one_line(
    tmp_path: Path, name: str, cuts: list[tuple[float, int, str]]
) -> None:
    content = (SAMPLES / name).read_text(encoding="utf-8")
    for place, length, odd in cuts:
        at = int(place * len(content))
        content = content[:at] + odd + content[at + length :]
    trace = _outcome(_file(tmp_path, content, name), SAMPLE_FORMATS[name])
    assert trace is None or trace.jobs


@pytest.mark.parametrize("format", ["philly-json", "kubernetes", "slurm"])
@pytest.mark.parametrize(
    "before", ["", '[{"jobid": "a", "attempts": ', '{"apiVersion": "v1", "kind": "List", "items": ']
)
def test_json_that_is_nested_too_deeply_is_refused_in_one_line(tmp_path: Path, format: str, before: str) -> None:
    assert _refusal(_file(tmp_path, before + "[" * 100_000, "t.json"), format)


def test_a_list_that_is_broken_after_an_odd_entry_is_refused_in_one_line(tmp_path: Path) -> None:
    assert "is not whole JSON" in _refusal(_file(tmp_path, '[{"jobid": 5}, {"jobid": "a" 7}]', "t.json"), "philly-json")
