"""Every registered serving policy keeps its promises in pipelines with a stage that generates."""

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from headway.errors import ExperimentError
from headway.fleet.model.request import Request
from headway.fleet.policies.registry import POLICIES, build
from tests.conformance.serving import check_all
from tests.fleet.generating import generating_worlds, generation, world_of

few = settings(max_examples=6, suppress_health_check=list(HealthCheck), deadline=None)
SLICED = "fast-gshare"
"""Places pods by their slices."""


@pytest.mark.parametrize("outages", [False, True])
@pytest.mark.parametrize("name", sorted(POLICIES))
@given(draw=st.data())
@few
def test_every_policy_serves_tasks_that_generate(name: str, outages: bool, draw: st.DataObject) -> None:
    world = draw.draw(generating_worlds(outages=outages, least_slices=int(name == SLICED)))
    check_all(lambda: build(name), world)


def test_a_policy_that_places_by_slices_refuses_a_function_without_any() -> None:
    world = world_of(generation(), (Request(0, 0, 0, 0, prompt_tokens=6, output_tokens=5),))
    with pytest.raises(ExperimentError, match=r"function answer: takes no slices, and fast-gshare places pods"):
        build(SLICED).bind(world.state())
