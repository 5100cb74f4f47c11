"""Engines that many requests share: what each adds, and that headway spreads requests over workers."""

from itertools import pairwise

import pytest

from headway.fleet.model.fleet import Gpu, Worker
from headway.fleet.model.generation import BATCHINGS
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind
from headway.fleet.policies.headway.worker.crowding import Crowding, by_free_slices
from headway.fleet.state.workerstate import Batch, WorkerState
from headway.units import MILLISECOND
from tests.fleet.generating import KV, generation, world_of
from tests.fleet.worlds import MB, drive


@pytest.mark.parametrize("batching", BATCHINGS)
def test_the_more_share_an_engine_the_longer_each_takes(batching: str) -> None:
    kind = generation(200, batching=batching)
    times = [kind.among(members) for members in range(1, 30)]
    assert times[0] == kind.alone()
    assert all(before <= after for before, after in pairwise(times))
    assert times[-1] > 3 * times[0], "four rows at most: the others wait in line"


def test_slices_that_are_held_tell_how_many_share_an_engine() -> None:
    kind, worker = generation(), Worker("w", Gpu("T4", 60 * MB, 8), cpus=8)
    assert by_free_slices(kind, worker, 2) == [kind.among(members) for members in (5, 4, 4, 3, 3, 2, 2, 1, 1)]
    assert by_free_slices(kind, worker, 0) == [kind.alone()] * 9, "who holds none leaves no trace"


def test_members_and_the_line_of_an_engine_delay_one_more() -> None:
    kind = generation()
    catalogue = world_of(kind, ()).catalogue
    worker = WorkerState(0, Worker("w", Gpu("T4", 60 * MB, 8), cpus=8), catalogue)
    crowding = Crowding(catalogue)
    assert crowding.delay(worker, 0) == 0
    for lease in range(2):
        worker.running[lease] = Batch(lease, ((lease, 0),), 0, (0,), cache_bytes=KV, loaded=True)
    assert crowding.delay(worker, 0) == kind.among(3) - kind.alone()
    worker.line = 7
    assert crowding.delay(worker, 0) == kind.among(3) - kind.alone() + 7
    assert crowding.delay(worker, 1) == 0, "it does not generate"


@pytest.mark.parametrize("central", [False, True])
def test_requests_that_come_together_are_spread_over_the_engines(central: bool) -> None:
    """Eight requests, one every 2 ms, on four workers with eight places each: two on each, where packing fills one."""
    requests = tuple(
        Request(number, 0, number * 2 * MILLISECOND, 0, prompt_tokens=6, output_tokens=40) for number in range(8)
    )
    world = world_of(generation(cache_tokens=400), requests, workers=4, holds=(1, 1), central=central)
    ran = drive("headway", world)
    places = [row.place for row in ran.rows(Kind.RUN)]
    assert sorted(places) == [0, 0, 1, 1, 2, 2, 3, 3]
