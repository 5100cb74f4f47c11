"""proportional: by GPUs, nothing else. A GPU's due is 3 CPUs and 30 GB."""

from headway.jobs.model.cluster import Cluster, Node
from headway.jobs.model.job import Job
from headway.units import SECOND
from tests.jobs.policies.allocations.stage import GIGABYTE, Stage, gang, nodes, wants

HUNGRY = {"ten": wants(10), "little": wants(1, 10)}


def test_everybody_has_the_share_of_their_gpus_whatever_they_could_use() -> None:
    stage = Stage("fifo+fit+proportional", HUNGRY)
    stage.come("ten", gang("little", 2), gang("ten", 1, gpu_milli=500))
    assert stage.cpus == {0: 3, 1: 6, 2: 1.5}
    assert stage.memory == {0: 30, 1: 60, 2: 15}


def test_nothing_changes_when_somebody_leaves() -> None:
    stage = Stage("fifo+fit+proportional", HUNGRY)
    stage.come("ten", "ten")
    assert stage.end(1) == []
    assert stage.cpus == {0: 3}


def test_what_a_job_asked_for_counts_only_if_it_has_no_gpus() -> None:
    stage = Stage("fifo+fit+proportional", HUNGRY)
    stage.come(
        Job(0, 0, SECOND, cpu_milli=9000, memory_bytes=GIGABYTE), Job(0, 0, SECOND, 0, cpu_milli=8000, memory_bytes=1)
    )
    assert stage.cpus == {0: 3, 1: 8}


def test_a_job_goes_where_jobs_without_gpus_leave_it_its_due_or_waits() -> None:
    stage = Stage("fifo+fit+proportional", HUNGRY, nodes(2))
    stage.come(Job(0, 0, SECOND, 0, cpu_milli=10_000, memory_bytes=1), "ten", gang("ten", 4))
    assert stage.where == {0: (0,), 1: (1,)}  # 2 CPUs are left beside the first, and 3 GPUs beside the second
    stage.end(0)
    assert stage.where == {1: (1,), 2: (0,)}


def test_a_job_over_nodes_of_two_kinds_has_the_same_for_each_gpu_as_the_poorer_one_can_give() -> None:
    large, small = Node("large", 2, "gpu", 12_000, 120 * GIGABYTE), Node("small", 2, "gpu", 4_000, 20 * GIGABYTE)
    stage = Stage("fifo+fit+proportional", HUNGRY, Cluster((large, small)))
    stage.come(gang("ten", 3))
    assert (stage.cpus, stage.memory) == ({0: 6}, {0: 30})


def test_what_is_not_counted_is_not_given_and_not_missed() -> None:
    stage = Stage("fifo+fit+proportional", HUNGRY, Cluster((Node("n", 4, "gpu", 12_000),)))
    stage.come("little")
    assert (stage.cpus, stage.memory) == ({0: 3}, {0: 0})
    assert stage.state.running[0].speed == 2_000_000
