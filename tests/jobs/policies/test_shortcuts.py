"""What a site's own policy does not look at again: the tape is that of looking at everything every time."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from headway.jobs.model.cluster import Qos, uniform
from headway.jobs.model.events import JobArrived
from headway.jobs.model.job import Job, Outcome, workload
from headway.jobs.model.rows import Kind
from headway.jobs.model.submission import Terms
from headway.jobs.policies.backfills.none import NoBackfill
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.policies.orders.multifactor import Multifactor
from headway.jobs.policies.placements.first_fit import FirstFit
from headway.jobs.policies.preemption.declared import SitePreemption
from headway.jobs.policies.preemption.most_possible import Spare
from headway.jobs.rules.preemption.preemption import Mode, Preemption
from headway.jobs.state.jobstate import JobState
from headway.units import SECOND, Duration
from tests.drive import World, drive, fresh_state
from tests.jobs.policies.test_plans import site_cases

QOS = (
    Qos("low", 1),
    Qos("middle", 5, preempts=("low",), grace=3 * SECOND),
    Qos("high", 9, preempts=("low", "middle"), exempt=4 * SECOND),
)


class Thorough(Spare):
    """Takes nobody for too large: all are tried."""

    def may_hold(self, js: JobState) -> bool:
        return True


class Forgetful(SitePreemption):
    """The oracle: forgets who was found unable to preempt."""

    def _next(self, *seen: Any) -> Any:
        self._tried = ()
        return super()._next(*seen)


def _all_move(_: Multifactor, now: int, waiting: Sequence[JobState]) -> Sequence[JobState]:
    return waiting


def digest(case: tuple[str, World], oracle: Mapping[str, object] | None = None) -> str:
    """What a run's tape is known by, with parts of the package replaced by those of an oracle."""
    with pytest.MonkeyPatch.context() as patch:
        for name, part in (oracle or {}).items():
            patch.setattr(name, part)
        return drive(*case).tape.digest


@st.composite
def preempting_cases(draw: st.DrawFn) -> tuple[str, World]:
    """A site whose QOSs preempt each other, some with notice, some exempt for a while."""
    spec, world = draw(site_cases())
    mode, again = draw(st.sampled_from([Mode.REQUEUE, Mode.CANCEL])), draw(st.sampled_from([0, 2, 9]))
    by = draw(st.sampled_from(["qos", "partition"]))
    partitions = tuple(replace(each, tier=draw(st.integers(1, 3))) for each in world.cluster.partitions)
    rules = Preemption(by, mode, again_after=again * SECOND)
    cluster = replace(world.cluster, qos=QOS, preemption=rules, partitions=partitions)
    names = st.sampled_from([each.name for each in QOS])
    jobs = [replace(job, qos=draw(names), outcome=Outcome.FINISHES, outcome_after=0) for job in world.jobs]
    return spec, World(cluster, workload(jobs))


@given(case=preempting_cases())
@settings(max_examples=150)
def test_who_cannot_preempt_is_not_tried_again_and_the_tape_is_the_same(case: tuple[str, World]) -> None:
    oracle = {
        "headway.jobs.policies.preemption.declared.Spare": Thorough,
        "headway.jobs.policies.compose.SitePreemption": Forgetful,
    }
    assert digest(case) == digest(case, oracle)


@given(case=preempting_cases())
@settings(max_examples=100)
def test_keys_that_stand_are_those_that_would_be_computed(case: tuple[str, World]) -> None:
    oracle = {"headway.jobs.policies.orders.multifactor.Multifactor.moved": _all_move}
    assert digest(case) == digest(case, oracle)


def test_a_job_that_comes_after_a_later_one_may_preempt_too() -> None:
    """Job 0 may not start before a time at which job 1 has long come."""
    late = Job(0, 0, 30 * SECOND, 2, qos="high", terms=Terms(begin=20 * SECOND))
    jobs = workload([late, Job(1, SECOND, 90 * SECOND, 2, qos="low")])
    world = World(replace(uniform(1, 2), qos=QOS, preemption=Preemption(again_after=0)), jobs)
    rows = drive("fifo", world).tape.of(Kind.REQUEUE)
    assert [(row[0], row[2]) for row in rows.tolist()] == [(20 * SECOND, 1)]


class Patient(Multifactor):
    """Its own keys: who has waited longest comes last."""

    name = "patient"

    def key(self, now: int, js: JobState) -> int:
        return now - js.job.submit


def test_an_order_with_keys_of_its_own_gets_all_of_them_anew() -> None:
    order = Patient(period=Duration(10 * SECOND))
    policy = ComposedPolicy("patient", order, NoBackfill(), FirstFit())
    state = fresh_state(policy, World(uniform(1, 1), workload([Job(0, 0, SECOND), Job(1, 0, SECOND)])))
    for job in (Job(0, 0, SECOND), Job(1, 0, SECOND)):
        state.apply(0, JobArrived(job))
    for time in (60, 120, 180):
        state.rekey(time * SECOND)
        assert {js.key for js in state.jobs.values()} == {time * SECOND}
