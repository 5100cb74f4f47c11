"""A store between stages: what a write and a read take, what stays after a failure, and who reads nothing."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from headway.fleet.audit.audit import audit
from headway.fleet.model.catalogue import Catalogue
from headway.fleet.model.fleet import Store
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind
from headway.fleet.policies.central.locality import bytes_to_read
from headway.fleet.policies.registry import build
from headway.fleet.state.requeststate import RequestState
from headway.units import MILLISECOND, SECOND
from tests.conformance.serving import check_all
from tests.fleet.worlds import MB, Run, World, chain, drive, function, workers, worlds

MS = MILLISECOND
CATALOGUE = Catalogue((), (function("f", 100), function("g", 50)), (chain("two", 0, 1, bytes_between=10 * MB),))
STORE = Store(1000 * MB, 2 * MS)  # 12 ms a write, and a read


def world(store: Store | None = STORE, count: int = 2, **options: object) -> World:
    fleet = replace(workers(count), store=store)
    return World(CATALOGUE, fleet, (Request(0, 0, 0, 0, 0),), **options)  # type: ignore[arg-type]


def ends(run: Run) -> list[int]:
    return [row.time for row in run.rows(Kind.FINISHED)]


def test_a_result_is_written_and_read_unless_it_was_made_here() -> None:
    assert STORE.time(10 * MB) == 12 * MS
    fleet = world().fleet
    assert [fleet.copy_time(0, 1, 10 * MB), fleet.copy_time(0, 0, 10 * MB)] == [24 * MS, 0]
    assert fleet.copy_time(-1, 0, 10 * MB) == 12 * MS, "what a client sent is there already"
    assert ends(drive("esg", world())) == [100 * MS, 150 * MS], "esg prefers the worker of the predecessor"


@pytest.mark.parametrize(("policy", "first"), [("hash(salt=0)", 0), ("hash(salt=1)", 0), ("hash(salt=2)", 0)])
def test_other_workers_wait_for_the_write_and_the_read(policy: str, first: int) -> None:
    run = drive(policy, world())
    placed = {row.detail: row.place for row in run.rows(Kind.TASK)}
    begin = 0 if placed[0] == first else 24 * MS
    away = 0 if placed[0] == placed[1] else 24 * MS
    assert ends(run) == [begin + 100 * MS, begin + 150 * MS + away]


def test_a_result_in_the_store_survives_its_worker() -> None:
    """The second worker is asked 200 ms later: only the store can still have the first task's result."""
    down = ((0, 130 * MS, SECOND),)
    kept = drive("esg", world(outages=down))
    lost = drive("esg", world(None, outages=down))
    assert [row.detail for row in kept.rows(Kind.LOST)] == [1], "the task that ran there"
    assert sorted(row.detail for row in lost.rows(Kind.LOST)) == [0, 1], "and without a store its input"
    assert ends(kept)[-1] == 130 * MS + 12 * MS + 50 * MS, "read, and run again"
    assert not list(audit(CATALOGUE, kept.world.fleet, kept.world.requests, kept.tape))


def test_a_result_that_was_not_yet_written_is_lost() -> None:
    run = drive("esg", world(outages=((0, 105 * MS, SECOND),)))
    assert sorted(row.detail for row in run.rows(Kind.LOST)) == [0, 1]


def test_the_audit_finds_an_input_that_came_sooner_than_the_store_allows() -> None:
    run = drive("hash(salt=1)", world(None))
    slow = replace(run.world.fleet, store=Store(MB, 0))
    moved = {row.detail: row.place for row in run.rows(Kind.TASK)}
    assert moved[0] != 0 or moved[0] != moved[1], "something was sent"
    assert {finding.rule for finding in audit(CATALOGUE, slow, run.world.requests, run.tape)} >= {"input"}


@given(
    drawn=worlds(),
    store=st.builds(Store, st.sampled_from([MB, 100 * MB, 10_000 * MB]), st.sampled_from([0, MS, 40 * MS])),
    policy=st.sampled_from(["esg", "esg(locality=on)", "headway", "compass", "jit", "infless", "orion-dag", "hash"]),
    central=st.booleans(),
)
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
def test_every_policy_keeps_its_promises_with_a_store(drawn: World, store: Store, policy: str, central: bool) -> None:
    check_all(lambda: build(policy), replace(drawn, fleet=replace(drawn.fleet, store=store), central=central))


def test_bytes_to_read_counts_what_a_worker_does_not_hold() -> None:
    state = world(count=3).state(central=True)
    rs = state.requests[0] = RequestState(Request(0, 0, 0, 0, 0), CATALOGUE.graphs[0])
    rs.copies[0] = 0b010
    assert bytes_to_read(state, [(0, 1)]) == [10 * MB, 0, 10 * MB]
    assert bytes_to_read(state, [(0, 0)]) == [0, 0, 0], "the first task has no predecessor"


@pytest.mark.parametrize("policy", ["esg", "orion-dag", "aquatope"])
def test_with_locality_more_edges_stay_on_one_worker(policy: str) -> None:
    requests = tuple(Request(i, 0, i * 40 * MS, 0, 0) for i in range(30))
    crowded = World(CATALOGUE, replace(workers(5, slices=2), store=STORE), requests)
    kept = []
    for option in ("off", "on"):
        run = drive(f"{policy}(locality={option})", crowded)
        at = {(row.subject, row.detail): row.place for row in run.rows(Kind.TASK)}
        kept.append(sum(at[request, 0] == at[request, 1] for request in range(30)))
    assert kept[1] == 30
    assert kept[0] == 30 if policy == "esg" else kept[0] < 30, "esg goes where the predecessor ran anyway"
