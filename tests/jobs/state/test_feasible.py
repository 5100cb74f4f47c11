"""Feasibility: each rule is told by the thing, the value and the rule; what fits starts on an empty cluster."""

import pytest
from hypothesis import given, settings

from headway.jobs.model.actions import MigrateJob, ReallocateJob, StartJob
from headway.jobs.model.cluster import Cluster, Node, Partition, Tenant
from headway.jobs.model.events import JobArrived, NodeDrained
from headway.jobs.model.job import Job, workload
from headway.jobs.model.resources import Grant, Placement
from headway.jobs.policies.registry import PLACEMENTS, build
from headway.jobs.state.never_feasible import infeasible
from headway.jobs.state.state import TrainingState
from tests.drive import World, fresh_state
from tests.strategies import worlds

CLUSTER = Cluster(
    (
        Node("a", 4, "A100", cpu_milli=8000, memory_bytes=100),
        Node("b", 4, "V100", cpu_milli=8000, memory_bytes=100),
        Node("c", 4, "A100", cpu_milli=8000, memory_bytes=100),
    ),
    partitions=(Partition("p", (0, 1)),),
    tenants=(Tenant("fixed", 1, 4), Tenant("lends", 1, 2, 6, borrow=True)),
)


def with_job(job: Job) -> TrainingState:
    """Job 0 waits; node c is drained, GPU 0 of node a is half used by job 1."""
    jobs = workload([job, Job(0, 0, 1, gpu_milli=500, name="other")])
    state = fresh_state(build("fifo"), World(CLUSTER, jobs))
    for each in jobs:
        state.apply(0, JobArrived(each))
    state.apply(0, NodeDrained(2))
    state.commit(0, StartJob(1, ((0, 1),)))
    return state


@pytest.mark.parametrize(
    ("job", "placement", "refusal"),
    [
        (Job(0, 0, 1, 2), ((0, 0b11),), "wants 2 GPUs (mask 0x3), node a has 3 free (mask 0xe)"),
        (Job(0, 0, 1, 2), ((2, 0b11),), "node c is down or drained"),
        (Job(0, 0, 1, 2, gpu_types=("V100",)), ((0, 0b110),), "node a is not in partition any with GPU types V100"),
        (Job(0, 0, 1, 2, partition="q"), ((0, 0b110),), "node a is not in partition q with GPU types any"),
        (Job(0, 0, 1, 2, nodes=2), ((0, 0b110),), "wants 1 GPU on each of 2 nodes"),
        (Job(0, 0, 1, 2), (), "wants 2 GPUs, the placement has 0"),
        (Job(0, 0, 1, gpu_milli=600), ((0, 1),), "wants 600 thousandths, GPU 0 of node a has 500 free"),
        (Job(0, 0, 1, gpu_milli=600), ((0, 0b110),), "a share needs exactly one GPU, the placement has 2 on node a"),
        (Job(0, 0, 1, 2, cpu_milli=9000), ((1, 0b11),), "wants 9 CPUs, node b has 8 free"),
        (Job(0, 0, 1, 2, memory_bytes=101), ((1, 0b11),), "wants 101 bytes of memory, node b has 100 free"),
        (
            Job(0, 0, 1, 5, tenant="fixed"),
            ((0, 0b1110), (1, 0b11)),
            "tenant fixed holds 0 GPUs and 5 more would exceed its quota of 4",
        ),
        (
            Job(0, 0, 1, 7, tenant="lends"),
            ((0, 0b1110), (1, 0b1111)),
            "tenant lends holds 0 GPUs and 7 more would exceed its limit of 6",
        ),
        (
            Job(0, 0, 1, 3, tenant="lends", preemptible=False),
            ((1, 0b111),),
            "tenant lends holds 0 GPUs and 3 more would be borrowed, which only preemptible jobs may",
        ),
    ],
)
def test_every_rule_is_told(job: Job, placement: Placement, refusal: str) -> None:
    assert with_job(job).check(StartJob(0, placement)) == f"StartJob(job=0): {refusal}"


def test_what_keeps_every_rule_is_allowed() -> None:
    assert with_job(Job(0, 0, 1, 3, tenant="lends")).check(StartJob(0, ((1, 0b111),))) is None
    assert with_job(Job(0, 0, 1, 2, cpu_milli=8000)).check(StartJob(0, ((0, 0b10), (1, 0b10)))) is None
    assert with_job(Job(0, 0, 1, gpu_milli=500)).check(StartJob(0, ((0, 1),))) is None


def test_a_move_counts_what_the_job_holds_itself_as_free() -> None:
    state = with_job(Job(0, 0, 1, 3))
    state.commit(0, StartJob(0, ((1, 0b0111),)))
    assert state.check(MigrateJob(0, ((1, 0b1110),))) is None
    assert state.check(MigrateJob(0, ((0, 0b0111),))) is not None


@given(world=worlds(faults=False))
@settings(max_examples=40)
def test_what_fits_the_empty_cluster_is_not_called_infeasible_and_every_placement_finds_it_room(world: World) -> None:
    assert infeasible(world.cluster, world.jobs) == []
    state = fresh_state(build("fifo"), world)
    for job in world.jobs:
        state.apply(job.submit, JobArrived(job))
        for name in PLACEMENTS:
            placement = build(f"fifo+{name}").placement.place(state.pool, state.jobs[job.id])
            assert placement is not None, f"{name} finds no room for {job}"
            assert state.check(StartJob(job.id, placement)) is None


@pytest.mark.parametrize("grant", [Grant(-1, 0), Grant(0, -1), Grant(0, 0, -1)])
def test_nobody_is_granted_less_than_nothing(grant: Grant) -> None:
    state = with_job(Job(0, 0, 1, 1))
    for action in (StartJob(0, ((0, 2),), grant), ReallocateJob(1, grant), MigrateJob(1, ((0, 2),), grant)):
        assert "none may be negative" in str(state.check(action))
