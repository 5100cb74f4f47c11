"""Rows of pairs, and several passes over the same pairs, of one build, as one.

Every time, rate and slow-down is the mean of the passes; shares and ratios of p99 are of the means. No pass and no
row is left out: what only some of them have is the mean of those.
"""

from collections.abc import Iterable, Sequence
from math import sqrt
from statistics import mean, pstdev
from typing import Any

MODES = ("bypass", "shim", "alone", "gate", "client", "mps", "stream", "slicing")
BOUND = 1.64
"""Standard errors, within which nine in ten lie."""
Row = dict[str, Any]
Key = tuple[str, str, float]


def key(row: Row) -> Key:
    """Which pair, at which pause."""
    return row["high"], row["low"], row["think_ms"]


def slow(row: Row, mode: str) -> float:
    """How much longer a request takes at the median, of the same rounds alone where there are any."""
    got = row[mode]
    return float(got.get("slowdown") or got["p50_ms"] / row["alone"]["p50_ms"])


def error(row: Row, mode: str) -> float:
    """How far that may be off, by the spread of the rounds; 0 where there was one."""
    return float(row[mode].get("error", 0.0))


def merge(rows: Iterable[Row]) -> list[Row]:
    """One row of each pair, in the order in which they come."""
    found: dict[Key, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return [merged(passes) for passes in found.values()]


def merged(passes: Sequence[Row]) -> Row:
    """One row of several of the same pair."""
    if len(passes) == 1:
        return passes[0]
    row: Row = {name: passes[0][name] for name in ("high", "low", "think_ms")}
    for mode in MODES:
        if have := [each for each in passes if mode in each]:
            row[mode] = _mode(have, mode)
    for name in ("low_alone_per_s", "dial", "ns_a_launch", "ask_ns"):
        if values := [each[name] for each in passes if name in each]:
            row[name] = means(values)
    return row | {"passes": len(passes)}


def means(values: Sequence[Any]) -> Any:
    """Of numbers the mean, of lists and dictionaries that of each place, where there are any."""
    first = values[0]
    if isinstance(first, dict):
        names = dict.fromkeys(name for each in values for name in each)
        return {name: means([each[name] for each in values if name in each]) for name in names}
    if isinstance(first, list):
        return [means(place) for place in zip(*values, strict=True)]
    return mean(values)


def _mode(passes: Sequence[Row], mode: str) -> Row:
    found: Row = means([each[mode] for each in passes])
    found["requests"] = sum(each[mode]["requests"] for each in passes)
    if mode == "alone":
        return found
    ratios = [slow(each, mode) for each in passes]
    within = sqrt(sum(error(each, mode) ** 2 for each in passes)) / len(passes)
    # Where the passes differ by more than the rounds of each let expect, that is how far it may be off.
    found |= {"slowdown": mean(ratios), "error": max(within, _apart(ratios))}
    if have := [each for each in passes if each[mode].get("p99_over_ms")]:
        points = [each[mode]["p99_ms"] - each["alone"]["p99_ms"] for each in have]
        found["p99_over_ms"] = between(points, [each[mode]["p99_over_ms"] for each in have])
    return found


def _apart(values: Sequence[float]) -> float:
    return pstdev(values) / sqrt(max(1, len(values) - 1))


def between(points: Sequence[float], ranges: Sequence[Sequence[float]]) -> list[float]:
    """Between which two the mean of points lies, nine times in ten, if each of them lies in its range as often."""
    down = sqrt(sum((point - low) ** 2 for point, (low, _) in zip(points, ranges, strict=True))) / len(points)
    up = sqrt(sum((high - point) ** 2 for point, (_, high) in zip(points, ranges, strict=True))) / len(points)
    apart = BOUND * _apart(points)
    return [mean(points) - max(down, apart), mean(points) + max(up, apart)]
