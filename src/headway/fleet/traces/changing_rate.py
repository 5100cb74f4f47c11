"""Draw Poisson arrivals whose rate changes over time: along a sinusoid, or as a table of rates says.

Arrivals at a constant rate are moved so that the sum of the changing rate until each is what the sum of the constant
one was (the time change of a non-homogeneous Poisson process). This is exact, and the same seed gives the same pattern
at any rate. A cycle, a period of the sinusoid or the whole table, repeats until enough requests have come.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headway.errors import ExperimentError, TraceError, unknown_name
from headway.formats.table import csv_table, listed
from headway.jobs.tables.settings import span
from headway.jobs.traces.sheet import Sheet
from headway.units import MINUTE, SECOND

Floats = npt.NDArray[np.float64]

PEAK, PERIOD = "2", "24h"
MOST_PEAK = 1_000.0
MOST_SQUEEZE = 1e9
_STEPS = 60
"""Halvings of an interval: more than a double has digits."""
_FILE = re.compile(r"(.+?)(?:\s*,\s*(\w+)\s*=\s*([^,=]*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Cycle:
    """How the rate changes, again and again."""

    length: float
    """Nanoseconds."""
    when: Callable[[Floats], Floats]
    """By which part of the cycle a part of its requests has come."""
    rate: float | None = None
    """Its own mean, in requests a second; None: it has none."""

    def moved(self, times: Floats) -> Floats:
        """Return arrivals at a constant rate as arrivals of this cycle with the same mean rate."""
        whole, rest = np.divmod(times, self.length)
        moved: Floats = np.maximum.accumulate((whole + self.when(rest / self.length)) * self.length)
        return moved


# --- a sinusoid -------------------------------------------------------------------------------------------------


def diurnal(options: str) -> Cycle:
    """Return a cycle from ``peak=3,period=24h``: its peak is the highest rate over the mean rate.

    Up to a peak of 2 the rate is ``1 + (peak - 1) cos``, as a part of the mean. A sinusoid of a higher peak would fall
    below 0: it is cut off there, with the amplitude that keeps mean and peak. A cycle begins where the rate, at its
    mean, rises.
    """
    name = f"arrivals 'diurnal({options})'"
    given = _pairs(options, name)
    peak = _number(given["peak"], f"{name}: peak")
    if not 1 <= peak <= MOST_PEAK:
        raise ExperimentError(f"{name}: peak {peak:g} must be at least 1 and at most {MOST_PEAK:,.0f}")
    period = span(given["period"], f"{name}: period", least=1)
    return Cycle(float(period), _Sinusoid(peak).when)


def _pairs(options: str, name: str) -> dict[str, str]:
    given = {"peak": PEAK, "period": PERIOD}
    for option in options.split(",") if options else ():
        key, equals, value = (piece.strip() for piece in option.partition("="))
        if key not in given:
            raise ExperimentError(f"{name}: {unknown_name('option', key, given)}")
        if not equals or not value:
            raise ExperimentError(f"{name}: {key} has no value, e.g. {key}={given[key]}")
        given[key] = value
    return given


def _number(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ExperimentError(f"{what} {text!r} is not a number") from None


class _Sinusoid:
    """The rate ``offset + amplitude cos(angle)`` between two zeros, 0 elsewhere; its mean is 1."""

    def __init__(self, peak: float) -> None:
        self.zero, self.offset, self.amplitude = np.pi, 1.0, peak - 1
        if peak > 2:
            self.zero = float(_solved(_mean_over_peak, np.array([1 / peak]), 0.0, np.pi)[0])
            self.amplitude = peak / (1 - np.cos(self.zero))
            self.offset = peak - self.amplitude
        self.first = -np.arccos((1 - self.offset) / self.amplitude) if peak > 1 else -np.pi / 2
        """The angle of the beginning."""

    def come(self, angle: Floats) -> Floats:
        """Return the requests between the peak and an angle; a whole turn has two pi."""
        return self.offset * angle + self.amplitude * np.sin(angle)

    def when(self, part: Floats) -> Floats:
        """Return the part of a turn by which a part of its requests has come."""
        come = self.come(np.array(self.first)) + 2 * np.pi * part
        after = come > np.pi  # beyond the zero: before the next peak
        angle = _solved(self.come, come - 2 * np.pi * after, -self.zero, self.zero)
        return (angle - self.first) / (2 * np.pi) + after


def _mean_over_peak(zero: Floats) -> Floats:
    """Return the mean over the peak of a cosine that is raised or lowered to be 0 at an angle, and cut off there."""
    safe = np.maximum(zero, 1e-9)
    over: Floats = (np.sin(safe) - safe * np.cos(safe)) / (np.pi * (1 - np.cos(safe)))
    return over


def _solved(function: Callable[[Floats], Floats], values: Floats, low: float, high: float) -> Floats:
    """Return where an increasing function has these values, by bisection."""
    below, above = np.full_like(values, low), np.full_like(values, high)
    for _ in range(_STEPS):
        middle = (below + above) / 2
        short = function(middle) < values
        below, above = np.where(short, middle, below), np.where(short, above, middle)
    return (below + above) / 2


# --- a table of rates -------------------------------------------------------------------------------------------


def file_of(options: str) -> str:
    """Return the file of ``FILE.csv,squeeze=60``; empty where there is none."""
    matched = _FILE.fullmatch(options)
    return matched[1] if matched else ""


def rates(options: str) -> Cycle:
    """Return a cycle from ``FILE.csv,squeeze=60``: each rate holds until the next, the last as long as the one before.

    Columns are ``time`` (seconds) and ``rate`` (requests a second); or ``minute`` and another, the requests in that
    minute; or that alone, a row a minute. ``squeeze`` makes time pass so many times as fast and leaves the rates.
    """
    name = f"arrivals 'rates:{options}'"
    matched = _FILE.fullmatch(options)
    if matched is None:
        raise ExperimentError(f"{name}: name a CSV file of rates, like rates:FILE.csv")
    if matched[2] not in (None, "squeeze"):
        raise ExperimentError(f"{name}: {unknown_name('option', matched[2], ['squeeze'])}")
    squeeze = 1.0 if matched[2] is None else _number(matched[3].strip(), f"{name}: squeeze")
    if not 0 < squeeze <= MOST_SQUEEZE:
        raise ExperimentError(f"{name}: squeeze {squeeze:g} must be above 0 and at most {MOST_SQUEEZE:,.0f}")
    edges, rate = _table(Path(matched[1]).expanduser())
    sums = np.concatenate(([0.0], np.cumsum(rate * np.diff(edges))))
    length = float(edges[-1])
    parts, times = sums / sums[-1], edges / length
    return Cycle(length / squeeze, lambda part: np.interp(part, parts, times), float(sums[-1]) / length)


def _table(path: Path) -> tuple[Floats, Floats]:
    """Return when each rate begins, and the last ends, in nanoseconds from the first; and requests a second."""
    sheet = Sheet(csv_table(path), ())
    clock, value = _columns(path, sheet.columns)
    rate = sheet.fixed(value, 9, least=0).alias("rate")
    times = sheet.fixed(clock, 9).alias("time") if clock else (rate * 0).alias("time")
    frame = sheet.kept(rate.to_frame().with_columns(times), strict=True)
    per_s = frame["rate"].to_numpy().astype(np.float64) / 1e9 / (1 if value == "rate" else MINUTE / SECOND)
    step = 1.0 if clock == "time" else MINUTE / SECOND
    begins = (frame["time"] - frame["time"][0]).to_numpy() * step
    if not clock:
        begins = np.arange(len(per_s)) * float(MINUTE)
    steps = np.diff(begins)
    if (steps <= 0).any():
        line = sheet.lines[int(np.argmax(steps <= 0)) + 1]
        raise TraceError(f"trace {path}: line {line}: {clock} must be above that of the line before")
    if not per_s.any():
        raise TraceError(f"trace {path}: all rates are 0, so nothing arrives")
    return np.append(begins, begins[-1] + (steps[-1] if len(steps) else MINUTE)), per_s


def _columns(path: Path, columns: list[str]) -> tuple[str, str]:
    """Return the column of times, empty where there is none, and the column of rates."""
    if "time" in columns and "rate" in columns:
        return "time", "rate"
    clock = "minute" if "minute" in columns else ""
    others = [name for name in columns if name != clock]
    if len(others) != 1 or others == ["time"] or re.fullmatch(r"[-+.\d]+", others[0]):
        needs = "a header with time and rate, or with one column of requests a minute (minute may stand beside it)"
        raise TraceError(f"trace {path}: has no rates: it needs {needs}; its first line has {listed(columns)}")
    return clock, others[0]
