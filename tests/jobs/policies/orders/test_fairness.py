"""ftf, drf, priority and multifactor: who is owed most comes first."""

import pytest
from hypothesis import given, settings, strategies as st

from headway.jobs.model.cluster import Partition, Tenant, uniform
from headway.jobs.model.events import JobArrived
from headway.jobs.model.job import Job
from headway.jobs.model.rows import Kind
from headway.jobs.policies.orders.ftf import Ftf
from headway.jobs.policies.orders.multifactor import Multifactor
from headway.jobs.policies.registry import build
from headway.jobs.state.state import TrainingState
from headway.units import MINUTE
from tests.jobs.policies.orders.drive import job, play


def test_ftf_is_the_right_way_round() -> None:
    # When job 0 ends, job 1 has waited for its own length (rho 2) and job 2 for ten times its own (rho 11).
    assert play([job(0, 100), job(0, 100), job(0, 10)], "ftf+no-preempt").first_starts == [0, 2, 1]


def test_ftf_preempts_when_a_lease_has_run_out_and_not_before() -> None:
    played = play([job(0, 300), job(1, 10)], "ftf(lease=20m)")
    assert played.spans == [(0, 0, 21), (1, 21, 31), (0, 31, 310)]


def test_ftf_does_not_swap_jobs_that_are_equally_badly_off() -> None:
    # Rho of the one that waits passes the other's by the margin only after 30 min (1.1 times 300), at the next round.
    played = play([job(0, 300), job(0, 300)], "ftf(lease=20m, margin=0.1)")
    assert played.spans[0] == (0, 0, 40)
    assert play([job(0, 300), job(0, 300)], "ftf(lease=20m, margin=5)").spans == [(0, 0, 300), (1, 300, 600)]


@given(
    age=st.integers(0, 1000),
    more=st.integers(1, 1000),
    work=st.integers(1, 1000),
    gpus=st.integers(1, 4),
)
def test_rho_grows_with_waiting_and_falls_with_the_share_a_job_asks_for(
    age: int, more: int, work: int, gpus: int
) -> None:
    policy = build("ftf")
    state = TrainingState(uniform(1, 4), to_come=2, arrangement=policy)
    policy.bind(state)
    order = policy.order
    assert isinstance(order, Ftf)
    state.apply(0, JobArrived(Job(0, 0, work * MINUTE, gpus)))
    state.apply(0, JobArrived(Job(1, 0, work * MINUTE, 1)))
    one, narrow = state.jobs[0], state.jobs[1]
    now = age * MINUTE
    assert order.rho_ppm(now, one) <= order.rho_ppm(now + more * MINUTE, one)
    assert order.rho_ppm(now, one) <= order.rho_ppm(now, narrow)
    # Alone with half the cluster, a job that asks for more than half takes longer in proportion.
    assert order.rho_ppm(now, one) == (age + work) * 1_000_000 * 4 // (work * max(4, 2 * gpus))


def tenants(**weights: int) -> tuple[Tenant, ...]:
    """Tenants without quotas."""
    return tuple(Tenant(name, weight) for name, weight in weights.items())


@pytest.mark.parametrize(("weight", "kept"), [(1, 2), (3, 3)])
def test_drf_brings_shares_to_the_weights_and_no_further(weight: int, kept: int) -> None:
    cluster = uniform(1, 4, tenants=tenants(a=weight, b=1))
    jobs = [*(job(0, 200, tenant="a") for _ in range(6)), *(job(20, 200, tenant="b") for _ in range(6))]
    played = play(jobs, "drf+preempt", cluster)
    running = played.running_at(20)
    assert sum(which < 6 for which in running) == kept
    assert len(running) == 4
    assert all(played.running_at(minute) == running for minute in (40, 100, 150))
    assert [which for which, *_ in played.preempted] == list(range(kept, 4)), "the latest submissions give way"


def test_drf_takes_from_the_tenant_with_most() -> None:
    jobs = [
        *(job(0, 99, tenant="a") for _ in range(5)),
        *(job(0, 99, tenant="b") for _ in range(3)),
        job(30, 9, tenant="c"),
    ]
    assert [which for which, *_ in play(jobs, "drf+preempt", 8).preempted] == [4]


def test_drf_leaves_alone_whom_the_loss_would_leave_worse_off() -> None:
    # Tenant a holds all 4 GPUs with one job: without it it would hold nothing.
    played = play([job(0, 100, gpus=4, tenant="a"), job(20, 10, tenant="b")], "drf+preempt", 4)
    assert played.spans == [(0, 0, 100), (1, 100, 110)]


def test_drf_looks_at_the_dominant_resource() -> None:
    cluster = uniform(1, 4, cpus_per_node=10)
    jobs = [
        job(0, 100, tenant="a", cpu_milli=8000),
        job(0, 100, gpus=2, tenant="b"),
        job(0, 10, tenant="c"),
        job(1, 50, tenant="a"),
        job(2, 50, tenant="b"),
    ]
    # At 10 min a holds one GPU and 8 of 10 CPUs, b two GPUs of 4: 0.8 against 0.5. CPUs not counted: 0.25 against 0.5.
    assert play(jobs, "drf+no-preempt", cluster).first_starts == [0, 1, 2, 4, 3]
    assert play(jobs, "drf+no-preempt", 4).first_starts == [0, 1, 2, 3, 4]


@settings(max_examples=30)
@given(
    jobs=st.lists(
        st.builds(job, st.integers(0, 60), st.integers(30, 90), st.integers(1, 3), tenant=st.sampled_from("abc")),
        min_size=2,
        max_size=14,
    )
)
def test_after_a_swap_the_tenant_that_gave_way_holds_no_less_than_the_one_that_gained(jobs: list[Job]) -> None:
    played = play(jobs, "drf+preempt", 4)
    held = dict.fromkeys("abc", 0)
    gave_way: set[str] = set()
    for _, kind, subject, *_ in played.rows:
        if kind == Kind.PREEMPT:
            gave_way.add(played.jobs[subject].tenant)
        if kind in (Kind.PREEMPT, Kind.FINISHED):
            held[played.jobs[subject].tenant] -= played.jobs[subject].gpus
        elif kind == Kind.START:
            gainer = played.jobs[subject].tenant
            held[gainer] += played.jobs[subject].gpus
            assert all(held[tenant] >= held[gainer] and tenant != gainer for tenant in gave_way)
            gave_way.clear()


def test_priority_goes_by_priority_then_submission_and_does_not_preempt() -> None:
    jobs = [job(0, 50), job(1, 10), job(2, 10, priority=5), job(3, 10, priority=5)]
    played = play(jobs, "priority")
    assert played.first_starts == [0, 2, 3, 1]
    assert not played.preempted


def test_priority_preempts_strictly_lower_priorities_when_asked() -> None:
    jobs = [job(0, 50, priority=1), job(10, 5, priority=1), job(20, 10, priority=2)]
    played = play(jobs, "priority+preempt")
    assert played.spans == [(0, 0, 20), (2, 20, 30), (0, 30, 60), (1, 60, 65)]


def test_multifactor_serves_the_tenant_that_used_less() -> None:
    jobs = [job(0, 60, tenant="a"), job(10, 10, tenant="a"), job(20, 10, tenant="b")]
    assert play(jobs, "multifactor").first_starts == [0, 2, 1]
    assert play(jobs, "multifactor(fairshare_weight=0)").first_starts == [0, 1, 2]


def test_multifactor_forgets_usage_with_its_half_life() -> None:
    jobs = [job(0, 60, tenant="a"), job(1, 60, tenant="b"), job(110, 5, tenant="b"), job(111, 5, tenant="a")]
    assert play(jobs, "multifactor(half_life=30m)").first_starts == [0, 1, 3, 2]
    assert play(jobs, "multifactor(half_life=1000000d)").first_starts == [0, 1, 2, 3]


def test_multifactor_gives_a_tenant_at_its_share_half() -> None:
    jobs = [job(0, 60, tenant="a"), job(0, 60, tenant="b"), job(30, 1, tenant="a"), job(31, 1, tenant="b")]
    order = play(jobs, "multifactor", 2).policy.order
    assert isinstance(order, Multifactor)
    assert order.factor("a") == pytest.approx(0.5)
    assert order.factor("nobody") == 1


@pytest.mark.parametrize(("options", "expected"), [("", [0, 2, 1]), ("(favor_small=true)", [0, 1, 2])])
def test_multifactor_favours_large_jobs_or_small_ones(options: str, expected: list[int]) -> None:
    jobs = [job(0, 60, gpus=4), job(10, 10), job(10, 10, gpus=4)]
    assert play(jobs, f"multifactor{options}", 4).first_starts == expected


def test_multifactor_weighs_qos_and_partitions() -> None:
    jobs = [job(0, 60), job(10, 10, qos="low"), job(11, 10, qos="high")]
    assert play(jobs, "multifactor").first_starts == [0, 1, 2]
    assert play(jobs, "multifactor(qos=high:10/low:1)").first_starts == [0, 2, 1]
    assert play(jobs, "multifactor(qos=high:10/low:1, qos_weight=0)").first_starts == [0, 1, 2]
    cluster = uniform(1, 1, partitions=(Partition("day", (0,), 1), Partition("express", (0,), 10)))
    jobs = [job(0, 60, partition="day"), job(10, 10, partition="day"), job(11, 10, partition="express")]
    assert play(jobs, "multifactor", cluster).first_starts == [0, 2, 1]
