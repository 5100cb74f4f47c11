"""Every registered allocation keeps every promise of ``checks.py``, and, where it says so, nobody below their due.

Parametrised over the registry: a new allocation is covered by being registered.
"""

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headway.training.policies.registry import ALLOCATIONS, build
from headway.training.proportion import below_due
from tests.conformance.checks import Make, check_all, promise
from tests.conformance.divided import Divided, divided_specs, divided_worlds
from tests.drive import Run

OWN = sorted(name for name, part in ALLOCATIONS.items() if part.__module__.startswith("headway."))
few = settings(
    max_examples=30,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)


def check_divided(make: Make, world: Divided) -> Run:
    """Every promise of a policy, and of its allocation."""
    run = check_all(make, world)
    allocation = run.policy.allocation
    assert allocation is not None
    if allocation.guarantees:
        found = below_due(world.cluster, world.jobs, run.tape, world.speed())
        promise("nobody below their due", not found, found[:3])
    return run


@pytest.mark.parametrize("allocation", OWN)
@given(data=st.data(), world=divided_worlds())
@few
def test_every_allocation_keeps_its_promises(allocation: str, data: st.DataObject, world: Divided) -> None:
    spec = data.draw(divided_specs(allocation, world.cluster))
    check_divided(lambda: build(spec), world)
