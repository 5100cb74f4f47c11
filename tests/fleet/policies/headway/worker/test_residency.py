"""What headway keeps in GPU memory: what makes room, what is fetched ahead, what is worth another copy."""

from headway.fleet.model.actions import FetchModel, PlaceRequest
from headway.fleet.model.catalogue import Catalogue, Model
from headway.fleet.policies.compass.worker import FIFO, LOOKAHEAD
from headway.fleet.policies.headway.worker.residency import Residency
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import TaskId
from tests.fleet.policies.headway.fleets import MS, land, mixes_of, resident, state_of
from tests.fleet.worlds import MB, chain, function

THREE = Catalogue(
    (Model("a", 40 * MB), Model("b", 40 * MB), Model("c", 40 * MB)),
    (function("f", 20, 0), function("g", 20, 1), function("h", 20, 2)),
    (chain("a", 0), chain("b", 1), chain("c", 2)),
)


def world(count: int = 1, memory_bytes: int = 80 * MB) -> ServingState:
    return state_of(count, catalogue=THREE, memory_bytes=memory_bytes)


def residency_of(
    state: ServingState, evict: str = LOOKAHEAD, prefetch: int = 3, seen: tuple[int, ...] = ()
) -> Residency:
    tables, mixes = mixes_of(state)
    for mix in mixes:
        for graph in seen:
            mix.note(graph)
    return Residency(evict, prefetch, tables, mixes)


def fetches(residency: Residency, state: ServingState, now: int = 0, worker: int = 0) -> list[FetchModel]:
    here = state.workers[worker]
    coming: list[TaskId] = [*here.queue, *here.sent]
    return [action for action in residency.ahead(now, state, here, lambda: coming) if isinstance(action, FetchModel)]


def test_nothing_makes_room_where_there_is_room() -> None:
    state = world()
    assert residency_of(state).room(0, state, state.workers[0], 80 * MB, 0, ()) == ()


def test_what_no_coming_task_needs_goes_first_then_what_is_needed_last() -> None:
    state = world(memory_bytes=120 * MB)
    resident(state, 0, [0, 1, 2])
    land(state, 0, 0)
    land(state, 1, 2)
    coming = [(0, 0), (1, 0)]
    residency = residency_of(state)
    worker = state.workers[0]
    assert residency.room(0, state, worker, 40 * MB, 0, coming) == (1,)
    assert residency.room(0, state, worker, 80 * MB, 0, coming) == (1, 2)
    assert residency.room(0, state, worker, 80 * MB, 0b10, coming) == (2, 0)


def test_what_is_in_use_makes_no_room() -> None:
    state = world()
    resident(state, 0, [0, 1])
    worker = state.workers[0]
    worker.memory.pin(0, 0)
    residency = residency_of(state)
    assert residency.room(0, state, worker, 40 * MB, 0, ()) == (1,)
    assert residency.room(0, state, worker, 80 * MB, 0, ()) is None


def test_the_oldest_goes_first_under_fifo() -> None:
    state = world()
    resident(state, 0, [1, 0])
    land(state, 0, 1)
    assert residency_of(state, FIFO).room(0, state, state.workers[0], 40 * MB, 0, [(0, 0)]) == (1,)


def test_of_two_models_that_nobody_needs_the_one_with_copies_elsewhere_goes() -> None:
    state = world(2)
    resident(state, 0, [0, 1])
    resident(state, 1, [1])
    residency = residency_of(state, seen=(0, 1) * 8)
    assert residency.room(10**9, state, state.workers[0], 40 * MB, 0, ()) == (1,)


def test_of_two_models_that_nobody_needs_the_one_that_is_asked_for_stays() -> None:
    state = world()
    resident(state, 0, [0, 1])
    residency = residency_of(state, seen=(0,) * 16)
    assert residency.room(10**9, state, state.workers[0], 40 * MB, 0, ()) == (1,)


def test_the_model_of_a_task_that_has_not_arrived_is_fetched() -> None:
    catalogue = Catalogue(THREE.models, THREE.functions, (chain("long", 0, 1),))
    state = state_of(2, catalogue=catalogue, memory_bytes=80 * MB)
    land(state, 0, 0)
    state.commit(0, PlaceRequest(0, (0, 1)))
    assert not state.workers[1].queue
    assert fetches(residency_of(state), state, worker=1) == [FetchModel(1, 1)]
    assert fetches(residency_of(state, prefetch=0), state, worker=1) == []


def test_a_fetch_ahead_pushes_out_only_what_no_task_here_needs() -> None:
    state = world()
    resident(state, 0, [0, 1])
    for request, graph in enumerate((0, 2)):
        land(state, request, graph)
        state.commit(0, PlaceRequest(request, (0,)))
    assert fetches(residency_of(state), state) == [FetchModel(0, 2, (1,))]
    land(state, 2, 1)
    state.commit(0, PlaceRequest(2, (0,)))
    assert fetches(residency_of(state), state) == []
    assert fetches(residency_of(state, FIFO), state) == []


def test_one_fetch_at_a_time() -> None:
    state = world()
    land(state, 0, 0)
    state.commit(0, PlaceRequest(0, (0,)))
    state.commit(0, FetchModel(0, 1))
    assert fetches(residency_of(state), state) == []


def test_an_idle_worker_fetches_what_is_asked_for_most_and_rests_a_while() -> None:
    state = world()
    residency = residency_of(state, seen=(2,) * 16)
    now = 10_000 * MS
    assert fetches(residency, state, now) == [FetchModel(0, 2)]
    assert fetches(residency, state, now + 1) == []


def test_an_idle_worker_fetches_nothing_before_it_has_seen_requests() -> None:
    state = world()
    assert fetches(residency_of(state), state, 10_000 * MS) == []


def test_copies_are_enough_when_the_next_would_save_nothing() -> None:
    state = world(40)
    for worker in range(1, 40):
        resident(state, worker, [0])
    assert fetches(residency_of(state, seen=(0,) * 40), state, 10_000 * MS) == [FetchModel(0, 1)]
    resident(state, 0, [1, 2])
    assert fetches(residency_of(state, seen=(0,) * 40), state, 10_000 * MS) == []
