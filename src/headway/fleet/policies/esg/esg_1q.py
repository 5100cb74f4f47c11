"""ESG_1Q: the K cheapest ways through some stages in a row within the time that is left for them.

The search of ESG (arXiv 2404.16812, HPDC 2024), A* with two blades. The time blade ends a stage where even the fastest
rest would be too late; the cost blade leaves out what K other ways beat. Where the paper bounds the rest of a path by
its least cost, whatever time that takes, the bound here is its least cost *within the time left*, read from the front
of the rest (``fronts``), which does not depend on the request and is made once. That bound is exact, so that only
prefixes of results are ever expanded: the K results are the same, as exhaustive search and a literal transcription in
the tests show, in a fraction of the time.

Dominated configurations are dropped only where K others dominate them: fewer may still be among the results 2..K.
Paths are in order of cost, then time, then their options, so that ties are settled the same way everywhere.
"""

from collections.abc import Sequence
from functools import cache
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from headway.fleet.policies.central.fronts import Front, Numbers, Option, front_of, series, single_point, skyband
from headway.units import MILLISECOND


class Path(NamedTuple):
    """One option a stage; sorts by cost, then time."""

    cost: int
    """Femtodollars a request."""
    time: int
    options: tuple[Option, ...]


class _Stage(NamedTuple):
    options: tuple[Option, ...]
    times: Numbers
    costs: Numbers


class Search:
    """Finds the K cheapest paths through stages in a row, for any time left and length of the first stage's queue.

    ``paths`` is exact for the given time. ``rounded_paths`` rounds it down to a multiple of ``bucket``, and caches.
    """

    def __init__(
        self,
        stages: Sequence[Sequence[Option]],
        ranks: int = 5,
        bucket: int = MILLISECOND,
        *,
        together: bool = False,
    ) -> None:
        """``stages``: the options of each, one at least; ``ranks`` is K.

        ``together``: later batches are no larger than the first one may be; else, as in the paper, of any size.
        """
        self.ranks = ranks
        self.bucket = bucket
        self.batches = tuple(sorted({option.configuration.batch for option in stages[0]}))
        self._all = stages
        self._together = together
        self._prepared = cache(self._prepare)
        self._slowest = sum(max(options).time for options in stages)
        self._paths = cache(self.paths)
        self.states = 0
        """Configurations that were looked at, over all searches."""

    def rounded_paths(self, slack: int, queue: int) -> tuple[Path, ...]:
        """Return ``paths`` for the time rounded down to a multiple of ``bucket``."""
        rounded = max(0, min(slack, self._slowest + self.bucket)) // self.bucket * self.bucket
        return self._paths(rounded, self._most(queue))

    def paths(self, slack: int, queue: int) -> tuple[Path, ...]:
        """Return the K cheapest paths within ``slack``, the first batch at most ``queue``; else the fastest path."""
        stages, after = self._prepared(self._most(queue))
        last = len(stages) - 1
        paths: list[Path] = []
        heap: list[tuple[int, int, int, int, tuple[int, ...]]] = [(0, 0, 0, 0, ())]
        # (cost of the best completion, number, cost, time, positions so far): each prefix's best completion is exact
        number = 0
        while heap:
            bound, _, cost, time, chosen = heappop(heap)
            if len(paths) >= self.ranks and bound > paths[self.ranks - 1].cost:
                break  # what is as cheap as the last rank is found too: time settles ties
            depth = len(chosen)
            if depth > last:
                options = tuple(stage.options[at] for stage, at in zip(stages, chosen, strict=True))
                paths.append(Path(cost, time, options))
                continue
            stage, rest = stages[depth], after[depth]
            left = slack - time
            feasible = int(stage.times.searchsorted(left - rest.fastest, side="right"))  # the time blade
            if not feasible:
                continue
            self.states += feasible
            bounds = stage.costs[:feasible] + rest.costs_within(left - stage.times[:feasible])
            for at in _cheapest(bounds, self.ranks):  # the cost blade
                number += 1
                option = stage.options[at]
                entry = (cost + int(bounds[at]), number, cost + option.cost, time + option.time, (*chosen, at))
                heappush(heap, entry)
        return tuple(sorted(paths)[: self.ranks]) or (_quickest(stages),)

    def _most(self, queue: int) -> int:
        """Return the largest batch that a queue can fill; the smallest that there is, if none."""
        return max((batch for batch in self.batches if batch <= queue), default=self.batches[0])

    def _prepare(self, most: int) -> tuple[list[_Stage], list[Front]]:
        """Return the stages with a first batch of at most ``most``, and the front of the rest after each of them."""
        first, *later = self._all
        if self._together:
            later = [within_batch(options, most) for options in later]
        stages = [_stage(skyband(options, self.ranks)) for options in (within_batch(first, most), *later)]
        return stages, fronts_after(later)


def within_batch(options: Sequence[Option], most: int) -> Sequence[Option]:
    """Return the options with batches of at most ``most``, or those of the smallest batch."""
    most = max(most, min(option.configuration.batch for option in options))
    return [option for option in options if option.configuration.batch <= most]


def _quickest(stages: Sequence[_Stage]) -> Path:
    options = tuple(stage.options[0] for stage in stages)
    return Path(sum(option.cost for option in options), sum(option.time for option in options), options)


def fronts_after(stages: Sequence[Sequence[Option]]) -> list[Front]:
    """Return the fronts of what is left of a chain: before its first stage, after it, and so on to the end."""
    fronts = [single_point(0)]
    for options in reversed(stages):
        fronts.append(series(front_of(options), fronts[-1]))
    fronts.reverse()
    return fronts


def _stage(options: tuple[Option, ...]) -> _Stage:
    times = np.array([option.time for option in options], dtype=np.int64)
    return _Stage(options, times, np.array([option.cost for option in options], dtype=np.int64))


def _cheapest(bounds: Numbers, ranks: int) -> list[int]:
    """Return the positions of the ``ranks`` least bounds and of all that tie with the last of them."""
    if len(bounds) > ranks:
        cheapest: list[int] = np.flatnonzero(bounds <= np.partition(bounds, ranks - 1)[ranks - 1]).tolist()
        return cheapest
    return list(range(len(bounds)))
