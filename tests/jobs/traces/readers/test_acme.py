"""Acme's two job traces, Seren's and Kalos', with their zones and types of work."""

from pathlib import Path

import pytest

from headway.jobs.model.job import Job, Outcome
from headway.jobs.traces import guess, load
from headway.units import DAY, HOUR, MINUTE
from tests.jobs.traces.files import SAMPLES, refusal, written

SEREN, KALOS = SAMPLES / "acme.csv", SAMPLES / "acme-kalos.csv"


def test_seren_gives_the_jobs_it_describes_in_order_of_true_time() -> None:
    trace = load(SEREN, strict=True)
    assert trace.format == guess(SEREN) == "acme"
    evaluation, pretrain, other, tuning = trace.jobs
    assert evaluation == Job(
        0, 0, 10 * MINUTE, gpus=8, cpu_milli=128_000, name="9000001", user="u0001", qos="Evaluation", model="Evaluation"
    )
    assert (pretrain.outcome, pretrain.outcome_after, pretrain.gpus) == (Outcome.FAILS, 2 * DAY, 128)
    assert (other.gpus, other.cpu_milli) == (0, 16_000)
    assert (tuning.submit, tuning.outcome, tuning.work) == (2 * HOUR, Outcome.CANCELLED, HOUR)
    assert trace.notes == ("1 job without a GPU: they count as jobs, and wait for CPUs only",)


def test_kalos_has_memory_and_a_duration_that_includes_the_wait() -> None:
    trace = load(KALOS, strict=True)
    assert trace.format == guess(KALOS) == "acme"
    assert [(job.work, job.memory_bytes) for job in trace.jobs] == [(30 * MINUTE, 3200 * 10**9), (MINUTE, 64 * 10**9)]
    assert trace.notes == ("2 jobs with a duration that is not end_time - start_time: the times are taken",)


@pytest.mark.parametrize(
    ("old", "new", "column", "rule"),
    [
        ("2023-06-01 09:10:02+00:00", "", "start_time", "it never started"),
        ("COMPLETED", "PENDING", "state", "must be one of completed"),
        ("2023-06-01 09:11:02+00:00", "2023-05-01 09:11:02+00:00", "end_time", "is before start_time"),
        ("2023-06-01 09:10:02+00:00", "2023-06-01 09:10:02", "start_time", "names no time zone, most others do"),
        (",64,", ",much,", "mem_per_pod_GB", "is not a number"),
    ],
)
def test_a_bad_row_is_dropped_and_explained(tmp_path: Path, old: str, new: str, column: str, rule: str) -> None:
    path = written(tmp_path, KALOS.read_text().replace(old, new))
    trace = load(path, skip_bad_rows=True)
    assert [job.name for job in trace.jobs] == ["dlcaaaa0000000001"]
    (dropped,) = trace.dropped
    assert (dropped.line, dropped.column) == (3, column)
    assert rule in dropped.rule
    assert rule in refusal(path, strict=True)


def test_a_missing_column_and_a_header_alone_are_named(tmp_path: Path) -> None:
    header = SEREN.read_text().splitlines()[0]
    assert "there is a header but no row" in refusal(written(tmp_path, header + "\n"))
    assert "column 'state' is missing" in refusal(written(tmp_path, header.replace("state", "st") + "\nx\n"), "acme")
