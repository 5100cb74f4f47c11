"""Several passes over the same pairs, on one build, as one: every figure is the mean of the passes.

    scripts/gpu-share report --state FIRST --again SECOND

Rows are as ``gpu_share_keep`` keeps them. No pass and no row is left out: a pair that only some have is the mean
of those.
"""

from collections.abc import Sequence
from math import sqrt
from statistics import mean, pstdev
from typing import Any

from bench.gpu_share_rows import MODES, Row, error, key, slow


def means(values: Sequence[Any]) -> Any:
    """Of numbers the mean, of lists and dictionaries that of each place."""
    first = values[0]
    if isinstance(first, dict):
        return {name: means([each[name] for each in values]) for name in first if all(name in each for each in values)}
    if isinstance(first, list):
        return [means(place) for place in zip(*values, strict=True)]
    return mean(values)


def between(ranges: Sequence[Sequence[float]]) -> list[float]:
    """Between which two the mean of figures lies, if each lies between its own two."""
    middle = mean((low + high) / 2 for low, high in ranges)
    half = sqrt(sum(((high - low) / 2) ** 2 for low, high in ranges)) / len(ranges)
    return [middle - half, middle + half]


def _mode(passes: Sequence[Row], mode: str) -> Row:
    found: Row = means([each[mode] for each in passes])
    found["requests"] = sum(each[mode]["requests"] for each in passes)
    if all(each[mode].get("p99_over_ms") for each in passes):
        found["p99_over_ms"] = between([each[mode]["p99_over_ms"] for each in passes])
    if mode == "alone":
        return found
    ratios = [slow(each, mode) for each in passes]
    found["slowdown"] = mean(ratios)
    within = sqrt(sum(error(each, mode) ** 2 for each in passes)) / len(passes)
    # Where the passes differ by more than the rounds of each let expect, that is how far it may be off.
    found["error"] = max(within, pstdev(ratios) / sqrt(max(1, len(passes) - 1)))
    return found


def merged(passes: Sequence[Row]) -> Row:
    """One row of several of the same pair."""
    first = passes[0]
    row: Row = {name: first[name] for name in ("high", "low", "think_ms")}
    row |= {mode: _mode(passes, mode) for mode in MODES if all(mode in each for each in passes)}
    for name in ("low_alone_per_s", "dial", "ns_a_launch", "ask_ns"):
        if have := [each[name] for each in passes if name in each]:
            row[name] = means(have)
    return row | {"passes": len(passes)}


def merge(every: Sequence[Sequence[Row]]) -> list[Row]:
    """The rows of all passes, one of each pair, in the order of the first pass that has it."""
    found: dict[tuple[str, str, float], list[Row]] = {}
    for row in (row for each in every for row in each):
        found.setdefault(key(row), []).append(row)
    return [merged(passes) for passes in found.values()]
