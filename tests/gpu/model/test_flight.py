"""What a gated client knows of its own work: as much as events say, and only when it looks."""

from hypothesis import given, strategies as st

from headway.gpu.model.flight import IDLE_MARK_NS, LONG_NS, MARK_NS, STUCK_NS, Flight, mark

LATENCY = 6_000


def test_nothing_is_in_flight_at_first() -> None:
    assert Flight().end(1_000_000, LATENCY) == 0


def test_without_an_event_what_was_predicted_runs_out() -> None:
    flight = Flight()
    flight.launch(0, 1_000, 10_000)
    assert flight.end(1_000, LATENCY) == 1_000 + LATENCY + 10_000
    assert flight.end(12_000, LATENCY) == 1_000 + LATENCY + 10_000
    assert flight.end(17_000, LATENCY) == 0
    flight.launch(1, 20_000, 5_000)
    assert flight.end(20_000, LATENCY) == 20_000 + LATENCY + 5_000, "what has run out is gone"


def test_what_has_an_event_is_never_nearly_done_until_that_is_reached() -> None:
    flight = Flight()
    flight.launch(0, 0, 10 * MARK_NS)
    started = LATENCY
    assert flight.end(started + 5 * MARK_NS, LATENCY) == started + 10 * MARK_NS
    late = started + 10 * MARK_NS
    assert flight.end(late, LATENCY) == late + MARK_NS, "a tenth of it is left"
    assert flight.end(late + 10 * MARK_NS, LATENCY) == late + 15 * MARK_NS, "half of what it is late by"
    flight.collect(late, 1)
    assert flight.end(late, LATENCY) == 0


def test_what_is_far_too_late_waits_for_something_else() -> None:
    flight = Flight()
    flight.launch(0, 0, MARK_NS)
    assert flight.end(LATENCY + 4 * MARK_NS + STUCK_NS, LATENCY) > 0
    assert flight.end(LATENCY + 4 * MARK_NS + STUCK_NS + 1, LATENCY) == 0


def test_what_has_ended_is_taken_to_have_ended_in_time_unless_it_was_seen_at_work() -> None:
    flight = Flight()
    for number in range(3):
        flight.launch(number, 0, MARK_NS)
    assert not flight.overdue(MARK_NS, LATENCY)
    assert flight.overdue(MARK_NS + LATENCY, LATENCY)
    now = 2 * MARK_NS
    flight.collect(now, 2)
    assert flight.end(now, LATENCY) == 3 * MARK_NS, "two are over, the third began when the second was to end"
    slow = Flight()
    for number in range(2):
        slow.launch(number, 0, MARK_NS)
    slow.collect(3 * MARK_NS, 0)
    slow.collect(4 * MARK_NS, 1)
    assert slow.end(4 * MARK_NS, LATENCY) == 4 * MARK_NS + MARK_NS // 10, "it began after the first was last seen"


def test_long_kernels_have_events_of_their_own_unless_nobody_is_above() -> None:
    flight = Flight()
    flight.launch(0, 0, LONG_NS)
    assert flight.marked
    idle = Flight()
    idle.launch(0, 0, LONG_NS, IDLE_MARK_NS)
    assert not idle.marked


def test_who_may_launch_further_ahead_leaves_events_further_apart() -> None:
    depths = (0, 120_000, 240_000, 480_000, 10**9)
    assert [mark(depth, alone=False, crowd=False) for depth in depths] == [60_000, 60_000, 120_000, 240_000, 399_999]
    assert {mark(depth, alone=False, crowd=True) for depth in depths} == {30_000}, "others hang on it"
    assert {mark(depth, alone=True, crowd=False) for depth in depths} == {400_000}
    flight = Flight()
    flight.launch(0, 0, 119_999, 240_000)
    assert not flight.marked, "less than half a mark"
    flight.launch(1, 0, 120_000, 240_000)
    assert list(flight.marked) == [(1, 0, 239_999)]


def test_short_kernels_share_an_event() -> None:
    flight = Flight()
    for number in range(4):
        flight.launch(number, 0, MARK_NS // 3)
    flight.collect(1_000, 3)
    assert flight.end(1_000, LATENCY) == LATENCY + MARK_NS // 3, "three are known to have ended, the fourth is not"


@given(st.lists(st.tuples(st.integers(1, 100_000), st.integers(1, 200_000)), max_size=30), st.integers(0, 40))
def test_it_never_ends_in_the_past_and_adds_up(launches: list[tuple[int, int]], finished: int) -> None:
    flight, now = Flight(), 0
    for number, (gap, fill) in enumerate(launches):
        now += gap
        flight.collect(now, min(finished, number))
        end = flight.end(now, LATENCY)
        assert end == 0 or end > now
        flight.launch(number, now, fill)
        assert flight.total == sum(fill for _, _, fill in flight.marked)
    for _ in launches:
        flight.collect(now, len(launches))
    assert not flight.marked
    assert flight.total == 0
