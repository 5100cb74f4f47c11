"""Latency distributions of tasks and of whole graphs, as Orion combines them (Mahgoub and others, OSDI 2022).

Functions in a row: the convolution. Functions in parallel: the distribution of the maximum, which is the product of
the cumulative ones. Run times of different tasks are taken as independent. ``Network`` brings a graph into such steps
once; then any choice of configurations is evaluated by them. Where a graph is not series-parallel, the tasks before a
fork are counted once for each branch, as if they ran independently: the percentile then comes out too high, never too
low.

A distribution lies on a grid that begins at its own least value, so that times without spread are exact.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, exp
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

Weights = npt.NDArray[np.float64]
Value = TypeVar("Value")

TAILS = 4.0
"""Standard deviations at which a distribution is cut off; what lies beyond is put at its ends."""
_EXACT = 1e-9
"""Rounding errors of sums of probabilities."""


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """Probabilities of the times ``start``, ``start + step``, ``start + 2 * step`` and so on."""

    start: int
    step: int
    weights: Weights

    def percentile(self, percent: float) -> int:
        """Return the least time that is not exceeded in so many per cent of cases."""
        reached = np.cumsum(self.weights) >= percent / 100.0 - _EXACT
        last = len(self.weights) - 1
        return self.start + self.step * (int(np.argmax(reached)) if reached.any() else last)


def point(time: int, step: int) -> Distribution:
    """Return the distribution of a time that is certain."""
    return Distribution(time, step, np.ones(1))


def lognormal(median: int, spread: float, step: int) -> Distribution:
    """Return a log-normal distribution on a grid through its median."""
    if not spread:
        return point(median, step)
    below = min(ceil(median * (1.0 - exp(-TAILS * spread)) / step), (median - 1) // step)
    above = ceil(median * (exp(TAILS * spread) - 1.0) / step)
    edges = median + step * (np.arange(-below, above) + 0.5)
    cumulative = np.concatenate(([0.0], ndtr(np.log(edges / median) / spread), [1.0]))
    return Distribution(median - below * step, step, np.diff(cumulative))


def in_series(first: Distribution, second: Distribution) -> Distribution:
    """Return the distribution of the sum."""
    weights = np.convolve(first.weights, second.weights)
    return Distribution(first.start + second.start, first.step, weights)


def in_parallel(first: Distribution, second: Distribution) -> Distribution:
    """Return the distribution of the maximum; where the grids differ, times are rounded up to the later one."""
    start = max(first.start, second.start)
    ends = [-(-(each.start - start) // each.step) + len(each.weights) for each in (first, second)]
    length = max(1, *ends)
    cumulative = [_cumulative(each, end, length) for each, end in zip((first, second), ends, strict=True)]
    return Distribution(start, first.step, np.diff(cumulative[0] * cumulative[1], prepend=0.0))


def _cumulative(distribution: Distribution, end: int, length: int) -> Weights:
    """Return cumulative probabilities on a later grid; ``end``: where the distribution ends on that grid."""
    own = np.cumsum(distribution.weights)
    placed = np.full(length, own[-1])
    count = min(end, len(own))
    if count > 0:
        placed[end - count : end] = own[len(own) - count :]
        placed[: end - count] = 0.0
    return placed


_Node = tuple[int, int]
_Edge = tuple[_Node, _Node, int]
_IN, _OUT = (-1, 0), (-2, 0)
"""Before the first and after the last task."""


class Network:
    """The steps that combine the times of a graph's tasks into its end-to-end time."""

    def __init__(self, predecessors: Sequence[Sequence[int]]) -> None:
        """Find the steps. ``predecessors``: by task."""
        self._count = len(predecessors)
        self._steps: list[tuple[bool, int, int]] = []
        """(whether in series, two positions of earlier values): position ``count`` is no time at all."""
        edges: list[_Edge] = []
        leading = {before for all_before in predecessors for before in all_before}
        for task, all_before in enumerate(predecessors):
            edges.append(((task, 0), (task, 1), task))
            edges += [((before, 1), (task, 0), self._count) for before in all_before]
            if not all_before:
                edges.append((_IN, (task, 0), self._count))
            if task not in leading:
                edges.append(((task, 1), _OUT, self._count))
        while len(edges) > 1:
            edges = self._without_one_node(self._without_parallel(edges))

    def combine(
        self,
        times: Sequence[Value],
        nothing: Value,
        series: Callable[[Value, Value], Value],
        parallel: Callable[[Value, Value], Value],
    ) -> Value:
        """Return the end-to-end time from those of the tasks; ``nothing`` is a time of 0."""
        values = [*times, nothing]
        for in_row, first, second in self._steps:
            if in_row and self._count in (first, second):
                values.append(values[first if second == self._count else second])
            else:
                values.append((series if in_row else parallel)(values[first], values[second]))
        return values[-1] if self._steps else values[0]

    def _add(self, in_row: bool, first: int, second: int) -> int:
        self._steps.append((in_row, first, second))
        return self._count + len(self._steps)

    def _without_parallel(self, edges: Sequence[_Edge]) -> list[_Edge]:
        """Return the edges with those between the same nodes merged into one."""
        merged: dict[tuple[_Node, _Node], int] = {}
        for source, target, value in edges:
            known = merged.get((source, target), self._count)
            merged[source, target] = value if known == self._count else self._add(False, known, value)
        return [(source, target, value) for (source, target), value in merged.items()]

    def _without_one_node(self, edges: list[_Edge]) -> list[_Edge]:
        """Return the edges without one node that has a single way in; one with a single way out, if there is any."""
        if len(edges) == 1:
            return edges
        into: dict[_Node, list[_Edge]] = {}
        out: dict[_Node, list[_Edge]] = {}
        for edge in edges:
            out.setdefault(edge[0], []).append(edge)
            into.setdefault(edge[1], []).append(edge)
        inner = [node for node in out if node in into and len(into[node]) == 1]
        chosen = min(inner, key=lambda node: len(out[node]))  # the first node after the source has one way in
        source, _, before = into[chosen][0]
        longer = [(source, target, self._add(True, before, value)) for _, target, value in out[chosen]]
        return [edge for edge in edges if chosen not in edge[:2]] + longer
