"""The policy where one place decides: configurations in time and cheap, batches, lateness, death and options."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from headway.core.tape import TapeRow
from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Model, Profile
from headway.fleet.model.fleet import MIG, Fleet, Gpu, Worker
from headway.fleet.model.graph import Graph, Task
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind, unpack
from headway.fleet.policies.headway.central.decide import RETRY
from headway.fleet.policies.headway.central.offers import hold_usd
from headway.fleet.policies.registry import build
from headway.units import MILLISECOND
from tests.conformance.serving import check_all
from tests.fleet.worlds import MB, Run, World, chain, drive, function, worlds

MS = MILLISECOND
some = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))


@given(world=worlds(), spec=st.sampled_from(["headway", "headway(drop=off)"]))
@some
def test_one_place_for_all_keeps_every_promise(world: World, spec: str) -> None:
    run = check_all(lambda: build(spec), replace(world, central=True))
    assert not run.rows(Kind.COLD), "a batch held a GPU while its process started"


# --- one request on an idle fleet ---------------------------------------------------------------------------------

CELLS = [(b, c, s) for b in (1, 2, 4, 8) for c in (1, 2, 4) for s in (1, 2, 4, 7)]


def law(name: str, ms: float, spread: float = 0.05, **options: int) -> Function:
    times = {
        Configuration(b, c, s): round(ms * MS * (0.25 + 0.75 * b**0.85) * (0.25 / c**0.6 + 0.75 / s**0.7))
        for b, c, s in CELLS
    }
    return Function(name, (), Profile({"": times}, spread), **options)


def fleet_of(count: int, geometry: str = "free") -> Fleet:
    return Fleet(tuple(Worker(f"w{i}", Gpu("A100", 1 << 34, 7, geometry), 16, host=i) for i in range(count)))


def alone(left: int, *functions: Function) -> Run:
    """One request for a chain of functions, with so much time."""
    catalogue = Catalogue((), functions, (chain("g", *range(len(functions))),))
    return play(World(catalogue, fleet_of(2), (Request(0, 0, 0, 0, left),), central=True))


def given_to(run: Run, row: TapeRow) -> tuple[int, float]:
    """How long the one task of a batch takes with what it was given, and what that costs."""
    cpus, slices, _ = unpack(row.value)
    graph = run.world.catalogue.graphs[0]
    batch = next(each for each in run.rows(Kind.TASK) if each.lease == row.lease)
    called = run.world.catalogue.functions[graph.tasks[batch.detail].function]
    time = called.profile.times[""][Configuration(1, cpus, slices)]
    return time, hold_usd(run.world.fleet.prices, cpus, slices) * time


@given(ms=st.integers(20, 300), share=st.floats(0.35, 4.0))
@some
def test_a_task_gets_the_cheapest_that_is_in_time(ms: int, share: float) -> None:
    called, left = law("f", ms, spread=0.0), round(ms * MS * share)
    prices = fleet_of(1).prices
    offers = [
        (time, hold_usd(prices, cell.cpus, cell.slices) * time)
        for cell, time in called.profile.times[""].items()
        if cell.batch == 1
    ]
    near = ms * MS / 50  # tables have points: what is nearly too late may count as that, and the reverse
    assume(all(abs(time - left) > near for time, _ in offers))
    run = alone(left, called)
    (row,) = run.rows(Kind.RUN)
    time, usd = given_to(run, row)
    assert time <= left
    assert usd == pytest.approx(min(usd for time, usd in offers if time <= left))


@given(ms=st.lists(st.integers(20, 300), min_size=1, max_size=3), share=st.floats(0.05, 3.0))
@some
def test_a_request_is_in_time_or_nothing_is_spent_on_it(ms: list[int], share: float) -> None:
    functions = [law(f"f{i}", each, spread=0.0) for i, each in enumerate(ms)]
    fastest, left = sum(min(each.profile.times[""].values()) for each in functions), round(sum(ms) * MS * share)
    assume(abs(left - fastest) > sum(ms) * MS / 20)
    run = alone(left, *functions)
    if fastest <= left:
        (done,) = run.rows(Kind.DONE)
        assert done.value <= left
    else:
        assert len(run.rows(Kind.DROP)) == 1
        assert not run.rows(Kind.RUN)


def test_a_chain_costs_less_the_more_time_it_has() -> None:
    costs = [cost_usd(alone(left * MS, law("f", 100, 0.0), law("g", 60, 0.0))) for left in (60, 80, 110, 200)]
    assert all(later <= earlier for earlier, later in pairwise(costs))
    assert costs[-1] < 0.9 * costs[0]


def test_the_wider_times_spread_the_more_room_is_left_before_the_deadline() -> None:
    runs = [alone(110 * MS, law("f", 100, spread)) for spread in (0.0, 0.15)]
    times = [given_to(run, run.rows(Kind.RUN)[0])[0] for run in runs]
    assert times[1] < times[0] <= 110 * MS


# --- a small fleet of slices --------------------------------------------------------------------------------------


def catalogue() -> Catalogue:
    options = {"cold_start": 200 * MS, "instance_bytes": 1 << 30}
    functions = (law("f", 40, **options), law("g", 120, **options), law("h", 80, **options))
    fork = Graph("fork", (Task("a", 0), Task("b", 1), Task("c", 2), Task("d", 0)), ((0, 1), (0, 2), (1, 3), (2, 3)))
    return Catalogue((), functions, (chain("two", 0, 1), chain("three", 2, 0, 1), fork))


LEAST_MS = (160, 240, 200)
"""By graph: its longest way with the least of everything."""
WARM = 250
"""From this request on there have been enough to know how many processes are needed."""


def world_of(count: int, gap_ms: float, slack: float = 1.2, workers: int = 4, **options: object) -> World:
    """Requests at a steady pace; the first ten, a second ahead of the others, have processes started."""
    made = []
    for index in range(count):
        arrival = round((index if index < 10 else 1000 + index * gap_ms) * MS)
        made.append(Request(index, index % 3, arrival, 0, arrival + round(slack * LEAST_MS[index % 3] * MS)))
    return replace(World(catalogue(), fleet_of(workers), tuple(made), central=True), **options)


def play(world: World, spec: str = "headway") -> Run:
    return drive(spec, world)


def in_time(run: Run, first: int = WARM) -> float:
    """The share of the requests from ``first`` on that were answered in time."""
    left = {request.id: request.deadline - request.arrival for request in run.world.requests}
    hits = sum(row.value <= left[row.subject] for row in run.rows(Kind.DONE) if row.subject >= first)
    return hits / (len(run.world.requests) - first)


def cost_usd(run: Run) -> float:
    """What batches held, by request answered."""
    prices, held, total = run.world.fleet.prices, {}, 0.0
    for row in run.tape:
        if row.kind == Kind.RUN:
            cpus, slices, _ = unpack(row.value)
            held[row.lease] = row.time, hold_usd(prices, cpus, slices)
        elif row.kind == Kind.FINISHED:
            began, usd = held.pop(row.lease)
            total += usd * (row.time - began)
    return total / len(run.rows(Kind.DONE))


def sizes(run: Run) -> Counter[int]:
    """How many batches there were of each size."""
    return Counter(Counter(row.lease for row in run.rows(Kind.TASK)).values())


@pytest.mark.parametrize("slack", [0.8, 1.2])
def test_deadlines_that_can_be_kept_are_kept_and_nobody_is_given_up(slack: float) -> None:
    run = play(world_of(400, 12, slack))
    assert in_time(run) >= 0.98
    assert not [row for row in run.rows(Kind.DROP) if row.subject >= WARM]


def test_the_more_time_there_is_the_less_it_costs() -> None:
    costs = [cost_usd(play(world_of(300, 12, slack))) for slack in (0.6, 1.2, 3.0)]
    assert all(later < earlier for earlier, later in pairwise(costs))


def test_batches_are_made_on_purpose_where_there_is_time() -> None:
    hurried, calm = sizes(play(world_of(300, 12, 0.6))), sizes(play(world_of(300, 12, 4.0)))
    assert sum(n * size for n, size in calm.items() if n >= 2) > 3 * calm[1]
    assert hurried[1] > 3 * sum(size for n, size in hurried.items() if n >= 4)


def test_requests_of_different_graphs_share_a_batch() -> None:
    run = play(world_of(300, 12, 3.0))
    graphs: dict[int, set[int]] = {}
    for row in run.rows(Kind.TASK):
        graphs.setdefault(row.lease, set()).add(run.world.requests[row.subject].graph)
    assert any(len(each) > 1 for each in graphs.values())


def test_a_request_alone_in_the_world_does_not_wait_for_company() -> None:
    run = play(world_of(12, 2000, 2.0))
    latencies = {row.subject: row.value for row in run.rows(Kind.DONE) if row.subject >= 10}
    assert all(latencies[request] < 2.0 * LEAST_MS[request % 3] * MS for request in (10, 11))


def test_of_more_than_the_fleet_can_carry_some_are_refused_and_about_as_many_are_in_time() -> None:
    crowded = world_of(400, 14, 2.0, workers=1)
    run, late = play(crowded), play(crowded, "headway(drop=off)")
    assert run.rows(Kind.DROP)
    assert in_time(run, 100) >= in_time(late, 100) - 0.05
    assert len(late.rows(Kind.DONE)) == len(crowded.requests), "nobody is lost without dropping"


def test_a_crowded_fleet_is_not_left_half_idle() -> None:
    """Prices that climb for as long as a fleet is busy turn requests away until it is half empty: 41 % were in time."""
    assert in_time(play(world_of(450, 15, 0.8, workers=2)), 150) >= 0.48


def test_who_is_given_up_is_given_up_when_next_looked_at() -> None:
    run = play(world_of(400, 14, 2.0, workers=1))
    for row in run.rows(Kind.DROP):
        assert row.time <= run.world.requests[row.subject].deadline + RETRY


def test_requests_without_a_deadline_are_answered_and_never_dropped() -> None:
    world = world_of(100, 12)
    run = play(replace(world, requests=tuple(request._replace(deadline=0) for request in world.requests)))
    assert len(run.rows(Kind.DONE)) == 100
    assert not run.rows(Kind.DROP)


def test_workers_that_die_and_return_cost_no_request() -> None:
    outages = tuple((worker, (1200 + 400 * worker) * MS, 300 * MS) for worker in range(4))
    run = play(world_of(300, 12, 1.5, outages=outages), "headway(drop=off)")
    assert run.rows(Kind.LOST), "nobody lost anything: the test shows nothing"
    assert Counter(row.subject for row in run.rows(Kind.DONE)) == Counter(range(300))


def test_a_fleet_that_was_gone_altogether_goes_on() -> None:
    outages = tuple((worker, 1500 * MS + worker, 2000 * MS) for worker in range(2))
    run = play(world_of(100, 12, 1.5, workers=2, outages=outages), "headway(drop=off)")
    assert len(run.rows(Kind.DONE)) == 100


def test_what_runs_beside_others_is_given_more_time() -> None:
    world = world_of(140, 60, 1.5, interference={(a, b): 1_300_000 for a in range(3) for b in range(3)})
    assert in_time(play(world), 70) >= 0.95


def test_slices_are_those_that_mig_has() -> None:
    run = play(world_of(400, 12, 1.2, fleet=fleet_of(4, MIG)))
    assert {unpack(row.value)[1] for row in run.rows(Kind.RUN)} <= {1, 2, 3, 4, 7}
    assert in_time(run) >= 0.9


def test_processes_are_started_only_for_what_is_called() -> None:
    world = world_of(60, 12)
    only = tuple(request._replace(graph=0) for request in world.requests)
    run = play(replace(world, requests=only))
    assert {row.detail for row in run.rows(Kind.START_INSTANCE)} == {0, 1}


# --- workers that differ ------------------------------------------------------------------------------------------


def test_who_is_in_a_hurry_gets_the_faster_gpu() -> None:
    called = Function(
        "f", (), Profile({"old": {Configuration(1, 1, 1): 60 * MS}, "new": {Configuration(1, 1, 1): 20 * MS}})
    )
    fleet = Fleet((Worker("old", Gpu("old", 1 << 30)), Worker("new", Gpu("new", 1 << 30))))
    arrivals = [index * 200 * MS for index in range(20)]
    made = tuple(Request(i, 0, at, 0, at + (30 if i % 2 else 150) * MS) for i, at in enumerate(arrivals))
    run = play(World(Catalogue((), (called,), (chain("g", 0),)), fleet, made, central=True))
    assert len(run.rows(Kind.DONE)) == 20
    where = {row.subject: row.place for row in run.rows(Kind.TASK)}
    assert all(where[index] == 1 for index in range(1, 20, 2))


def test_a_task_goes_where_its_weights_are() -> None:
    models = (Model("m", 500 * MB), Model("n", 500 * MB))
    called = (function("f", 30, 0), function("g", 30, 1))
    fleet = Fleet(tuple(Worker(f"w{i}", Gpu("T4", 700 * MB), host=i) for i in range(2)))
    made = tuple(Request(i, i % 2, i * 100 * MS, 0, i * 100 * MS + 400 * MS) for i in range(40))
    run = play(World(Catalogue(models, called, (chain("a", 0), chain("b", 1))), fleet, made, central=True))
    assert len(run.rows(Kind.DONE)) == 40
    assert len(run.rows(Kind.LOAD)) + len(run.rows(Kind.FETCH)) <= 4, "each model came once or so, not once a request"


def pair(*before: int) -> Run:
    """Two requests at once whose cheapest way is a batch on four of seven slices; and earlier ones that take four."""
    times = {Configuration(1, 1, 1): 50 * MS, Configuration(2, 1, 4): 20 * MS, Configuration(2, 1, 1): 80 * MS}
    functions = (
        Function("f", (), Profile({"": times}, 0.0)),
        Function("g", (), Profile({"": {Configuration(1, 1, 4): 200 * MS}}, 0.0)),
    )
    made = [Request(index, 1, at, 0, 1000 * MS) for index, at in enumerate(before)]
    made += [Request(len(before) + index, 0, 10 * MS, 0, 70 * MS) for index in range(2)]
    return play(World(Catalogue((), functions, (chain("a", 0), chain("b", 1))), fleet_of(1), tuple(made), central=True))


def test_a_batch_whose_best_offer_has_no_room_is_split_rather_than_made_to_miss() -> None:
    assert sizes(pair()) == {2: 1}, "together is not cheapest: the test shows nothing"
    run = pair(0)
    assert sizes(run) == {1: 3}
    assert all(row.value <= 60 * MS for row in run.rows(Kind.DONE) if row.subject > 0)
    assert len(run.rows(Kind.DONE)) == 3
