"""What the rest of a request costs by the time left, who runs together, and who is worth waiting for."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from headway.errors import ExperimentError
from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Profile
from headway.fleet.model.fleet import MIG, Fleet, Gpu, Worker
from headway.fleet.model.graph import Graph, Task
from headway.fleet.model.request import Request
from headway.fleet.policies.headway.central.batching import SOON, Batching, Forecast, QueueEntry
from headway.fleet.policies.headway.central.offers import MISSED, POINTS, CostTables, menus_of, shares_of
from headway.fleet.state.requeststate import RequestState, Stage
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import Batch
from headway.units import MILLISECOND
from tests.fleet.worlds import chain

MS = MILLISECOND
CELLS = [(b, c, s) for b in (1, 2, 4, 8) for c in (1, 4) for s in (1, 2, 4)]
WORTH = 1.0


def law(ms: float, spread: float = 0.0) -> Function:
    times = {
        Configuration(b, c, s): round(ms * MS * (0.25 + 0.75 * b**0.85) * (0.25 / c**0.6 + 0.75 / s**0.7))
        for b, c, s in CELLS
    }
    return Function("f", (), Profile({"": times}, spread))


def state_of(*functions: Function, graphs: tuple[Graph, ...] = (), geometry: str = "free") -> ServingState:
    made = graphs or (chain("g", *range(len(functions))),)
    fleet = Fleet(tuple(Worker(f"w{i}", Gpu("A100", 1 << 30, 7, geometry), 16) for i in range(2)))
    return ServingState(Catalogue((), functions, made), fleet, central=True)


def outlook_of(state: ServingState, waits: dict[tuple[int, int], float] | None = None) -> CostTables:
    worths = [WORTH] * len(state.catalogue.graphs)
    return CostTables(state, menus_of(state), worths, waits or {}, drop=True)


def batching_of(state: ServingState, function: int = 0, waits: dict[tuple[int, int], float] | None = None) -> Batching:
    costs = outlook_of(state, waits)
    return Batching(menus_of(state)[function], costs.usd[function], costs)


def never(state: ServingState) -> dict[tuple[int, int], float]:
    """Waits that make every size but the least useless."""
    return {(f, size): 1e18 for f in range(len(state.catalogue.functions)) for size in (2, 4, 8)}


def entry(left_ms: float, request: int = 0, graph: int = 0, task: int = 0, when_ms: float = 0) -> QueueEntry:
    return QueueEntry(round(left_ms * MS), request, graph, task, round(when_ms * MS))


@given(left=st.integers(60, 900), times=st.tuples(st.integers(20, 200), st.integers(20, 200)))
@settings(max_examples=60, deadline=None)
def test_without_spread_the_rest_of_a_chain_costs_what_the_best_of_all_choices_does(
    left: int, times: tuple[int, int]
) -> None:
    state = state_of(*map(law, times))
    table = outlook_of(state, never(state)).tables[0][0]
    first, second = (menus[0] for menus in menus_of(state))
    slack = 3 * table.step  # of the tables of both tasks

    def best(within: float) -> float:
        paths = product(range(len(first.times)), range(len(second.times)))
        costs = [first.usd[a] + second.usd[b] for a, b in paths if first.times[a] + second.times[b] <= within]
        return min(costs, default=WORTH)

    found = float(table.at(np.array([left * MS]))[0])
    tolerance = 1e-9 + 2 * WORTH * (best(left * MS + slack) != best(left * MS - slack))
    assert best(left * MS + slack) - 1e-9 <= found <= best(left * MS - slack) + tolerance


def test_less_time_left_never_costs_less() -> None:
    state = state_of(law(80, 0.05), law(300, 0.05))
    for table in outlook_of(state).tables[0]:
        assert (np.diff(table.rest) <= 1e-12).all()


def test_the_wider_times_spread_the_faster_the_last_task_is_run() -> None:
    chosen = []
    for spread in (0.0, 0.05, 0.15):
        state = state_of(law(100, spread))
        batching = batching_of(state, waits=never(state))
        values = batching.values([entry(110)], 0)
        chosen.append(float(batching.menu(1).times[values.argmin()]))
    assert chosen[0] > chosen[1] > chosen[2]
    assert 110 * MS * 0.5 < chosen[1] < 110 * MS, "a margin, not a panic"


def test_the_margin_is_what_a_miss_costs_against_what_speed_does() -> None:
    state = state_of(law(100, 0.05))
    batching = batching_of(state, waits=never(state))
    menu = batching.menu(1)
    values = batching.values([entry(110)], 0)
    taken = int(values.argmin())
    slower = [i for i in range(len(menu.times)) if menu.times[i] > menu.times[taken] and menu.usd[i] < menu.usd[taken]]
    assert slower, "there is something cheaper"
    assert all(values[i] - menu.usd[i] > menu.usd[taken] - menu.usd[i] for i in slower), "and it is too risky"
    assert values[taken] < MISSED * WORTH


def test_offers_that_no_worker_can_hold_are_left_out() -> None:
    state = state_of(law(50), geometry=MIG)
    assert {s for menu in menus_of(state)[0] for s in menu.slices} == {1, 2, 4}
    wide = Function("wide", (), Profile({"": {Configuration(1, 1, 5): MS}}))
    with pytest.raises(ExperimentError, match="function wide: no worker can hold any configuration"):
        menus_of(state_of(wide, geometry=MIG))


def test_a_task_with_time_to_spare_waits_for_one_that_comes_soon() -> None:
    batching = batching_of(state_of(law(100)))
    choice = batching.choose(0, [entry(600)], [entry(620, 1, when_ms=10)])
    assert choice.until == 10 * MS
    assert [each.request for each in choice.entries] == [0, 1]


def test_a_task_without_time_to_spare_runs_alone() -> None:
    batching = batching_of(state_of(law(100)))
    choice = batching.choose(0, [entry(60)], [entry(120, 1, when_ms=10)])
    assert choice.until == 0
    assert [each.request for each in choice.entries] == [0]


def test_nobody_waits_for_one_that_comes_too_late() -> None:
    batching = batching_of(state_of(law(100)))
    assert batching.choose(0, [entry(300)], [entry(900, 1, when_ms=290)]).until == 0


def test_a_full_batch_does_not_wait() -> None:
    state = state_of(law(100))
    batching = batching_of(state, waits=never(state))
    entries = [entry(5000 + i, i) for i in range(9)]
    choice = batching.choose(0, entries, [entry(6000, 9, when_ms=1)])
    assert (choice.until, len(choice.entries)) == (0, 8)
    assert [each.request for each in choice.entries] == list(range(8))


def test_who_is_in_a_hurry_does_not_run_with_those_who_are_not() -> None:
    batching = batching_of(state_of(law(100)))
    hurried, calm = entry(42, 0), [entry(3000 + i, i) for i in range(1, 4)]
    choice = batching.choose(0, [hurried, *calm], [])
    assert [each.request for each in choice.entries] == [0]
    assert len(batching.choose(0, calm, []).entries) >= 2


@given(lefts=st.lists(st.integers(30, 900), min_size=1, max_size=10), gaps=st.lists(st.integers(1, 200), max_size=9))
@settings(max_examples=80, deadline=None)
def test_a_choice_takes_the_tightest_first_and_waits_only_for_those_it_takes(lefts: list[int], gaps: list[int]) -> None:
    batching = batching_of(state_of(law(100, 0.05)))
    entries = sorted(entry(left, i) for i, left in enumerate(lefts))
    coming = [entry(400 + gap, 50 + i, when_ms=gap) for i, gap in enumerate(sorted(gaps))]
    choice = batching.choose(0, entries, coming)
    count = len(choice.entries)
    assert 1 <= count <= 8
    if choice.until:
        assert list(choice.entries) == [*entries, *coming][:count]
        assert choice.until == choice.entries[-1].when
    else:
        assert list(choice.entries) == entries[:count]
    assert len(choice.values) == len(batching.menu(count).times)


def test_what_follows_a_join_depends_on_its_longest_branch() -> None:
    graph = Graph("j", tuple(Task(n, 0) for n in "abcd"), ((0, 1), (0, 2), (1, 3), (2, 3)))
    shares = shares_of(graph, (10, 90, 15, 5))
    assert shares[1, 3] == 1.0
    assert 0.0 < shares[2, 3] < 0.3
    assert shares[0, 1] == shares[0, 2] == 1.0


def test_a_short_branch_is_not_hurried_as_the_long_one_is() -> None:
    graph = Graph(
        "j", tuple(Task(n, f) for n, f in zip("abcd", (0, 1, 0, 0), strict=True)), ((0, 1), (0, 2), (1, 3), (2, 3))
    )
    state = state_of(law(50), law(400), graphs=(graph,))
    batching = [batching_of(state, function, never(state)) for function in (0, 1)]
    left = 300.0
    long = int(batching[1].values([entry(left, task=1)], 0).argmin())
    short = int(batching[0].values([entry(left, task=2)], 0).argmin())
    slow = batching[0].menu(1).times[short] / batching[0].menu(1).times.min()
    fast = batching[1].menu(1).times[long] / batching[1].menu(1).times.min()
    assert slow > fast


def test_tables_are_as_fine_as_they_say() -> None:
    table = outlook_of(state_of(law(64))).tables[0][0]
    assert table.step == 64 * MS / POINTS
    assert table.index(0.0) == table.index(table.step * 0.4)
    assert table.index(-1e18) == 0
    assert table.index(1e18) == table.last


# --- forecast ---------------------------------------------------------------------------------------------------


def companions_of(state: ServingState) -> Forecast:
    return Forecast(state, [500 * MS] * len(state.catalogue.graphs))


def begun(state: ServingState, end_ms: int) -> tuple[RequestState, Batch]:
    rs = RequestState(Request(7, 0, 0, 0, 900 * MS), state.catalogue.graphs[0])
    rs.stage[0] = Stage.RUNNING
    batch = Batch(1, ((7, 0),), 0, ())
    batch.end = end_ms * MS
    return rs, batch


def test_a_successor_is_expected_when_its_batch_ends_and_soon_when_that_is_over() -> None:
    state = state_of(law(10), law(20))
    forecast = companions_of(state)
    rs, batch = begun(state, 30)
    forecast.on_task_started(batch, rs, 0, 900 * MS)
    assert forecast.upcoming(0, 1) == [QueueEntry(900 * MS, 7, 0, 1, 30 * MS)]
    assert forecast.upcoming(40 * MS, 1)[0].when == 40 * MS + SOON
    forecast.on_task_ready(1, 7, 1)
    assert forecast.upcoming(0, 1) == []


def test_what_a_dead_worker_was_about_to_deliver_is_not_expected() -> None:
    state = state_of(law(10), law(20))
    forecast = companions_of(state)
    rs, batch = begun(state, 30)
    forecast.on_task_started(batch, rs, 0, 900 * MS)
    forecast.forget({7})
    assert forecast.upcoming(0, 1) == []


def test_a_join_is_expected_only_when_all_that_it_waits_for_runs() -> None:
    graph = Graph("j", (Task("a", 0), Task("b", 0), Task("c", 1)), ((0, 2), (1, 2)))
    state = state_of(law(10), law(20), graphs=(graph,))
    forecast = companions_of(state)
    rs, batch = begun(state, 30)
    forecast.on_task_started(batch, rs, 0, 900 * MS)
    assert forecast.upcoming(0, 1) == []
    rs.stage[1] = Stage.RUNNING
    later = Batch(2, ((7, 1),), 0, ())
    later.end = 80 * MS
    forecast.on_task_started(later, rs, 1, 900 * MS)
    assert [each.when for each in forecast.upcoming(0, 1)] == [80 * MS]


def test_arrivals_are_expected_at_their_pace_until_a_pause_lasts() -> None:
    state = state_of(law(10), law(20))
    forecast = companions_of(state)
    for arrival in range(0, 101, 10):
        forecast.on_request_arrived(arrival * MS, 0, 0, (arrival + 300) * MS)
    assert [each.when for each in forecast.upcoming(100 * MS, 0)][:2] == [110 * MS, 120 * MS]
    assert all(each.request == -1 for each in forecast.upcoming(100 * MS, 0))
    assert forecast.upcoming(400 * MS, 0)[0].when > 600 * MS
    assert forecast.upcoming(100 * MS, 1) == []
