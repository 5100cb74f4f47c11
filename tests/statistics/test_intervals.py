"""Intervals cover what they say, on processes whose truth is known; and fail to where they must."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays

from headway.statistics import intervals as bootstrap
from headway.statistics.intervals import (
    FEWEST_JOBS,
    block_length,
    mean_interval,
    paired_interval,
    quantile_interval,
    replicated_change,
    replicated_interval,
    student,
    summed_interval,
)
from headway.streams import stream

Floats = np.ndarray[tuple[int, int], np.dtype[np.float64]]
RUNS = 150


def autoregressive(length: int, memory: float, name: str) -> Floats:
    """So many runs of a process in which each value is ``memory`` times the one before, plus noise; its mean is 0."""
    noise = stream(1, name).standard_normal((RUNS, length + 200))
    for step in range(1, noise.shape[1]):
        noise[:, step] += memory * noise[:, step - 1]
    return noise[:, 200:]


def covered(intervals: list[tuple[float, float]], truth: float) -> float:
    return float(np.mean([low <= truth <= high for low, high in intervals]))


@pytest.mark.parametrize(("length", "memory"), [(60, 0.0), (1000, 0.0), (400, 0.5), (1500, 0.9)])
def test_the_mean_is_covered_as_often_as_is_said(length: int, memory: float) -> None:
    runs = autoregressive(length, memory, f"mean {length}")
    assert 0.9 <= covered([mean_interval(run, resamples=300) for run in runs], 0.0) <= 0.985


def test_drawing_jobs_one_by_one_would_cover_far_less() -> None:
    runs = autoregressive(1500, 0.9, "mean 1500")
    assert covered([mean_interval(run, resamples=300, block=1) for run in runs], 0.0) < 0.5


@pytest.mark.parametrize("memory", [0.0, 0.8])
def test_a_quantile_is_covered_too(memory: float) -> None:
    runs = autoregressive(1500, memory, f"quantile {memory}")
    truth = 1.2815515655446004 / math.sqrt(1 - memory**2)
    assert 0.89 <= covered([quantile_interval(run, 0.9, resamples=300) for run in runs], truth) <= 0.985


def test_pairs_tell_a_change_that_means_alone_could_not() -> None:
    lengths = stream(3, "lengths").lognormal(0, 2, (RUNS, 800))
    slower = 1.02 * lengths + stream(3, "noise").normal(0, 0.05, lengths.shape)
    intervals = [paired_interval(a, b, resamples=300) for a, b in zip(slower, lengths, strict=True)]
    assert covered(intervals, 0.02) >= 0.88
    assert np.mean([low > 0 for low, _ in intervals]) > 0.9
    alone = [mean_interval(run, resamples=300) for run in lengths[:20]]
    assert all(high / low > 1.2 for low, high in alone)


def test_a_job_that_is_missing_in_one_run_counts_in_the_other() -> None:
    values, reference = np.array([1.0, np.nan, 3.0, 5.0] * 50), np.array([2.0, 9.0, 6.0, 10.0] * 50)
    low, high = paired_interval(values, reference)
    assert low <= 3.0 / 6.75 - 1 <= high
    assert all(map(math.isnan, paired_interval(np.full(9, np.nan), np.ones(9))))
    assert all(map(math.isnan, paired_interval(np.ones(9), np.zeros(9))))


def test_batches_of_jobs_give_nearly_the_interval_of_the_jobs() -> None:
    values = stream(5, "jobs").lognormal(0, 1, 8000)
    reference = values * stream(5, "other").uniform(0.9, 1.5, 8000)
    whole = paired_interval(values, reference)
    pairs = zip(np.split(values, 200), np.split(reference, 200), strict=True)
    sums = np.array([[a.sum(), len(a), b.sum(), len(b)] for a, b in pairs])
    assert summed_interval(sums) == pytest.approx(whole, abs=0.3 * (whole[1] - whole[0]))


# --- what cannot be ---------------------------------------------------------------------------------------------


def test_two_jobs_say_nothing_about_others() -> None:
    assert unknown(paired_interval([1.0, 2.0], [0.0, 5.0]))


def test_where_a_resample_may_hold_none_that_counts_there_is_no_interval() -> None:
    known = np.full(40, np.nan)
    known[:9] = np.arange(1.0, 10.0)
    assert unknown(paired_interval(known, np.ones(40)))
    assert unknown(paired_interval(np.ones(40), np.where(np.isnan(known), 0.0, known)))
    assert not unknown(paired_interval(np.arange(1.0, 41.0), np.ones(40)))


@pytest.mark.parametrize("count", [8, 20, 60])
def test_a_change_is_never_below_all_of_it_and_is_covered(count: int) -> None:
    lengths = stream(9, f"heavy {count}").lognormal(0, 2, (RUNS, count))
    others = lengths * stream(9, f"noise {count}").lognormal(0, 0.5, lengths.shape)
    intervals = [paired_interval(a, b, resamples=200) for a, b in zip(others, lengths, strict=True)]
    assert all(low > -1 for low, _ in intervals)
    assert covered(intervals, math.exp(0.125) - 1) >= 0.85
    apart = [paired_interval(a, b, resamples=200) for a, b in zip(others, lengths[::-1], strict=True)]
    assert all(low > -1 for low, _ in apart)
    assert covered(apart, math.exp(0.125) - 1) >= 0.88


def test_a_change_over_few_seeds_is_never_below_all_of_it() -> None:
    low, high = replicated_change([1.0, 90.0], [100.0, 120.0])
    assert -1 < low < 91 / 220 - 1 < high


def test_no_mean_of_times_is_below_0() -> None:
    waits = [0.0] * 30 + [900.0, 1200.0]
    assert mean_interval(waits)[0] == 0.0
    assert mean_interval(waits)[1] > np.mean(waits)
    assert replicated_interval([0.0, 10.0])[0] == 0.0
    assert mean_interval([-value for value in waits])[0] < np.mean(waits) * -1


@given(
    arrays.arrays(np.float64, st.integers(FEWEST_JOBS, 60), elements=st.floats(0, 1e9)),
    st.integers(0, 5),
    st.sampled_from([0.5, 0.9, 0.95, 0.999]),
)
def test_an_interval_is_in_order_and_the_same_again(values: Floats, seed: int, level: float) -> None:
    for interval in (
        mean_interval(values, seed=seed, level=level, resamples=50),
        quantile_interval(values, 0.99, seed=seed, level=level, resamples=50),
    ):
        assert interval[0] >= 0
        assert interval[0] <= interval[1] or interval[0] == pytest.approx(interval[1])
    again = mean_interval(values, seed=seed, level=level, resamples=50)
    assert again == mean_interval(values.copy(), seed=seed, level=level, resamples=50)
    low, high = quantile_interval(values, 0.5, level=level, resamples=50)
    assert values.min() <= low <= high <= values.max()


def unknown(interval: tuple[float, float]) -> bool:
    return all(map(math.isnan, interval))


def test_of_nothing_there_is_no_interval() -> None:
    for values in ([], [3.0], [math.nan, 3.0]):
        assert unknown(mean_interval(values))
        assert unknown(quantile_interval(values, 0.5))
        assert unknown(replicated_interval(values))
    few = [1.0, 5.0, 3.0, 4.0, 9.0, 2.0, 6.0]
    assert unknown(mean_interval(few))
    assert unknown(quantile_interval(few, 0.5))
    assert unknown(paired_interval(few, few[::-1]))
    assert not unknown(mean_interval([*few, 7.0]))
    assert mean_interval([4.0] * 10) == (4.0, 4.0)


def test_blocks_grow_with_memory_and_stay_within_bounds() -> None:
    lengths = [block_length(autoregressive(4000, memory, "blocks")[0]) for memory in (0.0, 0.5, 0.9, 0.99)]
    assert lengths == sorted(lengths)
    assert lengths[0] >= round(4000 ** (1 / 3))
    assert lengths[-1] <= 3 * math.sqrt(4000) + 1
    assert block_length([1.0] * 1000) == 10
    assert block_length([1.0, 2.0]) == 1


@pytest.mark.parametrize(
    ("level", "degrees", "tabled"),
    [(0.95, 1, 12.706), (0.95, 2, 4.303), (0.95, 9, 2.262), (0.99, 5, 4.032), (0.95, 60, 2.000), (0.99, 120, 2.617)],
)
def test_students_distribution_is_that_of_the_tables(level: float, degrees: int, tabled: float) -> None:
    assert student(level, degrees) == pytest.approx(tabled, abs=5e-4)


def test_the_series_takes_over_where_the_sum_ends() -> None:
    assert student(0.95, 61) == pytest.approx(bootstrap._expanded(bootstrap._normal(0.95), 61))
    assert student(0.95, 61) < student(0.95, 60) < student(0.95, 59)


def test_seeds_by_hand() -> None:
    low, high = replicated_interval([11.0, 12.0, 13.0])
    assert (low + high) / 2 == pytest.approx(12.0)
    assert (high - low) / 2 == pytest.approx(4.3027 / math.sqrt(3), abs=1e-3)
    assert replicated_change([2.0, 4.0, 6.0], [1.0, 2.0, 3.0]) == pytest.approx((1.0, 1.0))
    low, high = replicated_change([2.0, 4.0, 5.0], [1.0, 2.0, 3.0])
    assert low < 11 / 6 - 1 < high
    assert all(map(math.isnan, replicated_change([1.0, 2.0], [0.0, 0.0])))
