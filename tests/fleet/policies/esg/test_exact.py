"""``exact``: the optimum of what is left, also where a graph forks."""

import pytest

from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Profile
from headway.fleet.model.graph import Graph, Task
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind, unpack
from headway.fleet.policies.central.fronts import front_of, front_of_graph
from headway.fleet.policies.esg.exact import Exact
from headway.units import MILLISECOND
from tests.fleet.worlds import Run, World, chain, drive, workers

MS = MILLISECOND


def stepped(name: str, *times: int) -> Function:
    """One, two, four slices."""
    cells = {Configuration(1, 1, 1 << step): time * MS for step, time in enumerate(times)}
    return Function(name, (), Profile({"": cells}))


FUNCTIONS = (stepped("a", 40, 24, 15), stepped("b", 90, 50, 28), stepped("c", 30, 18, 11), stepped("d", 60, 33, 19))
GRAPHS = {
    "chain": chain("chain", 0, 1, 2, 3, 0),
    "fork": Graph("fork", tuple(Task(f"t{i}", i) for i in range(4)), ((0, 1), (0, 2), (1, 3), (2, 3))),
    "bridge": Graph("bridge", tuple(Task(f"t{i}", i) for i in range(4)), ((0, 2), (0, 3), (1, 3))),
}


def spent(run: Run) -> float:
    """What the batches cost, in the units of the fronts."""
    prices = run.world.fleet.prices
    begun = {row.lease: row for row in run.rows(Kind.RUN)}
    total = 0.0
    for row in run.rows(Kind.FINISHED):
        cpus, slices, _ = unpack(begun[row.lease].value)
        total += (cpus * prices.cpu_hour + slices * prices.slice_hour) * (row.time - begun[row.lease].time)
    return total * 1e15 / 3.6e12


@pytest.mark.parametrize("shape", GRAPHS)
@pytest.mark.parametrize("part", [0.6, 0.8, 1.0])
def test_alone_a_request_costs_what_the_best_assignment_costs(shape: str, part: float) -> None:
    graph = GRAPHS[shape]
    catalogue = Catalogue((), FUNCTIONS, (graph,))
    least = graph.critical_path(
        [FUNCTIONS[task.function].profile.on("")[Configuration(1, 1, 1)] for task in graph.tasks]
    )
    deadline = round(least * part)
    policy = Exact()
    run = drive(policy, World(catalogue, workers(2, slices=7), (Request(0, 0, 0, 0, deadline),)))
    front = front_of_graph(
        graph, {task: front_of(policy.options[made.function]) for task, made in enumerate(graph.tasks)}
    )
    assert run.rows(Kind.DONE)[0].value <= deadline
    best = int(front.costs[front.within(deadline)])
    assert best * 0.999 <= spent(run) <= best * 1.05  # what runs beside it is known to 10 ms only


def test_fronts_are_remembered_by_what_is_left_and_not_without_end() -> None:
    catalogue = Catalogue((), FUNCTIONS, (GRAPHS["fork"],))
    requests = tuple(Request(index, 0, index * 7 * MS, 0, index * 7 * MS + 170 * MS) for index in range(60))
    policy = Exact()
    run = drive(policy, World(catalogue, workers(4, slices=7), requests))
    assert len(run.rows(Kind.DONE)) == 60
    remembered = policy._whole.cache_info()
    assert 0 < remembered.currsize <= 256
    assert remembered.maxsize == 256
    assert remembered.hits > 0
