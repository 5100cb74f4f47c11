"""When requests are sent to a server: the arrivals of a fleet, cut to a stretch of real time."""

from pathlib import Path

import numpy as np
import pytest

from headway.errors import ExperimentError, InputError
from headway.fleet.live.load.arrivals import arrivals_within
from headway.units import SECOND

SAMPLES = Path(__file__).resolve().parents[3] / "samples"


@pytest.mark.parametrize("arrivals", ["poisson", "gamma:2", "onoff:1s,1s", "uniform:1ms,3ms", "uniform"])
def test_drawn_arrivals_keep_their_rate_and_a_longer_stretch_begins_with_a_shorter(arrivals: str) -> None:
    long, _ = arrivals_within(arrivals, 50.0, 200 * SECOND, 7, [])
    short, _ = arrivals_within(arrivals, 50.0, 20 * SECOND, 7, [])
    assert len(long) == pytest.approx(50 * 200, rel=0.15)
    assert (np.diff(long) >= 0).all()
    assert long[-1] < 200 * SECOND
    assert np.array_equal(long[: len(short)], short)


def test_uniform_without_bounds_has_equal_gaps() -> None:
    times, _ = arrivals_within("uniform", 4.0, SECOND, 0, [])
    assert times.tolist() == [0, SECOND / 4, SECOND / 2, 3 * SECOND / 4]


def test_uniform_with_bounds_has_a_rate_of_its_own() -> None:
    times, _ = arrivals_within("uniform:40ms,60ms", None, 100 * SECOND, 0, [])
    assert len(times) == pytest.approx(2000, rel=0.02)


def test_a_trace_goes_at_its_own_pace_or_at_a_rate_and_says_when_it_is_over() -> None:
    notes: list[str] = []
    own, trace = arrivals_within(str(SAMPLES / "azure-llm.csv"), None, 60 * SECOND, 0, notes)
    assert trace is not None
    assert np.array_equal(own, trace.arrival)
    assert "its 3 requests are over after" in notes[0]
    paced, _ = arrivals_within(str(SAMPLES / "azure-llm.csv"), 1.0, 60 * SECOND, 0, [])
    assert paced[-1] == pytest.approx(2 * SECOND)


@pytest.mark.parametrize(
    ("arrivals", "rate", "line"),
    [
        ("poisson", None, "at which rate"),
        ("uniform", None, "at which rate"),
        ("poisson", 0.0, "--rate 0"),
        ("poisson", 1e9, "--rate 1e"),
        ("gamma:x", 1.0, "coefficient of variation"),
        ("no-such-file.csv", 1.0, "nor a file of requests"),
        ("uniform:5ms", 1.0, "write two times"),
    ],
)
def test_what_is_not_understood_is_one_line(arrivals: str, rate: float | None, line: str) -> None:
    with pytest.raises(InputError, match=line):
        arrivals_within(arrivals, rate, SECOND, 0, [])


def test_more_requests_than_can_be_kept_are_refused() -> None:
    with pytest.raises(ExperimentError, match="too many"):
        arrivals_within("poisson", 900_000.0, 10**6 * SECOND, 0, [])
