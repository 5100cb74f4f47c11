"""The reflex, a reason at a time: what goes, what waits, until when, and what it is expected to cost those above."""

import pytest
from hypothesis import given, strategies as st

from headway.gpu.model.reflex import CLEAR_NS, HEAVY_NS, MILLION, POLL_NS, Look, Reason, Waiter, choose, decide, lags

US, MS = 1_000, 1_000_000
NOW = 10**12
IDLE = Look(
    now_ns=NOW,
    above=1,
    busy_ns=NOW - 10 * US,
    next_ns=NOW + 100 * US,
    slack_ns=0,
    filled_ns=0,
    fill_ns=50 * US,
    wave_ns=20 * US,
    width_ppm=MILLION,
    lag_ns=0,
    credit_ns=0,
    debt_ns=0,
    turn=1,
    gate=1,
    hold=0,
    threshold_ns=4 * US,
    latency_ns=6 * US,
    depth_ns=120 * US,
    idle_depth_ns=8 * MS,
    absorb_ppm=MILLION // 2,
    overlap_ppm=MILLION // 2,
    whole=0,
)
"""The program above idles for another 100 microseconds, and the kernel takes 50."""


def look(**other: int) -> Look:
    return IDLE._replace(**other)


def test_what_ends_before_the_next_kernel_above_is_due_fits() -> None:
    assert decide(IDLE)[:2] == (1, Reason.FITS)
    assert decide(look(fill_ns=100 * US))[:2] == (1, Reason.FITS)
    late = decide(look(fill_ns=101 * US))
    assert (late.go, late.reason, late.harm_ns) == (0, Reason.GAP, US)


def test_a_delay_is_a_wave_where_those_above_have_priority_and_the_kernel_where_they_have_not() -> None:
    assert decide(look(fill_ns=300 * US)).harm_ns == 20 * US
    assert decide(look(fill_ns=300 * US, whole=1)).harm_ns == 200 * US
    assert decide(look(fill_ns=300 * US, width_ppm=MILLION // 4)).harm_ns == 5 * US


def test_it_is_absorbed_as_far_as_the_idle_time_goes_and_what_was_used_up_counts() -> None:
    beyond = look(fill_ns=300 * US, slack_ns=60 * US)
    assert decide(beyond)[:2] == (1, Reason.ABSORBED)
    assert decide(beyond._replace(lag_ns=10 * US))[:2] == (1, Reason.ABSORBED)
    assert decide(beyond._replace(lag_ns=10 * US + 1))[:2] == (0, Reason.GAP)
    assert decide(beyond._replace(absorb_ppm=MILLION // 4))[:2] == (0, Reason.GAP)


def test_or_paid_for_from_the_credit() -> None:
    assert decide(look(fill_ns=300 * US, credit_ns=20 * US))[:2] == (1, Reason.CREDIT)
    assert decide(look(fill_ns=300 * US, credit_ns=20 * US - 1))[:2] == (0, Reason.GAP)


def test_beside_kernels_at_work_it_costs_what_it_takes_from_them() -> None:
    beside = look(busy_ns=NOW + 500 * US, next_ns=NOW + 500 * US)
    waits = decide(beside)
    assert (waits.go, waits.reason, waits.harm_ns) == (0, Reason.BUSY, 25 * US)
    assert waits.until_ns == NOW + 494 * US
    assert decide(beside._replace(credit_ns=25 * US))[:2] == (1, Reason.CREDIT)


@pytest.mark.parametrize("room_us", [1, 2, 3])
def test_in_a_gap_shorter_than_a_switch_the_switch_has_to_be_absorbed_or_paid_for(room_us: int) -> None:
    short = look(fill_ns=US, next_ns=NOW + room_us * US)
    assert decide(short) == (0, Reason.THRESHOLD, NOW + POLL_NS, 0)
    costs = (4 - room_us) * US
    assert decide(short._replace(slack_ns=2 * costs)) == (1, Reason.ABSORBED, 0, costs)
    assert decide(short._replace(slack_ns=2 * costs - 2)).go == 0
    assert decide(short._replace(credit_ns=costs)) == (1, Reason.CREDIT, 0, costs)
    assert decide(short._replace(slack_ns=2 * costs, depth_ns=0)).reason == Reason.THRESHOLD, "never without MPS"
    assert decide(look(fill_ns=US, next_ns=NOW + 4 * US))[:2] == (1, Reason.FITS)


@pytest.mark.parametrize("busy_us", [-10, 0, 50, 90])
def test_without_mps_nothing_goes_without_a_gap_whatever_could_be_paid(busy_us: int) -> None:
    rich = look(busy_ns=NOW + busy_us * US, depth_ns=0, threshold_ns=500 * US, slack_ns=10 * MS, credit_ns=10 * MS)
    assert decide(rich).reason == Reason.THRESHOLD
    assert decide(rich._replace(fill_ns=5 * MS)).reason == Reason.THRESHOLD
    assert decide(rich._replace(next_ns=NOW + 700 * US)).go == 1


def test_who_is_overdue_is_expected_ever_later() -> None:
    assert decide(look(next_ns=NOW - 20 * US)).reason == Reason.GAP
    assert decide(look(next_ns=NOW - 200 * US)).reason == Reason.FITS


def test_no_more_is_in_flight_than_may_be() -> None:
    full = look(filled_ns=NOW + 121 * US, next_ns=NOW + 10 * MS)
    assert decide(full) == (0, Reason.DEPTH, NOW + 61 * US, 0)
    assert decide(full._replace(filled_ns=NOW + 120 * US))[:2] == (1, Reason.FITS)


def test_with_nobody_above_short_kernels_go_far_ahead_and_long_ones_less_far() -> None:
    alone = look(above=0, filled_ns=NOW + 8 * MS)
    assert decide(alone)[:2] == (1, Reason.ALONE)
    assert decide(alone._replace(filled_ns=NOW + 8 * MS + 1)) == (0, Reason.DEPTH, NOW + 4 * MS + 1, 0)
    long = alone._replace(fill_ns=251 * US)
    assert decide(long) == (0, Reason.DEPTH, NOW + 7 * MS, 0)
    assert decide(long._replace(filled_ns=NOW + 2 * MS))[:2] == (1, Reason.ALONE)


def test_the_floor_comes_before_a_turn_and_after_a_hold() -> None:
    owed = look(turn=0, debt_ns=50 * US)
    assert decide(owed)[:2] == (1, Reason.FLOOR)
    assert decide(owed._replace(debt_ns=50 * US - 1))[:2] == (0, Reason.TURN)
    assert decide(owed._replace(filled_ns=NOW + 1))[:2] == (0, Reason.TURN)
    assert decide(owed._replace(hold=1))[:2] == (0, Reason.HOLD)
    assert decide(owed._replace(hold=1, gate=0))[:2] == (1, Reason.OFF)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_more_idle_time_never_makes_one_wait(slack: int, more: int, fill: int) -> None:
    before = decide(look(slack_ns=slack, fill_ns=fill))
    assert decide(look(slack_ns=slack + more, fill_ns=fill)).go >= before.go


def test_who_comes_first_is_the_highest_that_fits_then_who_was_served_longest_ago_then_the_longest() -> None:
    waiters = [Waiter(5, 10, 3), Waiter(2, 90, 1), Waiter(5, 20, 3), Waiter(5, 30, 4), Waiter(1, 0, 0)]
    assert choose(waiters, 100) == 1
    assert choose(waiters, 50) == 2
    assert choose(waiters, 15) == 0
    assert choose(waiters, 5) == -1


LONG = look(fill_ns=2 * MS, wave_ns=2 * MS, next_ns=NOW + 9 * MS, busy_ns=NOW - MS)
"""A kernel of two milliseconds, and nine in which to run."""


def test_a_long_kernel_keeps_away_from_the_end_of_what_runs_above() -> None:
    assert decide(LONG)[:2] == (1, Reason.FITS)
    start = NOW + LONG.latency_ns
    assert decide(LONG._replace(busy_ns=start - CLEAR_NS))[:2] == (1, Reason.FITS)
    near = decide(LONG._replace(busy_ns=start - CLEAR_NS + 1))
    assert near == (0, Reason.BUSY, NOW + POLL_NS, 2 * MS)
    ahead = decide(LONG._replace(busy_ns=NOW + 50 * US))
    assert ahead == (0, Reason.BUSY, NOW + 50 * US + CLEAR_NS - LONG.latency_ns, 2 * MS)
    # Though it would start later, behind another one that holds that work up already.
    behind = decide(LONG._replace(busy_ns=NOW + 50 * US, filled_ns=NOW + MS, depth_ns=2 * MS))
    assert behind == ahead
    # A short one may be beside it: it costs what they share.
    short = LONG._replace(fill_ns=HEAVY_NS - 1, busy_ns=start + US, credit_ns=US)
    assert decide(short) == (1, Reason.CREDIT, 0, 500)


def test_long_kernels_delay_those_above_one_at_a_time() -> None:
    paid = LONG._replace(next_ns=NOW + MS, credit_ns=5 * MS)
    assert decide(paid)[:2] == (1, Reason.CREDIT)
    absorbed = LONG._replace(next_ns=NOW + MS, slack_ns=20 * MS)
    assert decide(absorbed)[:2] == (1, Reason.ABSORBED)
    for each in (paid, absorbed):
        assert lags(each, decide(each))
        assert decide(each._replace(lag_ns=400 * US)).go == 1
        assert decide(each._replace(lag_ns=400 * US + 1))[:2] == (0, Reason.GAP)
    fits = LONG._replace(lag_ns=9 * MS)
    assert decide(fits)[:2] == (1, Reason.FITS)
    assert not lags(fits, decide(fits))
    owed = paid._replace(debt_ns=2 * MS, credit_ns=0)
    assert decide(owed)[:2] == (1, Reason.FLOOR)
    assert lags(owed, decide(owed))
    # Of short ones what is paid for is forgotten: the dial sees what came of it.
    short = look(fill_ns=300 * US, credit_ns=MS, lag_ns=MS)
    assert decide(short)[:2] == (1, Reason.CREDIT)
    assert not lags(short, decide(short))


def test_a_kernel_longer_than_the_limit_goes_only_alone_or_owed() -> None:
    limited = look(longest_ns=40 * US)
    assert decide(limited)[:2] == (0, Reason.LONG)
    assert decide(limited._replace(fill_ns=40 * US))[:2] == (1, Reason.FITS)
    assert decide(limited._replace(credit_ns=10 * MS, slack_ns=10 * MS))[:2] == (0, Reason.LONG)
    assert decide(limited._replace(debt_ns=50 * US))[:2] == (1, Reason.FLOOR)
    assert decide(limited._replace(above=0))[:2] == (1, Reason.ALONE)
    assert decide(limited._replace(longest_ns=0))[:2] == (1, Reason.FITS)


def test_contention_is_paid_for_by_the_time_beside_kernels_above() -> None:
    contending = look(contention_ppm=MILLION // 10, overlap_ppm=0)
    assert decide(contending)[:2] == (1, Reason.FITS), "it runs in a pause: nobody is beside it"
    beside = contending._replace(busy_ns=NOW + 26 * US)
    assert decide(beside._replace(contention_ppm=0))[:2] == (1, Reason.FITS)
    assert decide(beside)[:2] == (0, Reason.BUSY)
    assert decide(beside).harm_ns == 2 * US, "a tenth of 20 microseconds"
    assert decide(beside._replace(credit_ns=2 * US))[:2] == (1, Reason.CREDIT)
    assert decide(beside._replace(slack_ns=4 * US))[:2] == (1, Reason.ABSORBED)
    late = contending._replace(fill_ns=110 * US, width_ppm=0)
    assert decide(late).harm_ns == US, "a tenth of what is still there when the next one is due"
