"""Where what jobs hold besides GPUs is divided: why a job waits, and what would make room for it."""

from copy import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.training.counterfactual import admits
from headway.training.explain import why_waiting
from headway.training.openings import by_moves, by_preemption, fits
from headway.training.policies.registry import build
from headway.training.replay import Walk
from tests.conformance.divided import Divided, divided_specs, divided_worlds
from tests.drive import digest, drive
from tests.training.test_openings import done, fewest

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
