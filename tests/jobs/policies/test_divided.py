"""Placements that divide a job over nodes: reservations, preemption and forecasts know that one node need not do."""

import pytest

from headway.jobs.model.cluster import Cluster, Level, Node, Partition, uniform
from headway.jobs.model.events import JobArrived
from headway.jobs.model.job import Job, workload
from headway.jobs.model.rows import Kind
from headway.jobs.policies.backfills.forecast import earliest_fit
from headway.jobs.policies.registry import build
from headway.units import SECOND
from tests.drive import World, drive, fresh_state


def job(submit: int, gpus: int, length: int, partition: str = "", priority: int = 0) -> Job:
    return Job(0, submit * SECOND, length * SECOND, gpus, partition=partition, priority=priority)


def starts(spec: str, jobs: tuple[Job, ...], cluster: Cluster) -> dict[int, int]:
    """When each job starts, in seconds."""
    return {number: time // SECOND for number, time in drive(spec, World(cluster, jobs)).starts.items()}


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
def test_a_placement_that_divides_jobs_is_reserved_gpus_on_several_nodes(backfill: str) -> None:
    jobs = workload([job(0, 4, 100), job(0, 2, 10), job(1, 4, 5), job(2, 2, 50)])
    assert starts(f"fifo+{backfill}+spread(split=true)", jobs, uniform(2, 4)) == {0: 0, 1: 0, 2: 10, 3: 15}
    jobs = workload([job(0, 2, 100), job(0, 2, 10), job(0, 3, 100), job(1, 3, 5), job(2, 1, 50)])
    found = starts(f"fifo+{backfill}+consolidate(up_to=any)", jobs, uniform(2, 4))
    assert found == {0: 0, 1: 0, 2: 0, 3: 10, 4: 15}


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
def test_a_job_is_reserved_gpus_of_one_rack_where_the_placement_wants_that(backfill: str) -> None:
    nodes = tuple(Node(f"n{i}", 2, path=(f"r{i // 2}",)) for i in range(4))
    walls = (Partition("left", (0, 1)), Partition("right", (2, 3)), Partition("all", (0, 1, 2, 3)))
    cluster = Cluster(nodes, (Level("rack"), Level("node")), walls)
    held = [job(0, 1, 100, partition="left"), job(0, 1, 50, partition="right")]
    jobs = workload([*held, job(1, 4, 5, partition="all")])
    assert starts(f"fifo+{backfill}+consolidate(up_to=rack)", jobs, cluster)[2] == 50
    assert starts(f"fifo+{backfill}+consolidate", jobs, cluster)[2] == 1
    jobs = workload([*held, job(1, 6, 5, partition="all")])  # more than a rack has: it may span both
    assert starts(f"fifo+{backfill}+consolidate(up_to=rack)", jobs, cluster)[2] == 1


def test_one_victim_is_enough_where_a_job_may_be_divided() -> None:
    held = [job(0, 3, 100, priority=2), job(0, 2, 100, priority=2), job(0, 2, 100)]
    jobs = workload([*held, job(1, 3, 10, priority=1)])
    run = drive("priority+preempt+consolidate(up_to=any)", World(uniform(2, 4), jobs))
    assert [row.subject for row in run.rows(Kind.PREEMPT)] == [2]
    assert run.starts[3] == SECOND
    assert not drive("priority+preempt", World(uniform(2, 4), jobs)).rows(Kind.PREEMPT)


def test_when_a_job_fits_depends_on_whether_it_may_be_divided() -> None:
    found: dict[str, int | None] = {}
    world = World(uniform(2, 4), workload([job(0, 2, 100), job(0, 2, 10), job(0, 3, 50), job(1, 3, 5)]))
    for up_to in ("node", "any"):
        policy = build(f"fifo+migrate+consolidate(up_to={up_to})")
        state = fresh_state(policy, world)
        for each in world.jobs:
            state.apply(each.submit, JobArrived(each))
            for action in policy.decide(each.submit, state):
                state.commit(each.submit, action)
        found[up_to] = earliest_fit(SECOND, state, state.jobs[3], policy.placement)
    assert found == {"node": 50 * SECOND, "any": 10 * SECOND}
