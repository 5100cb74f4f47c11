"""Which task headway runs first, with whom and with what, and how much of a backlog it takes to go before a task."""

import pytest
from hypothesis import given, strategies as st

from headway.errors import ExperimentError
from headway.fleet.model.actions import PlaceRequest
from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Profile
from headway.fleet.model.fleet import Fleet, Gpu, Worker
from headway.fleet.policies.headway.worker.batch import choose
from headway.fleet.policies.headway.worker.order import FleetTables, Mix, Order
from headway.fleet.state.state import ServingState
from tests.fleet.policies.headway.fleets import CATALOGUE, LONG, MS, SHORT, TWO, land, resident, state_of
from tests.fleet.worlds import MB, chain


def queued(state: ServingState, *graphs: int, now: int = 0, deadlines: tuple[int, ...] = ()) -> None:
    """Requests of one task each, waiting at worker 0."""
    for number, graph in enumerate(graphs, len(state.requests)):
        deadline = deadlines[number] if number < len(deadlines) else 0
        land(state, number, graph, now, deadline=deadline)
        state.commit(now, PlaceRequest(number, (0,)))


def order(state: ServingState, now: int = 0) -> list[int]:
    return [request for request, _ in Order(FleetTables(state)).queue(now, state, state.workers[0])]


def test_short_tasks_of_short_requests_go_first() -> None:
    state = state_of(1)
    resident(state, 0, [0, 1])
    queued(state, LONG, SHORT)
    assert order(state) == [1, 0]


def test_tasks_whose_models_are_there_go_before_those_that_thrash() -> None:
    catalogue = Catalogue(
        CATALOGUE.models,
        (Function("f", (0,), _alone(30)), Function("g", (1,), _alone(25))),
        (chain("f", 0), chain("g", 1)),
    )
    state = state_of(1, catalogue=catalogue)
    resident(state, 0, [0])
    queued(state, 1, 0)
    assert order(state) == [1, 0]
    resident(state, 0, [1])
    assert order(state) == [0, 1]


def test_what_waits_long_enough_goes_first() -> None:
    state = state_of(1)
    resident(state, 0, [0, 1])
    queued(state, LONG)
    late = 10**6 * MS
    queued(state, SHORT, now=late)
    assert order(state, late) == [0, 1]


def test_a_near_deadline_goes_before_a_far_one_and_a_lost_one_last() -> None:
    state = state_of(1)
    resident(state, 0, [0, 1])
    queued(state, SHORT, SHORT, SHORT, deadlines=(40 * MS, 30 * MS, 10 * MS))
    assert order(state) == [1, 0, 2]


def test_the_share_of_a_backlog_that_goes_before_a_task_is_learnt() -> None:
    state = state_of(1)
    mix = Mix(FleetTables(state))
    assert mix.ahead(0, 1)[0b11] == pytest.approx(1.0), "the slowest task of the longest request"
    before = mix.ahead(SHORT, 0)[0b11]
    assert before < 0.1
    for _ in range(64):
        mix.note(SHORT)
    assert before < mix.ahead(SHORT, 0)[0b11] < 1


def test_a_backlog_that_needs_one_model_holds_only_tasks_that_need_no_other() -> None:
    mix = Mix(FleetTables(state_of(1)))
    assert mix.ahead(TWO, 1)[0b01] > mix.ahead(TWO, 1)[0b11]
    assert 0 <= mix.ahead(SHORT, 0)[0] <= 1


@given(st.lists(st.integers(0, 3), max_size=200))
def test_shares_are_shares_and_grow_with_the_index(seen: list[int]) -> None:
    mix = Mix(FleetTables(state_of(1)))
    for graph in seen:
        mix.note(graph)
    for wanted in range(4):
        assert 0 <= mix.ahead(SHORT, 0)[wanted] <= mix.ahead(LONG, 0)[wanted] <= 1


def test_rates_are_those_of_the_fleet_if_all_see_the_same() -> None:
    mix = Mix(FleetTables(state_of(4)))
    assert mix.rates_per_second(10**9, 4) == [0.0] * 4
    for _ in range(40):
        mix.note(SHORT)
    rates = mix.rates_per_second(10 * 10**9, 4)
    assert sum(rates) == pytest.approx(40 / 10 * 4)
    assert rates[SHORT] == max(rates)


def test_a_function_that_no_worker_can_run_is_said() -> None:
    with pytest.raises(ExperimentError, match="function slow: no worker can run it"):
        FleetTables(state_of(2, memory_bytes=50 * MB))


# --- with whom and with what --------------------------------------------------------------------------------------


def _alone(ms: int) -> Profile:
    return Profile({"": {Configuration(1, 1, 1): ms * MS}})


def _sliced(times: dict[Configuration, int], waiting: int, deadline: int = 0) -> tuple[int, Configuration]:
    """How many run together and with what, of so many that wait."""
    catalogue = Catalogue((), (Function("f", (), Profile({"": times})),), (chain("g", 0),))
    fleet = Fleet((Worker("w", Gpu("A100", MB, 7), cpus=4),))
    state = ServingState(catalogue, fleet, to_come=99)
    queued(state, *[0] * waiting, deadlines=(deadline,) * waiting)
    worker = state.workers[0]
    queue = list(worker.queue)
    found = choose(0, state, FleetTables(state), worker, queue, queue[0])
    assert found is not None
    tasks, cell = found
    assert tasks[0] == queue[0]
    return len(tasks), cell


CELLS = {
    Configuration(1, 1, 1): 100 * MS,
    Configuration(1, 1, 7): 40 * MS,
    Configuration(4, 1, 1): 160 * MS,
    Configuration(4, 1, 7): 60 * MS,
}


def test_alone_a_task_gets_what_is_fastest() -> None:
    assert _sliced(CELLS, 1) == (1, Configuration(1, 1, 7))


def test_tasks_that_wait_run_together_where_that_pays() -> None:
    assert _sliced(CELLS, 4) == (4, Configuration(4, 1, 7))
    dear = {**CELLS, Configuration(4, 1, 7): 400 * MS, Configuration(4, 1, 1): 900 * MS}
    assert _sliced(dear, 4)[0] == 1


def test_with_time_to_spare_the_cheapest_is_taken_and_else_the_fastest() -> None:
    assert _sliced(CELLS, 1, deadline=1000 * MS) == (1, Configuration(1, 1, 1))
    assert _sliced(CELLS, 1, deadline=60 * MS) == (1, Configuration(1, 1, 7))
    assert _sliced(CELLS, 1, deadline=20 * MS) == (1, Configuration(1, 1, 7))


def test_nothing_is_chosen_without_room() -> None:
    state = state_of(1)
    resident(state, 0, [0, 1])
    queued(state, SHORT)
    state.workers[0].slices_free = 0
    assert choose(0, state, FleetTables(state), state.workers[0], [(0, 0)], (0, 0)) is None
