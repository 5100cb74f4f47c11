"""Find the requests of one run in another of the same workload: by graph, and by when they arrived."""

from collections.abc import Mapping, Sequence
from itertools import product

from headway.units import MILLISECOND

TOLERANCE = 20 * MILLISECOND
"""Requests of two live runs arrive within this of each other, for the same place in their workloads."""
_FIRST = 6
"""Runs may begin at different times: they are laid over each other so that two of their first requests coincide."""
_TRIED = 1000

Arrivals = Mapping[str, Sequence[tuple[int, int]]]
"""By graph: (arrival, number) of its requests, in order."""


def paired(first: Arrivals, second: Arrivals) -> dict[str, dict[int, int]]:
    """Return by graph the number in the first run of each request of the second that both have."""
    begin = {name: (first[name][:_TRIED], second[name][:_TRIED]) for name in first if name in second}
    shifts = {0} | {a - b for one, two in begin.values() for (a, _), (b, _) in product(one[:_FIRST], two[:_FIRST])}

    def fitting(shift: int) -> tuple[int, int]:
        return sum(len(_matched(one, two, shift)) for one, two in begin.values()), -abs(shift)

    best = max(shifts, key=fitting)
    return {name: _matched(first[name], second[name], best) for name in begin}


def _matched(first: Sequence[tuple[int, int]], second: Sequence[tuple[int, int]], shift: int) -> dict[int, int]:
    found, at, other = {}, 0, 0
    while at < len(first) and other < len(second):
        (arrival, number), (came, name) = first[at], second[other]
        gap = came + shift - arrival
        if abs(gap) <= TOLERANCE:
            found[name] = number
        at += gap >= -TOLERANCE
        other += gap <= TOLERANCE
    return found
