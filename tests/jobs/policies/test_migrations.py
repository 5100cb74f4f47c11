"""Costed moves: for whom they are made, and what their options may be."""

from dataclasses import replace

import pytest

from headway.errors import ExperimentError
from headway.jobs.model.cluster import Partition, uniform
from headway.jobs.model.job import Job, workload
from headway.jobs.model.rows import Kind
from headway.jobs.model.speed import Costs
from headway.jobs.policies.registry import build
from headway.units import SECOND
from tests.drive import Run, World, drive

COSTS = Costs(SECOND, SECOND)


def job(submit: int, gpus: int, length: int, partition: str = "") -> Job:
    return Job(0, submit * SECOND, length * SECOND, gpus, partition=partition)


def blocked_in_both(second: str) -> Run:
    """Partition p is full and has a job waiting; after 5 s q has 2 GPUs free on each node, and a job wants 4."""
    walls = (Partition("p", (0,)), Partition("q", (1, 2)), Partition("all", (0, 1, 2)))
    full = [job(0, 4, 500, "p"), job(1, 4, 10, "p")]
    scattered = [job(0, 2, 300, "q"), job(0, 2, 5, "q"), job(0, 2, 300, "q")]
    jobs = workload([*full, *scattered, job(10, 4, 10, second)])
    return drive("fifo+migrate", World(uniform(3, 4, partitions=walls), jobs, costs=COSTS))


def test_a_partition_that_is_full_does_not_keep_another_from_being_tidied() -> None:
    run = blocked_in_both("q")
    last = max(run.starts)
    assert run.starts[last] == 10 * SECOND
    assert len(run.rows(Kind.MIGRATE)) == 1


def test_nobody_is_helped_past_a_blocked_job_whose_nodes_it_shares() -> None:
    run = blocked_in_both("all")
    last = max(run.starts)
    assert not run.rows(Kind.MIGRATE)
    assert run.starts[last] == 300 * SECOND, "as soon as a node is free that nobody before it waits for"


def test_nobody_is_moved_onto_nodes_that_an_earlier_blocked_job_waits_for() -> None:
    walls = (Partition("p", (0,)), Partition("q", (1, 2)), Partition("all", (0, 1, 2)))
    waiting = [job(6, 4, 10, "p"), job(10, 4, 10, "q")]
    halves = [
        job(0, 2, 500, "p"),
        job(0, 2, 5, "p"),
        replace(job(0, 2, 900, "q"), preemptible=False),
        job(0, 2, 5, "q"),
    ]
    jobs = workload([*halves, job(0, 2, 900, "all"), *waiting])
    run = drive("fifo+migrate(rest=0)", World(uniform(3, 4, partitions=walls), jobs, costs=COSTS))
    assert [row.subject for row in run.rows(Kind.MIGRATE)] == [4]
    assert run.starts[6] == 10 * SECOND
    assert run.starts[5] == 500 * SECOND


@pytest.mark.parametrize("option", ["margin", "rest"])
@pytest.mark.parametrize("value", ["-1.0", "nan", "inf", "-inf"])
def test_an_option_that_makes_no_sense_is_refused(option: str, value: str) -> None:
    with pytest.raises(ExperimentError, match=f"migrate.{option}={value}.: must be a number from 0 on"):
        build(f"fifo+migrate({option}={value})")
    assert build(f"fifo+migrate({option}=0)").migration is not None
