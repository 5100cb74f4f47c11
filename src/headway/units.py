"""Convert time and sizes: one integer unit inside, converted once at the edge.

Time is an integer number of nanoseconds since the run began. Speed is an integer in parts per million of
the reference speed. GPU shares and CPUs are integers in thousandths. This module is the edge: it parses what
people write (``5m``, ``500GB``) and formats what people read.
"""

import re
from math import isfinite
from typing import NewType

from headway.errors import InputError

Duration = NewType("Duration", int)
"""Nanoseconds that a person may write as ``5m`` when they are an option of a policy."""

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

REFERENCE_SPEED_PPM = 1_000_000
WHOLE_GPU_MILLI = 1_000

_TIME_UNITS = {
    "ns": 1,
    "us": MICROSECOND,
    "µs": MICROSECOND,
    "ms": MILLISECOND,
    "s": SECOND,
    "sec": SECOND,
    "m": MINUTE,
    "min": MINUTE,
    "h": HOUR,
    "d": DAY,
    "w": 7 * DAY,
}
_SIZE_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "k": 2**10,
    "m": 2**20,
    "g": 2**30,
    "t": 2**40,
}
_MOST_DIGITS = 30
_PART = re.compile(r"([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([a-zA-Zµ]*)")


def seconds(value: float | int) -> int:
    """Return seconds, as read from a file, in nanoseconds (rounded to the nearest)."""
    if isinstance(value, int):
        return value * SECOND
    if not isfinite(value):
        raise InputError(f"{value!r} is not a finite number of seconds")
    return round(value * SECOND)


def to_seconds(time: int) -> float:
    """Return nanoseconds as seconds, for people."""
    return time / SECOND


def _number(text: str) -> int | float:
    """Return a number; whole numbers stay exact, beyond the digits of a float."""
    return int(text) if text.isdigit() and len(text) < _MOST_DIGITS else float(text)


def parse_duration(text: str, *, what: str = "duration") -> int:
    """Return ``90``, ``90s``, ``5m``, ``1h30m``, ``30d`` in nanoseconds; a bare number is seconds."""
    stripped = text.strip()
    total: int | float = 0
    position = 0
    while position < len(stripped):
        if stripped[position] == " ":
            position += 1
            continue
        match = _PART.match(stripped, position)
        unit = match.group(2) if match else ""
        if match is None or (unit not in _TIME_UNITS and not (unit == "" and match.group(0) == stripped)):
            if stripped.startswith("-") and _PART.match(stripped, 1):
                raise InputError(f"{what} {text!r} must not be negative")
            raise InputError(f"{what} {text!r} is not understood: write a number with ns, us, ms, s, m, h, d or w")
        total += _number(match.group(1)) * _TIME_UNITS.get(unit, SECOND)
        position = match.end()
    if not stripped:
        raise InputError(f"{what} is empty: write a number with ns, us, ms, s, m, h, d or w")
    if not isfinite(total):
        raise InputError(f"{what} {text!r} is too large")
    return round(total)


def parse_size(text: str, *, what: str = "size") -> int:
    """Return ``500GB``, ``64GiB``, ``1024`` in bytes; GB is 10**9, GiB (and Slurm's G) 2**30."""
    match = _PART.fullmatch(text.strip())
    if match is None or match.group(2).lower() not in _SIZE_UNITS:
        raise InputError(
            f"{what} {text!r} is not understood: write a number with B, KB, MB, GB, TB, KiB, MiB, GiB or TiB"
        )
    size = _number(match.group(1)) * _SIZE_UNITS[match.group(2).lower()]
    if not isfinite(size):
        raise InputError(f"{what} {text!r} is too large")
    return round(size)


def format_duration(time: int) -> str:
    """Return nanoseconds as a short text: ``3d 4h``, ``2h 05m``, ``12.5s``, ``340us``."""
    if time < 0:
        return "-" + format_duration(-time)
    if time >= DAY:
        return f"{time // DAY}d {time % DAY // HOUR}h"
    if time >= HOUR:
        return f"{time // HOUR}h {time % HOUR // MINUTE:02d}m"
    if time >= MINUTE:
        return f"{time // MINUTE}m {time % MINUTE // SECOND:02d}s"
    if time >= SECOND:
        return f"{time / SECOND:.4g}s"
    if time >= MILLISECOND:
        return f"{time / MILLISECOND:.4g}ms"
    return f"{time / MICROSECOND:.4g}us" if time else "0s"


def exact_duration(time: int) -> str:
    """Return nanoseconds as a text that ``parse_duration`` reads back exactly: ``5m``, ``1h30m``, ``1s500ms``."""
    texts = []
    left = time
    for unit in ("d", "h", "m", "s", "ms", "us", "ns"):
        count, left = divmod(left, _TIME_UNITS[unit])
        if count:
            texts.append(f"{count}{unit}")
    return "".join(texts) or "0s"


def clock(time: int) -> str:
    """Return a time since the run began, to the second, finer where it is: ``3d 04:05:06.5``."""
    days, rest = divmod(time, DAY)
    fraction = f".{rest % SECOND:09d}".rstrip("0") if rest % SECOND else ""
    clock = f"{rest // HOUR:02d}:{rest % HOUR // MINUTE:02d}:{rest % MINUTE // SECOND:02d}{fraction}"
    return f"{days}d {clock}" if days else clock


def counted(number: int, what: str) -> str:
    """Return a number of something: ``1 job``, ``1,200 jobs``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def format_memory(size_bytes: int) -> str:
    """Return memory in the unit that it was written in: ``100 GiB`` where it is whole MiB, else ``500 GB``."""
    if size_bytes % _SIZE_UNITS["mib"]:
        return format_size(size_bytes)
    unit = next((unit for unit in ("TiB", "GiB") if size_bytes >= _SIZE_UNITS[unit.lower()]), "MiB")
    return f"{size_bytes / _SIZE_UNITS[unit.lower()]:.4g} {unit}"


def format_size(size_bytes: int) -> str:
    """Return bytes as a short text: ``500 GB``."""
    value = float(size_bytes)
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            return f"{value:.4g} {unit}"
        value /= 1000
    raise AssertionError("unreachable")
