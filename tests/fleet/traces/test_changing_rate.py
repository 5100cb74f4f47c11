"""Arrivals whose rate changes over time: counts by bin against the rate, means, files of rates, and bad input."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import integrate, stats

from headway.errors import InputError
from headway.fleet.scenarios.file import load
from headway.fleet.scenarios.tables.settings import ServingExperiment, ServingTable, WorkloadTable, split_arrivals
from headway.fleet.traces.changing_rate import diurnal, file_of
from headway.fleet.traces.draw import draw
from headway.runs.settings.tables import RunTable
from headway.units import HOUR, MINUTE, SECOND

COMPASS = load(ServingExperiment(serving=ServingTable(scenario="compass")))
LIKELY = 0.001
"""A test of fixed seed fails where what came has less than this probability."""


def times(seed: int = 1, notes: list[str] | None = None, **workload: Any) -> "np.ndarray[Any, np.dtype[np.float64]]":
    experiment = ServingExperiment(
        serving=ServingTable(scenario="compass"), workload=WorkloadTable(**workload), run=RunTable(seed=seed)
    )
    return np.array([request.arrival for request in draw(experiment, COMPASS, notes)], dtype=np.float64)


def cut_off(peak: float, turns: Any) -> Any:
    """The rate over its mean as the page says it, by numeric integration instead of a formula."""
    if peak <= 2:
        return 1 + (peak - 1) * np.sin(2 * np.pi * np.asarray(turns))
    low, high = peak / 2, 4 * peak**2  # the amplitude that gives the mean 1
    grid = (np.arange(20_000) + 0.5) / 20_000
    for _ in range(80):
        amplitude = (low + high) / 2
        wave = np.maximum(0, peak - amplitude * (1 - np.cos(2 * np.pi * grid)))
        low, high = (amplitude, high) if wave.mean() > 1 else (low, amplitude)
    begin = np.arccos(1 - (peak - 1) / amplitude) / (2 * np.pi)  # where it rises through 1
    return np.maximum(0, peak - amplitude * (1 - np.cos(2 * np.pi * (np.asarray(turns) - begin))))


@pytest.mark.parametrize("peak", [1, 1.5, 2, 3, 10])
def test_counts_by_bin_follow_the_sinusoid(peak: float) -> None:
    came = times(7, arrivals=f"diurnal(peak={peak},period=1h)", rate=2.0, requests=40_000)
    periods = int(came[-1] // HOUR)
    assert periods >= 5
    counts, edges = np.histogram((came[came < periods * HOUR] % HOUR) / HOUR, bins=24, range=(0, 1))
    fine = cut_off(peak, (np.arange(24 * 100) + 0.5) / 2400).reshape(24, 100).mean(axis=1)
    expected = fine / fine.sum() * counts.sum()
    assert not counts[expected < 1e-6].any(), "nothing comes where the rate is 0"
    some = expected > 1e-6
    assert stats.chisquare(counts[some], expected[some] * (counts.sum() / expected[some].sum())).pvalue > LIKELY
    assert len(edges) == 25
    assert fine.max() <= peak
    assert stats.poisson(2.0 * 3600 * periods).cdf(counts.sum()) == pytest.approx(0.5, abs=0.499), "the mean rate"


@given(st.floats(1.0, 50.0))
@settings(max_examples=30, deadline=None)
def test_the_mean_is_kept_and_the_peak_is_the_highest_rate_over_it(peak: float) -> None:
    """The part of the requests that has come by a part of the period has the rate as its derivative."""
    parts = np.linspace(0, 1, 4001)
    when = diurnal(f"peak={peak},period=1h").when(parts)
    assert when[0] == pytest.approx(0, abs=1e-9)
    assert when[-1] == pytest.approx(1, abs=1e-9)
    assert (np.diff(when) >= -1e-12).all()
    fastest = np.diff(parts) / np.maximum(np.diff(when), 1e-15)
    assert fastest.max() <= peak * (1 + 1e-6)
    assert fastest.max() >= peak * 0.99 or peak == 1


def test_the_time_change_is_exact() -> None:
    """Arrivals of rate 1 come back when the rate is summed up until each arrival."""
    came = times(3, arrivals="diurnal(peak=1.8,period=100s)", rate=2.0, requests=200) / SECOND
    plain = times(3, arrivals="poisson", rate=2.0, requests=200) / SECOND
    for moved, even in zip(came[::20], plain[::20], strict=True):
        summed, _ = integrate.quad(lambda t: 1 + 0.8 * np.sin(2 * np.pi * t / 100), 0, moved, limit=200)
        assert summed == pytest.approx(even, abs=1e-6)


def test_no_peak_is_plain_poisson() -> None:
    flat, plain = (times(arrivals=kind, rate=2.0) for kind in ("diurnal(peak=1)", "poisson"))
    assert np.abs(flat - plain).max() <= 2, "to the nanosecond and its rounding"


def test_options_stand_in_brackets_or_after_a_colon() -> None:
    bracketed = times(arrivals="diurnal(peak=3, period=1h)")
    assert (bracketed == times(arrivals="diurnal:period=1h,peak=3")).all()
    assert (times(arrivals="gamma(2)") == times(arrivals="gamma:2")).all()
    assert split_arrivals("my trace(1).csv") == ("my trace(1).csv", "")


# --- files ------------------------------------------------------------------------------------------------------


def rates(tmp_path: Path, text: str) -> str:
    (tmp_path / "rates.csv").write_text(text)
    return f"rates:{tmp_path / 'rates.csv'}"


STEPS = "time,rate\n10,1\n40,0\n70,5\n80,2\n"
"""30 s at 1, 30 s at 0, 10 s at 5, and 2 for as long as the 5: 100 requests in 80 s."""


def test_counts_by_bin_follow_a_file_of_rates(tmp_path: Path) -> None:
    came = times(5, arrivals=rates(tmp_path, STEPS), rate=4.0, requests=30_000) / SECOND
    passes = int(came[-1] // 80)
    counts, _ = np.histogram(came[came < passes * 80] % 80, bins=[0, 15, 30, 60, 65, 70, 75, 80])
    assert counts[2] == 0
    expected = np.array([15, 15, 25, 25, 10, 10]) / 100 * counts.sum()
    assert stats.chisquare(np.delete(counts, 2), expected).pvalue > LIKELY
    assert stats.poisson(4.0 * 80 * passes).cdf(counts.sum()) == pytest.approx(0.5, abs=0.499)


def test_a_file_has_its_own_rate_unless_one_is_given(tmp_path: Path) -> None:
    came = times(5, arrivals=rates(tmp_path, STEPS), requests=20_000) / SECOND
    assert 20_000 / came[-1] == pytest.approx(1.25, rel=0.03)


def test_requests_a_minute_are_one_column_with_or_without_the_minute(tmp_path: Path) -> None:
    """The same file in three forms; its gaps in minutes are bridged by the count before."""
    counts = [60, 0, 240, 120]
    alone = rates(tmp_path, "requests\n" + "".join(f"{count}\n" for count in counts))
    first = times(arrivals=alone, requests=300)
    numbered = rates(tmp_path, "minute,requests\n" + "".join(f"{7 + at},{count}\n" for at, count in enumerate(counts)))
    assert (times(arrivals=numbered, requests=300) == first).all()
    seconds = rates(tmp_path, "time,rate\n" + "".join(f"{60 * at},{count / 60}\n" for at, count in enumerate(counts)))
    assert np.abs(times(arrivals=seconds, requests=300) - first).max() <= 2
    packed = tmp_path / "rates.csv.gz"
    packed.write_bytes(gzip.compress(b"requests\n60\n0\n240\n120\n"))
    assert (times(arrivals=f"rates({packed})", requests=300) == first).all()
    assert not ((first % (4 * MINUTE) > MINUTE) & (first % (4 * MINUTE) < 2 * MINUTE)).any()


def test_squeeze_shortens_time_and_leaves_the_rate(tmp_path: Path) -> None:
    name = rates(tmp_path, "time,rate\n0,1\n1000,3\n")
    squeezed = times(arrivals=f"{name},squeeze=10", rate=2.0, requests=4000) / SECOND
    assert 4000 / squeezed[-1] == pytest.approx(2, rel=0.1)
    early = (squeezed[squeezed < 1000] % 200 < 100).mean()
    assert early == pytest.approx(0.25, abs=0.03)
    assert (
        squeezed == times(arrivals=f"rates({tmp_path / 'rates.csv'}, squeeze=10)", rate=2.0, requests=4000) / SECOND
    ).all()


def test_a_run_shorter_than_a_cycle_is_told() -> None:
    notes: list[str] = []
    times(notes=notes, arrivals="diurnal(peak=2,period=24h)", rate=2.0, requests=1000)
    assert len(notes) == 1
    assert "its 1,000 requests cover" in notes[0]
    times(notes=notes, arrivals="diurnal(peak=2,period=1m)", rate=2.0, requests=1000)
    assert len(notes) == 1
    times(notes=notes, arrivals="diurnal(peak=2,period=24h)", rate=2.0, requests=1)
    assert "its 1 request covers" in notes[1]


def test_the_file_is_found_among_the_options() -> None:
    assert file_of("a,b.csv") == "a,b.csv"
    assert file_of("a,b.csv, squeeze=2") == "a,b.csv"
    assert file_of("") == ""


@pytest.mark.parametrize(
    ("arrivals", "line"),
    [
        ("diurnal(peak=0.5)", "peak 0.5 must be at least 1"),
        ("diurnal(peak=nan)", "peak nan must be at least 1"),
        ("diurnal(peak=high)", "peak 'high' is not a number"),
        ("diurnal(period=0)", "period"),
        ("diurnal(period=-1h)", "period"),
        ("diurnal(peek=3)", "unknown option 'peek'; did you mean 'peak'?"),
        ("diurnal(peak)", "peak has no value, e.g. peak=2"),
        ("rates", "name a CSV file of rates, like rates:FILE.csv"),
        ("rates:none.csv", "none.csv: there is no such file"),
        ("rates:FILE,squeeze=0", "squeeze 0 must be above 0"),
        ("rates:FILE,squeeze=x", "squeeze 'x' is not a number"),
        ("rates:FILE,speed=2", "unknown option 'speed'"),
    ],
)
def test_bad_arrivals_are_one_line(arrivals: str, line: str, tmp_path: Path) -> None:
    arrivals = arrivals.replace("rates:FILE", rates(tmp_path, STEPS))
    with pytest.raises(InputError) as wrong:
        times(arrivals=arrivals)
    assert line in str(wrong.value)
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("time,rate\n0,1\n60,-2\n", "line 3: rate '-2' must be at least 0"),
        ("time,rate\n0,1\n60,many\n", "is not a number"),
        ("time,rate\n0,1\n0,2\n", "line 3: time must be above that of the line before"),
        ("time,rate\n0,0\n60,0\n", "all rates are 0"),
        ("time,rate\n", "there is a header but no row"),
        ("", "the file is empty"),
        ("time\n0\n60\n", "has no rates: it needs a header with time and rate"),
        ("time,requests\n0,3\n", "has no rates"),
        ("a,b,c\n1,2,3\n", "its first line has a, b, c"),
        ("12\n13\n", "has no rates"),
    ],
)
def test_a_file_without_rates_is_one_line(text: str, line: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as wrong:
        times(arrivals=rates(tmp_path, text), rate=1.0)
    assert line in str(wrong.value)
    assert "\n" not in str(wrong.value)
