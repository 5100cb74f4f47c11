"""A draft shows what would be and leaves nothing behind, even when it is left by an exception."""

import pytest

from headway.jobs.model.actions import StartJob
from headway.jobs.model.cluster import Tenant, uniform
from headway.jobs.model.events import JobArrived
from headway.jobs.model.job import Job, workload
from headway.jobs.policies.registry import build
from headway.jobs.state.state import TrainingState
from headway.units import SECOND
from tests.drive import World, digest, fresh_state


def full() -> TrainingState:
    """Job 0 holds the only node, job 1 waits; both are of a tenant with a quota of four."""
    jobs = workload(
        [Job(0, 0, SECOND, 4, tenant="a", cpu_milli=4000), Job(0, 0, SECOND, 3, tenant="a", cpu_milli=2000)]
    )
    state = fresh_state(build("srtf"), World(uniform(1, 4, cpus_per_node=4, tenants=(Tenant("a", 1, 4),)), jobs))
    for job in jobs:
        state.apply(0, JobArrived(job))
    state.commit(0, StartJob(0, ((0, 15),)))
    return state


def test_what_is_released_in_a_draft_is_free_in_it_and_its_quota_too() -> None:
    state = full()
    before = digest(state)
    assert state.check(StartJob(1, ((0, 7),))) is not None
    with state.draft() as draft:
        draft.release(state.running[0])
        assert state.check(StartJob(1, ((0, 7),))) is None
        draft.start(state.jobs[1], ((0, 7),))
        assert (state.pool.free_mask, state.pool.cpu_free) == ([8], [2000])
        assert state.accounts["a"].held == 3000
        draft.release(state.jobs[1], ((0, 7),))
        draft.start(state.jobs[1], ((0, 14),))
        assert state.pool.free_mask == [1]
    assert digest(state) == before
    assert state.check(StartJob(1, ((0, 7),))) is not None


def test_an_exception_takes_everything_back_and_goes_on() -> None:
    state = full()
    before = digest(state)

    def fail() -> None:
        with state.draft() as draft:
            draft.release(state.running[0])
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert digest(state) == before


def test_undo_in_between_starts_over() -> None:
    state = full()
    before = digest(state)
    with state.draft() as draft:
        for _ in range(3):
            draft.release(state.running[0])
            draft.undo()
            assert digest(state) == before
