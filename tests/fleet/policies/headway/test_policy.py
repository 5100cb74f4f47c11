"""The policy as a whole where every worker decides: nothing is lost, nothing peeks, deadlines, death and options."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from headway.errors import ExperimentError
from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Model, Profile
from headway.fleet.model.fleet import Fleet, Gpu, Worker
from headway.fleet.model.graph import Graph, Task
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind
from headway.fleet.policies.headway import Headway
from headway.fleet.policies.headway.worker.residency import MOST
from headway.fleet.policies.registry import build, describe
from headway.units import MILLISECOND, SECOND
from tests.conformance.serving import check_all
from tests.fleet.worlds import MB, Run, World, chain, drive, function, workers, worlds

SPECS = ["headway", "headway(evict=fifo,prefetch=0)", "headway(drop=off)"]
some = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@given(world=worlds(), spec=st.sampled_from(SPECS))
@some
def test_every_worker_by_itself_keeps_every_promise(world: World, spec: str) -> None:
    check_all(lambda: build(spec), replace(world, central=False))


CATALOGUE = Catalogue(
    (Model("a", 60 * MB), Model("b", 60 * MB)),
    (function("f", 50, 0), function("g", 80, 1), function("h", 20)),
    (
        chain("one", 0, 1, 2, bytes_between=3 * MB),
        Graph("fork", tuple(Task(f"t{i}", i % 3) for i in range(5)), ((0, 1), (0, 2), (1, 3), (2, 3), (3, 4))),
    ),
)


def world_of(count: int, requests: int, gap_ms: int = 10, *, slack_ms: int = 0, **options: object) -> World:
    made = tuple(
        Request(i, i % 2, i * gap_ms * MILLISECOND, i % count, slack_ms and (i * gap_ms + slack_ms) * MILLISECOND)
        for i in range(requests)
    )
    return replace(World(CATALOGUE, workers(count), made, central=False), **options)


def ends(run: Run) -> Counter[Kind]:
    return Counter({kind: len(run.rows(kind)) for kind in (Kind.DONE, Kind.DROP)})


def test_requests_survive_workers_that_die_one_after_the_other() -> None:
    outages = tuple((worker, (100 + 130 * worker) * MILLISECOND, 200 * MILLISECOND) for worker in range(3))
    run = drive("headway", world_of(3, 20, outages=outages))
    assert ends(run) == {Kind.DONE: 20, Kind.DROP: 0}
    assert run.rows(Kind.LOST), "nobody lost anything: the test shows nothing"


def test_requests_wait_for_the_only_worker_to_come_back() -> None:
    run = drive("headway", world_of(1, 6, outages=((0, 25 * MILLISECOND, SECOND),)))
    assert ends(run)[Kind.DONE] == 6
    assert max(row.time for row in run.rows(Kind.DONE)) > SECOND


def test_what_runs_elsewhere_stays_where_it_is_when_a_worker_dies() -> None:
    """Only what was lost is placed anew; the plan that the request carries holds for the rest."""
    run = drive("headway", world_of(3, 9, outages=((2, 60 * MILLISECOND, SECOND),)))
    lost = {(row.subject, row.detail) for row in run.rows(Kind.LOST)}
    died = 60 * MILLISECOND
    again = {(row.subject, row.detail) for row in run.rows(Kind.PLACE) if row.time == died}
    arrived = {row.subject for row in run.rows(Kind.ARRIVED) if row.time == died}
    assert lost
    assert {key for key in again if key[0] not in arrived} == lost


def test_what_cannot_be_answered_in_time_is_dropped_unless_told_otherwise() -> None:
    hopeless = world_of(2, 10, slack_ms=30)
    assert ends(drive("headway", hopeless)) == {Kind.DONE: 0, Kind.DROP: 10}
    assert ends(drive("headway(drop=off)", hopeless)) == {Kind.DONE: 10, Kind.DROP: 0}


def test_dropping_early_answers_more_in_time() -> None:
    crowded = world_of(2, 60, gap_ms=40, slack_ms=500)
    hits = {
        spec: sum(row.value <= 500 * MILLISECOND for row in drive(spec, crowded).rows(Kind.DONE))
        for spec in ("headway", "headway(drop=off)")
    }
    assert hits["headway"] > hits["headway(drop=off)"]


def test_waiting_tasks_of_a_function_run_together_where_the_profile_says_that_it_pays() -> None:
    times = {Configuration(1, 1, 1): 100 * MILLISECOND, Configuration(4, 1, 1): 120 * MILLISECOND}
    catalogue = Catalogue((), (Function("f", (), Profile({"": times})),), (chain("g", 0),))
    requests = tuple(Request(i, 0, i * MILLISECOND, 0) for i in range(5))
    run = drive("headway", World(catalogue, Fleet((Worker("w", Gpu("T4", MB)),)), requests, central=False))
    assert sorted(row.value for row in run.rows(Kind.FINISHED)) == [1, 4]


def cold_world(*, spread_out: bool) -> World:
    """Processes take ten times as long to start as a request may take; ``spread_out``: requests reach all workers."""
    functions = tuple(replace(kind, cold_start=2 * SECOND) for kind in CATALOGUE.functions)
    catalogue = replace(CATALOGUE, functions=functions)
    made = tuple(
        Request(i, i % 2, i * 60 * MILLISECOND, i % 4 if spread_out else 0, (i * 60 + 600) * MILLISECOND)
        for i in range(200)
    )
    return World(catalogue, workers(4, 300 * MB), made, push_interval=10 * MILLISECOND, central=False)


@pytest.mark.parametrize("spread_out", [True, False])
def test_processes_are_started_before_anything_is_given_up_and_most_requests_are_then_in_time(spread_out: bool) -> None:
    run = drive("headway", cold_world(spread_out=spread_out))
    began = [row.time for row in run.rows(Kind.START_INSTANCE)]
    dropped = run.rows(Kind.DROP)
    assert dropped
    assert began[0] <= dropped[0].time
    assert not run.rows(Kind.COLD), "a batch held a GPU while its process started"
    late = 3 * SECOND
    after = {request.id for request in run.world.requests if request.arrival > late}
    in_time = {row.subject for row in run.rows(Kind.DONE) if row.value <= 600 * MILLISECOND}
    assert len(after & in_time) > 0.9 * len(after)
    assert len({row.place for row in run.rows(Kind.START_INSTANCE)}) > 1


def test_processes_are_no_more_than_a_few_of_each_function_on_a_worker() -> None:
    run = drive("headway", cold_world(spread_out=True))
    most = Counter((row.place, row.detail) for row in run.rows(Kind.START_INSTANCE))
    assert max(most.values()) <= MOST


def test_options_are_checked_and_described() -> None:
    with pytest.raises(ExperimentError, match="evict=lru is neither lookahead nor fifo"):
        build("headway(evict=lru)")
    with pytest.raises(ExperimentError, match="prefetch=-1 is negative"):
        build("headway(prefetch=-1)")
    assert describe(build("headway(drop=off)")) == "headway(drop=off)"
    assert describe(build("headway", authors=True)) == "headway(evict=fifo,prefetch=0)"
    assert not Headway.central


def test_who_decides_is_the_setting() -> None:
    """Central control pulls tasks from the pool; otherwise they are placed."""
    world = world_of(2, 4, fleet=workers(2, 300 * MB))
    assert drive("headway", world).rows(Kind.PLACE)
    assert not drive("headway", replace(world, central=True)).rows(Kind.PLACE)
