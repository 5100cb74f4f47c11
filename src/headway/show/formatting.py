"""Format numbers for pages and terminals: durations, shares, counts, lists."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from headway.errors import printable

_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_LONG = {"d": "days", "h": "hours", "min": "minutes", "s": "seconds", "ms": "ms", "µs": "µs", "ns": "ns"}
NOTHING = "–"
THIN = "\N{NO-BREAK SPACE}"
"""Between a number and its unit: they stay on one line."""


def duration(seconds: float | None) -> str:
    """Return a duration with two or three significant digits: ``28 min``, ``2.3 h``, ``3.1 d``."""
    if seconds is None:
        return NOTHING
    if seconds <= 0:
        return f"0{THIN}s" if seconds == 0 else f"-{duration(-seconds)}"
    size, unit = unit_of(seconds)
    return f"{three_digits(seconds / size)}{THIN}{unit}"


def milliseconds(time: int) -> str:
    """Return nanoseconds in milliseconds; in microseconds below a tenth of one."""
    return f"{time / 1e6:,.1f} ms" if time >= 100_000 or not time else f"{time / 1000:,.1f} µs"


def in_ms(seconds: float | None) -> str:
    """Return seconds in milliseconds."""
    return NOTHING if seconds is None else f"{1000 * seconds:,.2f} ms"


def times(ratio: float | None) -> str:
    """Return how many times as long something takes: ``1.050×``."""
    return NOTHING if ratio is None else f"{ratio:.3f}×"


def durations(values: Sequence[float | None]) -> list[str]:
    """Return several times in the unit of the longest, so that they compare at a glance."""
    longest = max((value for value in values if value is not None), default=0.0)
    size, unit = unit_of(longest) if longest > 0 else (1.0, "s")
    return [NOTHING if value is None else f"{value / size:,.2f}{THIN}{unit}" for value in values]


def unit_of(seconds: float) -> tuple[float, str]:
    """Return the unit in which so many seconds are two or more, and its length in seconds."""
    return next(((size, unit) for size, unit in _UNITS if seconds >= 2 * size), _UNITS[-1])


def axis_of(seconds: float) -> tuple[float, str]:
    """Return a unit for an axis of time that is this long, and its name: at least four of them."""
    size, unit = unit_of(seconds / 2)
    return size, _LONG[unit]


def three_digits(value: float) -> str:
    """Return a number with thousands marked, or with as many decimals as make three digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def dollars(value: float, decimals: int = 2) -> str:
    """Return an amount with so many decimals, or with as many more as a small one needs for two digits."""
    if 0 < value < 10 ** (1 - decimals):
        decimals = min(12, 1 - math.floor(math.log10(value)))
    return f"{value:,.{decimals}f}"


def short_time(seconds: float) -> str:
    """Return a time below a second with three digits, in milliseconds or microseconds."""
    return f"{1000 * seconds:.3g} ms" if seconds >= 0.001 or seconds == 0 else f"{1e6 * seconds:.3g} µs"


def percent(share: float | None, digits: int = 1) -> str:
    """Return a share of one as a percentage."""
    if share is not None and 0 < share < 0.5 * 10 ** -(digits + 2):
        return f"under {10**-digits:g}{THIN}%"
    return NOTHING if share is None else f"{100 * share:.{digits}f}{THIN}%"


def change(value: float | None) -> str:
    """Return a change as a percentage with its sign; what rounds to 0 has none."""
    return NOTHING if value is None else f"{signed(value)}{THIN}%".replace("-", "−")


def signed(share: float, digits: int = 1) -> str:
    """Return a share in percent with its sign; what rounds to 0 has none."""
    text = f"{100 * share:+.{digits}f}"
    return text if float(text) else text[1:]


def hours(value: float) -> str:
    """Return a number of GPU-hours as text."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def number(value: float) -> str:
    """Return a number of things as text; a mean of several numbers need not be whole."""
    return f"{value:,.0f}" if isinstance(value, int) or value >= 1000 else f"{value:,.1f}"


def count(value: float, one: str, many: str = "") -> str:
    """Return a number of things: ``1 job``, ``2,000 jobs``."""
    shown = number(value) if isinstance(value, int) else three_digits(value)
    return f"{shown} {one if value == 1 else many or one + 's'}"


def listed(names: list[str]) -> str:
    """Return names as a list in a sentence: ``a``, ``a and b``, ``a, b and c``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def plain(text: str, most: int = 60) -> str:
    """Return a text from a trace, cut where it would break a layout, and safe in HTML."""
    return escape(clipped(text, most))


def clipped(text: str, most: int = 60) -> str:
    """Return a text from a trace on one line, cut where it would break a layout."""
    line = printable(" ".join(text.split())) or "(no name)"
    return line if len(line) <= most else f"{line[: most - 1]}…"


def level_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the confidence level of the intervals of some runs, as the head of their column."""
    level = next((row["confidence"] for row in rows if row.get("confidence")), 0.95)
    return f"{100 * level:.4g} %"
