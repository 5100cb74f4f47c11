"""How many processes headway keeps: the rate of the first moments, and bursts that are forgotten."""

import pytest

from headway.fleet.policies.headway.central.warming import EARLIEST, MEMORY, Peak, Rate
from headway.units import MILLISECOND, SECOND


def test_a_clump_at_the_beginning_is_not_a_rate() -> None:
    rate = Rate(MEMORY)
    for _ in range(11):
        rate.note(5 * SECOND)
    assert rate.value(5 * SECOND + MILLISECOND) * SECOND <= 10 / (EARLIEST / SECOND)


def test_a_steady_rate_is_known_soon() -> None:
    rate = Rate(MEMORY)
    for step in range(101):
        rate.note(step * 20 * MILLISECOND)
    assert rate.value(2 * SECOND) * SECOND == pytest.approx(50.0, rel=0.05)


def test_a_burst_is_remembered_for_its_time_and_then_forgotten() -> None:
    peak = Peak(10 * SECOND)
    peak.note(SECOND, 7)
    peak.note(9 * SECOND, 2)
    assert peak.value == 7
    peak.note(11 * SECOND, 2)
    assert peak.value == 7, "a burst counts at least as long as it is remembered"
    peak.note(21 * SECOND, 3)
    assert peak.value == 3


def test_after_a_long_silence_nothing_is_remembered() -> None:
    peak = Peak(10 * SECOND)
    peak.note(SECOND, 7)
    peak.note(60 * SECOND, 1)
    assert peak.value == 1
