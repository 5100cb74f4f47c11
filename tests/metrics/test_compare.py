"""Runs side by side."""

import pytest

from headway.errors import ExperimentError
from headway.metrics.compare import COLUMNS, Column, best, compare, printed, written

RUNS: list[dict[str, str | int | float | bool | None]] = [
    {"policy": "fifo", "jct_mean_s": 7200.0, "gpu_utilisation": 0.5, "preemptions": 0, "ftf_mean": None},
    {"policy": "srtf", "jct_mean_s": 3600.0, "gpu_utilisation": 0.6, "preemptions": 1234, "ftf_mean": 1.5},
]
SOME = (
    Column("jct_mean_s", "JCT mean", "time", "less"),
    Column("gpu_utilisation", "GPUs used", "percent", "more"),
    Column("preemptions", "preempted", "count"),
    Column("ftf_mean", "rho", "factor", "less"),
)


def test_the_first_run_is_the_baseline_unless_another_is_named() -> None:
    fifo, srtf = compare(RUNS, columns=SOME)
    assert (fifo.baseline, srtf.baseline) == (True, False)
    assert set(fifo.change.values()) == {None}
    assert srtf.change == {
        "jct_mean_s": -0.5,
        "gpu_utilisation": pytest.approx(0.2),
        "preemptions": None,
        "ftf_mean": None,
    }
    fifo, srtf = compare(RUNS, "srtf", SOME)
    assert (fifo.change["jct_mean_s"], srtf.change["jct_mean_s"]) == (1.0, None)


def test_a_baseline_that_was_not_run_is_named_with_those_that_were() -> None:
    with pytest.raises(ExperimentError, match=r"unknown baseline 'strf'; did you mean 'srtf'\? \(valid: fifo, srtf\)"):
        compare(RUNS, "strf")


def test_rows_are_ready_to_be_printed() -> None:
    headings, lines = printed(compare(RUNS, columns=SOME), SOME)
    assert headings == ["policy", "JCT mean", "GPUs used", "preempted", "rho"]
    assert lines[0] == ["fifo", "2h 00m", "50.0 %", "0", "–"]
    assert lines[1] == ["srtf", "1h 00m (-50.0 %)", "60.0 % (+20.0 %)", "1,234", "1.50"]


def test_the_best_of_a_column() -> None:
    rows = compare(RUNS, columns=SOME)
    assert [best(rows, column) for column in SOME] == [3600, 0.6, None, 1.5]


def test_every_standard_column_can_be_written() -> None:
    assert all(written(1.5, column.form) for column in COLUMNS)
