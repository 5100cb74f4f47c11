"""Breakdowns of latencies: exact to the nanosecond, without a gap, and what-would-have-been never promises more."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from headway.core.tape import Tape
from headway.fleet.ask.breakdown import CAUSES, CHANGES, Breakdown, Parts
from headway.fleet.ask.explanation import LateExplanation, RequestExplanation, tenths
from headway.fleet.model.actions import DropRequest, PlaceRequest, RunBatch
from headway.fleet.model.catalogue import Catalogue, Model
from headway.fleet.model.request import Request
from headway.fleet.policies.parts import ServingPolicy
from headway.fleet.policies.registry import build
from headway.fleet.show.history.history import TaskHistory
from headway.fleet.show.history.presence import FAILED
from headway.fleet.show.history.room import Room, overlapping
from headway.fleet.state.state import ServingState
from headway.units import MILLISECOND
from tests.fleet.generating import asked, generation, world_of
from tests.fleet.restless import Restless
from tests.fleet.worlds import Run, World, chain, drive, function, workers, worlds

MB = 10**6
MS = MILLISECOND


def broken_down(run: Run, tape: Tape | None = None) -> Breakdown:
    world = run.world
    return Breakdown(world.catalogue, world.fleet, world.requests, tape or run.tape, world.latency())


@settings(max_examples=40)
@given(worlds(), st.integers(0, 3), st.floats(0, 1))
def test_the_parts_add_up_without_a_gap_wherever_the_tape_is_cut(world: World, seed: int, share: float) -> None:
    run = drive(Restless(seed), world)
    cut = run.tape.until(round(share * int(run.tape.column("time")[-1])))
    for tape in (run.tape, cut):
        found = broken_down(run, tape)
        for number in found.history.arrived:
            parts = found.of(number)
            sums = parts.sums()
            assert list(sums) == list(CAUSES)
            assert min(sums.values()) >= 0
            assert sum(sums.values()) == parts.time
            now = parts.request.arrival
            for task in parts.chain:
                now += task.lost
                for piece in task.pieces:
                    assert (piece.since, piece.length >= 0) == (now, True)
                    now = piece.until
            assert now == parts.end
            _check_what_would_have_been(parts, sums)
            _check_runs(world, parts)


def _check_runs(world: World, parts: Parts) -> None:
    """Run times without a spread are those of the profile, to the nanosecond that rounding takes."""
    for task in parts.chain:
        run = task.attempt.batch_run
        if run is None or not 0 <= run.end <= parts.end or world.catalogue.functions[run.function].profile.spread:
            continue
        alone = world.latency().run_time(run.worker, run.function, run.tasks, run.cpus, run.slices)
        assert alone is not None
        assert task.sums()["run"] == pytest.approx(alone, abs=1)


def _check_what_would_have_been(parts: Parts, sums: dict[str, int]) -> None:
    if parts.outcome != "answered":
        return
    assert parts.needed == parts.time, "with nothing taken away the longest way through the graph is the latency"
    for cause, time in parts.without.items():
        assert parts.time - sums[cause] <= time <= parts.time
        assert cause not in parts.saviours or (parts.late and time <= parts.request.deadline - parts.request.arrival)


@settings(max_examples=25)
@given(worlds(), st.integers(0, 3), st.data())
def test_room_is_what_a_count_of_every_moment_says(world: World, seed: int, data: st.DataObject) -> None:
    run = drive(Restless(seed), world)
    history = TaskHistory(world.catalogue, world.fleet, world.requests, run.tape)
    room = Room(world.fleet, world.latency(), history)
    moments = sorted({0, history.horizon, *(t for each in history.batch_runs.values() for t in (each.begin, each.end))})
    since, until = sorted(data.draw(st.tuples(*[st.sampled_from([t for t in moments if t >= 0])] * 2)))
    worker = data.draw(st.integers(0, len(world.fleet.workers) - 1))
    kind = world.fleet.workers[worker]
    cpus, slices = data.draw(st.integers(1, kind.cpus)), data.draw(st.integers(1, kind.gpu.slices))
    stops = sorted(
        {since, until}
        | {t for each in history.batch_runs.values() for t in (each.begin, each.until(history.horizon))}
        | {t for _, _, *stretch in history.presence.of(FAILED) for t in stretch}
    )
    missing = 0
    for start, end in pairwise(stops):
        if not since <= start < until:
            continue
        here = [each for each in history.batch_runs.values() if each.worker == worker]
        here = [each for each in here if each.begin <= start < each.until(history.horizon)]
        down = any(which == worker and begin <= start < stop for which, _, begin, stop in history.presence.of(FAILED))
        free = kind.cpus - sum(each.cpus for each in here), kind.gpu.slices - sum(each.slices for each in here)
        missing += (end - start) * (down or free[0] < cpus or free[1] < slices)
    assert room.missing(worker, cpus, slices, since, until) == missing


# --- by hand ------------------------------------------------------------------------------------------------------


class OneAtATime(ServingPolicy):
    """Everything on the first worker, one task at a time, in order; drops what arrives with a deadline of 1 ns."""

    name = "one-at-a-time"
    central = True

    def decide(self, now: int, state: ServingState) -> Any:
        """Take the oldest."""
        worker = state.workers[0]
        for number in list(state.landed):
            if state.requests[number].request.deadline == state.requests[number].request.arrival + 1:
                yield DropRequest(number)
            else:
                yield PlaceRequest(number, (0,) * len(state.requests[number].stage))
        if worker.queue and not worker.running:
            yield RunBatch(0, (min(worker.queue),))


def small(*requests: Request, cold_ms: int = 0) -> World:
    models = (Model("big", 80 * MB),)
    functions = (function("draw", 100, 0, cold_start=cold_ms * MS), function("tell", 50, cold_start=cold_ms * MS))
    return World(Catalogue(models, functions, (chain("show", 0, 1),)), workers(1), requests)


def explained(run: Run, number: int) -> RequestExplanation:
    found = broken_down(run)
    return RequestExplanation(found, found.of(number))


def test_waiting_loading_and_running_are_told_apart_and_who_held_the_worker() -> None:
    run = drive(OneAtATime(), small(Request(0, 0, 0, 0, 500 * MS), Request(1, 0, 10 * MS, 0, 250 * MS)))
    first, second = (explained(run, number) for number in (0, 1))
    fetch = run.world.fleet.fetch_time(80 * MB)
    assert {cause: time for cause, time in first.parts.sums().items() if time} == {"weights": fetch, "run": 150 * MS}
    sums = second.parts.sums()
    assert sums["run"] == 150 * MS
    assert sums["queue"] == second.parts.time - 150 * MS
    assert (second.parts.late, second.parts.main, second.parts.saviours) == (True, "queue", ["queue"])
    told = "\n".join(line for line in second.lines() if isinstance(line, str))
    assert "draw waited" not in told
    assert "t0 waited" in told
    assert "which ran draw for" in told
    assert "a free worker would have saved it: 150.0 ms, all else the same" in told
    assert second.record()["parts_ns"] == sums
    assert not first.parts.late
    assert first.parts.saviours == []


def test_a_process_that_starts_while_weights_are_fetched_is_the_cause_that_ended_last() -> None:
    run = drive(OneAtATime(), small(Request(0, 0, 0, 0, 200 * MS), cold_ms=300))
    parts = explained(run, 0).parts
    fetch = run.world.fleet.fetch_time(80 * MB)
    assert parts.sums()["process"] == 600 * MS
    assert parts.sums()["weights"] == 0
    assert parts.without["process"] == 150 * MS + fetch, "the weights would have been waited for"
    assert parts.without["weights"] == parts.time
    assert parts.saviours == ["process"]


def test_a_drop_says_what_would_have_saved_it() -> None:
    run = drive(OneAtATime(), small(Request(0, 0, 0, 0, 1), Request(1, 0, 5 * MS, 0, 0)))
    parts = broken_down(run).of(0)
    assert (parts.outcome, parts.time, parts.late) == ("dropped", 0, True)
    assert parts.needed == 150 * MS
    assert (parts.saviours, parts.main) == ([], "run"), "it could never have been in time"
    assert not broken_down(run).of(1).late, "without a deadline nothing is late"


def test_the_table_of_causes_counts_each_late_request_once_and_its_shares_are_all() -> None:
    requests = [Request(number, 0, number * 10 * MS, 0, number * 10 * MS + 250 * MS) for number in range(8)]
    found = broken_down(drive(OneAtATime(), small(*requests)))
    late = [parts for number in range(8) if (parts := found.of(number)).late]
    assert len(late) == 7
    explanation = LateExplanation(8, late, 0, by_deadline=True)
    rows = explanation.rows()
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert sum(row["main_cause_of"] for row in rows) == len(late)
    assert {row["cause"]: row["saved_without"] for row in rows}["queue"] == 7
    assert "7 of 8 measured requests were late" in next(explanation.lines())
    assert [*LateExplanation(8, [], 0, by_deadline=True).lines()] == ["0 of 8 measured requests were late"]


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=9))
def test_shares_in_tenths_of_a_percent_add_up(shares: list[float]) -> None:
    shown = tenths(shares)
    if sum(shares) > 0:
        assert sum(shown) == 1000
        assert all(
            abs(tenth - 1000 * share / sum(shares)) <= 1 + 1e-6 for tenth, share in zip(shown, shares, strict=True)
        )


def test_every_change_is_one_of_a_cause() -> None:
    assert set(CAUSES) - set(CHANGES) == {"run"}


def test_what_held_a_worker_is_told_longest_first() -> None:
    run = drive(OneAtATime(), small(Request(0, 0, 0, 0), Request(1, 0, 0, 0)))
    history = TaskHistory(run.world.catalogue, run.world.fleet, run.world.requests, run.tape)
    held = overlapping(history, 0, 0, history.horizon)
    assert [which for which, _ in held] == [0, 1]
    assert sum(time for _, time in held) == history.horizon


@settings(max_examples=20)
@given(asked(60, graphs=2))
def test_waits_for_a_place_in_an_engine_are_named(requests: tuple[Request, ...]) -> None:
    run = drive(build("hash"), world_of(generation(batching="request", max_batch=1), requests))
    found = broken_down(run)
    waits = 0
    for request in requests:
        parts = found.of(request.id)
        sums = parts.sums()
        assert sum(sums.values()) == parts.time
        assert sums["weights"] == sums["process"] == 0, "all is warm"
        assert sums["neighbours"] == 0, "the engine has one request at a time"
        waits += sums["engine"]
    alone = [request.arrival for request in requests if not request.graph]
    together = len(set(alone)) < len(alone)
    assert not together or waits, "one request at a time: others stand in line"


def test_what_other_requests_in_an_engine_add_is_told_as_neighbours() -> None:
    requests = tuple(Request(i, 0, 0, 0, prompt_tokens=8, output_tokens=tokens) for i, tokens in enumerate((9, 20)))
    kind = generation()
    found = broken_down(drive(build("hash"), world_of(kind, requests)))
    for request in requests:
        sums = found.of(request.id).sums()
        assert sums["run"] == kind.alone(8, request.output_tokens)
        assert sums["neighbours"] > 0
