"""Times that are off are refined as events: the state follows them, the tape holds them, a replay is identical."""

import asyncio
from collections.abc import Sequence

import pytest

from headway.core.scheduler import Scheduler
from headway.core.tape import TapeWriter
from headway.fleet.audit.audit import audit
from headway.fleet.live.refining import RUNS, Refining
from headway.fleet.live.server import Server
from headway.fleet.model.actions import Action, DropRequest
from headway.fleet.model.catalogue import Configuration
from headway.fleet.model.events import Event, ModelLost, RequestArrived, TimeMeasured
from headway.fleet.model.rows import Kind
from headway.fleet.policies.registry import POLICIES, build
from headway.fleet.state.workerstate import Batch
from headway.units import MILLISECOND
from tests.conformance.serving import check_conserved, check_ends, check_replay
from tests.fleet.live.test_server import Bench, bench
from tests.fleet.test_shares import world
from tests.fleet.worlds import Bounded, Run

__all__ = ["bench"]


class Measuring(Bounded):
    """A simulated fleet in which times turn out to be others, and weights to be missing, again and again."""

    def next(self) -> tuple[int, Sequence[Event]] | None:
        """An instant, with such events at the end of every seventh."""
        if (found := super().next()) is None or self.left % 7:
            return found
        now, events = found
        turn = self.left // 7
        measured = TimeMeasured(turn % 3, turn % 2, turn % 2, (1 + turn % 13) * MILLISECOND)
        more = [ModelLost(turn % 3, turn % 2), measured]
        return now, sorted([*events, *more], key=lambda event: event.rank)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_goes_on_while_times_change_and_its_run_replays(name: str) -> None:
    policy, drawn = build(name), world(slo=0)
    state, writer = drawn.state(central=policy.central), TapeWriter()
    policy.bind(state)
    executor = Measuring(drawn.requests, state)
    Scheduler[Event, Action](state, policy, executor, writer, exact=True).run()
    run = Run(writer.close(), state, drawn)
    assert run.rows(Kind.MEASURED)
    assert run.rows(Kind.MODEL_LOST)
    check_ends(run)
    check_conserved(run)
    assert audit(drawn.catalogue, drawn.fleet, drawn.requests, run.tape, punctual=False) == []
    check_replay(lambda: build(name), run)


def batch(expected: int) -> Batch:
    """A batch of one task on the worker with three slices, which nothing kept waiting."""
    return Batch(1, ((0, 0),), 0, (0,), cpus=1, slices=3, began=100, start=100, end=100 + expected)


def test_a_time_is_refined_after_some_runs_that_are_off_and_then_left_alone() -> None:
    state, told = world().state(), list[TimeMeasured]()
    refining, expected = Refining(state, told.append), state.latency.base[1][0]
    for _ in range(2 * RUNS):
        refining.note(1, batch(expected), round(1.1 * expected))
    refining.note(1, batch(0), 5)
    late = batch(expected)
    late.start += 1
    for _ in range(RUNS):
        refining.note(1, late, 9 * expected)
    assert told == [], "within tolerance, without a time, or with something to load"
    for _ in range(RUNS):
        refining.note(1, batch(expected), 2 * expected)
    assert told == [TimeMeasured(1, 0, 0, 2 * expected)]
    state.apply(5, told[0])
    assert state.latency.base[1][0] == 2 * expected
    assert state.latency.run_time(1, 0, 1, 1, 3) == 2 * expected
    assert state.latency.cells(1, 0)[Configuration(2, 1, 3)] == 3 * expected // 2, "others stay as they were"
    assert state.latency.version == 1


def test_a_server_learns_that_tasks_take_less_than_was_guessed(bench: Bench) -> None:
    async def body(server: Server) -> None:
        for number in range(3 * RUNS):
            await server.submit("one", {"n": number})
        assert server.state.latency.version

    status = bench.run(body)
    assert (bench.tape.column("kind") == int(Kind.MEASURED)).sum() >= 1
    assert status["drift"], "against the profile, as before"


def test_a_worker_that_is_started_again_and_never_gets_ready_is_killed(bench: Bench) -> None:
    async def body(server: Server) -> None:
        pid = server.processes[0].pid
        server._restarted[0] = 0.0  # its time is over
        while server.processes[0].pid == pid or server.processes[0].hello is None or not server.state.workers[0].up:
            await asyncio.sleep(0.05)
        assert not server._restarted

    bench.run(body)
    assert any("worker 0 is not ready within 300 s: it is killed" in line for line in bench.log)


def test_headway_gives_up_what_refined_times_do_not_allow() -> None:
    drawn, dropped = world(slo=0), []
    for slow in (False, True):
        state, policy = drawn.state(), build("headway")
        policy.bind(state)
        allowed = 1000 * max(state.latency.fastest_path(graph) for graph in state.catalogue.graphs)
        request = drawn.requests[0]._replace(deadline=drawn.requests[0].arrival + allowed)
        measured = [
            TimeMeasured(worker.id, function, cell, 2 * allowed)
            for worker in state.workers
            for function in range(len(state.catalogue.functions))
            for cell in range(len(state.latency.cells(worker.id, function)))
        ]
        for event in (*(measured if slow else ()), RequestArrived(request)):
            state.apply(request.arrival, event)
        dropped.append(any(isinstance(action, DropRequest) for action in policy.decide(request.arrival, state)))
    assert dropped == [False, True]
