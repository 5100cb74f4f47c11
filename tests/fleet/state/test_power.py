"""Workers that are started, drained and stopped: rent by hand, nothing lost, and an audit that finds what is wrong."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from headway.core.tape import COLUMNS, Tape
from headway.fleet.audit.audit import audit
from headway.fleet.metrics.summary import summarise
from headway.fleet.model.actions import Action, DrainWorker, PlaceRequest, StartWorker, StopWorker, WakeAt
from headway.fleet.model.catalogue import Catalogue, Model
from headway.fleet.model.events import BatchFinished, RequestArrived, WorkerFailed, WorkerRecovered, WorkerStarted
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind
from headway.fleet.policies.registry import build
from headway.fleet.policies.scalers.registry import build as build_scaler
from headway.fleet.policies.scalers.wrapper import Autoscaled
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import Power
from headway.units import HOUR, MILLISECOND, SECOND
from tests.fleet.metrics.naive import naive
from tests.fleet.worlds import MB, Run, World, chain, drive, function, workers, worlds

TIME, KIND, SUBJECT, LEASE, PLACE, DETAIL, VALUE = range(len(COLUMNS))
CATALOGUE = Catalogue(
    (Model("a", 10 * MB),),
    (function("f", 100, 0), function("g", 50)),
    (chain("one", 0), chain("two", 0, 1, bytes_between=MB)),
)
FLEET = replace(workers(3), off=(1, 2), startup=200 * MILLISECOND)


class Script:
    """Hash, with given actions at given times before it."""

    name = "scripted"
    central = False

    def __init__(self, *script: tuple[int, Action]) -> None:
        self.inner = build("hash")
        self.script = sorted(script, key=lambda entry: entry[0])

    def bind(self, state: ServingState) -> None:
        self.inner.bind(state)
        self.left = list(self.script)

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        while self.left and self.left[0][0] <= now:
            yield self.left.pop(0)[1]
        if self.left:
            yield WakeAt(self.left[0][0])
        yield from self.inner.decide(now, state)


def world(*arrivals: int, graph: int = 0) -> World:
    requests = tuple(Request(i, graph, at * MILLISECOND, 0) for i, at in enumerate(arrivals))
    return World(CATALOGUE, FLEET, requests)


def scripted(here: World, *script: tuple[int, Action]) -> Run:
    return drive(Script(*((at * MILLISECOND, action) for at, action in script)), here)  # type: ignore[arg-type]


def findings(run: Run, rows: np.ndarray | None = None) -> set[str]:
    tape = run.tape if rows is None else Tape(rows)
    found = audit(run.world.catalogue, run.world.fleet, run.world.requests, tape)
    return {finding.rule for finding in found}


LATER = (0, 350, 700, 1000)
STARTED = scripted(
    world(*LATER), (0, StartWorker(1)), (400, DrainWorker(0)), (800, StopWorker(0)), (900, StartWorker(2))
)


def test_rent_counts_from_the_start_of_a_start_until_the_stop() -> None:
    here = STARTED.world
    summary = summarise(CATALOGUE, FLEET, here.requests, STARTED.tape, latency=here.latency(), warmup=0)
    end = int(STARTED.tape.column("time")[-1])
    rented = 800 * MILLISECOND + end + (end - 900 * MILLISECOND)  # workers 0, 1 and 2
    price = 4 * 0.034 + 0.67
    assert summary["cost_rent_usd"] == pytest.approx(price * rented / HOUR)
    assert summary["workers_mean"] == pytest.approx(rented / end)
    assert summary["hits_per_usd"] == pytest.approx(len(LATER) / (price * rented / HOUR))
    assert summary["cost_fleet_usd"] == pytest.approx(3 * price * end / HOUR)
    assert findings(STARTED) == set()


def test_a_worker_that_is_off_runs_nothing_and_one_that_starts_runs_after_its_start() -> None:
    ran = [(row.time // MILLISECOND, row.place) for row in STARTED.rows(Kind.RUN)]
    assert ran[0] == (0, 0)
    assert all(place == 1 for time, place in ran if time >= 400)
    assert STARTED.rows(Kind.WORKER_STARTED)[0].time == 200 * MILLISECOND


def test_a_draining_worker_ends_what_runs_and_gives_back_what_waits() -> None:
    run = scripted(world(0, 1, 2), (0, StartWorker(1)), (250, DrainWorker(0)), (320, StopWorker(0)))
    assert len(run.rows(Kind.DONE)) == 3
    assert not [row for row in run.rows(Kind.LOST) if row.value]
    assert [row.place for row in run.rows(Kind.RUN)] == [0, 0, 0]  # the third had begun when it drained
    waits = scripted(world(0, 1, 2, 3), (0, StartWorker(1)), (250, DrainWorker(0)), (330, StopWorker(0)))
    assert [row.place for row in waits.rows(Kind.RUN)] == [0, 0, 0, 1]
    assert len(waits.rows(Kind.DONE)) == 4
    assert findings(run) == findings(waits) == set()


def test_a_worker_is_not_stopped_while_tasks_run_or_wait_there_or_need_its_results() -> None:
    state = ServingState(CATALOGUE, FLEET, to_come=1)
    policy = build("hash")
    policy.bind(state)
    assert state.check(StopWorker(0)) is None
    state.apply(0, RequestArrived(Request(0, 1, 0, 0)))
    for action in policy.decide(0, state):
        assert state.check(action) is None
        state.commit(0, action)
    assert "tasks run or wait there" in (state.check(StopWorker(0)) or "")
    state.commit(0, StartWorker(1))
    state.apply(50 * MILLISECOND, WorkerStarted(1, state.leases))
    lease = next(iter(state.workers[0].running))
    state.commit(60 * MILLISECOND, DrainWorker(0))
    assert state.displaced == [0]  # its second task was planned there
    state.apply(100 * MILLISECOND, BatchFinished(0, lease))
    assert state.check(StopWorker(0)) is not None  # the second task needs the result of the first
    state.commit(100 * MILLISECOND, PlaceRequest(0, (0, 1)))
    assert state.check(StopWorker(0)) is not None  # it is being sent
    state.advance(10 * SECOND)
    assert state.check(StopWorker(0)) is None


def test_workers_are_only_started_when_off_and_drained_when_up() -> None:
    state = ServingState(CATALOGUE, FLEET, to_come=1)
    assert state.check(StartWorker(1)) is None
    assert "is on" in (state.check(StartWorker(0)) or "")
    assert "is off" in (state.check(DrainWorker(1)) or "")
    assert "is off" in (state.check(StopWorker(1)) or "")
    assert "there is no worker 9" in (state.check(StopWorker(9)) or "")
    state.commit(0, StartWorker(1))
    assert "is starting" in (state.check(StartWorker(1)) or "")
    first = state.leases
    state.commit(1, StopWorker(1))
    state.commit(2, StartWorker(1))
    state.apply(3, WorkerStarted(1, first))  # of the start that was given up
    assert state.workers[1].power == Power.STARTING
    assert not state.workers[1].up
    state.apply(4, WorkerStarted(1, state.leases))
    assert state.workers[1].power == Power.ON
    assert state.workers[1].up
    state.commit(5, DrainWorker(1))
    assert not state.workers[1].up
    state.commit(6, StartWorker(1))  # it drains, and is used again at once
    assert state.workers[1].up
    assert state.workers[1].power == Power.ON


def test_a_failure_neither_wakes_a_worker_that_is_off_nor_outlives_its_stop() -> None:
    state = ServingState(CATALOGUE, FLEET, to_come=1)
    state.apply(1, WorkerFailed(1))
    state.apply(2, WorkerRecovered(1))
    assert state.workers[1].power is Power.OFF
    assert not state.workers[1].up
    state.commit(3, DrainWorker(0))
    state.apply(4, WorkerFailed(0))
    assert state.check(StopWorker(0)) is None
    state.commit(5, StopWorker(0))
    state.apply(6, WorkerRecovered(0))
    assert state.workers[0].power is Power.OFF
    assert not state.workers[0].up


@pytest.mark.parametrize(
    ("kind", "column", "change", "rule"),
    [
        (Kind.START_WORKER, PLACE, -1, "power"),
        (Kind.START_WORKER, VALUE, 1, "power"),
        (Kind.WORKER_STARTED, TIME, -1, "power"),
        (Kind.WORKER_STARTED, PLACE, 1, "power"),
        (Kind.WORKER_STARTED, LEASE, 7, "power"),
        (Kind.DRAIN_WORKER, PLACE, 2, "power"),
        (Kind.DRAIN_WORKER, PLACE, 9, "worker"),
        (Kind.STOP_WORKER, PLACE, 2, "power"),
        (Kind.STOP_WORKER, PLACE, 1, "power"),
    ],
)
def test_the_audit_finds_each_broken_rule_of_workers(kind: Kind, column: int, change: int, rule: str) -> None:
    rows = STARTED.tape.rows.copy()
    at = int(np.flatnonzero(rows[:, KIND] == int(kind))[0])
    rows[at, column] += change
    assert rule in findings(STARTED, rows)


def test_the_audit_finds_a_batch_on_a_stopped_worker() -> None:
    rows = STARTED.tape.rows.copy()
    late = rows[:, TIME] >= 900 * MILLISECOND
    rows[late & (rows[:, PLACE] == 1), PLACE] = 0  # the last request runs on the worker that was stopped
    assert "worker" in findings(STARTED, rows)


def test_the_audit_finds_a_worker_that_stops_too_soon() -> None:
    rows = STARTED.tape.rows.copy()
    keep = rows[:, KIND] != int(Kind.STOP_WORKER)
    stop = rows[~keep].copy()
    run = rows[(rows[:, KIND] == int(Kind.RUN)) & (rows[:, PLACE] == 1)][-1]
    stop[0, TIME], stop[0, PLACE] = run[TIME] + 1, 1
    moved = np.concatenate([rows[keep], stop])
    assert "power" in findings(STARTED, moved[np.argsort(moved[:, TIME], kind="stable")])


@given(worlds(), st.sampled_from(["hash", "headway", "esg"]), st.sampled_from([0, 80 * MILLISECOND]), st.booleans())
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
def test_every_number_of_an_autoscaled_run_is_that_of_a_plain_walk(
    drawn: World, policy: str, startup: int, first: bool
) -> None:
    off = tuple(range(1, len(drawn.fleet.workers))) if first else ()
    here = replace(drawn, fleet=replace(drawn.fleet, off=off, startup=startup))
    scaler = build_scaler("queue(tasks=1,every=40ms,window=60ms)")
    assert scaler is not None
    run = drive(Autoscaled(build(policy), scaler), here)
    expected = naive(here, run.tape, 0)
    found = summarise(here.catalogue, here.fleet, here.requests, run.tape, latency=here.latency(), warmup=0.0)
    for key, value in expected.items():
        assert found[key] == (pytest.approx(value, rel=1e-9, abs=1e-12) if isinstance(value, float) else value), key
