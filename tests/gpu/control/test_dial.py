"""The dial: a closed loop over how slow the whole steps of those above are, against holds in which they are alone."""

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from headway.gpu.control.dial import DEEPEST_NS, LEAST_PPM, MILLION, MOST_PPM, MS, NEVER_NS, Dial, _ahead, next_factor
from headway.gpu.control.gate_rules import Rules
from headway.gpu.control.holds import Holds, Seen
from headway.gpu.control.slowdown import Estimate
from tests.gpu.stub_pair import HIGH, LOW, TOP, StubMachine, StubMiddle, StubOtherAim, StubPair

REQUEST_NS = 4 * MS


def dial(**given: int) -> Dial:
    """One that never holds anybody, and whose pairs are known."""
    return Dial(holds=Holds(share_ppm=0), begin_ppm=MILLION, **given)


def seen(requests: int, ratio_ppm: int = MILLION, lows: int = 1) -> list[Seen]:
    """A program above after so many requests, each so many times as long as alone; and those below it."""
    alone = requests * REQUEST_NS
    above = Seen(HIGH, 0, alone * ratio_ppm // MILLION, alone, 0, requests)
    return [above, *(Seen(LOW + at, 5) for at in range(lows))]


def settled(loop: Dial, ratio_ppm: int, beats: int = 400, lows: int = 1) -> Rules:
    """The rules of the first below, after so many beats of eight requests each."""
    rules: dict[int, Rules] = {}
    for beat in range(1, beats + 1):
        rules = loop.rules(beat * 8 * REQUEST_NS, seen(8 * beat, ratio_ppm, lows))
    return rules[LOW]


def test_where_nothing_is_delayed_it_grows_bold_and_lets_them_launch_further_ahead() -> None:
    loop = dial()
    before = loop.rules(1, seen(0))[LOW]
    after = settled(loop, MILLION)
    assert loop.boldness_ppm(HIGH) == MOST_PPM
    assert (before.depth_ns, after.depth_ns) == (Rules().depth_ns, Rules().depth_ns * (MOST_PPM // MILLION) ** 2)
    assert (before.absorb_ppm, after.absorb_ppm) == (MILLION // 2, MILLION)
    assert after.scale_ppm == MILLION * MILLION // MOST_PPM
    assert after.credit_cap_ns == pytest.approx(50_000 * REQUEST_NS // MILLION * MOST_PPM // MILLION, rel=1e-4)


def test_credit_is_saved_up_for_a_kernel_that_one_step_in_three_may_wait_for() -> None:
    """A step takes 4 ms, of which 5 % are allowed on average: a kernel of 0.6 ms can be paid for, at any boldness."""
    for boldness in (LEAST_PPM, MILLION):
        loop = Dial(holds=Holds(share_ppm=0), begin_ppm=boldness)
        rules = {}
        for beat in range(1, 8):
            rules = loop.rules(beat * 8 * REQUEST_NS, seen(8 * beat, 1_050_000))
        assert rules[LOW].credit_cap_ns == pytest.approx(3 * 50_000 * REQUEST_NS // MILLION, rel=0.1)


def test_where_it_is_above_the_aim_it_goes_back_to_the_floor() -> None:
    loop = dial()
    rules = settled(loop, 1_300_000)
    assert loop.boldness_ppm(HIGH) == 0
    assert rules.depth_ns == Rules().depth_ns
    assert (rules.absorb_ppm, rules.credit_ppm, rules.credit_cap_ns) == (0, 0, 0)
    assert rules.threshold_ns == NEVER_NS
    assert rules.floor_ppm == loop.floor_ppm


@given(st.integers(LEAST_PPM, MOST_PPM), st.integers(LEAST_PPM, MOST_PPM))
def test_the_bolder_the_further_ahead(one: int, other: int) -> None:
    plain = Rules()
    less, more = (_ahead(plain, boldness) for boldness in sorted((one, other)))
    assert plain.depth_ns <= less <= more <= DEEPEST_NS
    assert _ahead(replace(plain, depth_ns=10 * MS), MOST_PPM) == DEEPEST_NS


def test_only_those_under_normal_priority_alone_go_further_ahead() -> None:
    """MPS knows two priorities: who is below another who is not 0 waits for whole kernels, and so does that one."""
    loop, rules = dial(), {}
    for beat in range(1, 200):
        middle = [Seen(2, 5), Seen(3, 9)]
        rules = loop.rules(beat * 8 * REQUEST_NS, [seen(8 * beat)[0], *middle])
    assert (rules[2].whole, rules[2].depth_ns) == (0, Rules().depth_ns * (MOST_PPM // MILLION) ** 2)
    assert (rules[3].whole, rules[3].depth_ns) == (1, Rules().depth_ns)
    assert rules[3].idle_depth_ns == DEEPEST_NS


def test_with_nobody_about_those_below_share_how_far_ahead_they_go() -> None:
    assert settled(dial(), MILLION).idle_depth_ns == Rules().idle_depth_ns
    assert settled(dial(), MILLION, lows=4).idle_depth_ns == Rules().idle_depth_ns // 4
    assert settled(dial(priorities=False), MILLION).idle_depth_ns == DEEPEST_NS


def test_without_priorities_nobody_launches_further_ahead() -> None:
    assert settled(dial(priorities=False), MILLION).depth_ns == Rules().depth_ns
    assert settled(dial(mps=False), MILLION).depth_ns == 0


@given(st.integers(-50_000, 400_000), st.integers(0, 60_000), st.integers(3, 60), st.sampled_from([20_000, 50_000]))
def test_it_grows_only_where_the_upper_end_is_below_the_aim(excess: int, half: int, holds: int, aim: int) -> None:
    value = MILLION + excess
    factor = next_factor(Estimate(value, value - half, value + half, holds, 4 * holds), aim)
    assert 0.3 <= factor <= 3
    if factor > 1:
        assert excess + half < 1.2 * aim
        assert excess < aim
    if excess - half > aim:
        assert factor < 1
    if factor < 1:
        assert excess + half > aim


def test_those_below_share_what_is_allowed() -> None:
    one, three = settled(dial(), MILLION), settled(dial(), MILLION, lows=3)
    assert three.credit_ppm == one.credit_ppm // 3
    assert three.absorb_ppm == one.absorb_ppm // 3


def test_a_program_by_itself_is_always_seen_alone_and_never_gated() -> None:
    rules = dial().rules(MS, seen(1, lows=0))
    assert (rules[HIGH].gate, rules[HIGH].watched, rules[HIGH].hold) == (0, 1, 0)


def test_one_whose_counters_begin_anew_is_met_anew() -> None:
    loop = dial()
    settled(loop, 1_300_000)
    careful = loop.boldness_ppm(HIGH)
    loop.rules(10**12, seen(1))
    assert (careful, loop.boldness_ppm(HIGH)) == (0, MILLION)


def test_nobody_about_no_rules() -> None:
    loop = dial()
    settled(loop, 1_300_000)
    assert loop.rules(10**12, []) == {}
    assert loop.boldness_ppm(HIGH) == 0
    assert loop.slowdown(HIGH) is None


# --- holds ----------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=10)
@given(
    st.integers(MS // 2, 30 * MS),
    st.integers(0, 12 * MS),
    st.integers(0, 20 * MS),
    st.floats(0.0, 0.05),
)
def test_held_moments_take_at_most_a_twentieth_of_the_time(step: int, pause: int, drain: int, noise: float) -> None:
    pair = StubPair(Dial(), step_ns=step, pause_ns=pause, drain_ns=drain, noise=noise, contention=0.0)
    pair.run(20)
    assert pair.dial.holds.held_ns <= 0.05 * pair.now_ns
    while pair.dial.slowdown(HIGH) is None and pair.now_ns < 40_000 * MS:
        pair.run(1)  # just after the boldness has grown by much there is none
    assert pair.dial.slowdown(HIGH) is not None


def test_a_hold_begins_when_nothing_is_in_flight_below_and_lasts_a_few_steps() -> None:
    pair = StubPair(Dial(), step_ns=2 * MS, drain_ns=10 * MS, drift=0.02)
    spans: list[tuple[int, int]] = []
    for _ in range(4000):
        pair.run(0.001)
        rules = pair.rules
        assert not (rules[HIGH].watched and not rules[LOW].hold)
        assert rules[HIGH].gate == 0
        if rules[LOW].hold:
            assert rules[LOW].idle_depth_ns == Rules().depth_ns
            begin = pair.dial.holds.begin_ns
            if not spans or spans[-1][0] != begin:
                spans.append((begin, 0))
            assert not rules[HIGH].watched or pair.now_ns >= begin + 10 * MS
            spans[-1] = begin, pair.now_ns
    assert len(spans) > 5
    assert all(14 * MS <= end - begin <= 30 * MS for begin, end in spans[:-1])


def test_nobody_is_held_while_the_program_above_is_silent() -> None:
    loop = Dial()
    held = 0
    for now in range(8 * MS, 20_000 * MS, 8 * MS):
        held += loop.rules(now, [Seen(HIGH, 0, epochs=5), Seen(LOW, 5)])[LOW].hold
    assert held == 0


def test_a_program_that_never_waits_is_never_measured_and_those_below_keep_the_floor() -> None:
    loop = Dial()
    for now in range(8 * MS, 20_000 * MS, 8 * MS):
        rules = loop.rules(now, [Seen(HIGH, 0), Seen(LOW, 5)])
    assert loop.slowdown(HIGH) is None
    assert (rules[LOW].threshold_ns, rules[LOW].floor_ppm) == (NEVER_NS, loop.floor_ppm)


@pytest.mark.parametrize(("step", "seconds"), [(MS // 2, 6), (2 * MS, 6), (8 * MS, 6), (40 * MS, 15)])
@pytest.mark.parametrize("contention", [0.0, 0.05, 0.5])
def test_the_first_value_comes_after_three_to_six_holds(step: int, seconds: int, contention: float) -> None:
    pair = StubPair(Dial(), step_ns=step, contention=contention, noise=0.02)
    while pair.dial.slowdown(HIGH) is None and pair.now_ns < 60_000 * MS:
        pair.run(0.008)
    watch = pair.dial.watch(HIGH)
    assert watch is not None
    assert 3 <= watch.count <= 6
    assert 1000 * MS <= pair.now_ns <= seconds * 1000 * MS


# --- the stub whose slow-down is known --------------------------------------------------------------------------------


@settings(deadline=None, max_examples=8)
@given(
    st.integers(MS // 2, 12 * MS),
    st.sampled_from([(1.0,), (1.0, 3.0), (1.0, 1.2, 5.0)]),
    st.floats(0.05, 0.7),
    st.sampled_from([0.7, 1.0, 1.5]),
    st.floats(0.002, 0.02),
    st.sampled_from([0.0, 0.002]),
    st.sampled_from([0, 2 * MS]),
    st.sampled_from([1_050_000, 1_100_000, 1_200_000]),
    st.integers(0, 1000),
)
def test_it_settles_at_the_aim_by_contention_that_no_wait_shows(
    step: int,
    kinds: tuple[float, ...],
    contention: float,
    power: float,
    noise: float,
    drift: float,
    pause: int,
    slo: int,
    seed: int,
) -> None:
    pair = StubPair(
        Dial(slo_ppm=slo),
        step_ns=round(step / max(kinds) * 2),
        kinds=kinds,
        contention=contention,
        power=power,
        noise=noise,
        drift=drift,
        pause_ns=pause,
        seed=seed,
    )
    pair.run(120)
    felt, loop = pair.felt(30), pair.dial
    most = 1 + contention * 4**power
    assert felt <= slo / MILLION + 0.02
    assert felt >= min(slo / MILLION, most) - 0.02 - (0.01 if loop.boldness_ppm(HIGH) == MOST_PPM else 0)
    said = loop.slowdown(HIGH)
    assert said is not None
    assert abs(said.value_ppm / MILLION - felt) < 0.03


@pytest.mark.parametrize("seed", range(6))
def test_a_processor_that_is_slow_by_turns_is_not_taken_for_a_slow_down(seed: int) -> None:
    pair = StubMachine(Dial(), cpu=0.6 + 0.1 * seed, contention=0.0, noise=0.003, seed=seed)
    pair.run(15)
    said = pair.dial.slowdown(HIGH)
    assert said is not None
    assert abs(said.value_ppm - MILLION) < 8_000
    assert said.high_ppm - said.low_ppm < 20_000, "steps at one pace agree, however the pace changes"
    assert pair.dial.boldness_ppm(HIGH) == MOST_PPM, "and nothing keeps those below from the idle time"


def test_what_those_below_do_to_the_processor_is_part_of_the_slow_down() -> None:
    pair = StubMachine(Dial(slo_ppm=1_200_000), cpu=1.1, contention=0.0, least=0.001, beside=0.06, noise=0.003)
    pair.run(60)
    said = pair.dial.slowdown(HIGH)
    assert said is not None
    assert abs(said.value_ppm / MILLION - pair.felt(60)) < 0.02
    assert pair.felt(60) > 1.05


@pytest.mark.parametrize("seed", range(6))
def test_a_clock_that_follows_the_load_late_is_waited_for(seed: int) -> None:
    pair = StubMachine(
        *(Dial(), 3 * (1 + seed) * MS), cpu=0.4, contention=0.1 + 0.03 * seed, noise=0.004, lag_ns=90 * MS, seed=seed
    )
    pair.run(60)
    said = pair.dial.slowdown(HIGH)
    assert said is not None
    assert abs(pair.felt(20) - 1.05) < 0.015
    assert abs(said.value_ppm / MILLION - pair.felt(20)) < 0.015
    assert pair.dial.holds.held_ns <= 0.05 * pair.now_ns


def test_where_those_below_may_do_all_they_can_they_are_held_seldom() -> None:
    free = StubPair(Dial(), contention=0.0, noise=0.003)
    near = StubPair(Dial(), contention=0.05, noise=0.003)
    shares = []
    for pair in (free, near):
        pair.run(30)
        before = pair.dial.holds.held_ns
        pair.run(60)
        shares.append((pair.dial.holds.held_ns - before) / 60e9)
    assert shares[0] < 0.017 < 0.03 < shares[1] <= 0.05
    free.contention = 0.3
    free.run(60)
    assert free.felt(20) < 1.07, "and still they are noticed"


def test_a_program_in_the_middle_is_watched_and_the_lowest_obeys_the_most_careful_pair() -> None:
    """Nobody slows the top one down; the lowest one slows the middle one down, which is measured beside the top one."""
    pair = StubMiddle(Dial(), contention=0.3)
    pair.run(60)
    assert min(pair.both_held, pair.lowest_held) > 100
    assert pair.felt(20) == pytest.approx(1.05, abs=0.02)
    said = pair.dial.slowdown(HIGH)
    assert said is not None
    assert said.low_ppm / MILLION <= pair.felt(20) <= said.high_ppm / MILLION
    assert pair.dial.boldness_ppm(TOP) > 2 * pair.dial.boldness_ppm(HIGH)
    assert pair.dial.holds.held_ns <= 0.05 * pair.now_ns


def test_a_silent_program_in_the_middle_keeps_nobody_at_the_floor() -> None:
    loop, rules = dial(), {}
    for beat in range(1, 200):
        rules = loop.rules(beat * 8 * REQUEST_NS, [seen(8 * beat)[0], Seen(2, 3, program="quiet"), Seen(3, 9)])
    assert rules[3].scale_ppm == MILLION * MILLION // MOST_PPM


def test_the_last_one_below_a_program_in_the_middle_may_leave_in_a_hold() -> None:
    pair = StubMiddle(Dial(), contention=0.3)
    while not (pair.rules and pair.rules[LOW].hold and not pair.rules[HIGH].hold):
        pair.run(0.004)
    left = [Seen(TOP, 0, epochs=10**6, program="top"), Seen(HIGH, 3, epochs=10**6)]
    rules = pair.dial.rules(pair.now_ns + MS, left)
    assert not rules[HIGH].hold
    assert not pair.dial.holds.holding


# --- careful at first meeting -----------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=8)
@given(st.integers(MS // 2, 24 * MS), st.floats(0.05, 1.5), st.floats(0.001, 0.03), st.integers(0, 1000))
def test_the_first_ten_seconds_of_a_pair_never_met_are_careful(
    step: int, contention: float, noise: float, seed: int
) -> None:
    pair = StubPair(Dial(), step_ns=step, contention=contention, noise=noise, seed=seed)
    pair.run(0.4)
    assert pair.dial.boldness_ppm(HIGH) == 0
    pair.run(9.6)
    assert pair.felt(10) <= 1.10


def test_what_was_learnt_of_a_pair_is_where_it_begins_next_time_and_another_program_begins_at_the_floor() -> None:
    first = StubPair(Dial(), contention=0.05)
    first.run(60)
    learnt = first.dial.learnt
    assert learnt["high", "low"] == pytest.approx(first.dial.boldness_ppm(HIGH), rel=0.2)
    assert learnt["high", "low"] > 0.8 * MILLION
    again = StubPair(Dial(learnt=dict(learnt)), contention=0.05)
    again.run(0.1)
    assert again.dial.boldness_ppm(HIGH) == learnt["high", "low"]
    other = StubPair(Dial(learnt=dict(learnt)), contention=0.05, program="other")
    other.run(0.1)
    assert other.dial.boldness_ppm(HIGH) == 0


def test_a_new_program_below_does_not_inherit_the_boldness_of_another() -> None:
    loop = dial()
    settled(loop, MILLION)
    loop.begin_ppm = 0
    at = 401 * 8 * REQUEST_NS
    rules = loop.rules(at, [seen(3208)[0], Seen(LOW, 5), Seen(LOW + 1, 5, program="new")])
    assert rules[LOW].scale_ppm == MILLION * MILLION // MOST_PPM
    assert rules[LOW + 1].threshold_ns == NEVER_NS
    rules = loop.rules(at + 1, [seen(3208)[0], Seen(LOW, 5, since_ns=at)])
    assert rules[LOW].threshold_ns == NEVER_NS, "another process in the same slot is another program"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_another_aim_is_come_to_by_what_is_measured_and_not_at_once(seed: int) -> None:
    pair = StubOtherAim(Dial(), contention=0.06, seed=seed)
    pair.run(40)
    assert pair.felt(10) == pytest.approx(1.05, abs=0.02)
    pair.dial.slo_ppm = 1_200_000
    pair.run(0.2)
    assert pair.felt(0.1) < 1.07, "as much goes as before"
    pair.run(40)
    assert pair.felt(10) == pytest.approx(1.2, abs=0.04)
    assert max(slow for end, slow in pair.slow if end > 41e9) < 1.26
    pair.dial.slo_ppm = 1_020_000
    pair.run(0.2)
    assert pair.felt(0.1) < 1.05, "a tighter aim counts at once"
    pair.run(40)
    assert pair.felt(10) == pytest.approx(1.02, abs=0.02)


def test_a_detour_over_an_aim_that_allows_nothing_lets_no_more_through() -> None:
    pair = StubOtherAim(Dial(), contention=0.06)
    pair.run(40)
    for slo_ppm in (MILLION, 1_500_000):
        pair.dial.slo_ppm = slo_ppm
        pair.run(0.2)
        assert pair.felt(0.1) < 1.07


def test_what_was_learnt_at_one_aim_is_where_another_begins() -> None:
    first = StubOtherAim(Dial(), contention=0.06)
    first.run(40)
    again = StubOtherAim(_recalling(first.dial, 1_200_000), contention=0.06)
    again.run(0.3)
    assert again.felt(0.2) < 1.07
    assert again.dial.boldness_ppm(HIGH) == pytest.approx(first.dial.learnt["high", "low"] / 4, rel=0.01)


def test_what_was_learnt_at_a_looser_aim_is_not_bolder_at_a_tighter_one() -> None:
    first = StubOtherAim(Dial(slo_ppm=1_200_000), contention=0.06)
    first.run(40)
    tighter = _recalling(first.dial, 1_020_000)
    again = StubOtherAim(tighter, contention=0.06)
    again.run(0.1)
    assert tighter.boldness_ppm(HIGH) == first.dial.learnt["high", "low"]
    assert again.felt(0.1) < 1.05


def _recalling(before: Dial, slo_ppm: int) -> Dial:
    return Dial(slo_ppm=slo_ppm, learnt=dict(before.learnt), learnt_aims=dict(before.learnt_aims))
