"""Orion's plan for a graph and a target: best-first search over sizes, then bundles of parallel calls.

A stage is all calls of one function that start together (the same predecessors); they have one size, as all parallel
workers of a function have in Orion. A state gives each stage a size. The search begins with the least size everywhere.
A step takes one stage to a next larger number of CPUs or slices. The state with the least latency percentile is
expanded next (``key=latency``), until the best one keeps the target or ``cutoff`` states have been evaluated. Cost is
consulted for ties only, as in the published program; ``key=cost`` expands the cheapest state instead.

Then each stage with several calls is bundled: in one batch, with as many times the resources as calls, as far as the
profile has them. Of the sizes of bundles in the paper the cheapest that keeps the target is taken.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from headway.fleet.model.graph import Graph
from headway.fleet.policies.central.fronts import Option

LATENCY, COST = "latency", "cost"
BUNDLES = (2, 5, 10)
"""The sizes of bundles that Orion tries, besides 1."""
State = tuple[int, ...]
"""By stage, the position of its size in the menu of the stage."""


class Stage(NamedTuple):
    """Calls of one function with the same predecessors."""

    function: int
    tasks: tuple[int, ...]


class Bundle(NamedTuple):
    """Tasks that run together, and their configuration."""

    tasks: tuple[int, ...]
    option: Option


def batch_cost(option: Option) -> int:
    """Return the cost of a whole batch, in femtodollars."""
    return option.cost * option.configuration.batch


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found."""

    state: State
    latency: int
    evaluated: int
    """States whose latency was computed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Configurations for a whole graph."""

    sizes: tuple[Option, ...]
    """By task: its configuration when it runs alone."""
    bundles: tuple[Bundle, ...]
    """Every task is in one of them."""
    latency: int
    """The percentile of the end-to-end latency."""
    evaluated: int
    """States whose latency was computed for this plan."""


def stages_of(graph: Graph) -> tuple[Stage, ...]:
    """Return the stages of a graph, in the order of their first tasks."""
    stages: dict[tuple[int, frozenset[int]], list[int]] = {}
    for task, function in enumerate(graph.functions):
        stages.setdefault((function, frozenset(graph.predecessors[task])), []).append(task)
    return tuple(Stage(function, tuple(tasks)) for (function, _), tasks in stages.items())


def larger_sizes(menu: Sequence[Option]) -> tuple[tuple[int, ...], ...]:
    """Return by position in a menu the next larger sizes: more CPUs or slices, and no size lies in between."""
    sizes = [(option.configuration.cpus, option.configuration.slices) for option in menu]

    def above(small: tuple[int, int], large: tuple[int, int]) -> bool:
        return small != large and small[0] <= large[0] and small[1] <= large[1]

    following = []
    for size in sizes:
        more = [at for at, other in enumerate(sizes) if above(size, other)]
        following.append(tuple(at for at in more if not any(above(sizes[other], sizes[at]) for other in more)))
    return tuple(following)


def best_first(
    menus: Sequence[Sequence[Option]],
    counts: Sequence[int],
    latency_of: Callable[[State], int],
    target: int,
    cutoff: int,
    key: str = LATENCY,
) -> Found:
    """Return the first state that keeps the target; at the cut-off the best so far.

    The best is the cheapest that keeps the target; where none does, the one with the least latency. ``menus``: by
    stage its sizes, the least one first. ``counts``: by stage how many calls it has.
    """

    def cost_of(state: State) -> int:
        return sum(batch_cost(menu[at]) * count for menu, at, count in zip(menus, state, counts, strict=True))

    def rank(state: State) -> tuple[int, int, State]:
        latency, cost = latencies[state], cost_of(state)
        return (latency, cost, state) if key == LATENCY else (cost, latency, state)

    def how_good(state: State) -> tuple[bool, int, int, State]:
        latency, cost = latencies[state], cost_of(state)
        return (False, cost, latency, state) if latency <= target else (True, latency, cost, state)

    larger = [larger_sizes(menu) for menu in menus]
    first = (0,) * len(menus)
    latencies = {first: latency_of(first)}
    heap = [rank(first)]
    while heap:
        state = heappop(heap)[2]
        if latencies[state] <= target:
            return Found(state, latencies[state], len(latencies))
        for step in _steps(state, larger):
            if step not in latencies and len(latencies) < cutoff:
                latencies[step] = latency_of(step)
                heappush(heap, rank(step))
        if len(latencies) >= cutoff:
            break
    best = min(latencies, key=how_good)
    return Found(best, latencies[best], len(latencies))


def _steps(state: State, larger: Sequence[Sequence[Sequence[int]]]) -> Iterator[State]:
    """Yield the states with one stage made larger by one step."""
    for stage, at in enumerate(state):
        for following in larger[stage][at]:
            yield (*state[:stage], following, *state[stage + 1 :])


def bundle_of(options: Sequence[Option], size: Option, calls: int) -> Option | None:
    """Return the configuration of a bundle: so many times a size, as far as there is such a cell; None: there is none.

    ``options``: all configurations of the function. The batch is the least one that holds the calls.
    """
    _, cpus, slices = size.configuration
    batches = [option.configuration.batch for option in options if option.configuration.batch >= calls]
    within = [
        option
        for option in options
        if option.configuration.batch == min(batches, default=0)
        and option.configuration.cpus <= calls * cpus
        and option.configuration.slices <= calls * slices
    ]
    return max(within, key=lambda option: (option.configuration.slices, option.configuration.cpus), default=None)


def cut_into_bundles(stage: Stage, options: Sequence[Option], size: Option, calls: int) -> tuple[Bundle, ...] | None:
    """Return a stage in bundles of so many calls, the last one with what is left; None: there is no such cell."""
    parts = [stage.tasks[at : at + calls] for at in range(0, len(stage.tasks), calls)]
    found = []
    for tasks in parts:
        option = size if len(tasks) == 1 else bundle_of(options, size, len(tasks))
        if option is None:
            return None
        found.append(Bundle(tasks, option))
    return tuple(found)


def choose_bundles(
    stages: Sequence[Stage],
    options: Sequence[Sequence[Option]],
    sizes: Sequence[Option],
    latency_of: Callable[[Sequence[Bundle]], int],
    limit: int,
) -> tuple[list[tuple[Bundle, ...]], int]:
    """Return the bundles of each stage, and how many choices were evaluated.

    One stage after the other takes the cheapest choice whose latency is within ``limit``, of equal ones the smallest
    bundles. ``options``: by function.
    """
    alone = [tuple(Bundle((task,), size) for task in stage.tasks) for stage, size in zip(stages, sizes, strict=True)]
    chosen, evaluated = list(alone), 0
    for at, stage in enumerate(stages):
        for calls in BUNDLES:
            if calls > len(stage.tasks):
                break
            if (cut := cut_into_bundles(stage, options[stage.function], sizes[at], calls)) is None:
                continue
            if sum(batch_cost(each.option) for each in cut) >= sum(batch_cost(each.option) for each in chosen[at]):
                continue
            trial = [*chosen[:at], cut, *chosen[at + 1 :]]
            evaluated += 1
            if latency_of([bundle for bundles in trial for bundle in bundles]) <= limit:
                chosen = trial
    return chosen, evaluated
