"""The allocation drf: static full demands, the poorest tenant first; the policy's order only breaks ties."""

import pytest

from headway.jobs.model.actions import PreemptJob, StartJob
from headway.jobs.model.cluster import Tenant
from headway.units import MINUTE, SECOND
from tests.jobs.policies.allocations.stage import Stage, gang, nodes, wants

PROFILES = {"nine": wants(9), "six": wants(6), "three": wants(3), "one": wants(1, 10)}


def started(stage: Stage, *jobs: tuple[str, str, int]) -> list[int]:
    """In which order jobs of (tenant, model, seconds of work) start that arrive together."""
    actions = stage.come(*(gang(model, 1, tenant=who, work=work * SECOND) for who, model, work in jobs))
    return [action.job for action in actions if isinstance(action, StartJob)]


def test_the_tenant_with_the_smallest_dominant_share_comes_next_whatever_the_order_says() -> None:
    stage = Stage("fifo+fit+drf", PROFILES)
    # a holds half of the CPUs with one of four GPUs: b comes first until it holds as much of anything.
    assert started(stage, ("a", "six", 9), ("a", "one", 9), ("b", "one", 9), ("b", "one", 9)) == [0, 2, 3, 1]
    assert stage.cpus == {0: 6, 1: 1, 2: 1, 3: 1}
    assert stage.policy.name == "fifo+fit+drf"


def test_shares_are_weighted_and_of_what_was_given() -> None:
    cluster = nodes(1, tenants=(Tenant("a", 4), Tenant("b", 1)))
    stage = Stage("fifo+fit+drf", PROFILES, cluster)
    # a: 6 of 12 CPUs at weight 4 is less than b: 3 of 12 at weight 1.
    assert started(stage, ("a", "six", 9), ("b", "three", 9), ("b", "one", 9), ("a", "one", 9)) == [0, 1, 3, 2]


@pytest.mark.parametrize(("order", "expected"), [("fifo", [0, 1, 2]), ("sjf", [2, 1, 0])])
def test_within_a_tenant_and_between_equals_the_policy_s_order_decides(order: str, expected: list[int]) -> None:
    stage = Stage(f"{order}+fit+drf", PROFILES)
    assert started(stage, ("a", "one", 30), ("a", "one", 20), ("a", "one", 10)) == expected
    stage = Stage(f"{order}+fit+drf", PROFILES)
    assert started(stage, ("b", "one", 30), ("a", "one", 10))[0] == (0 if order == "fifo" else 1)


def test_demands_are_static_and_a_job_whose_demand_is_not_free_is_passed_over() -> None:
    stage = Stage("fifo+fit+drf", PROFILES)
    started(stage, ("a", "nine", 9), ("b", "six", 9), ("b", "three", 9))
    assert stage.cpus == {0: 9, 2: 3}


def test_a_poorer_tenant_s_job_takes_the_place_of_a_richer_one_s_after_a_quantum() -> None:
    stage = Stage("fifo+fit+drf", PROFILES)
    started(stage, *[("a", "three", 9999)] * 4)
    assert started(stage, ("b", "three", 9999)) == []
    stage.now += 11 * MINUTE
    actions = stage.decide()
    assert [type(action) for action in actions[:2]] == [PreemptJob, StartJob]


def test_the_order_drf_counts_a_waiting_job_with_its_full_demand_where_cpus_are_divided() -> None:
    """Under tune a holds 4 x 3 CPUs. Would b's job of 9 CPUs leave the two as equal as before? a would still have 9."""
    stage = Stage("drf+fit+tune+preempt", PROFILES)
    started(stage, *[("a", "three", 9999)] * 4)
    started(stage, ("b", "nine", 9999))
    stage.now += 11 * MINUTE
    assert [type(action) for action in stage.decide()[:2]] == [PreemptJob, StartJob]
    stage = Stage("drf+fit+tune+preempt", {**PROFILES, "ten": wants(10)})
    started(stage, *[("a", "three", 9999)] * 4)
    started(stage, ("b", "ten", 9999))
    stage.now += 11 * MINUTE
    assert not [action for action in stage.decide() if isinstance(action, PreemptJob)]
