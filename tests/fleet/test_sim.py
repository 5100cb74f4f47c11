"""The executor in virtual time: queues whose waits are known in closed form, noise, instants, and the end of a run.

Draws are seeded; the tolerance is four standard errors by the method of batch means. On each tape Little's law holds
as an identity of integers.
"""

from collections.abc import Iterator

import numpy as np
import pytest

from headway.errors import StalledRunError
from headway.fleet.model.actions import Action, DropRequest, FetchModel, RunBatch, WakeAt
from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Model, Profile
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind
from headway.fleet.policies.parts import ServingPolicy
from headway.fleet.state.state import ServingState
from headway.streams import stream
from headway.units import MILLISECOND, SECOND
from tests.conformance.serving import check_audited, check_little
from tests.fleet.worlds import MB, Run, World, chain, drive, function, workers
from tests.oracle.test_queues import agree

SPREAD = 0.5


def queue(times_ms: list[float], load: float, count: int, spread: float = 0.0) -> tuple[Run, list[float], list[float]]:
    """One worker, Poisson arrivals, each of a function drawn at random; the run, the waits and the services."""
    functions = tuple(
        Function(f"f{i}", (), Profile({"": {Configuration(1, 1, 1): round(ms * MILLISECOND)}}, spread))
        for i, ms in enumerate(times_ms)
    )
    catalogue = Catalogue((), functions, tuple(chain(f"g{i}", i) for i in range(len(functions))))
    draw = stream(1, "oracle")
    mean_ms = float(np.mean(times_ms)) * float(np.exp(spread**2 / 2))
    arrivals = np.cumsum(draw.exponential(mean_ms / load, count)) * MILLISECOND
    graphs = draw.integers(0, len(functions), count)
    requests = tuple(Request(i, int(graphs[i]), round(arrivals[i]), 0) for i in range(count))
    run = drive("hash", World(catalogue, workers(1), requests), bounded=False)
    begun = {row.subject: row.time for row in run.rows(Kind.RUN)}
    ended = {row.subject: row.time for row in run.rows(Kind.DONE)}
    waits = [(begun[r.id] - r.arrival) / SECOND for r in requests]
    return run, waits, [(ended[r.id] - begun[r.id]) / SECOND for r in requests]


def pollaczek(load: float, mean_s: float, second_moment: float) -> float:
    """Mean wait of an M/G/1."""
    return load * second_moment / mean_s / (2 * (1 - load))


def test_constant_service_waits_like_an_md1() -> None:
    load = 0.6
    run, waits, services = queue([1000], load, 6_000)
    assert set(services) == {1.0}
    agree(waits, load / (2 * (1 - load)))
    check_little(run)


def test_a_worker_that_slept_serves_like_an_md1_with_a_setup() -> None:
    """Welch's formula: who finds the worker idle for longer than a time pays a setup, and those behind wait for it."""
    load, least, setup, count = 0.5, SECOND, 500 * MILLISECOND, 12_000
    slow = Profile({"": {Configuration(1, 1, 1): SECOND}}, after_idle={"": ((least, setup),)})
    catalogue = Catalogue((), (Function("f", (), slow),), (chain("g", 0),))
    arrivals = np.cumsum(stream(1, "oracle").exponential(1 / load, count)) * SECOND
    requests = tuple(Request(at, 0, round(when), 0) for at, when in enumerate(arrivals))
    run = drive("hash", World(catalogue, workers(1), requests), bounded=False)
    slept = float(np.exp(-load * least / SECOND))  # the part of busy periods that begin with a setup
    first, second = slept * setup / SECOND, slept * (setup / SECOND) ** 2
    expected = 1 + load / (2 * (1 - load)) + (2 * first + load * second) / (2 * (1 + load * first))
    agree([row.value / SECOND for row in run.rows(Kind.DONE)], expected)
    check_little(run)


def test_the_longer_a_worker_was_idle_the_more_a_batch_takes() -> None:
    steps = ((10 * MILLISECOND, 2 * MILLISECOND), (100 * MILLISECOND, 5 * MILLISECOND))
    slow = Profile({"": {Configuration(1, 1, 1): MILLISECOND}}, after_idle={"": steps})
    catalogue = Catalogue((), (Function("f", (), slow),), (chain("g", 0),))
    gaps_ms = (0, 9, 10, 99, 100, 500)
    requests, now = [], 0
    for at, gap in enumerate(gaps_ms):
        now += gap * MILLISECOND
        requests.append(Request(at, 0, now, 0))
        now += (1 + (5 if gap >= 100 else 2 if gap >= 10 else 0)) * MILLISECOND
    run = drive("hash", World(catalogue, workers(1), tuple(requests)))
    assert [row.value // MILLISECOND for row in run.rows(Kind.DONE)] == [1, 1, 3, 3, 6, 6]


def test_exponential_service_waits_like_an_mm1() -> None:
    load = 0.5
    quantiles = (np.arange(400) + 0.5) / 400
    times_ms = np.maximum(0.1, -1000 * np.log1p(-quantiles))
    mean_s, second = float(times_ms.mean() / 1e3), float((times_ms**2).mean() / 1e6)
    run, waits, _ = queue(times_ms.tolist(), load, 12_000)
    expected = pollaczek(load, mean_s, second)
    assert expected == pytest.approx(load / (1 - load), rel=0.02)
    agree(waits, expected)
    check_little(run)


def test_service_with_a_spread_is_log_normal_and_waits_like_an_mg1() -> None:
    load = 0.5
    _, waits, services = queue([1000], load, 6_000, SPREAD)
    logs = np.log(services)
    assert abs(logs.mean()) < 4 * SPREAD / 100
    assert logs.std() == pytest.approx(SPREAD, rel=0.03)
    mean_s, second = float(np.exp(SPREAD**2 / 2)), float(np.exp(2 * SPREAD**2))
    agree(waits, pollaczek(load, mean_s, second))


def test_noise_depends_on_the_seed_and_on_nothing_else() -> None:
    catalogue = Catalogue(
        (), (Function("f", (), Profile({"": {Configuration(1, 1, 1): SECOND}}, 0.3)),), (chain("g", 0),)
    )
    world = World(catalogue, workers(2), tuple(Request(i, 0, i, i % 2) for i in range(6)), seed=1)

    def services(world: World, policy: str) -> dict[int, int]:
        run = drive(policy, world)
        begun = {row.subject: row.time for row in run.rows(Kind.RUN)}
        return {row.subject: row.time - begun[row.subject] for row in run.rows(Kind.DONE)}

    one = services(world, "hash")
    assert one == services(world, "hash(salt=5)")
    other = World(world.catalogue, world.fleet, world.requests, seed=2)
    assert one != services(other, "hash")


class Ahead(ServingPolicy):
    """Fetches what weighs nothing, asks to be woken in the past, and then runs what is there."""

    name = "ahead"
    central = True

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        if state.landed:
            yield FetchModel(0, 0)
            yield WakeAt(now - 5)
            yield WakeAt(now)
            yield WakeAt(now + 2 * SECOND)
        elif 0 in state.requests and not state.workers[0].running and not state.workers[0].fetches:
            yield RunBatch(0, ((0, 0),))


def test_nothing_happens_in_the_instant_in_which_it_was_decided() -> None:
    catalogue = Catalogue(
        (Model("m", 0),), (Function("f", (0,), Profile({"": {Configuration(1, 1, 1): 0}})),), (chain("g", 0),)
    )
    run = drive(Ahead(), World(catalogue, workers(1), (Request(0, 0, 7, 0),)))
    assert [(row.time, Kind(row.kind).name) for row in run.tape if row.kind < Kind.PLACE or row.kind == Kind.DONE] == [
        (7, "ARRIVED"),
        (8, "FETCHED"),
        (8, "WOKE"),
        (9, "FINISHED"),
        (9, "DONE"),
    ]
    check_audited(run)


class GivesUp(ServingPolicy):
    """Runs the first request and drops all, in the middle of it."""

    name = "gives-up"
    central = True

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        if state.landed == [0]:
            yield RunBatch(0, ((0, 0),))
        elif state.landed:
            for request in list(state.requests):
                yield DropRequest(request)


def test_a_run_ends_when_nobody_waits_for_what_still_runs() -> None:
    world = World(
        Catalogue((Model("m", MB),), (function("f", 500, 0),), (chain("g", 0),)),
        workers(1),
        (Request(0, 0, 0, 0), Request(1, 0, 1000, 0)),
    )
    run = drive(GivesUp(), world)
    assert run.tape.column("time")[-1] == 1000
    assert [row.kind for row in run.tape][-2:] == [Kind.DROP, Kind.DROP]
    assert len(run.state.workers[0].running) == 1
    check_audited(run)


class Idle(ServingPolicy):
    """Does nothing."""

    name = "idle"

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        return iter(())


def test_a_run_that_cannot_go_on_says_so() -> None:
    world = World(Catalogue((), (function("f", 5),), (chain("g", 0),)), workers(1), (Request(0, 0, 0, 0),))
    with pytest.raises(StalledRunError, match="idle: work is left"):
        drive(Idle(), world)
