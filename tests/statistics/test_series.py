"""Step functions: what holds between changes, and integrals that outgrow 64 bits."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from headway.statistics.series import Series, exact_dot, exact_sum, from_changes

INTS = st.integers(-(2**62), 2**62)


def ints(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64)


@given(st.lists(st.tuples(INTS, st.integers(-(2**40), 2**40)), max_size=50))
def test_a_sum_of_products_is_exact_however_large(pairs: list[tuple[int, int]]) -> None:
    left, right = ints([a for a, _ in pairs]), ints([b for _, b in pairs])
    assert exact_dot(left, right) == sum(a * b for a, b in pairs)
    assert exact_sum(left) == sum(a for a, _ in pairs)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(-5, 5)), max_size=20), st.integers(0, 30), st.integers(0, 30))
def test_integral_mean_and_peak_equal_a_sum_over_every_nanosecond(
    changes: list[tuple[int, int]], a: int, b: int
) -> None:
    start, end = min(a, b), max(a, b)
    series = from_changes(ints([t for t, _ in changes]), ints([d for _, d in changes]), unit=2)
    values = [sum(d for t, d in changes if t <= now) for now in range(start, end)]
    assert series.integral(start, end) == sum(values)
    assert series.mean(start, end) == pytest.approx(sum(values) / (2 * max(1, len(values))))
    assert series.peak(start, end) == (max(values) / 2 if values else 0)
    assert [series.at(now) * 2 for now in range(start, end)] == values
    as_shares = Series(series.times, series.values.astype(np.float64), 2)
    assert as_shares.mean(start, end) == pytest.approx(series.mean(start, end))


def test_each_time_occurs_once_and_only_changes_are_kept() -> None:
    series = from_changes(ints([5, 3, 5, 7, 7]), ints([2, 1, -1, 4, -4]), first=10)
    assert series.times.tolist() == [0, 3, 5]
    assert series.values.tolist() == [10, 11, 12]


def test_shares_have_no_exact_integral() -> None:
    with pytest.raises(TypeError, match="needs integer values"):
        Series(ints([0]), np.array([0.5])).integral(0, 1)
