"""Requests of two runs of one workload are found by graph and arrival, whatever their numbers are."""

from hypothesis import given, strategies as st

from headway.fleet.pairing import TOLERANCE, paired
from headway.units import MILLISECOND, SECOND

ARRIVALS = [((300 * at + at * at * at) * MILLISECOND, at) for at in range(40)]
"""No two gaps are alike: equal ones can be laid over each other in several ways."""


def test_the_same_requests_are_themselves() -> None:
    assert paired({"g": ARRIVALS}, {"g": ARRIVALS}) == {"g": {number: number for _, number in ARRIVALS}}


def test_other_graphs_and_requests_that_are_far_off_are_no_pair() -> None:
    assert paired({"g": ARRIVALS}, {"h": ARRIVALS}) == {}
    late = [(arrival + 3 * TOLERANCE * (number % 2), number) for arrival, number in ARRIVALS]
    assert paired({"g": ARRIVALS}, {"g": late}) == {"g": {number: number for number in range(0, 40, 2)}}


@given(
    st.integers(-5 * SECOND, 5 * SECOND),
    st.sets(st.integers(0, 39), max_size=5),
    st.sets(st.integers(0, 39), max_size=5),
    st.integers(0, 2**32),
)
def test_runs_that_begin_at_other_times_and_lack_a_few_are_laid_over_each_other(
    shift: int, missing: set[int], absent: set[int], seed: int
) -> None:
    first = [(arrival, number) for arrival, number in ARRIVALS if number not in missing]
    lag = [(seed >> (number % 32) & 1) * 8 * MILLISECOND for _, number in ARRIVALS]
    second = [(at + shift + lag[number], 100 + number) for at, number in ARRIVALS if number not in absent]
    both = set(range(40)) - missing - absent
    assert paired({"g": first}, {"g": second}) == {"g": {100 + number: number for number in both}}
