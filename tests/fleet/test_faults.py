"""Workers that die and return: nothing is lost, nothing is answered twice, and what is computed again is known."""

from dataclasses import replace

import pytest

from headway.fleet.metrics.summary import summarise
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind
from headway.fleet.policies.registry import POLICIES, build
from headway.streams import small_stream
from headway.units import MILLISECOND, SECOND
from tests.conformance.serving import check_all
from tests.fleet.rich import CATALOGUE
from tests.fleet.worlds import World, drive, workers


def _dying(seed: int, count: int = 5) -> World:
    """Many requests, and every worker dies about every half a second, for a tenth of that."""
    draw = small_stream(seed, "faults")
    outages, requests, now = [], [], 0
    for worker in range(count):
        when = draw.randrange(300) * MILLISECOND
        while when < 2 * SECOND:
            outages.append((worker, when, 50 * MILLISECOND))
            when += draw.randrange(100, 900) * MILLISECOND
    for index in range(24):
        now += draw.randrange(120) * MILLISECOND
        requests.append(Request(index, draw.randrange(2), now, draw.randrange(count)))
    fleet = workers(count, memory_bytes=170 * 10**6, slices=7)
    return World(CATALOGUE, fleet, tuple(requests), tuple(outages), push_interval=10 * MILLISECOND)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_no_request_is_lost_or_answered_twice_while_workers_die(name: str) -> None:
    world = _dying(1)
    run = check_all(lambda: build(name), world)
    assert len(run.rows(Kind.DONE)) == len(world.requests)
    assert len(run.rows(Kind.WORKER_FAILED)) > 10
    found = summarise(world.catalogue, world.fleet, world.requests, run.tape, latency=world.latency(), warmup=0)
    assert found["lost_tasks"] > 0
    assert found["tasks"] + found["lost_tasks"] >= sum(len(CATALOGUE.graphs[r.graph].tasks) for r in world.requests)


def test_without_outages_nothing_is_computed_twice() -> None:
    world = replace(_dying(1), outages=())
    run = drive("hash", world)
    assert not run.rows(Kind.LOST)
    assert len(run.rows(Kind.TASK)) == sum(len(CATALOGUE.graphs[r.graph].tasks) for r in world.requests)


def test_all_workers_may_be_gone_for_a_while() -> None:
    world = replace(_dying(2, 2), outages=((0, 100 * MILLISECOND, SECOND), (1, 100 * MILLISECOND, 2 * SECOND)))
    run = check_all(lambda: build("hash"), world)
    gap = [row.time for row in run.rows(Kind.RUN) if 100 * MILLISECOND <= row.time < 1100 * MILLISECOND]
    assert not gap
    assert len(run.rows(Kind.DONE)) == len(world.requests)
