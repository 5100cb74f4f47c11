"""Where headway places tasks, from which view, and when it places them again."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given, strategies as st

from headway.fleet.model.actions import MoveTask, PlaceRequest, RunBatch
from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Profile
from headway.fleet.model.events import BatchFinished
from headway.fleet.model.fleet import Gpu, Worker
from headway.fleet.policies.headway.worker.placing import Placer
from headway.fleet.policies.headway.worker.views import Plan
from headway.fleet.state.requeststate import RequestState
from headway.fleet.state.state import ServingState
from tests.fleet.policies.headway.fleets import (
    CATALOGUE,
    FORK,
    LONG,
    MS,
    SHORT,
    fleet,
    land,
    mixes_of,
    resident,
    state_of,
)
from tests.fleet.worlds import MB, chain, function


def placing_of(state: ServingState, *, ahead: bool = True) -> Placer:
    tables, mixes = mixes_of(state)
    return Placer(state, tables, mixes, ahead=ahead)


def planned(placing: Placer, state: ServingState, rs: RequestState, now: int = 0) -> tuple[int, ...]:
    return placing.plan(now, state, rs, rs.request.ingress, Plan(len(rs.stage)))


def test_a_task_goes_where_its_model_is() -> None:
    state = state_of(3)
    resident(state, 2, [1])
    assert planned(placing_of(state), state, land(state, 0, LONG)) == (2,)


def test_a_remainder_counts_whatever_is_queued() -> None:
    state = state_of(2)
    for worker in (0, 1):
        resident(state, worker, [0, 1])
    land(state, 0, LONG)
    state.commit(0, PlaceRequest(0, (0,)))
    state.commit(0, RunBatch(0, ((0, 0),)))
    assert state.rows(1, 1 * MS)[0].queued == 0
    assert planned(placing_of(state), state, land(state, 1, SHORT, 1 * MS, ingress=0), 1 * MS) == (1,)


def test_branches_run_side_by_side() -> None:
    state = state_of(2)
    for worker in (0, 1):
        resident(state, worker, [0, 1])
    plan = planned(placing_of(state), state, land(state, 0, 0))
    assert {plan[1], plan[2]} == {0, 1}


def test_what_was_placed_since_the_last_push_counts_for_the_planner_who_did_it() -> None:
    state = state_of(3, push_interval=1000 * MS)
    for worker in range(3):
        resident(state, worker, [0, 1])
    state.advance(1000 * MS)
    placing = placing_of(state)
    used = []
    for request in range(3):
        rs = land(state, request, LONG, 1000 * MS)
        plan = Plan(1)
        workers = placing.plan(1000 * MS, state, rs, 0, plan)
        placing.views.note(1000 * MS, state, plan, 0, [(0, 1, workers[0])])
        state.commit(1000 * MS, PlaceRequest(request, workers))
        used += workers
    assert sorted(used) == [0, 1, 2]


def test_planners_with_the_same_rows_spread_over_equal_workers() -> None:
    state = state_of(8, push_interval=1000 * MS)
    placing = placing_of(state)
    used = {planned(placing, state, land(state, request, LONG, ingress=request % 8))[0] for request in range(24)}
    assert len(used) > 4


def test_what_pushes_models_out_is_avoided_for_a_while() -> None:
    state = state_of(2, memory_bytes=100 * MB)
    resident(state, 0, [1])
    resident(state, 1, [0])
    first = land(state, 0, LONG)
    placing = placing_of(state)
    assert planned(placing, state, first) == (0,)
    state.commit(0, PlaceRequest(0, (0,)))
    # waiting 20 ms · share is better than evicting the other model for 80 ms
    assert planned(placing, state, land(state, 1, SHORT)) == (1,)


def test_the_faster_gpu_is_taken_when_both_are_idle() -> None:
    slow_fast = Profile({"old": {Configuration(1, 1, 1): 300 * MS}, "new": {Configuration(1, 1, 1): 100 * MS}})
    catalogue = Catalogue((), (Function("f", (), slow_fast),), (chain("g", 0),))
    machines = replace(fleet(2), workers=(Worker("a", Gpu("old", MB)), Worker("b", Gpu("new", MB))))
    state = ServingState(catalogue, machines, to_come=9)
    assert planned(placing_of(state), state, land(state, 0, 0)) == (1,)


def test_a_warm_process_counts() -> None:
    catalogue = Catalogue((), (function("f", 10, cold_start=500 * MS),), (chain("g", 0),))
    state = state_of(2, catalogue=catalogue)
    state.touch(state.workers[1], 0)
    state.workers[1].warm = 1
    assert planned(placing_of(state), state, land(state, 0, 0)) == (1,)


def test_workers_that_are_down_or_too_small_are_left_out() -> None:
    machines = fleet(3)
    small = replace(machines.workers[0], gpu=Gpu("T4", 50 * MB))
    state = ServingState(CATALOGUE, replace(machines, workers=(small, *machines.workers[1:])), to_come=9)
    state.touch(state.workers[1], 0)
    state.workers[1].up = False
    placing = placing_of(state)
    assert planned(placing, state, land(state, 0, LONG)) == (2,)
    state.touch(state.workers[2], 0)
    state.workers[2].up = False
    assert planned(placing, state, land(state, 1, LONG)) == (-1,)


def test_a_task_stays_when_only_its_own_reservation_is_in_the_way() -> None:
    state = state_of(2)
    for worker in (0, 1):
        resident(state, worker, [0, 1])
    rs = land(state, 0, 0)
    state.commit(0, PlaceRequest(0, (0, 1, 0, 0)))
    state.commit(0, RunBatch(0, ((0, 0),)))
    placing, plan = placing_of(state), Plan(4)
    placing.views.note(0, state, plan, 0, [(1, 1, 1)])
    now = 20 * MS
    state.apply(now, BatchFinished(0, state.leases))
    assert placing.find_better(now, state, rs, 1, 0, plan) is None


def test_a_task_is_sent_elsewhere_when_its_worker_got_busy() -> None:
    state = state_of(3)
    for worker in range(3):
        resident(state, worker, [0, 1])
    rs = land(state, 0, 0)
    state.commit(0, PlaceRequest(0, (0, 1, 0, 0)))
    state.commit(0, RunBatch(0, ((0, 0),)))
    land(state, 1, LONG, 1, ingress=1)
    state.commit(1, PlaceRequest(1, (1,)))
    state.commit(1, RunBatch(1, ((1, 0),)))
    now = 20 * MS
    state.apply(now, BatchFinished(0, 1))
    found = placing_of(state).find_better(now, state, rs, 1, 0, Plan(4))
    assert found in (0, 2)
    state.commit(now, MoveTask(0, 1, 2))


def test_a_waiting_task_goes_to_an_idle_worker_that_has_its_model() -> None:
    state = state_of(2)
    for worker in (0, 1):
        resident(state, worker, [0, 1])
    for request in (0, 1):
        land(state, request, LONG)
        state.commit(0, PlaceRequest(request, (0,)))
    state.commit(0, RunBatch(0, ((0, 0),)))
    placing = placing_of(state)
    assert placing.find_moves(0, state, 0, list(state.workers[0].queue)) == [((1, 0), 1)]
    state.workers[1].touch(1)
    state.workers[1].up = False
    assert placing.find_moves(0, state, 0, list(state.workers[0].queue)) == []


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=8), st.integers(0, 3))
def test_what_others_did_since_their_push_changes_no_plan(changes: list[tuple[int, int]], viewer: int) -> None:
    plans = []
    for hidden in (False, True):
        state = state_of(4, push_interval=1000 * MS)
        resident(state, 1, [1])
        now = 1000 * MS
        state.advance(now)
        for number, (graph, worker) in enumerate(changes):
            if hidden and worker != viewer:
                rs = land(state, number, graph, now, ingress=worker)
                state.commit(now, PlaceRequest(number, (worker,) * len(rs.stage)))
        plans.append(planned(placing_of(state), state, land(state, 99, 0, now + 1, ingress=viewer), now + 1))
    assert plans[0] == plans[1]


def test_ranks_put_predecessors_first_even_where_tasks_take_no_time() -> None:
    fork = replace(FORK, tasks=tuple(replace(task, function=0) for task in FORK.tasks))
    catalogue = Catalogue((), (function("f", 0.000001),), (fork,))
    tables, _ = mixes_of(state_of(1, catalogue=catalogue))
    for graph, sequence in zip(catalogue.graphs, tables.sequences, strict=True):
        position = {task: index for index, task in enumerate(sequence)}
        assert all(position[a] < position[b] for a, b in graph.edges)
        assert all(tables.ranks[0][a] >= tables.ranks[0][b] for a, b in pairwise(sequence))
