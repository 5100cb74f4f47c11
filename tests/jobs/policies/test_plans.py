"""Reservations that are put off, or kept where nothing changed: the tape is that of planning everything every time."""

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from headway.core.scheduler import Scheduler
from headway.core.tape import Tape, TapeWriter
from headway.jobs.model.cluster import Cluster, Node, Partition, Qos, uniform
from headway.jobs.model.job import Job, Outcome, workload
from headway.jobs.policies.backfills.conservative.availability import Profile
from headway.jobs.policies.backfills.conservative.could_start import Waiting
from headway.jobs.policies.backfills.conservative.plan import Plan
from headway.jobs.policies.backfills.conservative.policy import Conservative
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.policies.parts import Reservation
from headway.jobs.policies.registry import build
from headway.jobs.rules.limits.limit import LimitRule
from headway.jobs.rules.preemption.preemption import Mode, Preemption
from headway.jobs.sim.cluster import SimulatedCluster
from headway.jobs.state.state import TrainingState
from headway.units import SECOND
from tests.drive import World
from tests.strategies import worlds

GIB = 2**30


class Impatient(Waiting):
    """Waiting jobs whose reservations may never be put off."""

    def may_put_off(self, *_: Any) -> bool:
        return False


class Eager(Plan):
    """The oracle: makes all reservations at once, and all of them anew each time."""

    def __init__(self, whole_nodes: bool, window: int) -> None:
        super().__init__(whole_nodes, window)
        self._waiting = Impatient()

    def extend(self, *seen: Any) -> Any:
        yield from super().extend(*seen)
        assert self.is_whole
        assert isinstance(self.profile, Profile)


class Asking:
    """A policy that is asked for its reservations after some decisions: that must not change what it does."""

    def __init__(self, policy: ComposedPolicy, every: int) -> None:
        self.policy, self.name, self._every = policy, policy.name, every
        self.notes: list[tuple[int, dict[int, Reservation]]] = []
        self._count = 0

    def decide(self, now: int, state: TrainingState) -> Any:
        yield from self.policy.decide(now, state)
        self._count += 1
        if self._every and self._count % self._every == 0 and state.queue.size:
            self.notes.append((now, dict(self.policy.backfill.reservations)))


def played(spec: str, world: World, *, eager: bool, every: int = 0) -> tuple[Tape, Asking]:
    policy, cluster, jobs = build(spec), world.cluster, world.jobs
    assert isinstance(policy.backfill, Conservative)
    if eager:
        policy.backfill._plan = Eager(policy.backfill.slurm, policy.backfill.window)
    state = TrainingState(cluster, to_come=len(jobs), arrangement=policy, speed=world.speed(), costs=world.costs)
    policy.bind(state)
    asking, tape = Asking(policy, every), TapeWriter()
    faults = world.faults() if world.faults is not None else None
    Scheduler(state, asking, SimulatedCluster(jobs, state, faults), tape).run()
    return tape.close(), asking


@st.composite
def sites(draw: st.DrawFn) -> Cluster:
    """Two or three kinds of nodes in partitions of their own, and one partition that may join two of them."""
    counts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    nodes, partitions = [], []
    for kind, count in enumerate(counts):
        gpus = draw(st.sampled_from([1, 2, 4, 4]))
        partitions.append(Partition(f"p{kind}", tuple(range(len(nodes), len(nodes) + count)), priority=kind))
        host = {"cpu_milli": 2000 * gpus, "memory_bytes": gpus * 4 * GIB} if draw(st.booleans()) else {}
        nodes += [Node(f"n{kind}{index}", gpus, f"g{kind}", **host) for index in range(count)]
    if draw(st.booleans()):
        partitions.append(Partition("both", tuple(range(draw(st.integers(0, len(nodes) - 1)), len(nodes)))))
    widest = max(node.gpus for node in nodes) * len(nodes) * 1000
    rules = (
        LimitRule("MaxGPUsPerUser", "gpus", widest, per=("user",)),
        LimitRule("MaxJobsPerUser", "jobs", 2, per=("user",)),
        LimitRule("GrpJobs", "jobs", 3, where=(("account", "a"),)),
    )
    limits = tuple(rule for rule in rules if draw(st.booleans()))
    return Cluster(tuple(nodes), partitions=tuple(partitions), limits=limits)


@st.composite
def _job(draw: st.DrawFn, cluster: Cluster) -> Job:
    partition = draw(st.sampled_from(cluster.partitions))
    mine = [cluster.nodes[node] for node in partition.nodes]
    least = min(node.gpus for node in mine)
    count = draw(st.integers(1, len(mine)))
    gpus, nodes = draw(st.integers(1, least)), draw(st.sampled_from([0, 1]))
    if count > 1 and draw(st.booleans()):
        gpus, nodes = gpus * count, draw(st.sampled_from([0, count]))
    work = draw(st.integers(1, 40))
    late = draw(st.integers(0, 5)) == 0
    estimate = draw(st.integers(1, work)) if late else work * draw(st.integers(1, 4)) + draw(st.integers(0, 3))
    fails = draw(st.integers(0, 4)) == 0
    return Job(
        0,
        draw(st.integers(0, 60)) * SECOND,
        work * SECOND,
        gpus,
        nodes=nodes,
        estimate=estimate * SECOND,
        partition=partition.name,
        cpu_milli=gpus * draw(st.sampled_from([0, 500, 1000])),
        memory_bytes=gpus * draw(st.sampled_from([0, GIB, 2 * GIB])),
        tenant=draw(st.sampled_from("abc")),
        user=draw(st.sampled_from("xyz")),
        outcome=Outcome.FAILS if fails else Outcome.FINISHES,
        outcome_after=max(1, work // 2) * SECOND if fails else 0,
        retries=draw(st.integers(0, 2)) if fails else 0,
        patience=draw(st.integers(1, 30)) * SECOND if draw(st.integers(0, 5)) == 0 else 0,
    )


@st.composite
def site_cases(draw: st.DrawFn) -> tuple[str, World]:
    cluster = draw(sites())
    jobs = workload(draw(st.lists(_job(cluster), min_size=4, max_size=30)))
    order = draw(
        st.sampled_from(
            ["fifo", "sjf", "multifactor(period=5s,max_age=20s,half_life=15s)",
             "multifactor(period=7s,max_age=60s,half_life=30s,fair_tree=true,size_weight=0)"]
        )
    )  # fmt: skip
    depth, interval = draw(st.sampled_from([1, 2, 5, 100])), draw(st.sampled_from([0, 1, 2, 4, 20]))
    placement = draw(st.sampled_from(["first-fit", "best-fit", "consolidate", "spread"]))
    slurm, window = draw(st.sampled_from(["false", "true"])), draw(st.sampled_from([0, 0, 2, 9, 30]))
    spec = f"{order}+conservative(depth={depth},interval={interval}s,slurm={slurm},window={window}s)+{placement}"
    return spec, World(cluster, jobs)


@given(case=site_cases())
@settings(max_examples=200)
def test_reservations_that_are_put_off_or_kept_leave_the_tape_as_it_was(case: tuple[str, World]) -> None:
    spec, world = case
    assert played(spec, world, eager=False)[0].digest == played(spec, world, eager=True)[0].digest


@given(case=site_cases(), every=st.integers(1, 3))
@settings(max_examples=100)
def test_reservations_are_those_of_planning_everything_whenever_they_are_asked_for(
    case: tuple[str, World], every: int
) -> None:
    spec, world = case
    lazy, asked = played(spec, world, eager=False, every=every)
    eager, expected = played(spec, world, eager=True, every=every)
    assert asked.notes == expected.notes
    assert lazy.digest == eager.digest


@given(world=worlds(estimated=True), order=st.sampled_from(["fifo", "multifactor(period=5s)", "srtf", "drf"]))
@settings(max_examples=100)
def test_so_it_is_with_failing_nodes_quotas_shares_of_gpus_preemption_and_costs(world: World, order: str) -> None:
    spec = f"{order}+conservative(interval=2s)"
    assert played(spec, world, eager=False)[0].digest == played(spec, world, eager=True)[0].digest


def test_a_job_that_a_limit_holds_back_meanwhile_makes_the_plan_of_its_region_anew() -> None:
    def job(submit: int, work: int, tenant: str, partition: str, estimate: int, user: str, memory: int = 0) -> Job:
        times = {"submit": submit * SECOND, "work": work * SECOND, "estimate": estimate * SECOND}
        return Job(0, gpus=1, tenant=tenant, partition=partition, user=user, memory_bytes=memory * GIB, **times)

    host = {"cpu_milli": 2000, "memory_bytes": 4 * GIB}
    nodes = (*(Node(f"n{node}", 1, "g") for node in range(3)), Node("n3", 1, "h", **host), Node("n4", 1, "h", **host))
    parts = [Partition("p0", (0, 1)), Partition("p1", (2,), 1), Partition("p2", (3, 4), 2), Partition("both", (4,))]
    rules = (
        LimitRule("MaxGPUsPerUser", "gpus", 5000, per=("user",)),
        LimitRule("GrpJobs", "jobs", 3, where=(("account", "a"),)),
    )
    jobs = [
        job(0, 23, "a", "p1", 23, "y"),
        job(4, 24, "a", "p1", 24, "x"),
        job(12, 14, "a", "p1", 28, "y"),
        job(31, 3, "b", "p0", 6, "x"),
        job(34, 18, "a", "both", 15, "z"),
        job(34, 26, "c", "both", 3, "x"),
        job(39, 26, "a", "p0", 7, "z"),
        job(43, 8, "c", "p0", 32, "y", 1),
    ]
    world = World(Cluster(nodes, partitions=tuple(parts), limits=rules), workload(jobs))
    order = "multifactor(period=7s,max_age=60s,half_life=30s,fair_tree=true,size_weight=0)"
    spec = f"{order}+conservative(depth=100,interval=4s)+spread"
    assert played(spec, world, eager=False)[0].digest == played(spec, world, eager=True)[0].digest


def test_a_job_that_leaves_the_queue_as_another_is_requeued_for_later_is_forgotten() -> None:
    qos = (Qos("low"), Qos("high", 1, preempts=("low",)))
    rules = Preemption("qos", Mode.REQUEUE, again_after=120 * SECOND)
    jobs = [
        Job(0, 0, 90 * SECOND, 2, qos="low"),
        Job(0, SECOND, 20 * SECOND, 2, qos="low", patience=9 * SECOND),
        Job(0, 2 * SECOND, 30 * SECOND, 2, qos="low"),
        Job(0, 10 * SECOND, 20 * SECOND, 2, qos="high"),
        Job(0, 10 * SECOND, 40 * SECOND, 2, qos="low"),
    ]
    world = World(replace(uniform(1, 2), qos=qos, preemption=rules), workload(jobs))
    spec = "multifactor(age_weight=0,qos_weight=10)+conservative(interval=1s)"
    assert played(spec, world, eager=False)[0].digest == played(spec, world, eager=True)[0].digest


@pytest.mark.parametrize("window_s", [0, 60, 400])
@pytest.mark.parametrize("seed", range(4))
def test_so_it_is_where_long_queues_wait_for_several_kinds_of_nodes(seed: int, window_s: int) -> None:
    draw = random.Random(seed)
    kinds = (("big", 6, 8), ("small", 4, 4), ("few", 2, 8))
    nodes, partitions = [], []
    for name, count, gpus in kinds:
        partitions.append(Partition(name, tuple(range(len(nodes), len(nodes) + count))))
        nodes += [
            Node(f"{name}{index}", gpus, name, cpu_milli=8000 * gpus, memory_bytes=64 * GIB) for index in range(count)
        ]
    partitions.append(Partition("debug", (0, 1), priority=5))
    jobs = []
    for _ in range(240):
        partition, wide = draw.choice(("big", "big", "small", "few", "debug")), draw.random() < 0.15
        most = 4 if partition == "small" else 8
        gpus, count = (2 * most, 2) if wide and partition != "debug" else (draw.choice((1, 1, 2, most)), 1)
        limit = draw.choice((10, 40, 120, 300))
        jobs.append(
            Job(
                0,
                draw.randrange(20) * 45 * SECOND,
                draw.randrange(1, limit) * SECOND,
                gpus,
                nodes=count,
                partition=partition,
                estimate=limit * SECOND,
                cpu_milli=4000 * gpus,
                tenant=draw.choice("ab"),
                user=draw.choice("xyz"),
            )
        )
    world = World(Cluster(tuple(nodes), partitions=tuple(partitions)), workload(jobs))
    order = "multifactor(period=30s,max_age=600s,half_life=300s,fair_tree=true,size_weight=500)"
    spec = f"{order}+conservative(depth=500,interval=20s,slurm=true,window={window_s}s)+consecutive"
    assert played(spec, world, eager=False)[0].digest == played(spec, world, eager=True)[0].digest


@pytest.mark.parametrize(("seed", "window_s"), [(1205, 30), (2477, 0)])
def test_regions_that_a_new_job_connects_know_what_ends_in_them(seed: int, window_s: int) -> None:
    draw = random.Random(seed)
    parts = (Partition("a", (0,)), Partition("b", (1,)), Partition("ab", (0, 1)))
    jobs, time = [], 0
    for number in range(10):
        time += draw.choice([0, 1, 3, 7, 15])
        partition = draw.choice(["a", "a", "b", "ab"]) if number > 3 else draw.choice("ab")
        work, gpus = draw.choice([5, 10, 30, 60, 100]), draw.choice([1, 2, 3, 4])
        jobs.append(Job(number, time * SECOND, work * SECOND, gpus, partition=partition))
    world = World(uniform(2, 4, partitions=parts), workload(jobs))
    interval, slurm = draw.choice([1, 2, 4, 10, 20]), draw.choice(["true", "false"])
    spec = f"fifo+conservative(depth=100,interval={interval}s,slurm={slurm},window={window_s}s)+first-fit"
    assert played(spec, world, eager=False)[0].digest == played(spec, world, eager=True)[0].digest
