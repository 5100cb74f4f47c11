"""Usage from before the run, and QOSs whose jobs count more than once, in the fair-share factor of multifactor."""

from dataclasses import replace

import pytest

from headway.jobs.model.cluster import Cluster, Partition, Qos, Tenant, uniform
from headway.jobs.model.job import Job, workload
from headway.jobs.policies.orders.multifactor import SCALE, Multifactor
from headway.jobs.policies.registry import build
from headway.jobs.state.jobstate import Account, JobState
from headway.jobs.state.state import TrainingState
from headway.units import HOUR, SECOND
from tests.drive import Run, World, drive, state_at

FAIR = "multifactor(age_weight=0,size_weight=0,fairshare_weight=1000,half_life=1d,period=1s"


def of(tenant: str, submit: int, work: int = 100, **more: object) -> Job:
    """A job that takes the whole node, times in seconds."""
    job = Job(0, submit * SECOND, work * SECOND, 8, tenant=tenant, user=f"{tenant}1")
    return replace(job, **more)  # type: ignore[arg-type]


def ran(cluster: Cluster, jobs: list[Job], *, tree: bool) -> Run:
    """A run under fair share alone."""
    return drive(f"{FAIR},fair_tree={'true' if tree else 'false'})", World(cluster, workload(jobs)))


def with_usage(**hours: float) -> Cluster:
    """Two accounts of one weight that have used so many GPU hours."""
    tenants = [
        Tenant(name, used=((f"{name}1", round(hours[name] * HOUR * 1000)),) if name in hours else ()) for name in "ab"
    ]
    return uniform(1, 8, tenants=tuple(tenants))


@pytest.mark.parametrize("tree", [False, True])
def test_who_used_more_before_comes_later(tree: bool) -> None:
    jobs = [of("c", 0), of("a", 1), of("b", 2)]
    first = ran(with_usage(a=10, b=1), jobs, tree=tree).starts
    assert first[2] < first[1]
    other = ran(with_usage(a=1, b=10), jobs, tree=tree).starts
    assert other[1] < other[2]


def test_it_decays_from_the_beginning_of_the_run_also_of_who_has_submitted_nothing() -> None:
    cluster = with_usage(a=16, b=16)
    jobs = workload([of("a", 0, 8 * 3600), of("a", 10, 3600)])
    spec = f"{FAIR.replace('period=1s', 'period=1h')},fair_tree=false)"
    run = drive(spec, World(cluster, jobs))
    policy = build(spec)
    state = state_at(cluster, jobs, run.tape, 8 * HOUR, policy)
    order = policy.order
    assert isinstance(order, Multifactor)
    last = state.refreshed
    used_a = used_b = 16.0
    for _ in range(round(last / HOUR)):
        used_a, used_b = used_a * 0.5 ** (1 / 24) + 8, used_b * 0.5 ** (1 / 24)
    assert last > 6 * HOUR
    assert order.factor("b") == pytest.approx(2 ** -(2 * used_b / (used_a + used_b)), rel=0.01)
    assert order.factor("a") == pytest.approx(2 ** -(2 * used_a / (used_a + used_b)), rel=0.01)


def test_jobs_of_a_qos_count_as_often_as_its_usage_factor_says() -> None:
    cluster = replace(
        uniform(1, 8, tenants=(Tenant("a"), Tenant("b"))),
        qos=(Qos("free", usage_factor=0.0), Qos("dear", usage_factor=4.0)),
    )
    jobs = [of("a", 0, 100, qos="free"), of("b", 0, 50), of("b", 1, 10), of("a", 2, 10)]
    assert ran(cluster, jobs, tree=False).starts[3] < ran(cluster, jobs, tree=False).starts[2]
    jobs = [of("a", 0, 20, qos="dear"), of("b", 0, 50), of("a", 1, 10), of("b", 2, 10)]
    starts = ran(cluster, jobs, tree=False).starts
    assert starts[3] < starts[2]  # 80 against 50


def test_what_a_job_asks_for_counts_against_what_its_partition_has() -> None:
    nodes = uniform(4, 8, cpus_per_node=10, partitions=(Partition("half", (0, 1)), Partition("all", (0, 1, 2, 3))))
    jobs = workload([Job(0, 0, SECOND, 8, partition=name, cpu_milli=5000) for name in ("half", "all", "")])
    policy = build("multifactor(age_weight=0,size_weight=0,fairshare_weight=0,tres=gpu:1000/cpu:100/mem:7)")
    state = TrainingState(nodes, to_come=3, arrangement=policy)
    policy.bind(state)
    keys = [policy.order.key(0, JobState(job, Account("t"), 0b1111, 0)) for job in jobs]
    # 8 of 16 GPUs and 5 of 20 CPUs; 8 of 32 and 5 of 40; memory is not counted
    assert keys == [-(500 + 25) * SCALE, -round((250 + 12.5) * SCALE), -round((250 + 12.5) * SCALE)]
