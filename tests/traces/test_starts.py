"""Recorded starts: kept beside the jobs by formats that tell them, on the clock of the run."""

from pathlib import Path

from headway.traces import load
from headway.units import SECOND

SAMPLES = Path(__file__).parent.parent / "samples"
TABLE = """\
id,asked,began,over,n
late,2026-01-01 10:00:10,2026-01-01 10:00:40,2026-01-01 10:01:40,1
first,2026-01-01 10:00:00,2026-01-01 10:00:05,2026-01-01 10:00:06,2
bad,2026-01-01 09:00:00,2026-01-01 10:00:05,2026-01-01 10:00:01,2
"""


def test_starts_count_from_the_first_submission_of_the_rows_that_are_kept(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE)
    trace = load(tmp_path / "t.csv", columns="name=id,submit=asked,start=began,end=over,gpus=n")
    assert [job.name for job in trace.jobs] == ["first", "late"]
    assert trace.starts == {"first": 5 * SECOND, "late": 40 * SECOND}


def test_each_format_with_a_start_tells_it_and_others_do_not() -> None:
    told = {name: load(SAMPLES / name) for name in ("sacct.txt", "helios-log.csv", "acme.csv", "philly.csv")}
    for name in ("sacct.txt", "helios-log.csv", "acme.csv"):
        trace = told[name]
        assert trace.starts, name
        assert set(trace.starts) <= {job.name for job in trace.jobs}
        submit = {job.name: job.submit for job in trace.jobs}
        assert sum(start >= submit[job] for job, start in trace.starts.items()) > len(trace.starts) / 2
    assert told["philly.csv"].starts == {}
