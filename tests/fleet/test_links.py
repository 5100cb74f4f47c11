"""Workers of one GPU share its link to host memory: what they fetch comes one after the other."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from headway.fleet.model.actions import FetchModel, RunBatch
from headway.fleet.model.catalogue import Catalogue, Model
from headway.fleet.model.events import RequestArrived, WorkerFailed
from headway.fleet.model.fleet import Fleet
from headway.fleet.model.request import Request
from headway.fleet.policies.registry import build
from headway.fleet.state.state import ServingState
from tests.conformance.serving import check_all
from tests.fleet.worlds import MB, World, chain, function, workers, worlds

CATALOGUE = Catalogue((Model("m", 50 * MB), Model("n", 20 * MB)), (function("f", 10, 0),), (chain("g", 0),))


def on_devices(fleet: Fleet, count: int, *, shared: bool = True) -> Fleet:
    """Return a fleet whose workers take devices in turn."""
    made = tuple(replace(worker, device=at % count) for at, worker in enumerate(fleet.workers))
    return replace(fleet, workers=made, links=replace(fleet.links, shared=shared))


@pytest.mark.parametrize(("shared", "devices", "waits"), [(True, 1, True), (False, 1, False), (True, 2, False)])
def test_a_load_waits_for_that_of_a_neighbour(shared: bool, devices: int, waits: bool) -> None:
    state = ServingState(CATALOGUE, on_devices(workers(2), devices, shared=shared))
    for number in range(2):
        state.apply(0, RequestArrived(Request(number, 0, 0, number)))
    for number in range(2):
        state.commit(0, RunBatch(number, ((number, 0),), 1, 1))
    first, second = (next(iter(worker.running.values())).start for worker in state.workers)
    assert first == state.fleet.fetch_time(50 * MB)
    assert second == (2 * first if waits else first)


def test_a_failed_worker_leaves_the_link_to_its_neighbours() -> None:
    state = ServingState(CATALOGUE, on_devices(workers(3), 1))
    state.commit(0, FetchModel(0, 0))
    held = state.workers[0].link_free
    state.apply(1, WorkerFailed(2))
    assert [worker.link_free for worker in state.workers] == [held] * 3
    state.commit(1, FetchModel(1, 1))
    assert state.workers[1].memory.ready[1] == held + state.fleet.fetch_time(20 * MB)


@pytest.mark.parametrize("policy", ["headway", "compass", "jit", "hash", "heft", "esg"])
@settings(max_examples=10, deadline=None)
@given(world=worlds())
def test_runs_over_a_shared_link_are_sound(policy: str, world: World) -> None:
    check_all(lambda: build(policy), replace(world, fleet=on_devices(world.fleet, 2)))
