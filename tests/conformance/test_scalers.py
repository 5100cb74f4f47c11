"""Every scaler beside every registered policy keeps the promises of ``serving.py``: nothing is lost, nothing runs off.

The audit, one of these promises, finds a batch on a worker that is off, starts that are too fast, and results that a
stopped worker took along.
"""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from headway.fleet.model.rows import Kind
from headway.fleet.policies.registry import POLICIES, build
from headway.fleet.policies.scalers.kinds import Kinds
from headway.fleet.policies.scalers.registry import SCALERS, build as build_scaler
from headway.fleet.policies.scalers.wrapper import Autoscaled
from headway.units import MILLISECOND
from tests.conformance.serving import Make, check_all
from tests.fleet.worlds import World, worlds

QUICK = {
    "utilisation": "utilisation(target=0.3,every=70ms,window=150ms)",
    "queue": "queue(tasks=1,every=50ms,window=90ms)",
    "headway": "headway(every=60ms,smooth=100ms,gain=0.5,day=700ms)",
}
few = settings(
    max_examples=3,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)


def scaled(world: World, startup: int) -> World:
    """The world with one worker on, or as many as its functions need."""
    on = Kinds(world.catalogue, world.fleet, world.latency(), 1, 0).first(1)
    off = tuple(index for index in range(len(world.fleet.workers)) if index not in on)
    return replace(world, fleet=replace(world.fleet, off=off, startup=startup))


def beside(policy: str, scaler: str) -> Make:
    """A policy with a scaler whose times fit a small world."""

    def make() -> Autoscaled:
        built = build_scaler(QUICK[scaler])
        assert built is not None
        return Autoscaled(build(policy), built)

    return make


def test_every_scaler_is_tried() -> None:
    assert set(QUICK) == set(SCALERS)


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("scaler", sorted(SCALERS))
@given(world=worlds(), startup=st.sampled_from([0, 30 * MILLISECOND, 400 * MILLISECOND]))
@few
def test_every_policy_keeps_its_promises_beside_every_scaler(
    policy: str, scaler: str, world: World, startup: int
) -> None:
    run = check_all(beside(policy, scaler), scaled(world, startup))
    starts = [row.place for row in run.rows(Kind.START_WORKER) if row.lease]
    stops = [row.place for row in run.rows(Kind.STOP_WORKER)]
    for worker in range(len(world.fleet.workers)):
        begins_on = worker not in run.world.fleet.off
        assert 0 <= begins_on + starts.count(worker) - stops.count(worker) <= 1
