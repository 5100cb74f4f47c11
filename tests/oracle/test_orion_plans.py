"""Plans of ``orion-dag`` against a slow, literal form of its rules: every joint outcome, every open state in a list."""

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from hypothesis import assume, given, settings, strategies as st

from headway.fleet.model.catalogue import Configuration
from headway.fleet.model.fleet import Prices
from headway.fleet.model.graph import Graph, Task
from headway.fleet.policies.central.fronts import Option, cost_of
from headway.fleet.policies.orion_dag.distributions import (
    Distribution,
    Network,
    in_parallel,
    in_series,
    point,
)
from headway.fleet.policies.orion_dag.planner import Planner, Rules
from headway.fleet.policies.orion_dag.planning import COST, LATENCY, State, best_first

Outcomes = Sequence[tuple[int, int]]
"""(time, probability in sixteenths) of one task."""


def literal_percentile(graph: Graph, outcomes: Sequence[Outcomes], percent: int) -> int:
    """The least time within which enough of all joint outcomes end, by enumeration with whole numbers."""
    ends: dict[int, int] = {}
    for joint in product(*outcomes):
        weight = 1
        for _, sixteenths in joint:
            weight *= sixteenths
        end = graph.critical_path([time for time, _ in joint])
        ends[end] = ends.get(end, 0) + weight
    reached = 0
    for end in sorted(ends):
        reached += ends[end]
        if reached * 100 >= percent * 16 ** len(outcomes):
            return end
    raise AssertionError("probabilities do not add up")


def literal_search(
    menus: Sequence[Sequence[Option]],
    counts: Sequence[int],
    latency_of: Callable[[State], int],
    target: int,
    cutoff: int,
    key: str,
) -> tuple[State, int]:
    """The search as it is told: a list of open states, the best of them by looking at all; (state, evaluated)."""

    def cost(state: State) -> int:
        return sum(counts[i] * menus[i][at].cost for i, at in enumerate(state))

    def order(state: State) -> tuple[int, int, State]:
        latency = evaluated[state]
        return (latency, cost(state), state) if key == LATENCY else (cost(state), latency, state)

    def is_next(small: Option, large: Option, menu: Sequence[Option]) -> bool:
        def above(a: Option, b: Option) -> bool:
            ca, cb = a.configuration, b.configuration
            return ca != cb and ca.cpus <= cb.cpus and ca.slices <= cb.slices

        return above(small, large) and not any(above(small, other) and above(other, large) for other in menu)

    start = tuple(0 for _ in menus)
    evaluated = {start: latency_of(start)}
    open_states = [start]
    while open_states:
        best = min(open_states, key=order)
        if evaluated[best] <= target:
            return best, len(evaluated)
        open_states.remove(best)
        for i, menu in enumerate(menus):
            for at, option in enumerate(menu):
                step = (*best[:i], at, *best[i + 1 :])
                if is_next(menu[best[i]], option, menu) and step not in evaluated and len(evaluated) < cutoff:
                    evaluated[step] = latency_of(step)
                    open_states.append(step)
        if len(evaluated) >= cutoff:
            break
    kept = [state for state, latency in evaluated.items() if latency <= target]
    if kept:
        return min(kept, key=lambda state: (cost(state), evaluated[state], state)), len(evaluated)
    return min(evaluated, key=lambda state: (evaluated[state], cost(state), state)), len(evaluated)


def hill_descent(menus: Sequence[Sequence[Option]], latency_of: Callable[[State], int], target: int) -> State:
    """The published program, with sizes on one axis: again and again the step that gives the least latency."""
    state = tuple(0 for _ in menus)
    latency = latency_of(state)
    while latency > target:
        steps = [(*state[:i], at + 1, *state[i + 1 :]) for i, at in enumerate(state) if at + 1 < len(menus[i])]
        if not steps:
            break
        state = min(steps, key=latency_of)
        latency = latency_of(state)
    return state


@st.composite
def graphs(draw: st.DrawFn, functions: int = 3, most: int = 4) -> Graph:
    """Any graph of up to four tasks."""
    count = draw(st.integers(1, most))
    edges = tuple((a, b) for b in range(count) for a in range(b) if draw(st.booleans()))
    tasks = tuple(Task(f"t{i}", draw(st.integers(0, functions - 1))) for i in range(count))
    return Graph("g", tasks, edges)


@st.composite
def outcomes(draw: st.DrawFn) -> Outcomes:
    """One to three times with probabilities in sixteenths."""
    times = sorted(draw(st.sets(st.integers(1, 9), min_size=1, max_size=3)))
    cuts = sorted(draw(st.sets(st.integers(1, 15), min_size=len(times) - 1, max_size=len(times) - 1)))
    bounds = [0, *cuts, 16]
    return [(time, high - low) for time, low, high in zip(times, bounds[:-1], bounds[1:], strict=True)]


def distribution(of: Outcomes) -> Distribution:
    """The same on a grid of step 1."""
    first, last = of[0][0], of[-1][0]
    weights = np.zeros(last - first + 1)
    for time, sixteenths in of:
        weights[time - first] = sixteenths / 16
    return Distribution(first, 1, weights)


def percentile(graph: Graph, of: Sequence[Outcomes], percent: int) -> int:
    """What the policy's model says."""
    times = [distribution(each) for each in of]
    whole = Network(graph.predecessors).combine(times, point(0, 1), in_series, in_parallel)
    assert abs(whole.weights.sum() - 1.0) < 1e-9
    return whole.percentile(percent)


def is_series_parallel(graph: Graph) -> bool:
    """Whether no path is counted twice: then as many convolutions as there are tasks combine a graph, at the most."""
    paths = Network(graph.predecessors).combine([1] * len(graph.tasks), 0, lambda a, b: a + b, lambda a, b: a + b)
    return paths == len(graph.tasks)


@given(graph=graphs(), data=st.data(), percent=st.sampled_from([50, 90, 95, 99]))
@settings(max_examples=200)
def test_the_percentile_of_a_graph_is_that_of_all_joint_outcomes(
    graph: Graph, data: st.DataObject, percent: int
) -> None:
    of = [data.draw(outcomes()) for _ in graph.tasks]
    exact = literal_percentile(graph, of, percent)
    if is_series_parallel(graph):
        assert percentile(graph, of, percent) == exact
    assert percentile(graph, of, percent) >= exact


@given(graph=graphs(most=7), data=st.data())
@settings(max_examples=200)
def test_certain_times_give_the_critical_path_of_any_graph(graph: Graph, data: st.DataObject) -> None:
    times = [data.draw(st.integers(0, 20)) for _ in graph.tasks]
    assert Network(graph.predecessors).combine(times, 0, lambda a, b: a + b, max) == graph.critical_path(times)


def sizes(draw: st.DrawFn, *, one_axis: bool = False) -> list[Option]:
    """Sizes for one call, the least one first; times may rise with a size, and cells may be missing."""
    cells = draw(st.sets(st.tuples(st.integers(1, 1 if one_axis else 3), st.integers(1, 3)), min_size=1, max_size=5))
    return [
        Option(draw(st.integers(1, 9)), draw(st.integers(1, 9)), Configuration(1, cpus, slices))
        for cpus, slices in sorted(cells)
    ]


@given(
    data=st.data(),
    target=st.integers(0, 30),
    cutoff=st.sampled_from([1, 4, 10, 1000]),
    key=st.sampled_from([LATENCY, COST]),
)
@settings(max_examples=200)
def test_the_search_takes_the_state_that_the_literal_search_takes(
    data: st.DataObject, target: int, cutoff: int, key: str
) -> None:
    graph = data.draw(graphs(most=3).filter(is_series_parallel))
    menus = [data.draw(st.composite(sizes)()) for _ in graph.tasks]
    of = [[data.draw(outcomes()) for _ in menu] for menu in menus]
    counts = [1] * len(menus)

    def fast(state: State) -> int:
        return percentile(graph, [each[at] for each, at in zip(of, state, strict=True)], 95)

    def slow(state: State) -> int:
        return literal_percentile(graph, [each[at] for each, at in zip(of, state, strict=True)], 95)

    found = best_first(menus, counts, fast, target, cutoff, key)
    assert (found.state, found.evaluated) == literal_search(menus, counts, slow, target, cutoff, key)
    assert found.latency == slow(found.state)
    assert found.evaluated <= cutoff


@given(data=st.data(), tenths=st.integers(1, 12))
@settings(max_examples=200)
def test_where_larger_is_faster_and_nothing_ties_the_search_is_the_published_descent(
    data: st.DataObject, tenths: int
) -> None:
    count = data.draw(st.integers(1, 3))
    menus = []
    for stage in range(count):
        gains = data.draw(st.lists(st.integers(1, 50), min_size=1, max_size=4))
        times = [sum(gains[at:]) * 1000 + 4 ** (len(gains) - at) * 10**stage for at in range(len(gains))]
        menus.append([Option(time, 1, Configuration(1, 1, 1 + at)) for at, time in enumerate(times)])

    def latency_of(state: State) -> int:
        return sum(menu[at].time for menu, at in zip(menus, state, strict=True))

    target = latency_of((0,) * count) * tenths // 10
    latencies = [latency_of(state) for state in product(*(range(len(menu)) for menu in menus))]
    assume(len(set(latencies)) == len(latencies))
    found = best_first(menus, [1] * count, latency_of, target, 10_000)
    assert found.state == hill_descent(menus, latency_of, target)


@st.composite
def cells(draw: st.DrawFn) -> tuple[Option, ...]:
    """A function with batches: some cells of a small grid, at real prices."""
    made = draw(
        st.sets(st.tuples(st.sampled_from([1, 2, 4]), st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=9)
    )
    return tuple(
        sorted(
            Option(time, cost_of(cell, time, Prices()), cell)
            for cell in (Configuration(*each) for each in made | {(1, 1, 1)})
            for time in [draw(st.integers(1, 9))]
        )
    )


Chosen = dict[int, tuple[tuple[int, ...], Option]]
"""By task: the tasks that it runs with, and their configuration."""


def literal_stages(graph: Graph) -> list[list[int]]:
    """Calls of one function with the same predecessors."""
    stages: list[list[int]] = []
    for task in range(len(graph.tasks)):
        for stage in stages:
            same = set(graph.predecessors[stage[0]]) == set(graph.predecessors[task])
            if same and graph.functions[stage[0]] == graph.functions[task]:
                stage.append(task)
                break
        else:
            stages.append([task])
    return stages


def literal_bundle(options: Sequence[Option], size: Option, part: Sequence[int]) -> Option | None:
    """As many times the size as there are calls, as far as there is such a cell."""
    if len(part) == 1:
        return size
    held = [option.configuration.batch for option in options if option.configuration.batch >= len(part)]
    room = [
        option
        for option in options
        if held
        and option.configuration.batch == min(held)
        and option.configuration.cpus <= len(part) * size.configuration.cpus
        and option.configuration.slices <= len(part) * size.configuration.slices
    ]
    return sorted(room, key=lambda o: (o.configuration.slices, o.configuration.cpus))[-1] if room else None


def literal_plan(graph: Graph, options: Sequence[Sequence[Option]], target: int, cutoff: int) -> tuple[Chosen, int]:
    """The whole rule with certain times; (plan, states evaluated by the search)."""
    stages = literal_stages(graph)
    of_stage = [options[graph.functions[stage[0]]] for stage in stages]
    menus = [sorted((o for o in each if o.configuration.batch == 1), key=lambda o: o[2]) for each in of_stage]

    def alone(state: State) -> Chosen:
        return {task: ((task,), menus[i][at]) for i, at in enumerate(state) for task in stages[i]}

    counts = [len(stage) for stage in stages]
    state, searched = literal_search(menus, counts, lambda s: length(graph, alone(s)), target, cutoff, LATENCY)
    chosen = alone(state)
    limit = max(target, length(graph, chosen))
    for i, stage in enumerate(stages):
        for calls in (2, 5, 10):
            parts = [stage[at : at + calls] for at in range(0, len(stage), calls)]
            bundles = [literal_bundle(of_stage[i], menus[i][state[i]], part) for part in parts]
            if calls <= len(stage) and None not in bundles:
                pairs = [(t, tuple(part), o) for part, o in zip(parts, bundles, strict=True) if o for t in part]
                trial = {**chosen, **{task: (part, option) for task, part, option in pairs}}
                if usd(trial) < usd(chosen) and length(graph, trial) <= limit:
                    chosen = trial
    return chosen, searched


def usd(chosen: Chosen) -> int:
    """What all batches cost."""
    return sum(option.cost * option.configuration.batch for _, option in set(chosen.values()))


def length(graph: Graph, chosen: Chosen) -> int:
    """The end-to-end time; calls of a bundle end together."""
    return graph.critical_path([chosen[task][1].time for task in range(len(graph.tasks))])


@given(graph=graphs(functions=2, most=5), options=st.tuples(cells(), cells()), target=st.integers(0, 40))
@settings(max_examples=200)
def test_a_plan_is_the_one_of_the_literal_rules(
    graph: Graph, options: tuple[tuple[Option, ...], ...], target: int
) -> None:
    plan, evaluated = Planner(graph, options, [0.0, 0.0], Rules(95.0, 50, LATENCY, 1, True)).plan(target)
    chosen, searched = literal_plan(graph, options, target, 50)
    assert {task: tuple(bundle) for bundle in plan.bundles for task in bundle.tasks} == chosen
    assert plan.latency == length(graph, chosen)
    assert searched <= plan.evaluated == evaluated
