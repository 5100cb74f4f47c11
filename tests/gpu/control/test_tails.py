"""The p99 of steps beside against alone, its interval by ranks, and the limit on kernels below that follows it."""

from random import Random

import pytest
from hypothesis import given, strategies as st

from headway.gpu.control.dial import MILLION, MS, Dial
from headway.gpu.control.slowdown import LATEST_NS, Value
from headway.gpu.control.tails import FRESH_HOLDS, Tail, tail
from tests.gpu.stub_pair import HIGH, LOW, StubPair


def values(holds: int, late: float, by: float, seed: int = 1) -> list[Value]:
    """Holds of four steps and forty beside, of which this share is late by so much (a logarithm)."""
    random = Random(seed)

    def draw(count: int, share: float) -> tuple[float, ...]:
        return tuple(random.gauss(0, 0.01) + (by if random.random() < share else 0) for _ in range(count))

    return [Value(0.0, 4, 15.0, draw(4, 0.0), draw(40, late)) for _ in range(holds)]


def test_there_is_none_before_a_hundred_held_steps() -> None:
    assert tail(values(24, 0.1, 0.2)) is None
    assert tail(values(25, 0.1, 0.2)) is not None


@pytest.mark.parametrize(("late", "true"), [(0.0, 1.0), (0.05, 1.1819), (0.3, 1.1937)])
def test_the_interval_covers_the_truth_in_about_nine_of_ten(late: float, true: float) -> None:
    covered = 0
    for seed in range(60):
        found = tail(values(100, late, 0.182, seed))
        assert found is not None
        assert found.low_ppm <= found.value_ppm <= found.high_ppm
        covered += found.low_ppm <= true * MILLION <= found.high_ppm
    assert covered >= 54


def test_kernels_are_shortened_where_it_is_surely_above_and_lengthened_where_it_is_surely_below() -> None:
    above, below, unsure = Tail(), Tail(), Tail()
    above.move(5, values(100, 0.2, 0.5), 1_150_000)
    below.move(5, values(100, 0.0, 0.5), 1_150_000)
    unsure.move(5, values(FRESH_HOLDS - 1, 0.2, 0.5), 1_150_000)
    assert (above.scale < 1, below.scale > 1, unsure.scale) == (True, True, 1.0)
    assert (above.since_ns, below.since_ns, unsure.since_ns) == (5, 5, -1)
    assert above.longest_ns(1_150_000, 4 * MS) < 600_000 < below.longest_ns(1_150_000, 4 * MS)


@given(st.integers(MILLION, 100 * MILLION), st.integers(1, 10**12), st.floats(0.05, 64.0))
def test_a_limit_is_never_nothing(aim: int, step: int, scale: float) -> None:
    assert 1 <= Tail(scale).longest_ns(aim, step) <= LATEST_NS


def test_with_an_aim_for_p99_kernels_below_are_as_long_as_it_allows_and_without_one_of_any_length() -> None:
    with_aim = StubPair(Dial(slo99_ppm=1_150_000), step_ns=4 * MS, noise=0.003)
    with_aim.run(3)
    assert with_aim.rules[LOW].longest_ns == pytest.approx(0.15 * 4 * MS, rel=0.1)
    assert with_aim.rules[LOW].credit_cap_ns <= 0.155 * 4 * MS
    with_aim.run(60)
    at_p99 = with_aim.dial.told(HIGH)[2]
    assert at_p99 is not None
    assert at_p99.low_ppm <= 1_050_000 * 1.02
    assert at_p99.high_ppm >= 1_050_000 * 0.98
    plain = StubPair(Dial(), step_ns=4 * MS)
    plain.run(3)
    assert plain.rules[LOW].longest_ns == 0
    assert plain.dial.told(HIGH)[2] is None
