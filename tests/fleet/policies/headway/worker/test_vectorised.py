"""Headway in large fleets: arrays decide what reckoning one by one decides, and rows are read once an interval."""

from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from headway.fleet.model.actions import Action
from headway.fleet.model.events import WorkerFailed, WorkerRecovered
from headway.fleet.model.fleet import Fleet, Gpu, Worker
from headway.fleet.policies.headway import Headway
from headway.fleet.policies.headway.worker import vectorised
from headway.fleet.policies.headway.worker.order import FleetTables
from headway.fleet.policies.headway.worker.vectorised import VectorisedScorer
from headway.fleet.policies.headway.worker.views import Views
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import Row
from headway.units import MILLISECOND
from tests.fleet.policies.headway.fleets import state_of
from tests.fleet.worlds import MB, Run, World, drive, worlds

some = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
SPECS = ["headway", "headway(drop=off)", "headway(evict=fifo,prefetch=0)"]


def played(world: World, spec: str, least: int) -> Run:
    """A run in which a fleet is large from so many workers on."""
    with patch.object(vectorised, "LEAST_WORKERS", least):
        return drive(spec, replace(world, central=False))


@given(world=worlds(), spec=st.sampled_from(SPECS))
@some
def test_arrays_decide_what_reckoning_one_by_one_decides(world: World, spec: str) -> None:
    few, large = played(world, spec, 1000), played(world, spec, 1)
    assert [*few.tape] == [*large.tape]


class Reading(Headway):
    """Reads all rows in every instant, as everybody, and compares them with what the workers have published."""

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        """See ``Headway``."""
        for viewer in range(len(state.workers)):
            stale = state.stale_reads
            assert [*state.rows(viewer, now)] == expected(state, viewer, now)
            if state.push_interval:
                others = [worker for worker in state.workers if worker.id != viewer]
                epoch = now // state.push_interval
                assert state.stale_reads - stale == sum(worker.epoch == epoch for worker in others)
        return super().decide(now, state)


def expected(state: ServingState, viewer: int, now: int) -> list[Row]:
    """The rows one by one."""
    if not state.push_interval:
        return [worker.row() for worker in state.workers]
    epoch = now // state.push_interval
    return [
        worker.published if worker.epoch == epoch and worker.id != viewer else worker.row() for worker in state.workers
    ]


@given(world=worlds())
@some
def test_rows_kept_for_an_interval_are_those_that_were_pushed(world: World) -> None:
    drive(Reading(), replace(world, central=False))


def test_copies_take_what_the_way_between_two_workers_takes() -> None:
    workers = tuple(Worker(f"w{i}", Gpu("T4", 130 * MB), host=i // 2, rack=i // 4) for i in range(10))
    state = state_of(1)
    links = replace(state.fleet.links, within_host=400 * MB, within_rack=200 * MB, between_racks=100 * MB)
    fleet = Fleet(workers, links)
    wide = ServingState(state.catalogue, fleet)
    tables = FleetTables(wide)
    arrays = VectorisedScorer(fleet, tables, Views(wide, tables, arrays=True), ahead=True)
    for source in range(-1, 10):
        assert arrays.copied(source, 3 * MB).tolist() == [fleet.copy_time(source, to, 3 * MB) for to in range(10)]


@pytest.mark.parametrize("interval", [0, 10 * MILLISECOND])
def test_a_worker_that_fails_is_seen_to_be_gone_at_once(interval: int) -> None:
    state = state_of(3, push_interval=interval)
    assert all(row.up for row in state.rows(0, 1000))
    state.apply(2000, WorkerFailed(2))
    assert [row.up for row in state.rows(0, 2000)] == [True, True, False]
    state.apply(3000, WorkerRecovered(2))
    assert all(row.up for row in state.rows(0, 3000))
