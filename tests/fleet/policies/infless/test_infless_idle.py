"""INFless's keep-alive windows."""

from headway.fleet.policies.infless.idle import IdleTimes, Windows
from headway.units import SECOND

MINUTE, HOUR = 60 * SECOND, 3600 * SECOND


def test_too_few_idle_times_give_no_windows() -> None:
    idle = IdleTimes()
    for at in range(9):
        idle.add(at * MINUTE, 5 * MINUTE)
    assert idle.windows(HOUR, 0.5) is None
    idle.add(10 * MINUTE, 5 * MINUTE)
    assert idle.windows(HOUR // 2, 0.5) == (5 * MINUTE, 6 * MINUTE)


def test_the_head_is_rounded_down_and_the_tail_up() -> None:
    idle = IdleTimes()
    for at in range(100):
        idle.add(at, at * MINUTE + 30 * SECOND)
    assert idle.windows(HOUR // 2, 0.5) == (4 * MINUTE, 99 * MINUTE)


def test_the_windows_of_the_long_and_the_short_histogram_are_averaged() -> None:
    idle = IdleTimes()
    for at in range(99):
        idle.add(at, 10 * MINUTE)
    for at in range(99):
        idle.add(5 * HOUR + at, 20 * MINUTE)
    assert idle.windows(5 * HOUR + 1, 0.5) == (15 * MINUTE, 21 * MINUTE)
    assert idle.windows(5 * HOUR + 1, 1.0) == (10 * MINUTE, 21 * MINUTE)
    assert idle.windows(5 * HOUR + 1, 0.0) == (20 * MINUTE, 21 * MINUTE)


def test_what_is_older_than_a_day_is_forgotten() -> None:
    idle = IdleTimes()
    for at in range(20):
        idle.add(at, 10 * MINUTE)
    for at in range(20):
        idle.add(30 * HOUR + at, 2 * MINUTE)
    assert idle.windows(30 * HOUR + 20, 1.0) == (2 * MINUTE, 3 * MINUTE)


def test_a_process_is_there_from_shortly_before_the_head_to_the_tail() -> None:
    windows = Windows(10 * MINUTE, 20 * MINUTE)
    kept = [minute for minute in range(30) if windows.keeps(minute * MINUTE, 2 * MINUTE)]
    assert kept == list(range(8, 20))
    assert Windows(MINUTE, 5 * MINUTE).keeps(0, 2 * MINUTE)  # it would be stopped for less than a cold start
