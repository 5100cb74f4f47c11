"""The Standard Workload Format: processors are CPUs, -1 is unknown, and what nobody knows is dropped."""

import gzip
from pathlib import Path

import pytest

from headway.formats import toml
from headway.jobs.model.job import Job, Outcome
from headway.jobs.tables.settings import Experiment
from headway.jobs.traces import guess, load
from headway.runs.play import run
from headway.units import HOUR, MINUTE, SECOND
from tests.jobs.traces.files import SAMPLES, refusal, written

SAMPLE = SAMPLES / "swf.swf"
GOOD = "1 0 10 600 16 590 -1 16 900 -1 1 1 1 -1 1 1 -1 -1\n"


def test_the_sample_gives_the_jobs_it_describes() -> None:
    trace = load(SAMPLE, strict=True)
    assert trace.format == guess(SAMPLE) == "swf"
    first, failed, large, unknown, moment, cancelled = trace.jobs
    assert first == Job(
        0, 0, 10 * MINUTE, gpus=0, cpu_milli=16_000, estimate=15 * MINUTE, name="1", user="u1", tenant="g1",
        model="app3", qos="q1", partition="p1",
    )  # fmt: skip
    assert (failed.outcome, failed.estimate, failed.cpu_milli) == (Outcome.FAILS, 0, 1000)
    assert (large.memory_bytes, large.estimate) == (64 * 1048576 * 1024, 3 * HOUR)
    assert (unknown.work, unknown.outcome) == (300 * SECOND, Outcome.FINISHES)
    assert (moment.work, moment.tenant, moment.partition) == (SECOND, "default", "")
    assert (cancelled.outcome, cancelled.work, cancelled.cpu_milli) == (Outcome.CANCELLED, 1000 * SECOND, 32_000)
    assert trace.notes == (
        "the machine had 64 processors: one node with as many CPUs is like it",
        "1 job without a run time: the CPU time of a processor is taken",
        "1 job ran for less than a second: taken as 1 s",
        "1 job that waited for another to end (preceding job, think time): not played out",
    )


def test_a_log_runs_on_a_cluster_without_gpus() -> None:
    document = {
        "trace": {"path": str(SAMPLE)},
        "cluster": {"node_groups": [{"nodes": 1, "gpus": 0, "cpus": 64}]},
        "policy": {"name": "fifo+easy"},
    }
    assert run(toml.typed(document, Experiment, "test")) is not None


def test_comments_blank_lines_tabs_and_a_missing_header_are_harmless(tmp_path: Path) -> None:
    path = written(tmp_path, "\n" + GOOD.replace(" ", "\t ") + "\n; the end\n", "x")
    trace = load(path, strict=True)
    assert trace.format == "swf"
    assert trace.rows == len(trace.jobs) == 1


@pytest.mark.parametrize(
    ("row", "column", "rule"),
    [
        ("2 5 -1 -1 8 -1 -1 8 900 -1 0 1 1 -1 1 1 -1 -1", "run", "is unknown, as is the CPU time"),
        ("2 5 9 0 8 -1 -1 8 900 -1 5 1 1 -1 1 1 -1 -1", "run", "it never started, how long it would have run"),
        ("2 5 9 60 -1 -1 -1 -1 900 -1 1 1 1 -1 1 1 -1 -1", "processors", "must be above 0"),
        ("2 5 9 60 8 -1 -1 8 900 -1 3 1 1 -1 1 1 -1 -1", "status", "is a part of a job: another line is the whole"),
        ("2 5 9 60 8 -1 -1 8 900 -1 9 1 1 -1 1 1 -1 -1", "status", "must be one of -1, 0, 1, 2, 3, 4, 5"),
        ("2 -5 9 60 8 -1 -1 8 900 -1 1 1 1 -1 1 1 -1 -1", "submit", "must be at least 0"),
        ("2 5 9 long 8 -1 -1 8 900 -1 1 1 1 -1 1 1 -1 -1", "run", "is not a number"),
        ("2 5 9 60 8 -1 -1 8 900 -1 1 1 1 -1 1 1", "job", "has fewer than 18 fields on its line"),
        ("2 5 9 60 8 -1 -1 8 900 -1 1 1 1 -1 1 1 -1 -1 7", "row", "is a field too many: the header has 18"),
        ("1 5 9 60 8 -1 -1 8 900 -1 1 1 1 -1 1 1 -1 -1", "job", "occurs twice: ids must be unique"),
    ],
)
def test_a_bad_line_is_dropped_and_explained(tmp_path: Path, row: str, column: str, rule: str) -> None:
    path = written(tmp_path, f"; Version: 2.2\n{GOOD}{row}\n", "log.swf")
    trace = load(path, skip_bad_rows=True)
    assert [job.name for job in trace.jobs] == ["1"]
    (dropped,) = trace.dropped
    assert (dropped.line, dropped.column) == (3, column)
    assert rule in dropped.rule
    assert rule in refusal(path, strict=True)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"; Version: 2.2\n; MaxProcs: 4\n", "there are comments but no job"),
        (b"; Note: caf\xe9\n" + GOOD.encode(), "line 1 is not UTF-8 text"),
        (GOOD.encode("utf-16"), "line 1 is not UTF-8 text"),
        (gzip.compress(GOOD.encode() * 99, mtime=0)[:-9], "the gzip data is truncated"),
    ],
)
def test_a_log_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path, content: bytes, line: str) -> None:
    assert line in refusal(written(tmp_path, content, "x"), "swf")
