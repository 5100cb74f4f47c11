"""Recorded starts: kept beside the jobs by formats that tell them, on the clock of the run."""

from pathlib import Path

import pytest

from headway.cli import main
from headway.jobs.traces import load, write
from headway.units import SECOND

SAMPLES = Path(__file__).parents[2] / "samples"
TABLE = """\
id,asked,began,over,n
late,2026-01-01 10:00:10,2026-01-01 10:00:40,2026-01-01 10:01:40,1
first,2026-01-01 10:00:00,2026-01-01 10:00:05,2026-01-01 10:00:06,2
bad,2026-01-01 09:00:00,2026-01-01 10:00:05,2026-01-01 10:00:01,2
"""


def test_starts_count_from_the_first_submission_of_the_rows_that_are_kept(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE)
    trace = load(tmp_path / "t.csv", columns="name=id,submit=asked,start=began,end=over,gpus=n", skip_bad_rows=True)
    assert [job.name for job in trace.jobs] == ["first", "late"]
    assert trace.starts == {"first": 5 * SECOND, "late": 40 * SECOND}


def test_each_format_with_a_start_tells_it_and_others_do_not() -> None:
    told = {name: load(SAMPLES / name) for name in ("sacct.txt", "helios-log.csv", "acme.csv", "swf.swf", "philly.csv")}
    for name in ("sacct.txt", "helios-log.csv", "acme.csv", "swf.swf"):
        trace = told[name]
        assert trace.starts, name
        assert set(trace.starts) <= {job.name for job in trace.jobs}
        submit = {job.name: job.submit for job in trace.jobs}
        assert sum(start >= submit[job] for job, start in trace.starts.items()) > len(trace.starts) / 2
    assert told["philly.csv"].starts == {}


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.csv.gz"])
def test_starts_outlive_a_conversion_and_a_slice(tmp_path: Path, name: str) -> None:
    read = load(SAMPLES / "sacct.txt")
    write(read.jobs, tmp_path / name, read.starts)
    again = load(tmp_path / name, "headway")
    assert again.starts == read.starts
    assert again.jobs == read.jobs
    with pytest.raises(SystemExit):
        main(
            ["trace", "slice", str(tmp_path / name), str(tmp_path / "part.csv"), "--jobs", "2:", "--format", "headway"]
        )
    part = load(tmp_path / "part.csv")
    shift = read.jobs[2].submit
    assert part.starts == {job.name: read.starts[job.name] - shift for job in read.jobs[2:] if job.name in read.starts}
    with pytest.raises(SystemExit):
        main(["trace", "scale", str(tmp_path / "part.csv"), str(tmp_path / "fast.csv"), "--load", "2"])
    assert load(tmp_path / "fast.csv").starts == {}
