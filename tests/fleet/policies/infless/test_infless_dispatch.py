"""INFless's dispatch: weights by the place of the rate in the windows of the instances."""

import pytest

from headway.fleet.policies.infless.dispatch import divide, find_stopped
from headway.fleet.policies.infless.planner import Rates


def windows(*pairs: tuple[float, float]) -> list[Rates]:
    return [Rates(low, up, 0) for low, up in pairs]


def test_above_all_windows_everyone_gets_its_most_and_the_rest_is_excess() -> None:
    assert divide(50.0, windows((1, 10), (10, 30))) == ((10, 30), 10.0, None)


def test_in_the_upper_part_all_are_at_the_same_place_of_their_windows() -> None:
    # 11..40: from 34.2 on nobody is stopped; 37.1 lies at nine tenths
    weights, excess, stopped = divide(37.1, windows((1, 10), (10, 30)))
    assert weights == pytest.approx((9.1, 28.0))
    assert (excess, stopped) == (0.0, None)


def test_below_it_some_are_stopped_so_that_the_others_are_busy() -> None:
    weights, _, stopped = divide(27.0, windows((1, 10), (10, 30)))
    assert stopped == 1  # the second alone is at 0.85; both together at 0.55
    assert weights == pytest.approx((0.0, 27.0))


def test_a_lower_load_will_do_where_no_subset_is_busy() -> None:
    assert find_stopped(20.0, windows((1, 10), (10, 30))) == 1  # 0.5 of the second's window; all: 0.31


def test_the_subset_is_kept_while_the_rate_is_in_its_window() -> None:
    both = windows((1, 10), (10, 30))
    assert divide(9.5, both).stopped == 2
    assert divide(9.5, both, 1).stopped == 2  # 9.5 is below the second's window
    assert divide(20.0, both, 0).stopped == 0
    assert divide(20.0, both).stopped == 1


def test_where_no_window_holds_the_rate_instances_are_filled_in_turn() -> None:
    assert divide(5.0, windows((10, 30), (10, 30))) == ((5.0, 0.0), 0.0, None)
    assert divide(
        0.0,
        windows(
            (1, 30),
        ),
    ) == ((0.0,), 0.0, None)


def test_without_instances_all_is_excess() -> None:
    assert divide(5.0, []) == ((), 5.0, None)
