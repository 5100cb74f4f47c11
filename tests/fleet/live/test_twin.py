"""The live executor on a virtual clock writes the tape of the simulated one, policy by policy."""

import pytest
from hypothesis import given, settings

from headway.core.replay import first_difference
from headway.fleet.audit.replay import about
from headway.fleet.model.rows import Kind
from tests.fleet.live.twin import Played, local
from tests.fleet.worlds import World, drive, worlds

POLICIES = ("hash", "jit", "heft", "compass", "headway", "esg", "exact", "stagewise", "plan-once", "infless")


@pytest.mark.parametrize("policy", POLICIES)
@given(world=worlds())
@settings(max_examples=15, deadline=None)
def test_the_live_fleet_on_a_virtual_clock_writes_the_simulators_tape(policy: str, world: World) -> None:
    world = local(world)
    live = Played(policy, world)
    tape, simulated = live.run(), drive(policy, world, exact=False).tape
    difference = first_difference(simulated, tape, Kind, about)
    assert difference is None, difference
    answered = {row[2] for row in tape.of(Kind.DONE).tolist()}
    assert {request for request, reason in live.ends.items() if not reason} == answered
    assert live.ends.keys() == {request.id for request in world.requests}
    assert not live.fleet.open
