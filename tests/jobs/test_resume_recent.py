"""A run is taken up by asking its policy for the last while only, where that is all that it remembers."""

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from headway.core.tape import Tape
from headway.jobs.model.cluster import uniform
from headway.jobs.model.job import Job, workload
from headway.jobs.policies.registry import ORDERS, PLACEMENTS, build
from headway.jobs.sim.recent import asked_from
from headway.jobs.state.state import TrainingState
from headway.units import SECOND
from tests.drive import World, drive, first_difference, joined
from tests.jobs.policies.test_plans import site_cases
from tests.jobs.sim.test_resume import moment_of, times_of
from tests.strategies import limited, worlds

some = settings(max_examples=25, suppress_health_check=list(HealthCheck))


def since(spec: str, world: World, tape: Tape) -> int:
    policy = build(spec)
    state = TrainingState(world.cluster, to_come=len(world.jobs), arrangement=policy, speed=world.speed())
    policy.bind(state)
    return asked_from(tape, world.jobs, policy, state)


def check_continued(spec: str, world: World, data: st.DataObject) -> None:
    """What is continued is what was recorded; most often from a time at which the policy was just asked anew."""
    tape = drive(build(spec), world).tape
    at = data.draw(times_of(tape))
    if (first := since(spec, world, tape.until(at))) >= 0 and data.draw(st.booleans()):
        at = first
    again = joined(tape.until(at), moment_of(build(spec), world, tape, at).go_on())
    assert first_difference(tape, again) is None
    assert again.digest == tape.digest


@given(case=site_cases(), data=st.data())
@settings(max_examples=100, suppress_health_check=list(HealthCheck))
def test_a_site_goes_on_as_it_did(case: tuple[str, World], data: st.DataObject) -> None:
    check_continued(*case, data)


@pytest.mark.parametrize("order", sorted(ORDERS))
@given(data=st.data(), world=st.one_of(worlds(estimated=True), limited()))
@some
def test_every_order_goes_on_as_it_did(order: str, data: st.DataObject, world: World) -> None:
    interval, placement = data.draw(st.sampled_from([0, 1, 5])), data.draw(st.sampled_from(sorted(PLACEMENTS)))
    check_continued(f"{order}+conservative(interval={interval}s)+{placement}+no-preempt", world, data)


JOBS = workload([Job(0, second * SECOND, 10 * SECOND, 4, estimate=30 * SECOND) for second in range(0, 80, 8)])


def test_the_last_job_that_ended_before_its_time_is_where_it_is_asked_again() -> None:
    world = World(uniform(1, 4), JOBS)
    tape = drive(build("fifo+conservative(interval=0s)"), world).tape
    assert since("fifo+conservative(interval=0s)", world, tape.until(55 * SECOND)) == 50 * SECOND
    assert since("fifo+conservative(interval=3s)", world, tape.until(55 * SECOND)) == 40 * SECOND  # 48 is near
    assert since("fifo+conservative(interval=1h)", world, tape) == -1
    assert since("srtf+conservative(interval=0s)", world, tape) == -1  # what was preempted may be remembered
    assert since("fifo+easy", world, tape) == -1
    assert since("fifo+conservative(interval=0s)+fgd", world, tape) == -1
