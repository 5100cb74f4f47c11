"""Slow-down by whole steps: held steps against like ones close in time, the median over holds, and its interval."""

from math import exp, log
from random import Random

import pytest
from hypothesis import given, strategies as st

from headway.gpu.control.slowdown import MILLION, MS, Hold, Step, Value, estimate, student, value_of

HOLD = Hold(1000 * MS, 1005 * MS, 1025 * MS)


def steps(held: float = 4.0, beside: float = 5.0, kind: int = 7, launches: int = 80) -> list[Step]:
    """Steps back to back, of one kind: these milliseconds each in the hold, and those outside of it."""
    found, at = [], 850.0
    while at < 1200:
        inside = HOLD.quiet_ns / MS <= at < HOLD.end_ns / MS
        took = held if inside else beside
        found.append(Step(round(at * MS), round((at + took) * MS), launches, kind))
        at += took
    return found


def test_a_held_step_is_compared_with_like_steps_close_to_it() -> None:
    value = value_of(HOLD, steps())
    assert value is not None
    assert value.excess == pytest.approx(log(5 / 4))
    assert value.steps == 5
    assert exp(value.took) == pytest.approx(4 * MS)


def test_of_several_kinds_each_is_compared_with_its_own() -> None:
    """The long kind comes in the hold, the short one outside of it and beside: kinds are not mixed."""
    long = [Step(s.begin_ns, s.end_ns, 80, 1) for s in steps(held=4, beside=5)]
    short = [Step(s.begin_ns, s.begin_ns + (s.end_ns - s.begin_ns) // 50, 80, 2) for s in long[::2]]
    value = value_of(HOLD, sorted(long + short))
    assert value is not None
    assert value.excess == pytest.approx(log(5 / 4))


def test_what_was_never_launched_before_is_compared_by_the_number_of_launches() -> None:
    """Each step has other shapes: no kind comes twice, and their number is what they have in common."""
    found = [step._replace(kind=at) for at, step in enumerate(steps())]
    value = value_of(HOLD, found)
    assert value is not None
    assert value.excess == pytest.approx(log(5 / 4))
    assert value_of(HOLD, [step._replace(launches=at) for at, step in enumerate(found)]) is None


def test_marked_requests_take_the_place_of_steps() -> None:
    marked = [step._replace(marked=True) for step in steps(held=10, beside=11, launches=9)]
    value = value_of(HOLD, sorted([*steps(), *marked]))
    assert value is not None
    assert value.excess == pytest.approx(log(11 / 10))


def test_steps_at_the_edges_of_a_hold_and_far_from_it_do_not_count() -> None:
    far = [Step(at * MS, (at + 50) * MS, 80, 7) for at in (100, 300, 500, 1500, 1700)]
    across = [Step(990 * MS, 1003 * MS, 80, 7), Step(1002 * MS, 1004 * MS, 80, 7), Step(1020 * MS, 1030 * MS, 80, 7)]
    inside = [step for step in steps() if step.end_ns <= HOLD.end_ns or step.begin_ns >= HOLD.end_ns]
    plain = value_of(HOLD, inside)
    assert plain is not None
    assert value_of(HOLD, sorted(inside + far)) == plain
    assert value_of(HOLD, sorted(inside + across)) == plain
    late = HOLD._replace(settle_ns=80 * MS)
    slow_after = [
        step._replace(end_ns=step.begin_ns + 1) if 1025 <= step.begin_ns / MS < 1105 else step for step in inside
    ]
    assert value_of(late, slow_after) == value_of(late, inside)


def test_without_steps_on_both_sides_of_the_comparison_there_is_no_value() -> None:
    assert value_of(HOLD, []) is None
    assert value_of(HOLD, [step for step in steps() if step.begin_ns >= HOLD.quiet_ns][:4]) is None
    assert value_of(HOLD, [step for step in steps() if step.end_ns <= HOLD.begin_ns]) is None


def test_no_estimate_before_three_holds() -> None:
    assert estimate([Value(0.1, 4, 15.0)] * 2) is None
    found = estimate([Value(log(1.1), 4, 15.0)] * 3)
    assert found is not None
    assert (found.value_ppm, found.low_ppm, found.high_ppm) == (1_100_000,) * 3
    assert (found.holds, found.steps) == (3, 12)


@given(st.integers(0, 10**6), st.sampled_from([6, 12, 25, 60]), st.floats(0.9, 1.5), st.floats(0.001, 0.05))
def test_the_interval_is_around_the_value(seed: int, count: int, true: float, noise: float) -> None:
    random = Random(seed)
    found = estimate([Value(log(true) + random.gauss(0, noise), 4, 15.0) for _ in range(count)])
    assert found is not None
    assert found.low_ppm <= found.value_ppm <= found.high_ppm
    assert abs(log(found.value_ppm / MILLION / true)) < 6 * noise


@pytest.mark.parametrize("count", [3, 5, 10, 30])
def test_the_interval_covers_the_truth_in_about_19_of_20(count: int) -> None:
    random, covered = Random(count), 0
    for _ in range(400):
        found = estimate([Value(log(1.05) + random.gauss(0, 0.02), 4, 15.0) for _ in range(count)])
        assert found is not None
        covered += found.low_ppm <= 1_050_000 <= found.high_ppm
    assert covered >= 360


def test_students_factor() -> None:
    for count, known in ((3, 4.30), (5, 2.78), (10, 2.26), (30, 2.05), (1000, 1.96)):
        assert student(count) == pytest.approx(known, rel=0.05)
