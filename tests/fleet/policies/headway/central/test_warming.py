"""How many processes are kept, where, how long; and what else must be on a worker."""

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from headway.fleet.model.actions import Action, FetchModel, StartInstance, StopInstance
from headway.fleet.model.catalogue import Catalogue, Function, Model
from headway.fleet.model.events import InstanceStarted
from headway.fleet.model.fleet import Fleet, Gpu, Links, Worker
from headway.fleet.model.request import Request
from headway.fleet.policies.headway.central.warming import (
    CLUMP,
    EARLIEST,
    MEMORY,
    NEVER,
    UPDATE_INTERVAL,
    Rate,
    Warming,
    carried,
    inputs_of,
    inputs_take,
    weights_take,
)
from headway.fleet.state.requeststate import RequestState
from headway.fleet.state.state import ServingState
from headway.units import MILLISECOND, SECOND
from tests.fleet.worlds import MB, chain, function

MS = MILLISECOND
COLD = 2 * SECOND


def state_of(
    count: int = 4, instance_bytes: int = 1 << 30, models: tuple[Model, ...] = (), **options: int
) -> ServingState:
    called = (
        function("f", 100, *range(len(models)), cold_start=COLD, instance_bytes=instance_bytes),
        function("g", 50),
        function("h", 10, *([0] if models else []), cold_start=COLD),
    )
    catalogue = Catalogue(models, called, (chain("a", 0, 1, bytes_between=3 * MB), chain("b", 2)))
    gpu = Gpu("T4", options.get("memory_bytes", 1 << 30), 7)
    fleet = Fleet(tuple(Worker(f"w{i}", gpu, 8, host=i) for i in range(count)), Links(host_to_gpu=1000 * MB))
    return ServingState(catalogue, fleet, central=True)


def warming_of(state: ServingState, worth: float = 1e-6, spare: float = 2.0) -> Warming:
    workers = [worker.id for worker in state.workers]
    return Warming(state, [workers] * len(state.catalogue.functions), [worth, worth], spare)


def arrivals(warming: Warming, a_second: float, seconds: float, graph: int = 0, start: int = 0) -> int:
    now = start
    for index in range(round(a_second * seconds)):
        now = start + round(index / a_second * SECOND)
        warming.on_request_arrived(now, graph)
    return now


def look(warming: Warming, state: ServingState, now: int, waiting: set[int] | None = None) -> list[Action]:
    """One look, its actions committed; processes that it starts are there when it is done."""
    done = []
    for action in warming.adjust(now, state, waiting or set()):
        assert state.check(action) is None
        state.commit(now, action)
        done.append(action)
        if isinstance(action, StartInstance):
            state.apply(now, InstanceStarted(action.worker, action.function, state.leases))
    return done


def starts(actions: list[Action]) -> list[StartInstance]:
    return [action for action in actions if isinstance(action, StartInstance)]


@given(a_second=st.floats(2.0, 200.0), seconds=st.floats(1.0, 60.0))
@settings(max_examples=40, deadline=None)
def test_a_steady_rate_is_known_after_a_while(a_second: float, seconds: float) -> None:
    rate, now = Rate(MEMORY), 0
    count = max(round(a_second * seconds), 20)
    for index in range(count):
        now = round(index / a_second * SECOND)
        rate.note(now)
    assert rate.value(now) * SECOND == pytest.approx(a_second, rel=0.15)


def test_a_rate_fades() -> None:
    rate = Rate(MEMORY)
    assert rate.value(5) == 0.0
    for now in range(0, 10 * SECOND, SECOND // 10):
        rate.note(now)
    assert rate.value(10 * SECOND) > 5 * rate.value(10 * SECOND + 4 * MEMORY) > 0


def test_as_many_processes_as_littles_law_asks_for_and_a_few_more() -> None:
    state = state_of()
    warming = warming_of(state, worth=1.0)
    now = arrivals(warming, 40, 30)  # of 100 ms each: four are busy
    bold = warming_of(state, worth=1.0, spare=0.0)
    arrivals(bold, 40, 30)
    assert 4 <= bold.target(now, 0) < warming.target(now, 0) <= 12
    assert warming_of(state, worth=1.0, spare=0.0).target(now, 0) == 0, "nothing was seen"


def test_larger_batches_need_fewer_processes() -> None:
    targets = []
    for size in (1, 8):
        warming, now = warming_of(state_of(), worth=1.0), 0
        for index in range(40 * 30):
            now = index * SECOND // 40
            warming.on_request_arrived(now, 0)
            if index % size == 0:  # a batch of eight takes twice as long as one task
                warming.on_batch_started(now, 0, now + (100 if size == 1 else 200) * MS, size)
        targets.append(warming.target(now, 0))
    assert targets[0] > targets[1] >= 1


def test_the_most_that_was_wanted_at_once_is_remembered() -> None:
    state = state_of()
    warming = warming_of(state, worth=1.0)
    now = arrivals(warming, 2, 30)
    before = warming.target(now, 0)
    for _ in range(9):
        warming.on_batch_started(now, 0, now + 100 * MS, 1)
    warming.note_demand(now, 0, 3)
    assert before < 12 <= warming.target(now + SECOND, 0) < 20
    warming.note_demand(now + SECOND, 0, 1000)
    slices = 4 * 7
    assert slices <= warming.target(now + SECOND, 0) < 2 * slices, "more than the fleet's slices cannot be busy"


def test_processes_are_spread_over_the_workers() -> None:
    state = state_of()
    warming = warming_of(state, worth=1.0)
    now = arrivals(warming, 40, 30)
    begun = starts(look(warming, state, now))
    counts = [sum(action.worker == worker for action in begun) for worker in range(4)]
    assert sum(counts) == warming.target(now, 0)
    assert max(counts) - min(counts) <= 1
    assert not starts(look(warming, state, now + UPDATE_INTERVAL)), "enough is enough"


def test_nothing_is_started_that_nobody_asks_for() -> None:
    state = state_of()
    warming = warming_of(state, worth=1.0)
    for step in range(10):
        assert not look(warming, state, step * SECOND), "nobody has come yet"
    now = arrivals(warming, 40, 30, start=10 * SECOND)
    begun = starts(look(warming, state, now))
    assert {action.function for action in begun} == {0}, "g needs no process, and nobody calls h"


def test_nothing_is_started_for_requests_that_come_more_rarely_than_a_process_pays() -> None:
    state = state_of(instance_bytes=1 << 40)
    warming = warming_of(state, worth=1e-12)
    now = arrivals(warming, 0.1, 100)
    assert warming.rate(now, 0) > 0
    assert warming.target(now, 0) == 0
    assert not look(warming, state, now)


def test_it_looks_now_and_then_only() -> None:
    state = state_of()
    warming = warming_of(state, worth=1.0)
    now = arrivals(warming, 4, 30)
    assert look(warming, state, now)
    arrivals(warming, 4000, 0.1, start=now)
    assert not look(warming, state, now + UPDATE_INTERVAL - 1)
    assert look(warming, state, now + UPDATE_INTERVAL)


def test_the_first_requests_are_enough_to_start_processes() -> None:
    state = state_of()
    warming = warming_of(state, worth=1.0)
    warming.on_request_arrived(0, 0)
    assert not look(warming, state, 0), "one request is no rate"
    arrivals(warming, 100, 0.06, start=10 * MS)  # of 100 ms each: ten will be busy
    assert len(starts(look(warming, state, EARLIEST + 10 * MS))) >= 10


def test_a_few_requests_that_come_together_do_not_fill_the_fleet() -> None:
    warming = warming_of(state_of(), worth=1.0)
    for batch in range(100):  # batches that take a second each, so that many processes would be busy
        warming.on_batch_started(batch * 10 * SECOND, 0, (batch * 10 + 1) * SECOND, 1)
    for _ in range(2):
        warming.on_request_arrived(1001 * SECOND, 0)
    assert warming.target(1001 * SECOND + MS, 0) == CLUMP * 2


def test_a_first_request_starts_one_process_of_each_function_that_needs_one() -> None:
    state = state_of()
    warming = warming_of(state)
    assert warming.ready_from == [NEVER, 0, NEVER]
    actions = list(warming.ensure_one(0, state, 0))
    assert [(action.function) for action in actions if isinstance(action, StartInstance)] == [0]
    assert warming.ready_from == [COLD, 0, NEVER]
    assert not list(warming.ensure_one(1, state, 0))


def test_tasks_that_wait_get_a_process_even_if_nobody_comes_any_more() -> None:
    state = state_of()
    warming = warming_of(state)
    assert look(warming, state, SECOND, {0}) == [StartInstance(0, 0)]
    assert not look(warming, state, 2 * SECOND, {0})


def last_seen(worth: float, instance_bytes: int = 1 << 30, seconds: int = 400) -> tuple[int, int]:
    """After how long the last process that was let go went, with nobody coming any more; how many are left."""
    state = state_of(instance_bytes=instance_bytes)
    warming = warming_of(state, worth)
    now = arrivals(warming, 40, 30)
    assert starts(look(warming, state, now))
    last = 0
    for step in range(1, seconds):
        actions = look(warming, state, now + step * SECOND)
        assert not starts(actions), "nobody comes"
        if any(isinstance(action, StopInstance) for action in actions):
            last = step
    return last, sum(len(worker.idle[0]) for worker in state.workers)


def test_processes_go_when_nobody_comes_any_more_and_the_sooner_the_less_an_answer_is_worth() -> None:
    (cheap, left), (dear, still) = last_seen(1e-6), last_seen(2e-5)
    assert (left, still) == (0, 0)
    assert 0 < cheap < dear


def test_one_that_costs_nothing_is_kept() -> None:
    assert last_seen(1e-6, instance_bytes=0)[1] >= 1


def test_as_many_as_are_wanted_are_kept_while_requests_come() -> None:
    state = state_of()
    warming = warming_of(state, worth=1e-6)
    now = 0
    for step in range(60):
        now = arrivals(warming, 40, 1, start=step * SECOND)
        look(warming, state, now)
        if step > 5:
            assert sum(len(worker.idle[0]) for worker in state.workers) >= warming.target(now, 0) >= 4


def test_lost_processes_are_started_again_elsewhere() -> None:
    state = state_of()
    warming = warming_of(state, worth=1.0)
    now = arrivals(warming, 40, 30)
    look(warming, state, now)
    dead = state.workers[0]
    assert dead.idle[0]
    dead.idle.clear()
    dead.up = False
    later = arrivals(warming, 40, 1, start=now)
    begun = starts(look(warming, state, later))
    assert begun
    assert all(action.worker != 0 for action in begun)
    assert sum(len(worker.idle.get(0, ())) for worker in state.workers) == warming.target(later, 0)


def test_a_fleet_that_is_down_is_left_alone() -> None:
    state = state_of()
    warming = warming_of(state, worth=1.0)
    now = arrivals(warming, 40, 30)
    for worker in state.workers:
        worker.up = False
    assert not list(warming.ensure_one(now, state, 0))
    assert not look(warming, state, now, {0})
    assert warming.ready_from[0] == NEVER, "nobody may count on it"


def test_weights_come_to_where_a_process_waits_and_push_nothing_out() -> None:
    state = state_of(2, models=(Model("m", 600 * MB), Model("n", 700 * MB)), memory_bytes=1000 * MB)
    warming = warming_of(state, worth=1.0)
    now = arrivals(warming, 10, 30)
    actions = look(warming, state, now)
    fetched = [action for action in actions if isinstance(action, FetchModel)]
    assert {action.worker for action in fetched} == {0, 1}
    assert all(action.model == 0 and not action.evict for action in fetched)


def test_room_is_made_by_what_is_asked_for_least() -> None:
    models = (Model("m", 300 * MB), Model("n", 300 * MB), Model("often", 300 * MB), Model("rare", 300 * MB))
    called = (
        function("f", 100, 0, 1),
        function("often", 10, 2),
        function("rare", 10, 3),
    )
    catalogue = Catalogue(models, called, (chain("a", 0), chain("b", 1), chain("c", 2)))
    state = ServingState(catalogue, Fleet((Worker("w", Gpu("T4", 1000 * MB)),)), central=True)
    warming = Warming(state, [[0]] * 3, [1.0] * 3, 2.0)
    now = arrivals(warming, 10, 20, graph=1)
    arrivals(warming, 1, 20, graph=2)
    worker = state.workers[0]
    for model in (2, 3):
        worker.memory.add(model, 0)
    assert warming.victims(now, state, worker, 0, 1) == (3,)
    worker.memory.pin(3, 0)
    assert warming.victims(now, state, worker, 0, 1) == (2,)
    worker.memory.pin(2, 0)
    assert warming.victims(now, state, worker, 0, 1) is None
    assert warming.victims(now, state, worker, 1, 1) == ()


def test_inputs_and_weights_take_their_time() -> None:
    state = state_of(2, models=(Model("m", 100 * MB),))
    request = Request(0, 0, 0, ingress=1)
    state.requests[0] = RequestState(request, state.catalogue.graphs[0])
    assert carried(state, 0, 0)
    assert not carried(state, 1, 0)
    assert inputs_take(state, inputs_of(state, 0, 0), 1) == 0
    assert inputs_take(state, inputs_of(state, 0, 0), 0) == state.fleet.copy_time(1, 0, 3 * MB)
    state.requests[0].copies[0] = 1
    assert inputs_take(state, inputs_of(state, 0, 1), 0) == 0
    assert inputs_take(state, inputs_of(state, 0, 1), 1) == state.fleet.copy_time(0, 1, 3 * MB)
    worker = state.workers[0]
    assert weights_take(0, state, worker, 1) == 100 * MS
    worker.link_free = 50 * MS
    assert weights_take(0, state, worker, 1) == 150 * MS
    worker.memory.add(0, 0)
    assert weights_take(0, state, worker, 1) == 0
    worker.memory.ready[0] = 30 * MS
    assert weights_take(0, state, worker, 1) == 30 * MS


def test_functions_without_a_process_are_always_there() -> None:
    state = state_of()
    called: tuple[Function, ...] = tuple(replace(each, cold_start=0) for each in state.catalogue.functions)
    free = ServingState(Catalogue((), called, state.catalogue.graphs), state.fleet, central=True)
    warming = warming_of(free)
    now = arrivals(warming, 40, 30)
    assert warming.ready_from == [0, 0, 0]
    assert not look(warming, free, now)
