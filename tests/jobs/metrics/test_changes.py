"""Runs side by side."""

from typing import Any

import numpy as np
import pytest

from headway.jobs.metrics.changes import DIFFERENT_JOBS, changed, changed_over_seeds, changes
from headway.statistics.replications import Sample

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


# --- over what a change is --------------------------------------------------------------------------------------


def sample(**jct_s: float) -> Sample:
    return Sample(tuple(jct_s), np.array(list(jct_s.values())))


def several(number: int, factor: float = 1.0) -> dict[str, float]:
    return {f"j{i}": factor * (1 + i % 5) for i in range(number)}


def test_point_and_interval_are_over_the_same_jobs() -> None:
    reference = sample(**several(40))
    mine = sample(**several(40, 0.5), monster=1e6)  # which the baseline could not run
    found = changed(mine, reference, 0.95)
    assert found.value == pytest.approx(-0.5)
    assert found.interval == pytest.approx((-0.5, -0.5))
    assert found.over == "40 jobs in common"


def test_the_same_jobs_are_all_of_them() -> None:
    found = changed(sample(**several(40, 2.0)), sample(**several(40)), 0.95)
    assert (found.value, found.over) == (pytest.approx(1.0), None)
    assert changed(sample(**several(40, 2.0)), sample(**several(40)), 0.0).interval is None


def test_different_jobs_are_said_to_be_different() -> None:
    found = changed(sample(a=2.0, b=4.0), sample(c=1.0), 0.95)
    assert found.row() == {
        "jct_change": 2.0,
        "jct_change_low": None,
        "jct_change_high": None,
        "jct_change_over": DIFFERENT_JOBS,
    }


def of_seeds(**means: float) -> dict[str, Any]:
    runs = [{"seed": int(seed[1:]), "jct_mean_s": mean} for seed, mean in means.items()]
    return {"jct_mean_s": sum(means.values()) / len(means), "runs": runs}


def test_point_and_interval_are_over_the_same_seeds() -> None:
    reference = of_seeds(s0=10.0, s1=11.0, s2=9.0, s3=100.0)
    mine = of_seeds(s0=10.1, s1=10.9, s2=9.1)  # the last seed failed
    found = changed_over_seeds(mine, reference, 0.95)
    assert found.interval is not None
    assert found.value == pytest.approx(30.1 / 30 - 1)
    assert found.interval[0] <= found.value <= found.interval[1]
    assert found.over == "3 seeds in common"
    assert changed_over_seeds(reference, of_seeds(s7=1.0), 0.95).over == "no seed in common"


def test_what_draws_nothing_is_paired_with_every_seed_and_one_seed_with_itself() -> None:
    reference, one = of_seeds(s0=10.0, s1=12.0), {"seed": 1, "jct_mean_s": 6.0}
    assert changed_over_seeds(one, reference, 0.95).value == pytest.approx(6 / 11 - 1)
    alone = changed_over_seeds(one, reference, 0.95, (True, True))
    assert (alone.value, alone.interval, alone.over) == (pytest.approx(-0.5), None, "1 seed in common")
