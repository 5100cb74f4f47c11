"""Fleets of two kinds: the cheapest mix that meets the deadlines, if one is cheaper than the best kind alone.

What each kind needs alone bounds the search. A mix of x workers of one kind and y of another is tried only if it costs
less than the best plan so far, and if x and y, as parts of what each kind needs alone, add up to ``LEAST_PARTS`` or
more: a smaller mix lacks throughput. A kind that is not enough alone counts for nothing in that sum. Mixes are tried
cheapest first, so the first that is enough is the answer. If a mix fails, those that have no more of either kind are
not tried. After ``MOST_TRIALS`` trials the search ends and says so.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from headway.fleet.ask.capacity_planning import Plan, Search
from headway.fleet.model.fleet import Worker
from headway.fleet.scenarios.build import Built
from headway.fleet.scenarios.tables.settings import ServingExperiment

MOST_TRIALS = 12
LEAST_PARTS = 0.8
MOST_OF_A_HELPER = 64
"""The most workers in a mix of a kind that is not enough alone."""
_LESS = 1 - 1e-9


class Mixed(NamedTuple):
    """The cheapest mix that is enough, if it is cheaper than one kind alone; and a line on the search."""

    plan: Plan | None = None
    note: str = ""


class Mix(NamedTuple):
    """Some workers of two kinds."""

    hour_usd: float
    first: int
    """The index of its first kind."""
    second: int
    x: int
    y: int


def cheapest(
    experiment: ServingExperiment,
    built: Built,
    target: float,
    alone: Sequence[Plan],
    progress: Callable[[str, float], None],
) -> Mixed:
    """Return the cheapest mix of two kinds that is enough. ``alone``: the plans of single kinds, best first."""
    if len(alone) < 2 or not alone[0].workers:
        return Mixed()
    prices = [built.fleet.hour_usd(plan.kind) for plan in alone]
    mixes = sorted(candidates([plan.workers for plan in alone], prices, alone[0].hour_usd))
    failed: list[Mix] = []
    tried = 0
    for mix in mixes:
        if any(_is_within(mix, other) for other in failed):
            continue
        if tried == MOST_TRIALS:
            return Mixed(None, f"note: mixes of two kinds: {tried} were tried, none was enough; the rest was left out")
        tried += 1
        beside: tuple[Worker, int] = (alone[mix.second].kind, mix.y)
        search = Search(experiment, built, alone[mix.first].kind, target, progress, beside)
        if search.is_enough(mix.x):
            return Mixed(search.tried[mix.x], f"note: mixes of two kinds: {tried} tried")
        failed.append(mix)
    told = f"{tried} tried, none was enough" if tried else "none could be cheaper than one kind alone"
    return Mixed(None, f"note: mixes of two kinds: {told}")


def candidates(alone: Sequence[int], prices: Sequence[float], best_usd: float) -> Iterator[Mix]:
    """Yield the mixes worth trying. ``alone``: how many of each kind are enough alone, 0 where none are."""
    for first, second in combinations(range(len(alone)), 2):
        for x in range(1, alone[first] or MOST_OF_A_HELPER + 1):
            for y in range(1, alone[second] or MOST_OF_A_HELPER + 1):
                hour = x * prices[first] + y * prices[second]
                if hour >= best_usd * _LESS:
                    break
                parts = [count / need for count, need in ((x, alone[first]), (y, alone[second])) if need]
                if sum(parts) >= LEAST_PARTS:
                    yield Mix(hour, first, second, x, y)


def _is_within(mix: Mix, other: Mix) -> bool:
    """Return whether a mix has no more workers of either kind than another one of the same kinds."""
    same = (mix.first, mix.second) == (other.first, other.second)
    return same and mix.x <= other.x and mix.y <= other.y
