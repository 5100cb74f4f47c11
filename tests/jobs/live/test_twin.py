"""The live executor on a virtual clock writes the tape of the simulated one, policy by policy."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from headway.jobs.model.job import Outcome
from tests.drive import World, drive, first_difference
from tests.jobs.live.twin import Played
from tests.strategies import worlds

POLICIES = (
    *("fifo", "fifo+easy", "fifo+conservative", "sjf+fit", "srtf", "srtf+easy+fgd", "las", "tiresias+easy", "ftf"),
    *("drf", "multifactor+easy", "srtf+migrate-free", "las+quantum(60s)", "qssf"),
)


def alive(world: World) -> World:
    """The same world as far as programs play it: nobody gives up, nodes do not fail."""
    jobs = tuple(
        replace(job, patience=0, outcome=Outcome.FINISHES, outcome_after=0)
        if job.outcome is Outcome.CANCELLED
        else replace(job, patience=0)
        for job in world.jobs
    )
    return replace(world, jobs=jobs, faults=None)


@pytest.mark.parametrize("policy", POLICIES)
@given(world=worlds())
@settings(max_examples=12, deadline=None)
def test_the_live_cluster_on_a_virtual_clock_writes_the_simulators_tape(policy: str, world: World) -> None:
    world = alive(world)
    live = Played(policy, world)
    tape, simulated = live.run(), drive(policy, world).tape
    difference = first_difference(simulated, tape)
    assert difference is None, difference
    assert live.engine.twice == []
    assert len(set(live.engine.launched)) == len(live.engine.launched)
