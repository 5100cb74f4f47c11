"""The deadline divided by dominators: chains, forks, forks in forks, graphs without; and its gap to the best."""

import pytest
from hypothesis import given, settings, strategies as st

from headway.fleet.model.catalogue import Configuration
from headway.fleet.model.fleet import Prices
from headway.fleet.model.graph import Graph, Task
from headway.fleet.policies.central.fronts import Option, front_of, front_of_graph, options_of
from headway.fleet.policies.esg.dominators import Split, average_latencies, branches_of, levels, split_cost, stages_of
from headway.units import MILLISECOND


def graph(count: int, *edges: tuple[int, int]) -> Graph:
    """Task i calls function i."""
    return Graph("g", tuple(Task(f"t{i}", i) for i in range(count)), edges)


def law(base_ms: float) -> dict[Configuration, int]:
    """The stand-in for measured profiles."""
    return {
        Configuration(b, c, s): round(base_ms * MILLISECOND * (0.25 + 0.75 * b**0.85) * (0.25 / c**0.6 + 0.75 / s**0.7))
        for b in (1, 2, 4, 8)
        for c in range(1, 9)
        for s in range(1, 8)
    }


CHAIN = graph(5, (0, 1), (1, 2), (2, 3), (3, 4))
FORK = graph(5, (0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4))
NESTED = graph(7, (0, 1), (1, 2), (1, 3), (2, 4), (3, 4), (0, 5), (4, 6), (5, 6))
BRIDGE = graph(4, (0, 2), (0, 3), (1, 3))


def test_weights_are_mean_parts_of_the_sum() -> None:
    one, two = Configuration(1, 1, 1), Configuration(1, 1, 2)
    assert average_latencies([{one: 30, two: 10}, {one: 10, two: 10}]) == [(0.75 + 0.5) / 2, (0.25 + 0.5) / 2]
    assert average_latencies([{one: 30}, {two: 10}]) == [0.75, 0.25]


def test_a_chain_is_planned_three_at_a_time() -> None:
    found = levels(CHAIN, [1.0, 2.0, 3.0, 4.0, 10.0])
    assert found[0][0].stages == ((0,), (1,), (2,))
    assert found[0][0].fraction == pytest.approx(6 / 20)
    assert found[3][0].stages == ((3,), (4,))
    assert found[3][0].fraction == 1.0


def test_what_lies_between_dominators_is_one_stage() -> None:
    assert stages_of(FORK, frozenset(range(5))) == [(0,), (1, 2, 3), (4,)]
    assert branches_of(FORK, (1, 2, 3)) == [frozenset({1}), frozenset({2}), frozenset({3})]
    found = levels(FORK, [1.0, 1.0, 2.0, 3.0, 1.0])
    assert [level.stages for level in found[2]] == [((1, 2, 3), (4,)), ((2,),)]
    assert found[0][0].fraction == 1.0


def test_branches_are_divided_in_the_same_way() -> None:
    assert stages_of(NESTED, frozenset(range(7))) == [(0,), (1, 2, 3, 4, 5), (6,)]
    found = levels(NESTED, [1.0] * 7)
    assert [level.stages for level in found[1]] == [((1, 2, 3, 4, 5), (6,)), ((1,), (2, 3), (4,))]
    assert [level.stages for level in found[2]] == [((2, 4), (6,)), ((2, 3), (4,)), ((2,),)]
    assert [level.stages for level in found[4]] == [((4,), (6,)), ((4,),)]


def test_without_dominators_a_task_gets_its_part_of_its_longest_way() -> None:
    found = levels(BRIDGE, [1.0, 3.0, 2.0, 1.0])
    assert [level.stages for level in found[0]] == [((0,),)]
    assert found[0][0].fraction == pytest.approx(1 / 3)
    assert found[1][0].fraction == pytest.approx(3 / 4)
    assert found[3][0].fraction == 1.0


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any graph of up to six tasks."""
    count = draw(st.integers(1, 6))
    pairs = [(a, b) for b in range(count) for a in range(b)]
    return graph(count, *(pair for pair in pairs if draw(st.booleans())))


@given(drawn=graphs(), data=st.data())
@settings(max_examples=150)
def test_a_split_keeps_any_deadline_that_leaves_it_room(drawn: Graph, data: st.DataObject) -> None:
    """Times scale with one factor in all functions, so that shares by weight always suffice."""
    bases = [data.draw(st.integers(1, 9)) * 1000 for _ in drawn.tasks]
    options = [
        tuple(Option(base * factor, 10 - factor, Configuration(1, 1, 10 - factor)) for factor in (1, 2, 4))
        for base in bases
    ]
    weights = average_latencies([{o.configuration: o.time for o in choices} for choices in options])
    least = drawn.critical_path(bases)
    split = Split(drawn, options, weights, ranks=1, bucket=1)
    deadline = least * data.draw(st.sampled_from([110, 150, 200, 400])) // 100
    cost = split_cost(split, deadline)
    assert cost is not None
    front = front_of_graph(drawn, {task: front_of(choices) for task, choices in enumerate(options)})
    assert cost >= front.costs[front.within(deadline)]


COMPASS = {
    "translation": ((561, 441, 778, 803, 1), FORK),
    "question answering": ((560, 27), graph(2, (0, 1))),
    "image to speech": ((283, 26, 76, 0.2), graph(4, (0, 1), (0, 2), (1, 3), (2, 3))),
    "3D perception": ((0.6, 178, 147, 104), graph(4, (0, 1), (0, 2), (1, 3), (2, 3))),
}


@pytest.mark.parametrize("name", COMPASS)
def test_on_the_graphs_of_compass_the_split_costs_at_most_a_tenth_more_than_the_best(name: str) -> None:
    times, shape = COMPASS[name]
    profiles = [law(time) for time in times]
    options = [options_of(cells, Prices()) for cells in profiles]
    split = Split(shape, options, average_latencies(profiles), ranks=1)
    front = front_of_graph(shape, {task: front_of(choices) for task, choices in enumerate(options)})
    least = shape.critical_path([cells[Configuration(1, 1, 1)] for cells in profiles])
    for tenths in (4, 6, 8, 10, 12, 16):
        deadline = least * tenths // 10
        cost = split_cost(split, deadline)
        assert cost is not None
        assert front.costs[front.within(deadline)] <= cost <= 1.1 * front.costs[front.within(deadline)]
