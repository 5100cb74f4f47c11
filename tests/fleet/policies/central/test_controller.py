"""Decisions that take time, by hand: one after the other, stale ones refused and taken again, workers on their own."""

from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from headway.core.audit import Finding
from headway.core.tape import Tape
from headway.errors import InfeasibleActionError
from headway.fleet.audit.audit import audit
from headway.fleet.metrics.controller import controller_numbers, controller_overload
from headway.fleet.metrics.ledger import Ledger
from headway.fleet.model.actions import Action, EvictModel, PlaceRequest, RunBatch, WakeAt
from headway.fleet.model.catalogue import Catalogue
from headway.fleet.model.decision_time import DecisionTime
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind
from headway.fleet.policies.central.controller import MOST_REFUSALS, Controller
from headway.fleet.policies.checked import checked
from headway.fleet.policies.parts import ServingPolicy
from headway.fleet.state.state import ServingState
from headway.streams import small_stream
from headway.units import MILLISECOND, SECOND
from tests.fleet.worlds import Run, World, chain, drive, function, replay, workers

RUNS = 5 * MILLISECOND
CATALOGUE = Catalogue((), (function("f", 5),), (chain("one", 0),))


class Direct(ServingPolicy):
    """Runs each request on a worker of its own, or on the next one that is up."""

    name = "direct"
    central = True

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        for request in (*state.landed, *state.displaced):
            up = [worker.id for worker in state.workers if worker.up]
            yield RunBatch(up[request % len(up)], ((request, 0),))


class AtOnce(Direct):
    """Returns all its actions as a list."""

    def decide(self, now: int, state: ServingState) -> Iterable[Action]:  # type: ignore[override]
        return list(super().decide(now, state))


class Searching(Direct):
    """Says that it evaluates one state more for each request."""

    states = 0

    @property
    def states_evaluated(self) -> int:
        return self.states

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        for action in super().decide(now, state):
            assert isinstance(action, RunBatch)
            self.states += action.tasks[0][0]
            yield action


class Local(ServingPolicy):
    """Places each request on the worker that it reached, and runs there what is queued."""

    name = "local"

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        for request in (*state.landed, *state.displaced):
            yield PlaceRequest(request, (state.requests[request].request.ingress,))
        for index in list(state.touched):
            worker = state.workers[index]
            if worker.queue and not worker.running:
                yield RunBatch(index, (next(iter(worker.queue)),))


def world(arrivals: Iterable[int], count: int = 0, **options: object) -> World:
    requests = tuple(Request(i, 0, arrival, i % (count or 1)) for i, arrival in enumerate(arrivals))
    return World(CATALOGUE, workers(count or len(requests)), requests, **options)  # type: ignore[arg-type]


def begun(run: Run) -> list[int]:
    return [row.time for row in run.rows(Kind.RUN)]


def checked_run(policy: ServingPolicy, decision_time: DecisionTime, seen: World) -> Run:
    run = drive(Controller(policy, decision_time), seen, exact=False, bounded=False)
    assert not audit(seen.catalogue, seen.fleet, seen.requests, run.tape)
    options = {"central": seen.central, "push_interval": seen.push_interval}
    again = replay(
        seen.catalogue, seen.fleet, seen.requests, run.tape, Controller(type(policy)(), decision_time), **options
    )  # type: ignore[arg-type]
    assert again.digest == run.tape.digest
    return run


@pytest.mark.parametrize("policy", [Direct, AtOnce])
def test_requests_wait_for_one_decision_after_the_other(policy: type[ServingPolicy]) -> None:
    run = checked_run(
        policy(), DecisionTime(4 * MILLISECOND), world([0, MILLISECOND, 2 * MILLISECOND, 20 * MILLISECOND])
    )
    assert [time // MILLISECOND for time in begun(run)] == [4, 8, 12, 24]
    rows = run.rows(Kind.DECIDE)
    assert [row.time // MILLISECOND for row in rows] == [0, 4, 8, 20]
    assert [row.detail // MILLISECOND for row in rows] == [0, 3, 6, 0], "waited before its decision"
    assert [row.time // MILLISECOND for row in run.rows(Kind.DONE)] == [9, 13, 17, 29]
    numbers = controller_numbers(Ledger(CATALOGUE, run.world.fleet, run.world.requests, run.tape), run.tape)
    assert numbers == {
        "decisions": 4,
        "controller_utilisation": pytest.approx(16 / 29, rel=1e-3),  # inputs take 2 us to another worker
        "decision_wait_mean_s": pytest.approx(0.00225),
        "decision_time_mean_s": 0.004,
        "stale_actions": 0,
        "states_evaluated": 0,
    }


@given(
    gaps=st.lists(st.integers(0, 9 * MILLISECOND), min_size=1, max_size=25),
    service=st.integers(1, 8 * MILLISECOND),
)
@settings(max_examples=40, deadline=None)
def test_waits_are_those_of_a_queue_with_one_server(gaps: list[int], service: int) -> None:
    """Lindley's recursion: the wait of the next is what is left of the wait and service of the one before."""
    arrivals = list(accumulate(gaps))
    run = checked_run(Direct(), DecisionTime(service), world(arrivals))
    waits = [0]
    for before, after in pairwise(arrivals):
        waits.append(max(0, waits[-1] + service - (after - before)))
    assert [row.detail for row in run.rows(Kind.DECIDE)] == waits
    assert begun(run) == [time + wait + service for time, wait in zip(arrivals, waits, strict=True)]


def test_the_mean_wait_behind_poisson_arrivals_is_that_of_m_d_1() -> None:
    draw, service, load = small_stream(1, "arrivals"), 2 * MILLISECOND, 0.7
    arrivals = [round(time) for time in accumulate(draw.expovariate(load / service) for _ in range(6000))]
    requests = tuple(Request(i, 0, arrival, 0) for i, arrival in enumerate(arrivals))
    run = drive(
        Controller(Direct(), DecisionTime(service)), World(CATALOGUE, workers(40), requests), exact=False, bounded=False
    )
    waits = [row.detail for row in run.rows(Kind.DECIDE)]
    assert len(waits) == 6000
    assert not run.rows(Kind.REFUSED)
    assert sum(waits) / len(waits) == pytest.approx(service * load / (2 * (1 - load)), rel=0.1)


def test_a_decision_takes_a_time_for_each_state_that_was_evaluated() -> None:
    run = checked_run(Searching(), DecisionTime(MILLISECOND, 100), world([0, 0, 0]))
    assert begun(run) == [MILLISECOND, 2 * MILLISECOND + 100, 3 * MILLISECOND + 300]
    assert [row.lease for row in run.rows(Kind.DECIDE)] == [0, 1, 2]


def test_a_stale_action_is_refused_with_its_reason_and_decided_again() -> None:
    seen = world([0, MILLISECOND], 2, outages=((0, 5 * MILLISECOND, SECOND),))
    run = checked_run(Direct(), DecisionTime(10 * MILLISECOND), seen)
    (refused,) = run.rows(Kind.REFUSED)
    assert (refused.time, refused.value) == (10 * MILLISECOND, Kind.RUN)
    (note,) = run.tape.notes.values()
    assert note.endswith("worker w0 is down")
    assert [(row.time // MILLISECOND, row.place) for row in run.rows(Kind.RUN)] == [(20, 1), (30, 1)]
    assert sorted(row.subject for row in run.rows(Kind.DONE)) == [0, 1]
    numbers = controller_numbers(Ledger(CATALOGUE, seen.fleet, seen.requests, run.tape), run.tape)
    assert (numbers["decisions"], numbers["stale_actions"]) == (3, 1)


def test_workers_decide_on_their_own_unless_control_is_central() -> None:
    decision_time, arrivals = DecisionTime(10 * MILLISECOND), [0, 0, MILLISECOND]
    run = checked_run(Local(), decision_time, world(arrivals, 2))
    decided = [(row.time // MILLISECOND, row.place) for row in run.rows(Kind.DECIDE)]
    assert decided == [(0, 0), (0, 1), (10, 0), (10, 1), (20, 0), (30, 0)], "placed and run, each on its own"
    assert [(row.time // MILLISECOND, row.place) for row in run.rows(Kind.RUN)] == [(20, 0), (20, 1), (40, 0)]
    central = checked_run(Local(), decision_time, world(arrivals, 2, central=True))
    assert {row.place for row in central.rows(Kind.DECIDE)} == {-1}
    assert [row.time // MILLISECOND for row in central.rows(Kind.DECIDE)] == [0, 10, 20, 30, 40, 50]


def test_a_controller_of_a_worker_is_shown_what_concerns_that_worker() -> None:
    class Spy(Local):
        seen: list[tuple[int, list[int], list[int]]]

        def bind(self, state: ServingState) -> None:
            self.seen = []

        def decide(self, now: int, state: ServingState) -> Iterator[Action]:
            (worker,) = state.deciding
            self.seen.append((worker.id, state.landed, list(state.touched)))
            yield from super().decide(now, state)

    policy = Spy()
    drive(Controller(policy, DecisionTime(MILLISECOND)), world([0, 0, 1, 1], 2), exact=False)
    for worker, landed, touched in policy.seen:
        assert {request % 2 for request in landed} <= {worker}
        assert set(touched) <= {worker}
    assert sorted(request for _, landed, _ in policy.seen for request in landed) == [0, 1, 2, 3], "each once"


def test_a_wake_up_takes_no_time_and_comes_while_the_controller_is_busy() -> None:
    class Wakes(Direct):
        asked: list[int]

        def bind(self, state: ServingState) -> None:
            self.asked = []

        def decide(self, now: int, state: ServingState) -> Iterator[Action]:
            self.asked.append(now // MILLISECOND)
            if not now:
                yield WakeAt(3 * MILLISECOND)
                yield WakeAt(13 * MILLISECOND)
            yield from super().decide(now, state)

    policy = Wakes()
    run = drive(Controller(policy, DecisionTime(10 * MILLISECOND)), world([0]), exact=False)
    assert policy.asked == [0, 10, 13, 15][: len(policy.asked)], "busy until 10, then woken at 13"
    assert policy.asked[:3] == [0, 10, 13]
    assert begun(run) == [10 * MILLISECOND]


def test_a_policy_of_the_user_whose_action_is_stale_is_refused_and_not_blamed() -> None:
    outside = type("Outside", (AtOnce,), {"name": "outside", "__module__": "someones_file"})
    seen = world([0, 0], 2, outages=((1, 15 * MILLISECOND, SECOND),))
    run = drive(Controller(checked(outside)(), DecisionTime(10 * MILLISECOND)), seen, exact=False)
    assert len(run.rows(Kind.REFUSED)) == 1
    assert len(run.rows(Kind.DONE)) == 2


def test_a_policy_that_is_refused_again_and_again_ends_the_run() -> None:
    class Stubborn(Direct):
        def decide(self, now: int, state: ServingState) -> Iterator[Action]:
            yield EvictModel(0, 0)

    with pytest.raises(InfeasibleActionError, match=f"policy direct at 1us1ns: {MOST_REFUSALS + 1:,} actions"):
        drive(Controller(Stubborn(), DecisionTime(1)), world([0]), exact=False, bounded=False)


def findings(run: Run, tape: Tape) -> list[Finding]:
    return audit(CATALOGUE, run.world.fleet, run.world.requests, tape)


def test_the_audit_finds_a_controller_that_takes_two_decisions_at_once() -> None:
    run = checked_run(Direct(), DecisionTime(4 * MILLISECOND), world([0, MILLISECOND]))
    rows = run.tape.rows.copy()
    first = int((rows[:, 1] == Kind.DECIDE).nonzero()[0][0])
    rows[first, 6] += 1
    assert [found.rule for found in findings(run, Tape(rows))] == ["controller"]
    rows[first, 6] = 0
    assert [found.rule for found in findings(run, Tape(rows))] == ["controller"]


def test_overload_is_told_of_a_controller_that_falls_behind_and_of_no_other() -> None:
    arrivals = [i * MILLISECOND for i in range(100)]
    behind = drive(Controller(Direct(), DecisionTime(2 * MILLISECOND)), world(arrivals), exact=False)
    line = controller_overload(behind.world.fleet, behind.tape, 0.02)
    assert line is not None
    assert line.startswith("overload of the controller, not of the fleet (2 % of its GPUs were held)")
    assert "busy 100 % of the time, with 2ms a decision" in line
    full = controller_overload(behind.world.fleet, behind.tape, 0.97)
    assert full is not None
    assert full.startswith("overload of the controller: ")
    ahead = drive(Controller(Direct(), DecisionTime(MILLISECOND - 1)), world(arrivals), exact=False)
    assert controller_overload(ahead.world.fleet, ahead.tape, 0.02) is None
    free = drive(Direct(), world(arrivals))
    assert controller_overload(free.world.fleet, free.tape, 0.02) is None


def test_overload_is_told_of_a_controller_that_had_nothing_to_do_at_first() -> None:
    arrivals = [0, *(60 * MILLISECOND + i * MILLISECOND // 2 for i in range(120))]
    behind = drive(Controller(Direct(), DecisionTime(2 * MILLISECOND)), world(arrivals), exact=False)
    assert controller_overload(behind.world.fleet, behind.tape, 0.02) is not None


def test_only_what_lies_between_the_first_arrival_and_the_last_row_counts_as_busy() -> None:
    run = drive(Controller(Direct(), DecisionTime(4 * MILLISECOND)), world([10 * MILLISECOND]), exact=False)
    rows = run.tape.rows.copy()
    before, after = rows[:1].copy(), rows[-1:].copy()
    first, last = int(rows[0, 0]), int(rows[-1, 0])
    before[0] = (0, Kind.DECIDE, -1, 0, -1, 0, first + MILLISECOND)
    after[0] = (last, Kind.DECIDE, -1, 0, -1, 0, last + SECOND)
    longer = Tape(np.concatenate((before, rows, after)))
    ledger = Ledger(run.world.catalogue, run.world.fleet, run.world.requests, longer)
    busy = controller_numbers(ledger, longer)["controller_utilisation"]
    assert busy == pytest.approx((MILLISECOND + 4 * MILLISECOND) / (last - first))
    assert busy <= 1


def test_without_a_controller_nothing_is_told_of_one() -> None:
    run = drive(Direct(), world([0, 1]))
    assert controller_numbers(Ledger(CATALOGUE, run.world.fleet, run.world.requests, run.tape), run.tape) == {}


def test_an_action_that_is_stale_raises_where_none_may_be() -> None:
    seen = world([0], 2, outages=((0, 5 * MILLISECOND, SECOND),))
    with pytest.raises(InfeasibleActionError, match="worker w0 is down"):
        drive(Controller(Direct(), DecisionTime(10 * MILLISECOND)), seen)
