"""What no empty cluster could run is found before the run, and told with the largest that could."""

import pytest

from headway.jobs.model.cluster import Partition, Tenant, uniform
from headway.jobs.model.job import Job
from headway.jobs.policies.placements.best_fit import BestFit
from headway.jobs.state.never_feasible import infeasible
from headway.units import SECOND


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (Job(0, 0, SECOND, 24), None),
        (Job(0, 0, SECOND, 25), "wants 25 GPUs; the largest job that fits has 24"),
        (Job(0, 0, SECOND, 9, nodes=1), "on one node; the largest job that fits has 8"),
        (Job(0, 0, SECOND, 16, nodes=2), None),
        (Job(0, 0, SECOND, 16, nodes=4), "wants 4 GPUs on each of 4 nodes; the largest that fits has 3 such nodes"),
        (Job(0, 0, SECOND, 2, partition="small"), None),
        (Job(0, 0, SECOND, 9, partition="small"), "the largest job that fits of partition small has 8"),
        (Job(0, 0, SECOND, 2, partition="none"), "partition 'none' does not exist (valid: small)"),
        (Job(0, 0, SECOND, 2, gpu_types=("h100",)), "has a GPU of type h100"),
        (Job(0, 0, SECOND, 1, cpu_milli=33_000), "wants 33 CPUs on one node; the largest that fits has 32 CPUs"),
        (Job(0, 0, SECOND, 1, memory_bytes=200 * 10**9), "wants 200 GB of memory on one node"),
        (Job(0, 0, SECOND, 4, cpu_milli=40_000), None),
        (Job(0, 0, SECOND, 4, cpu_milli=40_000, nodes=1), "wants 40 CPUs on one node; the largest that fits has 32"),
        (Job(0, 0, SECOND, 4, cpu_milli=400_000), "hold 0 of its 4 GPUs"),
        (Job(0, 0, SECOND, 24, cpu_milli=97_000), "hold 21 of its 24 GPUs"),
        (Job(0, 0, SECOND, 0, cpu_milli=1000), None),
        (Job(0, 0, SECOND, 1, gpu_milli=500, cpu_milli=33_000), "wants 33 CPUs"),
        (Job(0, 0, SECOND, 4, tenant="quota"), None),
        (Job(0, 0, SECOND, 5, tenant="quota"), "the largest job that fits the quota of tenant quota has 4"),
        (Job(0, 0, SECOND, 8, tenant="borrows"), None),
        (Job(0, 0, SECOND, 9, tenant="borrows"), "tenant borrows has 8"),
        (Job(0, 0, SECOND, 5, tenant="borrows", preemptible=False), "tenant borrows has 4"),
    ],
)
def test_what_no_empty_cluster_could_run_is_found_with_the_largest_that_fits(job: Job, reason: str | None) -> None:
    cluster = uniform(
        3,
        8,
        cpus_per_node=32,
        memory_per_node_bytes=100 * 10**9,
        partitions=(Partition("small", (1,)),),
        tenants=(Tenant("quota", guaranteed_gpus=4), Tenant("borrows", guaranteed_gpus=4, limit_gpus=8, borrow=True)),
    )
    found = infeasible(cluster, [job], BestFit().place)
    assert [each.job for each in found] == ([] if reason is None else [job])
    assert reason is None or reason in str(found[0])


def test_a_job_that_needs_a_place_the_rule_does_not_give_is_found() -> None:
    job = Job(0, 0, SECOND, 2)
    assert not infeasible(uniform(1, 2), [job])
    (found,) = infeasible(uniform(1, 2), [job], lambda pool, js: None)
    assert "the placement finds no room for its 2 GPUs" in str(found)
