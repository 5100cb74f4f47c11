"""The least cost of a request, against every assignment of configurations."""

from dataclasses import replace
from itertools import product

from hypothesis import given, settings, strategies as st

from headway.fleet.metrics.least_cost import _series_parallel, least_cost
from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Model, Profile
from headway.fleet.model.fleet import Fleet, Gpu, Prices, Worker
from headway.fleet.model.graph import Graph, Task
from headway.fleet.model.latency import LatencyModel
from headway.units import MILLISECOND
from tests.fleet.worlds import MB, chain, workers

MS = MILLISECOND
HOUR_MS = 3600 * 1000
ZIGZAG = Graph("n", tuple(Task(f"t{i}", 0) for i in range(4)), ((0, 2), (0, 3), (1, 3)))
DIAMOND = Graph("d", tuple(Task(f"t{i}", 0) for i in range(4)), ((0, 1), (0, 2), (1, 3), (2, 3)))


def function(cells: dict[tuple[int, int, int], int], *models: int, **options: int) -> Function:
    profile = Profile({"": {Configuration(*cell): time * MS for cell, time in cells.items()}})
    return Function("f", models, profile, **options)


def exhaustive(catalogue: Catalogue, fleet: Fleet, graph: Graph, within: int) -> float | None:
    """The cheapest of all assignments; every configuration fits on some worker of the one type."""
    profiles = [list(catalogue.functions[task.function].profile.on("").items()) for task in graph.tasks]
    best = None
    for cells in product(*profiles):
        if graph.critical_path([time for _, time in cells]) <= within:
            cost = sum(
                (cell.cpus * fleet.prices.cpu_hour + cell.slices * fleet.prices.slice_hour) * time / cell.batch
                for cell, time in cells
            )
            best = cost if best is None else min(best, cost)
    return None if best is None else best / (3600 * 1e9)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Catalogue, Graph]:
    cells = st.dictionaries(
        st.tuples(st.integers(1, 4), st.integers(1, 2), st.integers(1, 4)), st.integers(1, 30), min_size=1, max_size=5
    )
    functions = tuple(function(draw(cells)) for _ in range(draw(st.integers(1, 3))))
    count = draw(st.integers(1, 5))
    edges = tuple((a, b) for b in range(count) for a in range(b) if draw(st.booleans()))
    graph = Graph("g", tuple(Task(f"t{i}", draw(st.integers(0, len(functions) - 1))) for i in range(count)), edges)
    return Catalogue((), functions, (graph,)), graph


@given(problem=problems(), part=st.floats(0.2, 1.3))
@settings(max_examples=60, deadline=None)
def test_it_is_the_least_of_all_assignments(problem: tuple[Catalogue, Graph], part: float) -> None:
    catalogue, graph = problem
    fleet = replace(workers(2, slices=4), prices=Prices(1.0, 7.0))
    slowest = graph.critical_path([max(catalogue.functions[t.function].profile.on("").values()) for t in graph.tasks])
    found = least_cost(LatencyModel(catalogue, fleet), fleet, graph, round(slowest * part))
    wanted = exhaustive(catalogue, fleet, graph, round(slowest * part))
    assert (found is None) == (wanted is None)
    if found is not None and wanted is not None:
        assert abs(found - wanted) <= 1e-13 * len(graph.tasks) + wanted * 1e-9


def test_one_task_costs_what_its_resources_cost_for_its_time_shared_by_the_batch() -> None:
    fleet = replace(workers(1, slices=2), prices=Prices(0.5, 3.0))
    catalogue = Catalogue((), (function({(1, 1, 1): 10, (2, 1, 1): 16, (1, 1, 2): 6}),), (chain("one", 0),))
    latency, graph = LatencyModel(catalogue, fleet), catalogue.graphs[0]
    for within, usd in ((16, 3.5 * 16 / 2), (15, 3.5 * 10), (9, 6.5 * 6)):
        found = least_cost(latency, fleet, graph, within * MS)
        assert found is not None
        assert abs(found - usd / HOUR_MS) < 1e-14
    assert least_cost(latency, fleet, graph, 6 * MS - 1) is None


def test_only_what_some_worker_can_hold_counts_there_with_its_own_time() -> None:
    cells = {
        "T4": {Configuration(1, 1, 1): 40 * MS},
        "A100": {Configuration(1, 1, 1): 10 * MS, Configuration(4, 1, 1): 12 * MS, Configuration(1, 1, 7): 1 * MS},
    }
    kind = Function("f", (0,), Profile(cells), activation_bytes=10 * MB)
    catalogue = Catalogue((Model("m", 50 * MB),), (kind,), (chain("one", 0),))

    def bound(*gpus: Gpu, within: int = 100) -> float | None:
        fleet = Fleet(tuple(Worker(f"w{i}", gpu, cpus=4) for i, gpu in enumerate(gpus)), prices=Prices(0.0, 1.0))
        found = least_cost(LatencyModel(catalogue, fleet), fleet, catalogue.graphs[0], within * MS)
        return None if found is None else round(found * HOUR_MS, 6)

    small, large = Gpu("T4", 100 * MB, slices=4), Gpu("A100", 100 * MB, slices=4)
    assert bound(small) == 40.0
    assert bound(small, large) == 3.0  # a batch of four in 12 ms
    assert bound(small, replace(large, memory_bytes=80 * MB)) == 10.0  # which needs 90 MB
    assert bound(small, large, within=9) is None  # seven slices there are not
    assert bound(replace(small, memory_bytes=20 * MB)) is None


def test_where_combinations_are_too_many_it_stays_below_the_optimum() -> None:
    cells = {(1, 1, s): round(4000 / s**0.5) for s in range(1, 41)}
    catalogue = Catalogue((), (function(cells),), (ZIGZAG, DIAMOND))
    fleet = workers(1, slices=40)
    latency = LatencyModel(catalogue, fleet)
    every = exhaustive(catalogue, fleet, chain("two", 0, 0), 2500 * MS)
    assert every is not None
    zigzag, diamond = (least_cost(latency, fleet, graph, 2500 * MS) for graph in catalogue.graphs)
    assert zigzag is not None
    assert diamond is not None
    assert 0.85 * 2 * every < zigzag <= 2 * every  # two chains of two that share nothing would do no better
    assert zigzag < diamond


def test_series_parallel_graphs_are_known() -> None:
    assert _series_parallel(DIAMOND)
    assert _series_parallel(chain("three", 0, 0, 0))
    assert not _series_parallel(ZIGZAG)
