"""``plan-once``: the plan of the arrival, whatever happens after."""

from itertools import product

from hypothesis import given, settings, strategies as st

from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Profile
from headway.fleet.model.graph import Graph, Task
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind, unpack
from headway.fleet.policies.central.fronts import Option, skyband
from headway.fleet.policies.esg.plan_once import PlanOnce, best_first
from headway.units import MILLISECOND
from tests.fleet.worlds import World, chain, drive, workers

MS = MILLISECOND


@st.composite
def problems(draw: st.DrawFn) -> tuple[Graph, list[tuple[Option, ...]]]:
    """A graph of up to four tasks and the front of each."""
    count = draw(st.integers(1, 4))
    edges = tuple((a, b) for b in range(count) for a in range(b) if draw(st.booleans()))
    pairs = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=4)
    fronts = [skyband(Option(t, c, Configuration(1, 1, 1)) for t, c in draw(pairs)) for _ in range(count)]
    return Graph("g", tuple(Task(f"t{i}", i) for i in range(count)), edges), fronts


@given(problem=problems(), deadline=st.integers(1, 60), cutoff=st.sampled_from([1, 5, 10_000]))
@settings(max_examples=200)
def test_the_plan_keeps_a_deadline_that_can_be_kept_and_is_the_cheapest_without_a_cut_off(
    problem: tuple[Graph, list[tuple[Option, ...]]], deadline: int, cutoff: int
) -> None:
    graph, fronts = problem
    plan, evaluated = best_first(graph, fronts, deadline, cutoff)
    assert evaluated <= cutoff
    taken = graph.critical_path([option.time for option in plan])
    fastest = graph.critical_path([front[0].time for front in fronts])
    costs = [
        sum(option.cost for option in choice)
        for choice in product(*fronts)
        if graph.critical_path([option.time for option in choice]) <= deadline
    ]
    if cutoff == 10_000 and costs:
        assert sum(option.cost for option in plan) == min(costs)
    assert taken <= max(deadline, fastest)


def test_a_lost_stage_is_not_made_good() -> None:
    cells = {Configuration(1, 1, s): time * MS for s, time in ((1, 50), (2, 30), (4, 18))}
    fast = Function("g", (), Profile({"": cells}))
    blocker = Function("h", (), Profile({"": {Configuration(1, 1, 4): 40 * MS}}))
    catalogue = Catalogue((), (fast, blocker), (chain("two", 0, 0), chain("one", 1)))
    requests = (Request(0, 0, 0, 0, 110 * MS), Request(1, 1, 49 * MS, 0))
    outcomes = {}
    for policy in ("esg", "plan-once"):
        run = drive(policy, World(catalogue, workers(1, slices=4), requests))
        answered = {row.subject: row.time for row in run.rows(Kind.DONE)}
        mine = {row.subject: row for row in run.rows(Kind.RUN) if row.subject == 0}
        outcomes[policy] = (answered[0] <= 110 * MS, unpack(mine[0].value)[1])
    assert outcomes == {"esg": (True, 4), "plan-once": (False, 1)}


def test_plans_of_answered_requests_are_forgotten() -> None:
    cells = {Configuration(1, 1, 1): 10 * MS}
    catalogue = Catalogue((), (Function("f", (), Profile({"": cells})),), (chain("one", 0),))
    policy = PlanOnce()
    drive(policy, World(catalogue, workers(1), tuple(Request(i, 0, i * MS, 0, 10**10) for i in range(5))))
    assert not policy._plans
