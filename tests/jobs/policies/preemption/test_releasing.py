"""Counting GPUs before anything is tried leaves every decision as it was: searches for victims, and blocked lanes."""

from collections.abc import Iterable
from unittest.mock import patch

import pytest
from hypothesis import given

from headway.jobs.model.cluster import uniform
from headway.jobs.model.job import Job
from headway.jobs.policies import registry
from headway.jobs.policies.backfills.walk import Blocked
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.policies.parts import PlacementRule
from headway.jobs.policies.preemption import victims as preemption
from headway.jobs.policies.preemption.releasing import shortfall
from headway.jobs.policies.preemption.victims import Room, fits
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.state import TrainingState
from tests.drive import World, drive, fresh_state
from tests.strategies import specs, worlds


def _plain_room(state: TrainingState, js: JobState, rule: PlacementRule, victims: Iterable[JobState]) -> Room:
    """The rule as it is told: release one victim after the other in the pool, and look each time."""
    chosen = []
    with state.draft() as draft:
        for victim in victims:
            if any(js.eligible >> node & 1 for node, _ in victim.placement):
                draft.release(victim)
                chosen.append(victim)
                if (placement := fits(state, js, rule)) is not None:
                    return preemption._spare(draft, state, js, rule, chosen, placement)
    return Room([], None, 1)


@given(specs(), worlds())
def test_a_run_is_the_same_if_every_victim_is_tried_in_the_pool_and_every_release_wakes_every_lane(
    spec: str, world: World
) -> None:
    note = Blocked.note
    counted = drive(spec, world).tape
    with (
        patch("headway.jobs.policies.compose.make_room", _plain_room),
        patch.object(Blocked, "note", lambda self, lane, version, _: note(self, lane, version, 1)),
    ):
        plain = drive(spec, world).tape
    assert counted.digest == plain.digest


@pytest.mark.parametrize(("free", "gpus", "missing"), [((2, 3), 4, 1), ((0, 1), 4, 3), ((4, 4), 8, 1), ((0, 4), 8, 4)])
def test_a_shortfall_is_what_the_fullest_node_or_the_cluster_lacks(
    free: tuple[int, ...], gpus: int, missing: int
) -> None:
    world = World(uniform(len(free), 4), (Job(0, 0, 1, gpus=gpus),))
    policy = registry.build("srtf")
    assert isinstance(policy, ComposedPolicy)
    state = fresh_state(policy, world)
    state._arrived(0, world.jobs[0])
    js = state.jobs[0]
    for node, left in enumerate(free):
        if left < 4:
            state.pool.recount(node, (1 << (4 - left)) - 1, -1)
    assert shortfall(state.pool, js, policy.placement) == missing
