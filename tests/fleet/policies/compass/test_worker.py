"""What a worker decides alone: order of arrival, what makes room, what is fetched ahead."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings, strategies as st

from headway.errors import ExperimentError
from headway.fleet.model.actions import Action, FetchModel, PlaceRequest, RunBatch
from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Model, Profile
from headway.fleet.model.events import RequestArrived
from headway.fleet.model.fleet import MIG, Fleet, Gpu, Worker
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind
from headway.fleet.policies.compass.worker import LocalQueue
from headway.fleet.state.state import ServingState
from headway.units import MILLISECOND
from tests.fleet.worlds import MB, World, chain, drive, function, workers

MS = MILLISECOND
NAMES = "abcdef"


def _world(sizes_mb: Sequence[int], asked: str, memory_mb: int = 100) -> World:
    """One worker; requests that each need the one model they are named by, all at once."""
    models = tuple(Model(name, size * MB) for name, size in zip(NAMES, sizes_mb, strict=False))
    functions = tuple(function(model.name, 100, index) for index, model in enumerate(models))
    graphs = tuple(chain(model.name, index) for index, model in enumerate(models))
    requests = tuple(Request(i, NAMES.index(name), i, 0) for i, name in enumerate(asked))
    return World(Catalogue(models, functions, graphs), workers(1, memory_mb * MB), requests)


def _evicted(world: World, policy: str) -> str:
    return "".join(NAMES[row.detail] for row in drive(policy, world).rows(Kind.EVICTED))


def test_tasks_run_one_at_a_time_in_order_of_arrival() -> None:
    run = drive("hash", _world([40, 40, 40], "abcabc"))
    assert [row.subject for row in run.rows(Kind.RUN)] == list(range(6))
    ends = [row.time for row in run.rows(Kind.FINISHED)]
    assert [row.time for row in run.rows(Kind.RUN)][1:] == ends[:-1]


def test_fifo_evicts_what_came_first_however_often_it_was_used_since() -> None:
    assert _evicted(_world([40, 40, 40], "abaac"), "hash(evict=fifo,prefetch=0)") == "a"


def test_look_ahead_evicts_what_the_queue_does_not_need_first() -> None:
    assert _evicted(_world([30, 30, 30, 30], "abcda"), "hash(prefetch=0)") == "b"


def test_look_ahead_then_evicts_what_is_needed_latest() -> None:
    world = _world([30, 30, 30, 30], "abcdacb")
    assert _evicted(world, "hash(prefetch=0)")[0] == "b"
    assert _evicted(world, "hash(evict=fifo,prefetch=0)")[0] == "a"


def test_what_the_task_needs_itself_stays() -> None:
    models = tuple(Model(name, 40 * MB) for name in "abc")
    functions = (function("ab", 10, 0, 1), function("ac", 10, 0, 2))
    requests = (Request(0, 0, 0, 0), Request(1, 1, 1, 0))
    world = World(Catalogue(models, functions, (chain("x", 0), chain("y", 1))), workers(1), requests)
    for policy in ("hash", "hash(evict=fifo)"):
        assert _evicted(world, policy) == "b"


def test_as_many_as_it_takes_and_no_more() -> None:
    assert _evicted(_world([30, 30, 30, 80], "abcd"), "hash(evict=fifo,prefetch=0)") == "abc"
    assert _evicted(_world([30, 30, 30, 40], "abcd"), "hash(evict=fifo,prefetch=0)") == "a"


@given(asked=st.text(NAMES[:4], min_size=1, max_size=12), evict=st.sampled_from(["fifo", "lookahead"]))
@settings(max_examples=40, deadline=None)
def test_look_ahead_is_the_least_needed_each_time(asked: str, evict: str) -> None:
    """Against the definition: of what is there, what is first needed latest, the older first among equals."""
    there: list[str] = []
    expected = ""
    for position, name in enumerate(asked):
        if name in there:
            continue
        rest = asked[position + 1 :]
        while len(there) >= 3:
            order = there if evict == "fifo" else sorted(there, key=lambda m: -(rest.find(m) % 100))
            expected += order[0]
            there.remove(order[0])
        there.append(name)
    world = _world([30, 30, 30, 30], asked)
    first = Request(0, world.requests[0].graph, 0, 0)
    together = (first, *(request._replace(arrival=1) for request in world.requests[1:]))
    run = drive(f"hash(evict={evict},prefetch=0)", World(world.catalogue, world.fleet, together))
    assert "".join(NAMES[row.detail] for row in run.rows(Kind.EVICTED)) == expected


# --- ahead ------------------------------------------------------------------------------------------------------------


def test_a_model_of_the_next_tasks_is_fetched_while_one_runs() -> None:
    run = drive("hash", _world([30, 30, 30], "aabc"))
    assert run.rows(Kind.FETCH)[0].time == 2
    assert [NAMES[row.detail] for row in run.rows(Kind.FETCH)] == ["b", "c"]
    assert [NAMES[row.detail] for row in run.rows(Kind.LOAD)] == ["a"]


def test_only_the_next_few_tasks_are_looked_at() -> None:
    world = _world([30, 30], "aaaab")
    soon = drive("hash(prefetch=3)", world).rows(Kind.FETCH)
    sooner = drive("hash(prefetch=4)", world).rows(Kind.FETCH)
    run = drive("hash(prefetch=3)", world).rows(Kind.RUN)
    assert sooner[0].time == 4
    assert soon[0].time == run[1].time
    assert not drive("hash(prefetch=0)", world).rows(Kind.FETCH)


def test_nothing_makes_room_for_what_is_fetched_ahead() -> None:
    run = drive("hash", _world([60, 60], "ab"))
    assert not run.rows(Kind.FETCH)
    assert [NAMES[row.detail] for row in run.rows(Kind.EVICTED)] == ["a"]


def _queued(names: str, memory_mb: int = 100) -> tuple[ServingState, LocalQueue]:
    """A worker with these tasks queued, each of its own model."""
    world = _world([40, 40, 40], names, memory_mb)
    state = world.state()
    queue = LocalQueue()
    queue.bind(state)
    for request in world.requests:
        state.apply(1, RequestArrived(request))
        state.commit(1, PlaceRequest(request.id, (0,)))
    return state, queue


def _go_on(state: ServingState, queue: LocalQueue, now: int) -> list[Action]:
    actions = []
    for action in queue.decide(state, state.workers[0]):
        assert state.check(action) is None
        state.commit(now, action)
        actions.append(action)
    return actions


def test_a_task_waits_for_a_fetch_that_is_in_its_way() -> None:
    state, queue = _queued("c", 90)
    state.commit(1, FetchModel(0, 0))
    state.commit(1, FetchModel(0, 1))  # both are under way, and 10 MB are free: c must wait
    assert _go_on(state, queue, 1) == []
    state.workers[0].memory.unpin(0)  # one has come
    assert _go_on(state, queue, 2) == [RunBatch(0, ((0, 0),), 1, 1, (0,))]


def test_one_fetch_ahead_at_a_time() -> None:
    state, queue = _queued("abc", 200)
    assert _go_on(state, queue, 1) == [RunBatch(0, ((0, 0),), 1, 1, ()), FetchModel(0, 1)]
    assert _go_on(state, queue, 2) == []


# --- what fits --------------------------------------------------------------------------------------------------------


def test_the_largest_configuration_that_the_worker_has_room_for() -> None:
    cells = {Configuration(b, c, s): 10 * MS for b in (1, 2) for c in (1, 8) for s in (1, 3, 5, 7)}
    catalogue = Catalogue((), (Function("f", (), Profile({"": cells})),), (chain("x", 0),))
    gpus = (Gpu("A100", 10, 7), Gpu("A100", 10, 7, MIG), Gpu("A100", 10, 6))
    fleet = Fleet(tuple(Worker(f"w{i}", gpu, cpus=4) for i, gpu in enumerate(gpus)))
    state = World(catalogue, fleet, ()).state()
    queue = LocalQueue()
    queue.bind(state)
    state.apply(1, RequestArrived(Request(0, 0, 1, 0)))
    runs = [queue.run(state, worker, (0, 0)) for worker in state.workers]
    assert [(run.cpus, run.slices) for run in runs if run is not None] == [(1, 7), (1, 7), (1, 5)]


def test_where_a_function_can_run_at_all() -> None:
    catalogue = Catalogue((Model("a", 50 * MB),), (function("f", 1, 0), function("g", 1)), (chain("x", 0),))
    fleet = Fleet(tuple(Worker(f"w{i}", Gpu("T4", size * MB)) for i, size in enumerate((40, 60))))
    queue = LocalQueue()
    queue.bind(World(catalogue, fleet, ()).state())
    assert queue.hosts == [(1,), (0, 1)]
    small = Fleet(fleet.workers[:1])
    with pytest.raises(ExperimentError, match="function f: no worker can run it, it needs 50000000 bytes"):
        queue.bind(World(catalogue, small, ()).state())
