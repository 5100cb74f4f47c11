"""The shares of a long story, as they are printed."""

from hypothesis import given, strategies as st

from headway.jobs.show.story.story import _tenths


@given(st.lists(st.integers(1, 10**15), min_size=1, max_size=8))
def test_printed_shares_add_up_to_the_whole_and_are_off_by_less_than_a_tenth(times: list[int]) -> None:
    whole = sum(times)
    shares = _tenths(times, whole)
    assert round(10 * sum(shares)) == 1000
    assert all(abs(share - 100 * time / whole) <= 0.1 for share, time in zip(shares, times, strict=True))
