"""A warm start: what is where, by hand; the run begins with it, pays for it, and is audited and replayed exactly."""

from dataclasses import replace

import pytest

from headway.fleet.audit.audit import audit
from headway.fleet.metrics.cost import costs
from headway.fleet.metrics.ledger import Ledger
from headway.fleet.metrics.memory import memory_held
from headway.fleet.model.catalogue import Catalogue, Model
from headway.fleet.model.fleet import GIB, Fleet, Gpu, Worker
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind
from headway.fleet.policies.registry import POLICIES, build
from headway.fleet.state.state import CENTRAL
from headway.fleet.state.warm import Warm, placed
from headway.units import HOUR, MILLISECOND, SECOND
from tests.fleet.worlds import MB, World, chain, drive, function, replay

COLD = 2 * SECOND
CATALOGUE = Catalogue(
    (Model("m0", 40 * MB), Model("m1", 40 * MB), Model("shared", 10 * MB)),
    (
        function("a", 100, 0, 2, cold_start=COLD, instance_bytes=GIB, activation_bytes=5 * MB),
        function("b", 50, 1, 2, cold_start=COLD, instance_bytes=GIB),
        function("c", 20, 2),
        function("d", 10),
    ),
    (chain("ab", 0, 1), chain("bcd", 1, 2, 3)),
)


def fleet(count: int, memory_mb: int, cpus: int = 4) -> Fleet:
    return Fleet(tuple(Worker(f"w{i}", Gpu("T4", memory_mb * MB), cpus) for i in range(count)), warm=True)


def test_a_fleet_is_cold_unless_it_is_said_to_be_warm() -> None:
    assert placed(CATALOGUE, replace(fleet(2, 1000), warm=False)) == (Warm(), Warm())


def test_every_worker_has_all_that_fits() -> None:
    assert placed(CATALOGUE, fleet(2, 95)) == (Warm((0, 1), (0, 2, 1)),) * 2, "40 + 40 + 10 + 5 for one request of a"


def test_memory_and_cpus_bind_and_functions_take_turns() -> None:
    one_each = (Warm((0,), (0, 2)), Warm((1,), (1, 2)), Warm((0,), (0, 2)))
    assert placed(CATALOGUE, fleet(3, 94)) == one_each, "the weights of c are there with either"
    assert placed(CATALOGUE, fleet(3, 1000, cpus=1)) == one_each


def test_what_needs_no_process_takes_no_cpu_and_what_has_neither_is_left_out() -> None:
    few = Catalogue(CATALOGUE.models, CATALOGUE.functions[2:], (chain("cd", 0, 1),))
    assert placed(few, fleet(1, 100, cpus=1)) == (Warm((), (2,)),)


def test_the_state_begins_with_it_and_others_see_it() -> None:
    state = World(CATALOGUE, fleet(2, 95), (), push_interval=10 * MILLISECOND, preloaded=False).state()
    for worker in state.workers:
        assert worker.idle == {0: [0], 1: [0]}
        assert worker.memory.resident == 0b111
        assert worker.memory.free_bytes == 5 * MB
        assert list(worker.host) == [0, 2, 1]
        assert worker.pushes == 0
    assert [row.warm for row in state.rows(0, 0)] == [row.warm for row in state.rows(CENTRAL, 0)] == [0b11, 0b11]
    assert not state.leases


REQUESTS = tuple(Request(i, i % 2, 300 * i * MILLISECOND, i % 2, 300 * i * MILLISECOND + SECOND) for i in range(6))
WARM = World(CATALOGUE, fleet(2, 95), REQUESTS)


OWN_CLOCK = ("infless", "fast-gshare")
"""These take processes into use when their clock scales a stage, every ten seconds; until then requests wait."""


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("outages", [(), ((0, 350 * MILLISECOND, 200 * MILLISECOND),)])
def test_every_policy_runs_warm_and_is_audited_and_replayed(
    name: str, outages: tuple[tuple[int, int, int], ...]
) -> None:
    world = replace(WARM, outages=outages)
    run = drive(name, world)
    assert audit(CATALOGUE, world.fleet, REQUESTS, run.tape) == []
    again = replay(CATALOGUE, world.fleet, REQUESTS, run.tape, build(name), latency=world.latency())
    assert again.digest == run.tape.digest
    if not outages:
        assert not run.rows(Kind.COLD)
        assert not run.rows(Kind.LOAD)
        assert len(run.rows(Kind.DONE)) == 6
        if name not in OWN_CLOCK:
            assert all(row.value <= SECOND for row in run.rows(Kind.DONE)), "a process alone takes two to start"


def test_a_warm_tape_is_not_that_of_a_cold_fleet() -> None:
    run = drive("hash", WARM)
    found = {finding.rule for finding in audit(CATALOGUE, replace(WARM.fleet, warm=False), REQUESTS, run.tape)}
    assert {"instance", "load"} <= found
    cold = drive("hash", replace(WARM, fleet=replace(WARM.fleet, warm=False)))
    assert cold.rows(Kind.COLD)
    assert audit(CATALOGUE, WARM.fleet, REQUESTS, cold.tape), "and the other way round"


def test_idle_processes_are_paid_from_the_start_and_expire() -> None:
    """One request of d, which needs nothing, at 20 s: of four processes all expire after 10 s."""
    kept = replace(WARM.fleet, keep_alive=10 * SECOND)
    late = (Request(0, 0, 20 * SECOND, 0),)
    few = replace(CATALOGUE, graphs=(chain("d", 3),))
    run = drive("hash", World(few, kept, late))
    assert len(run.rows(Kind.EXPIRED)) == 4
    ledger = Ledger(few, kept, late, run.tape)
    assert costs(ledger).keepalive_usd == pytest.approx(4 * 10 * SECOND / HOUR * kept.prices.memory_gib_hour)
    assert memory_held(ledger).at(0) == 2 * 90 * MB
    assert audit(few, kept, late, run.tape) == []


def test_headway_keeps_the_processes_until_it_can_tell_that_they_are_not_needed() -> None:
    run = drive("headway", replace(WARM, central=True))
    assert not run.rows(Kind.DROP)
    first = [row for row in run.rows(Kind.STOP_INSTANCE) if row.time <= REQUESTS[0].arrival + COLD]
    assert first == []
