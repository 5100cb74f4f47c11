"""Graphs: who waits for whom, the longest way through, and what is not a graph."""

import pytest
from hypothesis import given, strategies as st

from headway.errors import ExperimentError
from headway.fleet.model.graph import Graph, Task
from tests.fleet.worlds import graphs


def graph(*edges: tuple[int, int], tasks: int = 4) -> Graph:
    return Graph("g", tuple(Task(f"t{i}", 0) for i in range(tasks)), edges)


def test_a_fork_and_a_join() -> None:
    made = graph((0, 1), (0, 2), (1, 3), (2, 3))
    assert made.predecessors == ((), (0,), (0,), (1, 2))
    assert made.successors == ((1, 2), (3,), (3,), ())
    assert made.entries == (0,)
    assert made.order == (0, 1, 2, 3)
    assert made.critical_path([5, 1, 7, 2]) == 14


def test_tasks_come_after_what_they_wait_for_whatever_their_position() -> None:
    made = graph((3, 0), (0, 1), (3, 2))
    assert made.order == (3, 0, 1, 2)
    assert made.entries == (3,)


@pytest.mark.parametrize(
    ("edges", "tasks", "line"),
    [
        ((), 0, "graph g: has no tasks"),
        (((0, 4),), 4, "graph g: edge 0 → 4 leads to no task"),
        (((-1, 0),), 4, "graph g: edge -1 → 0 leads to no task"),
        (((0, 1), (0, 1)), 4, "graph g: edge t0 → t1 is there twice"),
        (((0, 1), (1, 2), (2, 0)), 4, "graph g: has a cycle, t0 → t1 → t2 → t0"),
        (((1, 1),), 4, "graph g: has a cycle, t1 → t1"),
    ],
)
def test_what_is_no_graph_is_refused_in_one_line(edges: tuple[tuple[int, int], ...], tasks: int, line: str) -> None:
    with pytest.raises(ExperimentError) as refused:
        graph(*edges, tasks=tasks)
    assert str(refused.value) == line


def longest(made: Graph, times: list[int], task: int) -> int:
    """By trying all ways."""
    return times[task] + max((longest(made, times, after) for after in made.successors[task]), default=0)


@given(graphs(1, "any"), st.lists(st.integers(0, 100), min_size=5, max_size=5))
def test_the_critical_path_is_the_longest_of_all_ways(made: Graph, times: list[int]) -> None:
    assert made.critical_path(times) == max(longest(made, times, task) for task in range(len(made.tasks)))
    position = {task: index for index, task in enumerate(made.order)}
    assert all(position[source] < position[target] for source, target in made.edges)
    assert all(not made.predecessors[task] for task in made.entries)
