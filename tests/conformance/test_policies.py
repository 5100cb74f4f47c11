"""Every registered part, in many combinations, keeps every promise of ``checks.py`` on whatever hypothesis finds.

The tests are parametrised over the registry's tables: a new part is covered by being registered.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from headway.jobs.model.cluster import Cluster, Node, Partition, Tenant
from headway.jobs.model.job import Job
from headway.jobs.model.rows import Kind
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.policies.registry import BACKFILLS, MIGRATIONS, ORDERS, PLACEMENTS, build
from headway.units import SECOND
from tests.conformance.checks import check_all, check_blind, check_keys, check_limited
from tests.conformance.test_broken import SMALL
from tests.drive import World
from tests.strategies import limited, specs, worlds

few = settings(
    max_examples=5,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)


@pytest.mark.parametrize("backfill", sorted(BACKFILLS))
@pytest.mark.parametrize("order", sorted(ORDERS))
@given(data=st.data(), world=worlds())
@few
def test_every_order_keeps_its_promises_with_every_backfill(
    order: str, backfill: str, data: st.DataObject, world: World
) -> None:
    spec = data.draw(specs(order=order, backfill=backfill, cluster=world.cluster))
    check_all(lambda: build(spec), world)


@pytest.mark.parametrize("placement", sorted(PLACEMENTS))
@given(data=st.data(), world=worlds())
@few
def test_every_placement_keeps_its_promises(placement: str, data: st.DataObject, world: World) -> None:
    spec = data.draw(specs(placement=placement, cluster=world.cluster))
    check_all(lambda: build(spec), world)


@pytest.mark.parametrize("migration", sorted(MIGRATIONS))
@given(data=st.data(), world=worlds())
@settings(few, max_examples=12)
def test_every_migration_keeps_its_promises(migration: str, data: st.DataObject, world: World) -> None:
    spec = data.draw(specs(migration=migration, cluster=world.cluster))
    check_all(lambda: build(spec), world)


@given(spec=specs(), world=worlds(), round_length=st.sampled_from([7 * SECOND, 60 * SECOND]))
@settings(few, max_examples=12)
def test_rounds_keep_their_promises_and_decide_only_at_their_beat(spec: str, world: World, round_length: int) -> None:
    def make() -> ComposedPolicy:
        return build(spec, round_length=round_length)

    run = check_all(make, world)
    assert all(row.time % round_length == 0 for row in run.tape if 20 <= row.kind < 23)


@given(spec=specs(), world=worlds(), quantum=st.sampled_from([SECOND, 7 * SECOND, 60 * SECOND]))
@settings(few, max_examples=12)
def test_a_quantum_keeps_its_promises(spec: str, world: World, quantum: int) -> None:
    check_all(lambda: build(spec, quantum=quantum), world)


@given(spec=specs(), world=worlds(quotas=True))
@settings(few, max_examples=12)
def test_quotas_keep_their_promises(spec: str, world: World) -> None:
    check_all(lambda: build(spec), world)


@pytest.mark.parametrize("backfill", sorted(BACKFILLS))
@pytest.mark.parametrize("order", sorted(ORDERS))
@given(data=st.data(), world=limited())
@few
def test_no_policy_exceeds_a_limit_and_none_lets_a_job_wait_that_may_start(
    order: str, backfill: str, data: st.DataObject, world: World
) -> None:
    spec = data.draw(specs(order=order, backfill=backfill, cluster=world.cluster))
    check_limited(lambda: build(spec), world)


def test_what_a_decision_turns_into_borrowed_gpus_is_taken_back_by_the_next() -> None:
    """Job 2 stops job 4 of its own tenant, which is within its guarantee, where job 6 of another one waits."""
    own: dict[str, Any] = {"tenant": "a", "checkpoint_every": 0}
    jobs = (
        Job(0, 0, SECOND, gpu_milli=100, gpu_types=("A100",), **own),
        Job(1, 0, SECOND, 2, **own),
        Job(2, 0, SECOND, 7, **own),
        Job(3, 0, SECOND, gpu_milli=100, **own),
        Job(4, 0, 4 * SECOND, 2, partition="left", nodes=1, **own),
        Job(5, 3 * SECOND, 9 * SECOND, gpu_milli=100, **own),
        Job(6, 3 * SECOND, SECOND, gpu_milli=100, tenant="b", gpu_types=("V100",)),
    )
    cluster = Cluster(
        (Node("n0", 2, "V100"), Node("n1", 3, "A100"), Node("n2", 3, "A100")),
        partitions=(Partition("left", (0,)), Partition("all", (0, 1, 2))),
        tenants=(Tenant("a", guaranteed_gpus=2, borrow=True), Tenant("b", guaranteed_gpus=1)),
        gpu_speed_ppm={"V100": 400_000},
    )
    run = check_all(lambda: build("tetris+fit+best-fit"), World(cluster, jobs))
    assert [(row.time // SECOND, row.subject) for row in run.rows(Kind.PREEMPT)] == [(3, 4), (4, 2)]
    assert (4 * SECOND, 6) in [(row.time, row.subject) for row in run.rows(Kind.START)]
    assert (3 * SECOND, 4 * SECOND) in [(row.time, row.value) for row in run.rows(Kind.WAKE_AT)]


@pytest.mark.parametrize("order", sorted(ORDERS))
@given(data=st.data(), world=worlds(plain=True, estimated=True, faults=False))
@few
def test_no_order_knows_how_long_a_job_really_takes(order: str, data: st.DataObject, world: World) -> None:
    spec = data.draw(specs(order=order, cluster=world.cluster))
    check_blind(lambda: build(spec), world)


@pytest.mark.parametrize("preemption", ["preempt", "no-preempt"])
@pytest.mark.parametrize("order", sorted(ORDERS))
def test_no_order_has_a_key_that_moves_with_time_without_saying_so(order: str, preemption: str) -> None:
    check_keys(lambda: build(f"{order}+{preemption}"), SMALL)
