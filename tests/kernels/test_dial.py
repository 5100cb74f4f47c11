"""The dial: a closed loop over what those above take with others about, against what they take alone."""

from dataclasses import replace

from hypothesis import given, strategies as st

from headway.kernels.dial import DEEPEST_NS, LEAST_PPM, MILLION, MOST_PPM, MS, Dial, Rules, Seen, _ahead

HIGH, LOW = 0, 1
REQUEST_NS = 4 * MS


def dial(**given: int) -> Dial:
    """One that never holds anybody after its first look."""
    return Dial(first_watch_ns=0, watch_every_ns=10**18, **given)


def seen(requests: int, ratio_ppm: int = MILLION, lows: int = 1) -> list[Seen]:
    """A program above after so many requests, each so many times as long as alone; and those below it."""
    alone = requests * REQUEST_NS
    above = Seen(HIGH, 0, alone * ratio_ppm // MILLION, alone, 0, requests)
    return [above, *(Seen(LOW + at, 5, 0, 0, 0) for at in range(lows))]


def settled(loop: Dial, ratio_ppm: int, beats: int = 200, lows: int = 1) -> Rules:
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
    assert after.credit_cap_ns == 50_000 * REQUEST_NS // MILLION * MOST_PPM // MILLION


def test_where_it_is_above_the_aim_it_grows_careful_and_no_less_far_ahead_than_before() -> None:
    loop = dial()
    rules = settled(loop, 1_300_000)
    assert loop.boldness_ppm(HIGH) == LEAST_PPM
    assert rules.depth_ns == Rules().depth_ns
    assert rules.absorb_ppm == LEAST_PPM // 2
    assert rules.credit_cap_ns == 50_000 * REQUEST_NS // MILLION


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
        middle = [Seen(2, 5, 0, 0, 0), Seen(3, 9, 0, 0, 0)]
        rules = loop.rules(beat * 8 * REQUEST_NS, [seen(8 * beat)[0], *middle])
    assert (rules[2].whole, rules[2].depth_ns) == (0, Rules().depth_ns * (MOST_PPM // MILLION) ** 2)
    assert (rules[3].whole, rules[3].depth_ns) == (1, Rules().depth_ns)
    assert rules[3].idle_depth_ns == DEEPEST_NS


def test_with_nobody_about_those_below_share_how_far_ahead_they_go_and_held_they_do_not() -> None:
    assert settled(dial(), MILLION).idle_depth_ns == Rules().idle_depth_ns
    assert settled(dial(), MILLION, lows=4).idle_depth_ns == Rules().idle_depth_ns // 4
    assert settled(dial(priorities=False), MILLION).idle_depth_ns == DEEPEST_NS
    loop = Dial(first_watch_ns=0)
    held = [rules[LOW] for now in range(MS, loop.watch_every_ns, MS) if (rules := loop.rules(now, seen(1)))[LOW].hold]
    assert {each.idle_depth_ns for each in held} == {Rules().depth_ns}


def test_without_priorities_nobody_launches_further_ahead() -> None:
    assert settled(dial(priorities=False), MILLION).depth_ns == Rules().depth_ns
    assert settled(dial(mps=False), MILLION).depth_ns == 0


@given(st.integers(MILLION, 3 * MILLION))
def test_at_its_aim_it_stays_and_off_it_it_moves_towards_it(ratio_ppm: int) -> None:
    loop = dial(slo_ppm=1_200_000)
    loop.rules(1, seen(0))
    first = loop.boldness_ppm(HIGH) or MILLION
    settled(loop, ratio_ppm, 3)
    moved = loop.boldness_ppm(HIGH) - first
    assert (moved > 0) == (ratio_ppm <= 1_200_000)
    assert LEAST_PPM <= loop.boldness_ppm(HIGH) <= MOST_PPM


def test_those_below_share_what_is_allowed() -> None:
    one, three = settled(dial(), MILLION), settled(dial(), MILLION, lows=3)
    assert three.credit_ppm == one.credit_ppm // 3
    assert three.absorb_ppm == one.absorb_ppm // 3


def test_every_so_often_those_below_are_held_and_the_one_above_is_seen_alone() -> None:
    loop = Dial(first_watch_ns=0)
    held = watched = 0
    for now in range(MS, loop.watch_every_ns + MS, MS):
        rules = loop.rules(now, seen(now // REQUEST_NS))
        held += rules[LOW].hold
        watched += rules[HIGH].watched
        assert rules[HIGH].gate == 0
        assert not (rules[HIGH].watched and not rules[LOW].hold)
    assert (held * MS, watched * MS) == (loop.watch_ns + loop.drain_ns, loop.watch_ns)


def test_a_program_by_itself_is_always_seen_alone_and_never_gated() -> None:
    rules = dial().rules(MS, seen(1, lows=0))
    assert (rules[HIGH].gate, rules[HIGH].watched, rules[HIGH].hold) == (0, 1, 0)


def test_one_whose_counters_begin_anew_is_heard_anew() -> None:
    loop = dial()
    settled(loop, 1_300_000)
    careful = loop.boldness_ppm(HIGH)
    loop.rules(10**12, seen(1))
    assert (careful, loop.boldness_ppm(HIGH)) == (LEAST_PPM, MILLION)


def test_nobody_about_no_rules() -> None:
    loop = dial()
    settled(loop, 1_300_000)
    assert loop.rules(10**12, []) == {}
    assert loop.boldness_ppm(HIGH) == 0


def test_requests_while_those_below_are_held_do_not_make_requests_look_short() -> None:
    loop = Dial(first_watch_ns=0)
    free = loop.watch_every_ns - loop.watch_ns - loop.drain_ns
    alone = requests = 0
    for now in range(8 * MS, 2 * loop.watch_every_ns, 8 * MS):
        requests += 2
        if now % loop.watch_every_ns < free:  # those of the held phase are in neither sum of the ledger
            alone += 2 * REQUEST_NS
        rules = loop.rules(now, [replace(seen(0)[0], actual_ns=alone, alone_ns=alone, epochs=requests), seen(0)[1]])
    cap = rules[LOW].credit_cap_ns * MILLION // loop.boldness_ppm(HIGH)
    assert abs(cap - 50_000 * REQUEST_NS // MILLION) < 50_000 * REQUEST_NS // MILLION // 20


def test_who_was_frightened_once_soon_dares_again_what_it_began_with() -> None:
    loop = dial()
    settled(loop, 2_000_000, 60)
    assert loop.boldness_ppm(HIGH) == LEAST_PPM
    actual = alone = 60 * 8 * REQUEST_NS
    for beat in range(1, 20):
        actual, alone = actual + 8 * REQUEST_NS, alone + 8 * REQUEST_NS
        above = Seen(HIGH, 0, actual + 60 * 8 * REQUEST_NS, alone, 0, 480 + 8 * beat)
        loop.rules((60 + beat) * 8 * REQUEST_NS, [above, Seen(LOW, 5, 0, 0, 0)])
    assert loop.boldness_ppm(HIGH) > MILLION // 4
