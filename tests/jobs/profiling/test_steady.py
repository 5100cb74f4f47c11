"""The rate of steps: what is dropped, how sure it is, and values that never fall."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from headway.jobs.profiling.steady import monotone, rate


def times(spans_s: list[float]) -> list[int]:
    now, found = 0.0, []
    for span in spans_s:
        now += span
        found.append(round(now * 1e9))
    return found


def test_even_steps_have_their_rate_and_no_error() -> None:
    found = rate(times([0.01] * 100), [8] * 100)
    assert found is not None
    assert found.per_second == pytest.approx(800)
    assert found.error == pytest.approx(0, abs=1e-6)
    assert found.steps + found.dropped == 100


@pytest.mark.parametrize("first", [0.2, 0.001])
def test_a_start_that_is_slower_or_faster_does_not_count(first: float) -> None:
    found = rate(times([first] * 25 + [0.01] * 75), [1] * 100)
    assert found is not None
    assert found.per_second == pytest.approx(100, rel=0.02)
    assert found.dropped >= 24


def test_steps_before_a_time_do_not_count() -> None:
    spans = [0.02] * 100 + [0.01] * 100
    found = rate(times(spans), [1] * 200, since_ns=times(spans)[100])
    assert found is not None
    assert found.per_second == pytest.approx(100, rel=1e-6)


def test_too_few_steps_say_nothing() -> None:
    assert rate([], []) is None
    assert rate(times([0.01] * 12), [1] * 12) is None
    assert rate([5] * 100, [1] * 100) is None


def test_steps_without_samples_say_nothing_and_a_gap_of_them_is_no_warning() -> None:
    even = times([0.1] * 200)
    assert rate(even, [0] * 200) is None
    found = rate(even, [0] * 60 + [4] * 140)
    assert found is not None
    assert found.per_second == pytest.approx(40)


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    held = 0
    for seed in range(200):
        draw = random.Random(seed)
        found = rate(times([draw.expovariate(100) for _ in range(300)]), [1] * 300)
        assert found is not None
        held += abs(found.per_second / 100 - 1) <= found.error
    assert held >= 170  # 190 of 200 are meant; choosing where to cut costs some


def test_steps_of_several_processes_are_put_in_order() -> None:
    even, odd = list(range(0, 10**9, 10**7)), list(range(5 * 10**6, 10**9, 10**7))
    found = rate(even + odd, [1] * 200)
    assert found is not None
    assert found.per_second == pytest.approx(200, rel=0.01)


values = st.lists(st.tuples(st.floats(0.1, 100), st.floats(0.1, 10)), min_size=1, max_size=12)


@given(values)
def test_pooled_values_never_fall_and_keep_their_weighted_sum(drawn: list[tuple[float, float]]) -> None:
    given_values, weights = [value for value, _ in drawn], [weight for _, weight in drawn]
    found = monotone(given_values, weights)
    assert all(a <= b + 1e-9 for a, b in pairwise(found))
    total = sum(value * weight for value, weight in drawn)
    assert sum(value * weight for value, weight in zip(found, weights, strict=True)) == pytest.approx(total)
    if given_values == sorted(given_values):
        assert found == given_values
