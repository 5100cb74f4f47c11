"""Where what jobs hold besides GPUs is divided: why a job waits, and what would make room for it."""

from copy import copy

import pytest
from hypothesis import given, settings, strategies as st

from headway.jobs.audit.replay import Walk
from headway.jobs.explain.explain import why_waiting
from headway.jobs.explain.room import by_moves, by_preemption
from headway.jobs.model.causes import CauseKind
from headway.jobs.model.cluster import Cluster, Node
from headway.jobs.model.job import Job
from headway.jobs.model.sensitivity import Profile
from headway.jobs.policies.preemption.victims import fits
from headway.jobs.policies.registry import build
from headway.units import SECOND
from tests.conformance.divided import GIGABYTE, Divided, crowded, divided_specs, divided_worlds
from tests.drive import digest, drive
from tests.jobs.counterfactual import admits
from tests.jobs.explain.test_room import done, fewest

OWN = ["greedy", "proportional", "tune"]
"""Of each sort one: jobs wait for CPUs and memory too, hold the same all the time, are divided anew."""


def walked(spec: str, world: Divided) -> Walk:
    """A run of a policy, about to be walked again."""
    run = drive(build(spec), world)
    return Walk(world.cluster, world.jobs, run.tape, build(spec), asking=True, speed=world.speed(), costs=world.costs)


@pytest.mark.parametrize("allocation", OWN)
@settings(max_examples=25)
@given(data=st.data(), world=divided_worlds())
def test_taking_away_the_causes_admits_the_job(allocation: str, data: st.DataObject, world: Divided) -> None:
    walk = walked(data.draw(divided_specs(allocation, world.cluster)), world)
    for step in walk:
        walk.act()
        before = digest(walk.state)
        for _, job in list(walk.state.queue.in_order()):
            causes = why_waiting(step.time, walk.state, walk.policy, walk.state.jobs[job])
            assert digest(walk.state) == before
            assert admits(step.time, walk.state, walk.policy, job, causes), (step.time, job, causes)


def test_a_job_that_fits_before_its_own_reservation_waits_for_that() -> None:
    """The job ahead started elsewhere than was planned, all goes as expected: nobody looks for an earlier start."""
    hosts = ((4, 40, 80_000_000), (1, 10, 20_000_001), (1, 10, 20_000_000))
    cluster = Cluster(tuple(Node(f"n{i}", g, "A100", None, m * GIGABYTE, s) for i, (g, m, s) in enumerate(hosts)))
    slow = Profile("slow", (500,), (8 * GIGABYTE,), ((200_000,),))
    jobs = [Job(i, 0, 17 * SECOND, model="slow") for i in (0, 1)] + [Job(2, 0, 17 * SECOND)]
    jobs += [Job(i, 0, SECOND, gpu_milli=100) for i in (3, 4, 5)]
    jobs += [Job(i, 58 * SECOND, SECOND, gpus=2, nodes=2) for i in (6, 7, 8)]
    walk = walked("fifo+conservative+best-fit+tune", Divided(cluster, tuple(jobs), profiles={"slow": slow}))
    found = {}
    for step in walk:
        walk.act()
        for _, job in list(walk.state.queue.in_order()):
            causes = why_waiting(step.time, walk.state, walk.policy, walk.state.jobs[job])
            assert admits(step.time, walk.state, walk.policy, job, causes), (step.time, job, causes)
            found[step.time // SECOND, job] = causes
    (cause,) = found[85, 7]
    assert cause.identity == (CauseKind.ROUND, "reservation")
    assert cause.facts == {"next": 86 * SECOND}, "and that is when it starts"
    assert (86, 7) not in found


@pytest.mark.parametrize(
    ("seed", "spec"),
    [
        (167, "las(quantum=10s)+conservative+fgd+no-preempt+tune+round(300s)"),
        (1075, "qssf+conservative(interval=5s)+best-fit+proportional+round(300s)"),
    ],
)
def test_between_rounds_promises_that_are_due_come_first(seed: int, spec: str) -> None:
    """The first of the queue waits for more than the round: what was promised to one behind it is kept before."""
    walk = walked(spec, crowded(seed))
    behind = 0
    for step in walk:
        walk.act()
        queue = [job for _, job in walk.state.queue.in_order()]
        for place, job in enumerate(queue):
            causes = why_waiting(step.time, walk.state, walk.policy, walk.state.jobs[job])
            assert admits(step.time, walk.state, walk.policy, job, causes), (step.time, job, causes)
            holders = {other for cause in causes if cause.kind is CauseKind.RESERVATION for other in cause.jobs}
            assert job not in holders
            behind += not holders.isdisjoint(queue[place:])
    assert behind, "nobody behind was promised anything: the test shows nothing"


@pytest.mark.parametrize("allocation", OWN)
@settings(max_examples=25)
@given(data=st.data(), world=divided_worlds())
def test_what_makes_room_can_be_done(allocation: str, data: st.DataObject, world: Divided) -> None:
    walk = walked(data.draw(divided_specs(allocation, world.cluster)), world)
    for _ in walk:
        walk.act()
        state, rule = walk.state, copy(walk.policy.placement)
        before = digest(state)
        for _, job in list(state.queue.in_order()):
            js = state.jobs[job]
            if fits(state, js, rule) is not None:
                continue
            preempted, moved = by_preemption(state, js, rule), by_moves(state, js, rule)
            for opening in (*preempted, *moved):
                assert opening.steps
                assert job in done(state, opening).running
            assert bool(preempted) == (fewest(state, js, rule) is not None)
        assert digest(state) == before
