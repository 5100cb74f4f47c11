"""Runs side by side."""

from headway.metrics.compare import changes

RUNS: list[dict[str, str | int | float | bool | None]] = [
    {"policy": "fifo", "jct_mean_s": 7200.0, "preemptions": 0, "ftf_mean": None},
    {"policy": "srtf", "jct_mean_s": 3600.0, "preemptions": 1234, "ftf_mean": 1.5},
    {"policy": "las", "jct_mean_s": None, "preemptions": 3},
]


def test_runs_are_measured_against_the_first() -> None:
    assert changes(RUNS, "jct_mean_s") == [None, -0.5, None]
    assert changes(RUNS[::-1], "preemptions") == [None, 1234 / 3 - 1, -1.0]


def test_there_is_no_change_from_nothing_or_from_what_is_unknown() -> None:
    assert changes(RUNS, "preemptions") == [None, None, None]
    assert changes(RUNS, "ftf_mean") == [None, None, None]
    assert changes([], "ftf_mean") == []
