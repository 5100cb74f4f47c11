"""The serving state under everything that can happen, in any order, counted again after each step.

Arrivals, placements, moves, batches queued and pulled, ends on time, late and twice, inputs that come to nobody,
fetches, evictions, processes, drops, workers that die and return (twice, too). What it wrote is audited at the end.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headway.core.tape import Row, Tape
from headway.fleet.audit.audit import audit
from headway.fleet.model.actions import (
    Action,
    DropRequest,
    EvictModel,
    FetchModel,
    MoveTask,
    PlaceRequest,
    RunBatch,
    StartInstance,
    StopInstance,
    WakeAt,
)
from headway.fleet.model.catalogue import Catalogue, Model
from headway.fleet.model.events import (
    BatchFinished,
    BatchLoaded,
    Event,
    InstanceStarted,
    ModelFetched,
    RequestArrived,
    TaskArrived,
    Woke,
    WorkerFailed,
    WorkerRecovered,
)
from headway.fleet.model.graph import Graph, Task
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind
from headway.fleet.state.digest import digest
from headway.fleet.state.requeststate import Stage
from headway.fleet.state.state import CENTRAL, ServingState
from headway.units import MILLISECOND, SECOND
from tests.fleet.recount import inconsistencies
from tests.fleet.worlds import MB, World, chain, function, workers, worlds


class StateMachine(RuleBasedStateMachine):
    """Throws things at a state; every rule is an instant of its own."""

    @initialize(world=worlds(outages=False))
    def begin(self, world: World) -> None:
        self.world = world
        self.state = world.state()
        self.rows: list[Row] = []
        self.state.journal = self.rows.append
        self.coming = list(reversed(world.requests))
        self.due: list[tuple[int, Event]] = []
        """What will happen, and not before when."""
        self.old: list[Event] = []
        """What happened already, and must make no difference when it is heard of again."""
        self.now = world.requests[-1].arrival

    # --- how things are done ----------------------------------------------------------------------------------

    def _apply(self, event: Event, earliest: int = 0) -> None:
        self.now = max(self.now + 1, earliest)
        self.due += self.state.apply(self.now, event) or ()

    def _do(self, action: Action) -> bool:
        """Commit an action if it can be; asking must not change anything."""
        self._apply(Woke())  # something is decided only when something happened
        before = digest(self.state)
        refusal = self.state.check(action)
        assert digest(self.state) == before, "check changed the state"
        if refusal is not None:
            assert refusal.startswith(f"{type(action).__name__}(")
            row = self.state.refused(self.now, action)
            assert row[1] == Kind.REFUSED
            assert Kind(row[6])
            return False
        self.due += self.state.commit(self.now, action) or ()
        return True

    def _up(self) -> list[int]:
        return [worker.id for worker in self.state.workers if worker.up]

    def _anyone(self, data: st.DataObject) -> int:
        return data.draw(st.integers(0, len(self.state.workers) - 1))

    # --- what happens -----------------------------------------------------------------------------------------

    @rule()
    def arrive(self) -> None:
        if self.coming:
            self._apply(RequestArrived(self.coming.pop()))
            assert self.state.landed

    @rule(data=st.data(), late=st.integers(0, 50))
    def happen(self, data: st.DataObject, late: int) -> None:
        if self.due:
            when, event = self.due.pop(data.draw(st.integers(0, len(self.due) - 1)))
            self._apply(event, when + late * MILLISECOND)
            self.old.append(event)
            if isinstance(event, BatchLoaded):
                batch = self.state.workers[event.worker].running.get(event.lease)
                self.due.append((batch.end if batch else 0, BatchFinished(event.worker, event.lease)))

    @rule(data=st.data())
    def happen_again(self, data: st.DataObject) -> None:
        if self.old:
            before = _held(self.state)
            self._apply(data.draw(st.sampled_from(self.old)))
            assert self.rows[-1][1] == Kind.STALE
            assert _held(self.state) == before

    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        index = self._anyone(data)
        self._apply(WorkerFailed(index))
        assert not self.state.workers[index].up

    @rule(data=st.data())
    def recover(self, data: st.DataObject) -> None:
        index = self._anyone(data)
        self._apply(WorkerRecovered(index))
        assert self.state.workers[index].up

    @rule()
    def wake(self) -> None:
        assert self._do(WakeAt(self.now + 5))

    # --- what is decided --------------------------------------------------------------------------------------

    def _live(self, data: st.DataObject) -> int | None:
        return data.draw(st.sampled_from(list(self.state.requests))) if self.state.requests else None

    @rule(data=st.data())
    def place(self, data: st.DataObject) -> None:
        if (request := self._live(data)) is not None:
            rs = self.state.requests[request]
            plan = tuple(data.draw(st.integers(-1, len(self.state.workers) - 1)) for _ in rs.stage)
            down = any(
                at >= 0 and stage < Stage.RUNNING and not self.state.workers[at].up
                for at, stage in zip(plan, rs.stage, strict=True)
            )
            assert self._do(PlaceRequest(request, plan)) != down
            if not down:
                placed = [
                    at
                    for at, want, stage in zip(rs.worker, plan, rs.stage, strict=True)
                    if want >= 0 and stage < Stage.RUNNING and at != want
                ]
                assert not placed

    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        if (request := self._live(data)) is not None:
            rs = self.state.requests[request]
            task, target = data.draw(st.integers(0, len(rs.stage) - 1)), data.draw(st.integers(-1, 4))
            there = 0 <= target < len(self.state.workers) and self.state.workers[target].up
            can = there and rs.stage[task] < Stage.RUNNING and rs.worker[task] != target
            assert self._do(MoveTask(request, task, target)) == can

    @rule(data=st.data(), pull=st.booleans())
    def run(self, data: st.DataObject, pull: bool) -> None:
        index = self._anyone(data)
        worker = self.state.workers[index]
        tasks = list(worker.queue)
        if pull or not tasks:
            tasks += [(request, task) for (_, task), requests in self.state.ready.items() for request in requests]
        if not tasks:
            return
        functions = {key: self.state.requests[key[0]].graph.tasks[key[1]].function for key in tasks}
        chosen = functions[data.draw(st.sampled_from(tasks))]
        cell = data.draw(st.sampled_from(list(self.state.latency.cells(index, chosen))))
        batch = tuple(key for key in tasks if functions[key] == chosen)[: cell.batch]
        needed = self.state.catalogue.functions[chosen].models
        unused = [m for m in worker.memory.order if worker.memory.evictable(m) and m not in needed]
        evict = tuple(unused) if data.draw(st.booleans()) else ()
        if self._do(RunBatch(index, batch, cell.cpus, cell.slices, evict)):
            begun = worker.running[self.state.leases]
            if begun.start > self.now:
                self.due.append((begun.start, BatchLoaded(index, begun.lease)))
            else:
                self.due.append((begun.end, BatchFinished(index, begun.lease)))

    @rule(data=st.data())
    def fetch(self, data: st.DataObject) -> None:
        index = self._anyone(data)
        memory = self.state.workers[index].memory
        model = data.draw(st.integers(0, len(self.state.catalogue.models) - 1))
        evict = tuple(m for m in memory.order if memory.evictable(m)) if data.draw(st.booleans()) else ()
        if self._do(FetchModel(index, model, evict)):
            self.due.append((memory.ready[model], ModelFetched(index, model, self.state.leases)))

    @rule(data=st.data())
    def evict(self, data: st.DataObject) -> None:
        model = data.draw(st.integers(0, len(self.state.catalogue.models) - 1))
        self._do(EvictModel(self._anyone(data), model))

    @rule(data=st.data(), start=st.booleans())
    def process(self, data: st.DataObject, start: bool) -> None:
        index = self._anyone(data)
        called = data.draw(st.integers(0, len(self.state.catalogue.functions) - 1))
        if not start:
            self._do(StopInstance(index, called))
        elif self._do(StartInstance(index, called)):
            ready = self.now + self.state.catalogue.functions[called].cold_start
            self.due.append((ready, InstanceStarted(index, called, self.state.leases)))

    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        if (request := self._live(data)) is not None:
            assert self._do(DropRequest(request))
            assert request not in self.state.requests
            assert not self._do(DropRequest(request))

    # --- what always holds ------------------------------------------------------------------------------------

    @invariant()
    def counts(self) -> None:
        if hasattr(self, "state"):
            assert inconsistencies(self.state) == []

    @invariant()
    def views(self) -> None:
        if hasattr(self, "state"):
            seen = self.state.rows(0, self.now)
            assert seen[0] == self.state.workers[0].row()
            assert [row.up for row in seen] == [worker.up for worker in self.state.workers]
            assert self.state.rows(CENTRAL, self.now) == [worker.row() for worker in self.state.workers]

    def teardown(self) -> None:
        if hasattr(self, "state"):
            world = self.world
            tape = Tape(np.array(self.rows, dtype=np.int64).reshape(-1, 7))
            found = audit(world.catalogue, world.fleet, world.requests, tape, complete=False, punctual=False)
            assert found == [], found[:3]


def _held(state: ServingState) -> Any:
    """What a stale event must not change."""
    return [
        (w.up, w.cpus_free, w.slices_free, w.memory.free_bytes, w.memory.pins, w.queued, w.reserved)
        for w in state.workers
    ], {request: list(rs.stage) for request, rs in state.requests.items()}


TestState = StateMachine.TestCase
TestState.settings = settings(
    max_examples=40,
    stateful_step_count=50,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # to shrink fifty steps takes minutes and helps little
)


# --- by hand ------------------------------------------------------------------------------------------------------

FORK = Graph(
    "fork",
    (Task("a", 0, 0, 3 * MB), Task("b", 1, 0, 3 * MB), Task("c", 1, 0, 0), Task("d", 0)),
    ((0, 1), (0, 2), (1, 3), (2, 3)),
)
CATALOGUE = Catalogue(
    (Model("m", 60 * MB), Model("n", 60 * MB)), (function("f", 10, 0), function("g", 20, 1)), (FORK, chain("one", 0))
)
COPY = workers(3).copy_time(0, 1, 3 * MB)


def _landed(*requests: Request, count: int = 3, **options: Any) -> ServingState:
    state = ServingState(CATALOGUE, workers(count), to_come=len(requests), **options)
    for request in requests:
        state.apply(request.arrival, RequestArrived(request))
    return state


def _run(state: ServingState, now: int, worker: int, *tasks: tuple[int, int]) -> int:
    action = RunBatch(worker, tasks)
    assert state.check(action) is None, state.check(action)
    state.commit(now, action)
    return state.leases


def test_two_tasks_that_wait_for_the_same_result_on_one_worker_both_wait_for_it_to_come() -> None:
    state = _landed(Request(0, 0, 0, 0))
    state.commit(0, PlaceRequest(0, (0, 1, 1, 1)))
    lease = _run(state, 0, 0, (0, 0))
    now = 20 * MILLISECOND
    sent = state.apply(now, BatchFinished(0, lease))
    assert sent == [(now + COPY, TaskArrived(0, 1, 1)), (now + COPY, TaskArrived(0, 2, 1))]
    assert state.requests[0].stage[1:3] == [Stage.SENT, Stage.SENT]


def test_a_result_that_is_under_way_cannot_be_sent_on_before_it_is_there() -> None:
    state = _landed(Request(0, 0, 0, 0))
    state.commit(0, PlaceRequest(0, (0, 1, 1, 1)))
    lease = _run(state, 0, 0, (0, 0))
    now = 20 * MILLISECOND
    state.apply(now, BatchFinished(0, lease))
    assert state.apply(now + 1, WorkerFailed(0)) is None
    assert state.commit(now + 1, MoveTask(0, 1, 2)) == [(now + 2 * COPY, TaskArrived(0, 1, 2))]


def test_a_result_that_died_with_its_worker_is_computed_again_once_and_for_who_still_needs_it() -> None:
    state = _landed(Request(0, 0, 0, 0))
    state.commit(0, PlaceRequest(0, (0, 0, 1, 2)))
    ((due, _), *_) = state.apply(1, BatchFinished(0, _run(state, 0, 0, (0, 0)))) or ()
    state.apply(due, TaskArrived(0, 2, 1))
    second = _run(state, due, 1, (0, 2))  # has its inputs: the copy on worker 1 lives on
    state.apply(due + 1, WorkerFailed(0))
    rs = state.requests[0]
    assert state.displaced == [0]
    assert rs.stage == [Stage.DONE, Stage.READY, Stage.RUNNING, Stage.WAITING]
    state.apply(due + 2, WorkerFailed(1))
    assert rs.stage == [Stage.READY, Stage.WAITING, Stage.WAITING, Stage.WAITING]
    assert rs.waits == [0, 1, 1, 2]
    state.apply(due + 3, BatchFinished(1, second))  # it is too late
    assert rs.left == 4


def test_a_task_that_runs_is_not_told_twice_that_its_predecessor_is_done() -> None:
    state = _landed(Request(0, 0, 0, 0))
    state.commit(0, PlaceRequest(0, (0, 0, 1, 2)))
    state.apply(1, BatchFinished(0, _run(state, 0, 0, (0, 0))))
    state.apply(COPY + 1, TaskArrived(0, 2, 1))
    running = _run(state, COPY + 1, 1, (0, 2))
    state.requests[0].copies[0] = 1  # as if worker 1 had thrown its copy away once it had read it
    state.apply(COPY + 2, WorkerFailed(0))
    rs = state.requests[0]
    assert rs.stage == [Stage.READY, Stage.WAITING, Stage.RUNNING, Stage.WAITING]
    again = _run(state, COPY + 2, 2, (0, 0))
    state.apply(COPY + 3, WorkerFailed(1))  # while the predecessor is computed again
    assert rs.stage == [Stage.RUNNING, Stage.WAITING, Stage.WAITING, Stage.WAITING]
    assert rs.waits == [0, 1, 1, 2]
    state.apply(COPY + 4, BatchFinished(2, again))
    assert rs.stage == [Stage.DONE, Stage.READY, Stage.READY, Stage.WAITING]
    state.apply(COPY + 5, BatchFinished(1, running))
    assert inconsistencies(state) == []


def test_when_the_first_worker_returns_all_that_could_not_be_placed_is_displaced() -> None:
    state = _landed(Request(0, 1, 0, 0), count=2)
    state.apply(1, WorkerFailed(0))
    state.apply(1, WorkerFailed(1))
    state.apply(2, WorkerRecovered(1))
    assert state.displaced == [0]
    state.apply(3, WorkerRecovered(0))
    assert state.displaced == []


def test_a_dead_worker_that_dies_and_a_live_one_that_returns_change_nothing() -> None:
    state = _landed(Request(0, 1, 0, 0))
    _run(state, 0, 0, (0, 0))
    rows: list[Row] = []
    state.journal = rows.append
    state.apply(1, WorkerRecovered(0))
    assert state.workers[0].cpus_free == 3
    state.apply(2, WorkerFailed(1))
    state.apply(3, WorkerFailed(1))
    assert [(row[1], row[6]) for row in rows if row[1] == Kind.STALE] == [
        (Kind.STALE, Kind.WORKER_RECOVERED),
        (Kind.STALE, Kind.WORKER_FAILED),
    ]


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (PlaceRequest(9, (0,)), "there is no such request"),
        (PlaceRequest(0, (0,)), "its graph has 4 tasks"),
        (PlaceRequest(0, (0, 0, 7, 0)), "there is no worker 7"),
        (PlaceRequest(0, (0, 0, 2, 0)), "worker w2 is down"),
        (MoveTask(0, 0, 7), "there is no worker 7"),
        (MoveTask(9, 0, 0), "there is no such request"),
        (MoveTask(0, 4, 0), "its graph has 4 tasks"),
        (MoveTask(0, -1, 0), "its graph has 4 tasks"),
        (MoveTask(0, 0, -2), "there is no worker -2"),
        (RunBatch(-1, ((0, 0),)), "there is no worker -1"),
        (RunBatch(0, ((0, 4),)), "request 0 has no task 4, its graph has 4"),
        (RunBatch(0, ((0, -1),)), "request 0 has no task -1"),
        (RunBatch(0, ((0, 0),), slices=-1), "CPUs and slices are not below 0"),
        (RunBatch(0, ((0, 0),), evict=(-1,)), "model -1 cannot be evicted"),
        (RunBatch(0, ((0, 0),), evict=(99,)), "model 99 cannot be evicted"),
        (FetchModel(0, -1), "there is no model -1"),
        (FetchModel(0, 99), "there is no model 99"),
        (FetchModel(-1, 0), "there is no worker -1"),
        (EvictModel(0, -1), "it is not there, or in use"),
        (EvictModel(0, 99), "it is not there, or in use"),
        (StartInstance(0, -1), "there is no function -1"),
        (StartInstance(0, 99), "there is no function 99"),
        (StopInstance(0, 99), "no idle process of it is there"),
        (RunBatch(2, ((0, 0),)), "worker w2 is down"),
        (RunBatch(3, ((0, 0),)), "there is no worker 3"),
        (RunBatch(0, ()), "no tasks"),
        (RunBatch(0, ((0, 1),)), "task 1 of request 0 is waiting at -1"),
        (RunBatch(0, ((9, 0),)), "there is no request 9"),
        (RunBatch(0, ((0, 0), (0, 0))), "a task is there twice"),
        (RunBatch(0, ((0, 0),), cpus=5), "wants 5 CPUs, worker w0 has 4 free"),
        (RunBatch(0, ((0, 0),), slices=2), "wants 2 slices, worker w0 has 1 free"),
        (RunBatch(0, ((0, 0),), cpus=2), "f has no profile for 1 at 2 CPUs, 1 slices"),
        (RunBatch(0, ((0, 0),), evict=(1,)), "model 1 cannot be evicted"),
        (RunBatch(1, ((0, 0),)), "wants 60000000 bytes of GPU memory, worker w1 has 40000000"),
        (RunBatch(1, ((0, 0),), evict=(1, 1)), "a model is evicted twice"),
        (FetchModel(1, 1), "it is there already"),
        (FetchModel(1, 0), "wants 60000000 bytes"),
        (FetchModel(2, 0), "worker w2 is down"),
        (EvictModel(0, 0), "it is not there, or in use"),
        (StartInstance(0, 0), "the function needs no process"),
        (StopInstance(0, 0), "no idle process of it is there"),
        (DropRequest(9), "there is no such request"),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_reason(action: Action, reason: str) -> None:
    state = _landed(Request(0, 0, 0, 0))
    state.commit(0, FetchModel(1, 1))
    state.apply(SECOND, ModelFetched(1, 1, 1))
    state.apply(SECOND, WorkerFailed(2))
    refusal = state.check(action)
    assert refusal is not None
    assert reason in refusal


def test_rows_of_others_are_as_old_as_their_last_push() -> None:
    interval = 10 * MILLISECOND
    state = _landed(Request(0, 1, 0, 0), push_interval=interval)
    state.commit(0, PlaceRequest(0, (1,)))
    assert state.rows(1, 1)[1].reserved == 10 * MILLISECOND
    assert state.rows(0, 1)[1].reserved == 0
    assert state.rows(CENTRAL, 1)[1].reserved == 10 * MILLISECOND
    assert state.rows(0, interval)[1].reserved == 10 * MILLISECOND
    assert (state.reads, state.stale_reads, state.stale_ns) == (6, 1, 1)
    assert state.pushes == 1
