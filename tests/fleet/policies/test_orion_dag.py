"""``orion-dag``: the worked example of its sizes, and how its plans are carried out."""

from itertools import product
from math import exp

import numpy as np
import pytest

from headway.errors import ExperimentError
from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Profile
from headway.fleet.model.fleet import Prices
from headway.fleet.model.graph import Graph, Task
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind, unpack
from headway.fleet.policies.central.fronts import options_of
from headway.fleet.policies.orion_dag import OrionDag
from headway.fleet.policies.orion_dag.distributions import (
    Distribution,
    in_parallel,
    in_series,
    lognormal,
)
from headway.fleet.policies.orion_dag.planner import Planner, Rules
from headway.fleet.policies.orion_dag.planning import LATENCY, larger_sizes
from headway.fleet.policies.registry import build, describe
from headway.units import MILLISECOND, SECOND
from tests.fleet.policies.worked_example import A, B, C
from tests.fleet.worlds import Run, World, chain, drive, function, workers

MS = MILLISECOND
CELLS = [{Configuration(*cell): ms * MS for cell, ms in table.items()} for table in (A, B, C)]
RULES = Rules(95.0, 1000, LATENCY, MS, True)


def planner(spread: float = 0.0, rules: Rules = RULES) -> Planner:
    """The chain A → B → C of the worked example."""
    return Planner(chain("abc", 0, 1, 2), [options_of(cells, Prices()) for cells in CELLS], [spread] * 3, rules)


@pytest.mark.parametrize(
    ("target", "slices", "latency", "micro_usd", "evaluated"),
    [(300, [1, 2, 1], 280, 77.089, 4), (250, [2, 2, 1], 240, 80.433, 6), (360, [1, 1, 1], 360, 70.4, 1)],
)
def test_the_worked_example(target: int, slices: list[int], latency: int, micro_usd: float, evaluated: int) -> None:
    plan, now = planner().plan(target * MS)
    assert [size.configuration for size in plan.sizes] == [(1, 1, count) for count in slices]
    assert plan.latency == latency * MS
    cost = sum(size.cost for size in plan.sizes)
    assert round(cost / 1e9, 3) == micro_usd
    assert plan.evaluated == now == evaluated
    single = [[o for o in options_of(cells, Prices()) if o.configuration.batch == 1] for cells in CELLS]
    in_time = [path for path in product(*single) if sum(option.time for option in path) <= target * MS]
    assert cost == min(sum(option.cost for option in path) for path in in_time)


def test_distributions_are_convolved_and_not_their_percentiles_added() -> None:
    each = Distribution(100, 100, np.array([0.9, 0.1]))
    both = in_series(each, each)
    assert (both.start, both.weights) == (200, pytest.approx([0.81, 0.18, 0.01]))
    assert both.percentile(95) == 300
    slowest = in_parallel(each, each)
    assert (slowest.start, slowest.weights) == (100, pytest.approx([0.81, 0.19]))
    assert slowest.percentile(95) == 200


@pytest.mark.parametrize("spread", [0.05, 0.2, 0.6])
def test_a_run_time_that_varies_is_log_normal_about_its_profile(spread: float) -> None:
    varied = lognormal(300 * MS, spread, MS)
    assert varied.weights.sum() == pytest.approx(1.0)
    assert varied.start > 0
    for percent, quantile in ((50, 0.0), (95, 1.6448536)):
        assert abs(varied.percentile(percent) - 300 * MS * exp(spread * quantile)) <= MS


def test_a_plan_leaves_room_for_times_that_vary() -> None:
    assert [size.configuration.slices for size in planner(0.2).plan(360 * MS)[0].sizes] != [1, 1, 1]
    median = Rules(50.0, 1000, LATENCY, MS, True)
    assert [size.configuration.slices for size in planner(0.2, median).plan(375 * MS)[0].sizes] == [1, 1, 1]


def test_a_target_that_cannot_be_met_takes_the_fastest_state() -> None:
    plan, evaluated = planner().plan(10 * MS)
    assert plan.latency == 220 * MS
    assert evaluated == 8  # all of them
    short, evaluated = planner(rules=Rules(95.0, 3, LATENCY, MS, True)).plan(10 * MS)
    assert (short.latency, evaluated) == (280 * MS, 3)


def test_a_step_adds_cpus_or_slices_and_skips_nothing() -> None:
    cells = {Configuration(1, cpus, slices): 100 for cpus in (1, 2, 4) for slices in (1, 3)}
    menu = sorted(options_of(cells, Prices()), key=lambda option: option.configuration)
    sizes = [tuple(option.configuration)[1:] for option in menu]
    steps = {sizes[at]: [sizes[other] for other in larger] for at, larger in enumerate(larger_sizes(menu))}
    assert steps[1, 1] == [(1, 3), (2, 1)]
    assert steps[2, 1] == [(2, 3), (4, 1)]
    assert steps[4, 3] == []


@pytest.mark.parametrize(
    ("spec", "rule"),
    [
        ("percentile=100", "percentile=100.0 is not between 0 and 100"),
        ("percentile=nan", "percentile=nan is not between 0 and 100"),
        ("cutoff=0", "cutoff=0 is not a number of 1 or more"),
        ("key=speed", "key=speed is neither latency nor cost"),
        ("grid=0s", "grid=0s is not 1ns or more"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(spec: str, rule: str) -> None:
    with pytest.raises(ExperimentError, match=rf"policy orion-dag: option {rule}"):
        build(f"orion-dag({spec})")


def test_options_are_read_and_written() -> None:
    text = "orion-dag(percentile=99.0,cutoff=20,key=cost,grid=500us,bundle=off,prewarm=off)"
    assert describe(build(text)) == text


# --- in a run -----------------------------------------------------------------------------------------------------

ABC = tuple(Function(name, (), Profile({"": cells})) for name, cells in zip("abc", CELLS, strict=True))
EXAMPLE = Catalogue((), ABC, (chain("abc", 0, 1, 2),))


def started(run: Run) -> list[tuple[int, int]]:
    """(milliseconds, function) of the processes that were started."""
    return [(row.time // MS, row.detail) for row in run.rows(Kind.START_INSTANCE)]


def begun(run: Run) -> list[tuple[int, int, int]]:
    """(milliseconds, function, slices) of the batches."""
    return [(row.time // MS, row.detail, unpack(row.value)[1]) for row in run.rows(Kind.RUN)]


def test_requests_are_not_batched_with_each_other_and_the_plan_does_not_see_queues() -> None:
    requests = tuple(Request(i, 0, 0, 0, 300 * MS) for i in range(6))
    policy = OrionDag()
    run = drive(policy, World(EXAMPLE, workers(1, slices=7), requests))
    assert {row.detail for row in run.rows(Kind.FINISHED)} == {0, 1, 2}
    assert all(row.value == 1 for row in run.rows(Kind.FINISHED))
    assert {(what, slices) for _, what, slices in begun(run)} == {(0, 1), (1, 2), (2, 1)}
    assert policy.states_evaluated == 4, "one search for one graph and target"


def test_another_target_is_another_search_and_no_deadline_takes_the_least_sizes() -> None:
    requests = (Request(0, 0, 0, 0, 300 * MS), Request(1, 0, 0, 0, 250 * MS), Request(2, 0, 0, 0))
    policy = OrionDag()
    drive(policy, World(EXAMPLE, workers(1, slices=7), requests))
    assert policy.states_evaluated == 4 + 6 + 1


def two_stages(first_ms: int, init_ms: int) -> Catalogue:
    """A function without a process, then one with."""
    later = function("g", 50, cold_start=init_ms * MS)
    return Catalogue((), (function("f", first_ms), later), (chain("two", 0, 1),))


@pytest.mark.parametrize(
    ("policy", "init_ms", "at", "runs"),
    [
        ("orion-dag", 40, 60, 100),
        ("orion-dag(prewarm=off)", 40, 100, 140),
        ("orion-dag", 150, 0, 150),  # late: the task waits for the rest of the start
        ("orion-dag(prewarm=off)", 150, 100, 250),
    ],
)
def test_a_process_starts_so_that_it_is_ready_when_the_stage_before_is_expected_to_end(
    policy: str, init_ms: int, at: int, runs: int
) -> None:
    run = drive(policy, World(two_stages(100, init_ms), workers(1), (Request(0, 0, 0, 0),)))
    assert started(run) == [(at, 1)]
    assert begun(run) == [(0, 0, 1), (runs, 1, 1)]
    assert not run.rows(Kind.COLD)


def test_an_idle_process_is_used_before_another_is_started() -> None:
    run = drive("orion-dag", World(two_stages(100, 40), workers(1), (Request(0, 0, 0, 0), Request(1, 0, SECOND, 0))))
    assert started(run) == [(60, 1)]


FORK = Graph("fork", (Task("a", 0), Task("b", 1), Task("c", 1), Task("d", 0)), ((0, 1), (0, 2), (1, 3), (2, 3)))


@pytest.mark.parametrize(("policy", "batches"), [("orion-dag", [1, 2, 1]), ("orion-dag(bundle=off)", [1, 1, 1, 1])])
def test_parallel_calls_of_one_function_are_bundled(policy: str, batches: list[int]) -> None:
    cells = {Configuration(1, 1, 1): 50 * MS, Configuration(2, 2, 2): 40 * MS, Configuration(2, 1, 1): 90 * MS}
    called = Function("g", (), Profile({"": cells}))
    catalogue = Catalogue((), (function("f", 10), called), (FORK,))
    run = drive(policy, World(catalogue, workers(1, slices=7), (Request(0, 0, 0, 0, SECOND),)))
    assert [row.value for row in run.rows(Kind.FINISHED)] == batches
    if batches[1] == 2:
        assert begun(run)[1] == (10, 1, 2), "twice the resources of one call"


def test_a_bundle_that_costs_more_is_not_made() -> None:
    cells = {Configuration(1, 1, 1): 50 * MS, Configuration(2, 2, 2): 60 * MS}
    catalogue = Catalogue((), (function("f", 10), Function("g", (), Profile({"": cells}))), (FORK,))
    run = drive("orion-dag", World(catalogue, workers(1, slices=7), (Request(0, 0, 0, 0, SECOND),)))
    assert [row.value for row in run.rows(Kind.FINISHED)] == [1, 1, 1, 1]


def test_a_large_bundle_is_not_overtaken_for_ever() -> None:
    large = Function("large", (), Profile({"": {Configuration(1, 1, 4): 10 * MS}}))
    catalogue = Catalogue((), (function("small", 100), large), (chain("small", 0), chain("large", 1)))
    stream = [Request(i, 0, i * 30 * MS, 0) for i in range(100)]
    requests = sorted([*stream, Request(100, 1, 200 * MS, 0)], key=lambda request: request.arrival)
    run = drive("orion-dag", World(catalogue, workers(1, slices=4), tuple(requests)))
    when = next(at for at, what, _ in begun(run) if what == 1)
    assert SECOND // MS < when < 1500
