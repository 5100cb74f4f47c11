"""Limits on SMs: which one a program begins with, by how it went before; and how that is followed."""

from dataclasses import dataclass, field

import pytest

from headway.gpu.control.dial import MILLION, MS, Dial
from headway.gpu.control.sms_outcomes import (
    ALL_PPM,
    TRIED_PPM,
    Counted,
    Harvests,
    Outcome,
    choose,
    keyed,
    outcome_of,
    outcomes_of,
)
from tests.gpu.stub_pair import HIGH, LOW, StubPair

STARVED = Outcome(
    rate_mhz=7_000, launch_ns=1_400_000, waited_ppm=980_000, slowdown_ppm=MILLION, slo_ppm=1_050_000, holds=90, seen_s=9
)
"""Seven launches of 1.4 ms a second: 1 % of the GPU's time."""
BETTER = STARVED._replace(rate_mhz=63_000, launch_ns=4_700_000, slowdown_ppm=1_045_000, seen_s=12)
"""Nine times as many, each of them longer."""
WORSE = STARVED._replace(rate_mhz=5_000, launch_ns=4_700_000)
FIRST_PPM, SECOND_PPM = TRIED_PPM


def test_a_pair_begins_without_a_limit_and_nothing_is_said_of_it() -> None:
    assert choose({}).sms_ppm == ALL_PPM
    assert choose({}).line("batch", "api") == ""
    well = choose({ALL_PPM: STARVED._replace(rate_mhz=300_000)})
    assert (well.sms_ppm, well.line("batch", "api")) == (ALL_PPM, "")
    assert choose({FIRST_PPM: BETTER}).sms_ppm == ALL_PPM, "how it goes with all of them is not known"


def test_who_was_starved_tries_limits_and_then_has_the_best_one() -> None:
    trial = choose({ALL_PPM: STARVED})
    assert trial.sms_ppm == FIRST_PPM
    assert trial.line("batch", "api") == (
        "batch gets 30 % of the SMs, to try that: with all of them it had 1.0 % of the GPU's time beside api"
    )
    better = choose({ALL_PPM: STARVED, FIRST_PPM: BETTER, SECOND_PPM: WORSE})
    assert better.sms_ppm == FIRST_PPM
    assert better.line("batch", "api") == (
        "batch gets 30 % of the SMs: with all of them it had 1.0 % of the GPU's time beside api, "
        "with 30 % 9 %, with 10 % 0.7 %"
    )
    worse = choose({ALL_PPM: STARVED, FIRST_PPM: WORSE, SECOND_PPM: WORSE})
    assert worse.sms_ppm == ALL_PPM, "never to one that was measured worse"
    assert worse.line("batch", "api").startswith("batch gets all SMs: with all of them it had ")
    best = choose({ALL_PPM: STARVED, FIRST_PPM: BETTER, 500_000: BETTER._replace(rate_mhz=99_000)})
    assert best.sms_ppm == 500_000, "any limit that was measured is among them"


def test_a_smaller_limit_is_tried_only_by_who_is_starved_with_the_first() -> None:
    again = choose({ALL_PPM: STARVED, FIRST_PPM: BETTER})
    assert again.sms_ppm == SECOND_PPM, "9 % is still little"
    assert ", to try that: " in again.line("batch", "api")
    fed = choose({ALL_PPM: STARVED, FIRST_PPM: BETTER._replace(rate_mhz=90_000)})
    assert fed.sms_ppm == FIRST_PPM


def test_who_does_little_without_waiting_is_not_starved() -> None:
    assert choose({ALL_PPM: STARVED._replace(waited_ppm=200_000)}).sms_ppm == ALL_PPM


def test_a_harvest_that_slowed_the_one_above_beyond_its_aim_does_not_count() -> None:
    beyond = BETTER._replace(slowdown_ppm=1_200_000)
    assert choose({ALL_PPM: STARVED, FIRST_PPM: beyond}).sms_ppm == SECOND_PPM, "so it is starved still"
    assert choose({ALL_PPM: STARVED, FIRST_PPM: beyond, SECOND_PPM: WORSE}).sms_ppm == ALL_PPM


def test_what_is_kept_of_a_program_is_kept_by_its_limit() -> None:
    assert keyed("train", 0) == keyed("train", ALL_PPM) == "train"
    assert keyed("train", FIRST_PPM) == "train.sms-30"
    assert keyed("train", 125_000) == "train.sms-12.5"


def test_outcomes_are_found_by_the_program_above_or_by_who_was_seen_last() -> None:
    rows = {
        ("api", "train"): {"boldness_ppm": 4_000_000, "sms_ppm": ALL_PPM, **STARVED._asdict()},
        ("api", "train.sms-30"): {"sms_ppm": FIRST_PPM, **BETTER._asdict()},
        ("old", "train"): {"sms_ppm": ALL_PPM, **STARVED._replace(seen_s=1)._asdict()},
        ("api", "fft"): {"sms_ppm": ALL_PPM, **STARVED._replace(seen_s=99)._asdict()},
        ("new", "train"): {"boldness_ppm": 5},
        ("odd", "train"): {"sms_ppm": "x", **STARVED._asdict()},
        ("bad", "train"): {"sms_ppm": ALL_PPM, **STARVED._asdict(), "holds": -1},
    }
    both = {ALL_PPM: STARVED, FIRST_PPM: BETTER}
    assert outcomes_of(rows, "train", "api") == ("api", both)
    assert outcomes_of(rows, "train") == ("api", both)
    assert outcomes_of(rows, "train", "old") == ("old", {ALL_PPM: STARVED._replace(seen_s=1)})
    assert outcomes_of(rows, "train", "new") == ("new", {})
    assert outcomes_of(rows, "else") == ("", {})
    assert outcome_of({"holds": True}) is None


@dataclass
class Followed(StubPair):
    """The stub of the dial, with counters of its program below."""

    harvests: Harvests = field(default_factory=Harvests)
    company: list[Counted] = field(default_factory=list)
    done: int = 0

    def seconds(self, count: int, launches_a_second: int) -> None:
        """Play so many seconds, and count after each."""
        for _ in range(count):
            self.run(1)
            self.done += launches_a_second
            low = Counted(LOW, 5, 0, self.program, self.done, self.done * 2 * MS, self.now_ns * 9 // 10)
            high = Counted(HIGH, 0, 0, "high", 0, 0, 0)
            self.harvests.count(self.now_ns, 77, [low, high, *self.company], self.dial)


def test_how_a_pair_goes_is_known_once_the_dial_has_settled() -> None:
    pair = Followed(Dial(), contention=0.0)
    pair.seconds(2, 10)
    assert pair.harvests.outcomes == {}, "too soon"
    pair.seconds(30, 10)
    found = pair.harvests.outcomes["high", "low"]
    assert found.rate_mhz == pytest.approx(10_000, rel=0.01)
    assert found.launch_ns == 2 * MS
    assert found.waited_ppm == pytest.approx(900_000, rel=0.01)
    assert found.slowdown_ppm == pytest.approx(MILLION, abs=20_000)
    assert (found.slo_ppm, found.seen_s) == (1_050_000, 77)
    assert found.holds >= 5
    assert found.within_aim


def test_beside_others_nothing_is_said_of_a_pair() -> None:
    pair = Followed(Dial(), contention=0.0)
    pair.company = [Counted(7, 9, 0, "third", 0, 0, 0)]
    pair.seconds(20, 10)
    assert pair.harvests.outcomes == {}
    pair.company = [Counted(8, 5, 0, "like", 0, 0, 0)]
    pair.seconds(20, 10)
    assert pair.harvests.outcomes == {}


def test_what_counts_is_what_it_did_lately() -> None:
    pair = Followed(Dial(), contention=0.0)
    pair.seconds(30, 1)
    pair.seconds(40, 100)
    assert pair.harvests.outcomes["high", "low"].rate_mhz > 90_000
