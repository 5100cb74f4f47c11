"""What an allocation can divide: what all nodes count, or none."""

from dataclasses import replace

import pytest

from headway.errors import ExperimentError, InfeasibleJobError
from headway.jobs.experiment.arrivals import feasible
from headway.jobs.experiment.speed import check_division
from headway.jobs.model.cluster import Cluster, Node
from headway.jobs.model.job import Job, workload
from headway.jobs.policies.registry import build
from headway.jobs.tables.settings import Experiment

FULL = Node("full", 4, "gpu", 12_000, 10**11, 10**9)


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ({"cpu_milli": None}, "node bare does not say its CPUs"),
        ({"memory_bytes": None}, "memory"),
        ({"storage_bytes_per_second": None}, "storage bandwidth"),
    ],
)
def test_a_node_that_does_not_say_what_others_do_is_refused(missing: dict[str, None], told: str) -> None:
    cluster = Cluster((FULL, replace(FULL, name="bare", **missing)))
    with pytest.raises(ExperimentError, match=f"allocation tune: .*{told}"):
        check_division(Experiment(), cluster, build("fifo+tune"))
    check_division(Experiment(), cluster, build("fifo"))
    check_division(Experiment(), Cluster((replace(FULL, **missing),)), build("fifo+tune"))


def test_a_job_that_asks_for_more_cpus_than_any_node_has_runs_under_an_allocation_and_only_there() -> None:
    cluster = Cluster((FULL,))
    jobs = workload([Job(0, 0, 10**9, gpus=1, cpu_milli=64_000, name="greedy")])
    with pytest.raises(InfeasibleJobError, match="job greedy"):
        feasible(cluster, jobs, build("fifo"), skip=False, notes=[])
    assert feasible(cluster, jobs, build("fifo+tune"), skip=False, notes=[]) == (jobs, ())
    alone = workload([Job(0, 0, 10**9, gpus=0, cpu_milli=64_000, name="cpus")])
    with pytest.raises(InfeasibleJobError, match="job cpus"):
        feasible(cluster, alone, build("fifo+tune"), skip=False, notes=[])
