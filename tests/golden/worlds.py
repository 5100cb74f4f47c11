"""Small fixed workloads of jobs, made without a file: whole GPUs, everything mixed, nodes that fail, work on nodes."""

from dataclasses import replace

from headway.jobs.model.cluster import Cluster, Level, Node, Partition, Qos, Tenant, uniform
from headway.jobs.model.job import Job, Outcome, workload
from headway.jobs.model.speed import Costs
from headway.jobs.rules.limits.limit import LimitRule
from headway.jobs.rules.preemption.preemption import Mode, Preemption
from headway.jobs.sim.faults import FailureModel, Faults, Maintenance
from headway.streams import small_stream
from headway.units import HOUR, MINUTE, SECOND
from tests.drive import World


def plain() -> World:
    """Whole GPUs on equal nodes, a little more than they can take."""
    draw = small_stream(7, "golden/plain")
    jobs = [
        Job(
            0,
            i * 3 * MINUTE,
            draw.randrange(MINUTE, 3 * HOUR),
            draw.choice((1, 1, 1, 2, 4, 8, 16)),
            tenant="xyz"[i % 3],
        )
        for i in range(120)
    ]
    exact = (replace(job, estimate=job.work * draw.randrange(5, 30) // 10) for job in jobs)
    return World(uniform(6, 8), workload(exact), costs=Costs(MINUTE, MINUTE))


def mixed() -> World:
    """Two kinds of nodes in racks, shares, CPUs, tenants with quotas, partitions, failed and cancelled jobs."""
    draw = small_stream(7, "golden/mixed")
    nodes = tuple(
        Node(f"n{i}", 4, "A100" if i < 4 else "V100", 32_000, 256 * 10**9, path=(f"rack{i // 2}",)) for i in range(6)
    )
    cluster = Cluster(
        nodes,
        (Level("rack", 25 * 10**9), Level("node", 300 * 10**9)),
        (Partition("debug", (4, 5)),),
        (Tenant("a", 2, 12, None, True), Tenant("b", 1, 8, 16, True), Tenant("c", 1, 4)),
        {"V100": 400_000},
    )
    jobs = [_mixed_job(i, draw.random(), draw.randrange(MINUTE, HOUR)) for i in range(100)]
    return World(cluster, workload(jobs), sharing_penalty_ppm=100_000)


def _mixed_job(number: int, chance: float, work: int) -> Job:
    job = Job(
        0,
        number * MINUTE,
        work,
        1 + number % 4,
        tenant="abc"[number % 3],
        partition="debug" if number % 11 == 0 else "",
        cpu_milli=4000,
        memory_bytes=10**9,
        estimate=work * (2 + number % 3) // 2,
        communication_ppm=100_000 * (number % 3),
        checkpoint=5 * SECOND,
        restore=10 * SECOND,
        preemptible=number % 7 > 0,
        priority=number % 2,
    )
    if chance < 0.25:
        job = replace(job, gpus=1, gpu_milli=250)
    if chance > 0.8:
        job = replace(job, outcome=Outcome.FAILS, outcome_after=work // 2, retries=number % 2)
    return replace(job, patience=10 * MINUTE) if number % 13 == 0 else job


def failing() -> World:
    """The plain workload on nodes that fail every few hours."""
    return replace(plain(), faults=lambda: Faults(6, 7, FailureModel(5 * HOUR, 20 * MINUTE)))


def serviced() -> World:
    """The mixed workload on nodes that are taken out for planned work, two at a time, and fail besides."""
    works = [Maintenance((i, i + 1), HOUR + i * HOUR, 30 * MINUTE, 20 * MINUTE) for i in (0, 2, 4)]
    return replace(mixed(), faults=lambda: Faults(6, 7, FailureModel(8 * HOUR, 10 * MINUTE), works))


def limited() -> World:
    """The plain workload of six users in a tree of accounts on failing nodes, with limits of every kind."""
    world = failing()
    jobs = tuple(
        replace(job, user=f"u{job.id % 6}", qos=("long", "short")[job.id % 5 == 0], cpu_milli=job.gpus * 4000)
        for job in world.jobs
    )
    rules = (
        LimitRule("QOSMaxGRESPerUser", "gpus", 16_000, (("qos", "long"),), ("user",), "MaxTRESPU", 1),
        LimitRule("MaxGRESPerUser", "gpus", 24_000, (), ("user",), "MaxTRESPU", 2),
        LimitRule("AssocGrpGRES", "gpus", 32_000, (("account", "lab"),)),
        LimitRule("AssocMaxJobs", "jobs", 4, (), ("user", "account")),
        LimitRule("MaxSubmit", "submitted", 15, (), ("user",)),
        LimitRule("GrpNodes", "nodes", 3, (("user", "u1"), ("user", "u2"))),
        LimitRule("GrpCPURunMins", "running_cpu_time", 100 * HOUR * 1000, (("tenant", "x"),)),
        LimitRule("GrpGRESMins", "gpu_time", 60 * HOUR * 1000, (("user", "u3"),), half_life=6 * HOUR),
        LimitRule("safe", "gpu_time", 900 * HOUR * 1000, (("account", "lab"),), ahead=True),
    )
    tenants = (Tenant("lab"), Tenant("x", parent="lab"), Tenant("y", parent="lab"), Tenant("z"))
    return replace(world, cluster=uniform(6, 8, tenants=tenants, limits=rules), jobs=jobs)


def tiered(by: str = "qos") -> World:
    """The limited workload in partitions of two tiers, where QOSs, or tiers, preempt others with and without grace."""
    world = limited()
    jobs = tuple(
        replace(job, qos=("scavenger", "long", "short")[job.id % 3], partition=("batch", "debug")[job.id % 4 == 0])
        for job in world.jobs
    )
    partitions = (
        Partition("batch", tuple(range(6)), grace=90 * SECOND),
        Partition("debug", (3, 4, 5), tier=5),
    )
    qos = (
        Qos("scavenger", 0, exempt=5 * MINUTE),
        Qos("long", 10, ("scavenger",), Mode.CANCEL, grace=MINUTE),
        Qos("short", 100, ("scavenger", "long")),
    )
    rules = Preemption(by, exempt=2 * MINUTE)
    return replace(world, cluster=replace(world.cluster, partitions=partitions, qos=qos, preemption=rules), jobs=jobs)


def by_tiers() -> World:
    """The same where tiers preempt."""
    return tiered("partition")


WORLDS = {
    "plain": plain,
    "mixed": mixed,
    "failing": failing,
    "serviced": serviced,
    "limited": limited,
    "preempting by qos": tiered,
    "preempting by tier": by_tiers,
}
