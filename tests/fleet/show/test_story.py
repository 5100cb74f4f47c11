"""Stories of requests: every nanosecond of a latency is accounted for, and each way to end reads as what it was."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from headway.core.tape import Tape
from headway.fleet.metrics.ledger import Ledger
from headway.fleet.model.actions import DropRequest, MoveTask, PlaceRequest, RunBatch
from headway.fleet.model.catalogue import Catalogue, Model
from headway.fleet.model.request import Request
from headway.fleet.policies.parts import ServingPolicy
from headway.fleet.show.history.history import TaskHistory
from headway.fleet.show.story import RequestStory, story
from headway.fleet.state.state import ServingState
from headway.units import MILLISECOND, SECOND
from tests.fleet.restless import Restless
from tests.fleet.worlds import Run, World, chain, drive, function, workers, worlds

MB = 10**6


def passages_of(run: Run) -> TaskHistory:
    return TaskHistory(run.world.catalogue, run.world.fleet, run.world.requests, run.tape)


def told(run: Run, number: int, tape: Tape | None = None) -> RequestStory:
    return story(run.world.catalogue, run.world.fleet, run.world.requests, tape or run.tape, number)


def lines(run: Run, number: int, tape: Tape | None = None) -> str:
    return "\n".join(told(run, number, tape).lines())


@settings(max_examples=25)
@given(worlds(), st.integers(0, 3))
def test_stays_and_ends_are_those_of_the_ledger_and_latencies_add_up(world: World, seed: int) -> None:
    run = drive(Restless(seed), world)
    found, ledger = passages_of(run), Ledger(world.catalogue, world.fleet, world.requests, run.tape)
    batch_runs = list(found.batch_runs.values())
    assert [batch_run.begin for batch_run in batch_runs] == ledger.began.tolist()
    assert [batch_run.until(found.horizon) for batch_run in batch_runs] == ledger.batch_end.tolist()
    assert [batch_run.tasks for batch_run in batch_runs] == ledger.batch_size.tolist()
    assert [batch_run.end >= 0 for batch_run in batch_runs] == ledger.finished.tolist()
    assert [batch_run.start for batch_run in batch_runs if batch_run.end >= 0] == ledger.computed_from[
        ledger.finished
    ].tolist()
    assert {request for request, hit in enumerate(ledger.answered.tolist()) if hit} == set(found.answered)
    assert {request for request, hit in enumerate(ledger.dropped.tolist()) if hit} == set(found.dropped)
    for attempt in found:
        for _, since, until in attempt.queues:
            assert since <= until  # nobody stands in a queue when all is over
        if attempt.batch_run is not None:
            assert 0 <= attempt.ready <= attempt.batch_run.begin
    for request in world.requests:
        spent, answered = found.spent(request.id), found.answered.get(request.id)
        assert min(spent.values()) >= 0
        assert sum(spent.values()) == (0 if answered is None else answered[0] - request.arrival)
        assert spent["lost"] == 0 or world.outages


@settings(max_examples=12)
@given(worlds(), st.integers(0, 3), st.floats(0, 1))
def test_every_request_has_a_story_wherever_the_tape_is_cut(world: World, seed: int, share: float) -> None:
    run = drive(Restless(seed), world)
    cut = run.tape.until(round(share * int(run.tape.column("time")[-1])))
    for request in world.requests:
        found = told(run, request.id, cut)
        text = list(found.lines())
        assert text[0].startswith(f"request {request.id}: ")
        assert [step.time for step in found.steps] == sorted(step.time for step in found.steps)
        ends = ("answered after", "given up after", "not answered: the run ended", "not arrived: the run ended")
        assert sum(line.startswith(end) for line in text for end in ends) == 1
        if found.answered >= 0:
            assert sum(found.record()["spent_s"].values()) == pytest.approx(
                found.record()["answered_s"] - found.record()["arrival_s"]
            )


# --- by hand ------------------------------------------------------------------------------------------------------


class First(ServingPolicy):
    """Everything on the first worker that is up, one at a time; gives up what is late."""

    name = "first"
    central = True

    def decide(self, now: int, state: ServingState) -> Any:
        """The oldest request of that worker first."""
        up = next((worker for worker in state.workers if worker.up), None)
        if up is None:
            return
        for number in (*state.landed, *state.displaced):
            yield PlaceRequest(number, (up.id,) * len(state.requests[number].stage))
        for number, rs in list(state.requests.items()):
            if rs.request.deadline and now >= rs.request.deadline and (number, 0) in up.queue:
                yield DropRequest(number)
        if up.queue and not up.running:
            task = min(up.queue)
            evict = tuple(m for m in up.memory.order if up.memory.evictable(m))
            missing = RunBatch(up.id, (task,))
            yield missing if state.check(missing) is None else RunBatch(up.id, (task,), evict=evict)


def world(*requests: Request, outages: tuple[tuple[int, int, int], ...] = ()) -> World:
    models = (Model("big", 80 * MB), Model("other", 60 * MB))
    functions = (function("draw", 100, 0), function("tell", 50, 1))
    catalogue = Catalogue(models, functions, (chain("show", 0, 1, bytes_between=3 * MB),))
    return World(catalogue, workers(2), requests, outages)


def test_a_story_says_what_was_waited_for_loaded_and_put_out() -> None:
    run = drive(First(), world(Request(0, 0, 0, 0, 0, 0), Request(1, 0, 10 * MILLISECOND, 1, 0, 0)))
    first, second = lines(run, 0), lines(run, 1)
    assert "came in at w0" in first
    assert "placed: t0 and t1 on w0" in first
    assert "t0 is taken up by w0: alone, 1 CPU, the whole GPU" in first
    assert "t0 has the weights of big (80 MB) after 7.7 ms" in first
    assert "room where big was" in first
    assert first.splitlines()[-1].startswith("the chain of tasks that decided it: 150.0 ms computing")
    assert "t0 is queued at w0, its inputs " in second
    assert " of waiting behind draw and tell: alone" in second
    record = told(run, 1).record()
    assert record["spent_s"]["wait"] > 0.1
    assert record["critical_path_s"] == pytest.approx(0.15)
    assert record["deadline_s"] is record["dropped_s"] is None
    assert [step["time_s"] for step in record["steps"]] == sorted(step["time_s"] for step in record["steps"])


def test_a_worker_that_fails_is_named_with_what_it_cost() -> None:
    asked = (Request(0, 0, 0, 0, 0, 0), Request(1, 0, 1 * MILLISECOND, 0, 0, 0))
    run = drive(First(), world(*asked, outages=((0, 120 * MILLISECOND, SECOND),)))
    text = lines(run, 0)
    assert "w0 fails: t1 is lost after " in text
    assert "and must run again" in text
    assert "w0 fails: the result of t0 is lost, and t0 must run again" in text
    assert "ms lost with workers" in text.splitlines()[-1]
    assert "w0 fails: t0 must go elsewhere" in lines(run, 1)
    spent = told(run, 0).spent
    assert spent["lost"] == 120 * MILLISECOND
    assert spent["run"] == 150 * MILLISECOND


def test_requests_in_time_late_and_given_up_say_by_how_much() -> None:
    first = Request(0, 0, 0, 0, 400 * MILLISECOND, 0)
    late = Request(1, 0, MILLISECOND, 0, 200 * MILLISECOND, 0)
    dropped = Request(2, 0, 2 * MILLISECOND, 0, 100 * MILLISECOND, 0)
    run = drive(First(), world(first, late, dropped))
    assert "to be answered within 400.0 ms" in lines(run, 0)
    assert "before its deadline" in lines(run, 0).splitlines()[-2]
    assert "ms late" in lines(run, 1).splitlines()[-2]
    text = lines(run, 2)
    assert "given up, with 0 of 2 tasks done" in text
    assert text.splitlines()[-1].startswith("given up after ")
    assert text.splitlines()[-1].endswith(" ms late")
    assert told(run, 2).record()["dropped_s"] is not None
    assert set(told(run, 2).spent.values()) == {0}


def test_a_request_without_an_answer_says_where_its_tasks_are() -> None:
    run = drive(First(), world(Request(0, 0, 0, 0, 0, 0), Request(1, 0, SECOND, 0, 0, 0)))
    cut = run.tape.until(20 * MILLISECOND)
    assert lines(run, 0, cut).splitlines()[-3:] == [
        "not answered: the run ended 7.7 ms after it came in",
        "  t0 runs on w0",
        "  t1 waits for t0",
    ]
    assert lines(run, 1, cut).splitlines() == [
        "request 1: show, due at 1.000 s",
        "not arrived: the run ended at 0.008 s",
    ]


class Twice(ServingPolicy):
    """Places on the first worker, sends what is queued there to the second, and runs it there."""

    name = "twice"
    central = True

    def decide(self, now: int, state: ServingState) -> Any:
        for number in (*state.landed, *state.displaced):
            yield PlaceRequest(number, (0,) * len(state.requests[number].stage))
        here, there = state.workers
        for request, task in list(here.queue):
            yield MoveTask(request, task, 1)
        if there.queue and not there.running:
            yield RunBatch(
                1, (min(there.queue),), evict=tuple(m for m in there.memory.order if there.memory.evictable(m))
            )


def test_a_story_follows_the_tape_within_an_instant() -> None:
    run = drive(Twice(), world(Request(0, 0, 0, 0, 0, 0)))
    text = lines(run, 0)
    queued, moved, leaves = (
        text.index(part) for part in ("t0 is queued at w0", "t0 goes to w1 instead of w0", "t0 leaves the queue of w0")
    )
    assert queued < moved < leaves


@pytest.mark.parametrize(
    ("cold_ms", "deadline_ms", "why"),
    [
        (
            2000,
            1500,
            "it takes 2,150.0 ms more at least, for a process of draw is there in 2,000.0 ms, and its deadline",
        ),
        (0, 100, "it takes 150.0 ms more at least, and its deadline is in 100.0 ms"),
        (0, 1500, "the policy gave no reason"),
        (0, 0, "the policy gave no reason"),
    ],
)
def test_a_request_that_was_given_up_says_why(cold_ms: int, deadline_ms: int, why: str) -> None:
    class GivesUp(ServingPolicy):
        name = "gives-up"

        def decide(self, now: int, state: ServingState) -> Any:
            for request in list(state.requests):
                yield DropRequest(request)

    made = world(Request(0, 0, 0, 0, deadline_ms * MILLISECOND, 0))
    draw, tell = made.catalogue.functions
    cold = replace(draw, cold_start=cold_ms * MILLISECOND)
    run = drive(GivesUp(), replace(made, catalogue=replace(made.catalogue, functions=(cold, tell))))
    assert f"given up, with 0 of 2 tasks done: {why}" in lines(run, 0)
