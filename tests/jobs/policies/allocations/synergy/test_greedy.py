"""greedy: the full demand or nothing. Nodes of 4 GPUs with 12 CPUs and 120 GB; a GPU's due is 3 CPUs and 30 GB."""

from headway.jobs.model.cluster import Cluster, Node
from headway.jobs.model.job import Job
from headway.units import SECOND
from tests.jobs.policies.allocations.stage import GIGABYTE, Stage, gang, nodes, wants

PROFILES = {"eight": wants(8), "six": wants(6), "little": wants(1, 10), "endless": wants(40, 500), "ram": wants(3, 90)}


def test_a_job_gets_its_full_demand_or_waits_while_gpus_are_free() -> None:
    stage = Stage("fifo+fit+greedy", PROFILES)
    stage.come("eight", "six", "little")
    assert stage.cpus == {0: 8, 2: 1}  # the second is passed over: 4 CPUs are left, and 3 GPUs
    stage.end(0)
    assert stage.cpus == {1: 6, 2: 1}


def test_without_backfill_the_first_that_does_not_fit_holds_back_all() -> None:
    stage = Stage("fifo+greedy", PROFILES)
    stage.come("eight", "six", "little")
    assert stage.cpus == {0: 8}


def test_memory_and_storage_count_as_cpus_do() -> None:
    cluster = nodes(1, storage_bytes_per_second=300)
    stage = Stage("fifo+fit+greedy", {**PROFILES, "reads": wants(1, 10, reads=100)}, cluster)
    stage.come("ram", "ram", "reads", "reads")
    assert stage.memory == {0: 90, 2: 10}
    assert stage.state.running[2].storage == 200
    assert stage.state.jobs[3].storage == 200


def test_nothing_is_ever_taken_from_or_added_to_a_running_job() -> None:
    stage = Stage("fifo+fit+greedy", PROFILES)
    stage.come("six", "eight")
    stage.come("six")
    assert stage.cpus == {0: 6, 2: 6}
    assert [type(action).__name__ for action in stage.end(0, 2)] == ["StartJob"]


def test_the_demand_goes_where_all_of_it_is_free() -> None:
    stage = Stage("fifo+fit+greedy", PROFILES, nodes(2))
    stage.come("eight", "six")
    assert stage.where == {0: (0,), 1: (1,)}


def test_a_demand_that_is_more_than_a_node_has_is_divided_over_nodes() -> None:
    stage = Stage("fifo+fit+greedy", PROFILES, nodes(3))
    stage.come(gang("eight", 2))
    assert (stage.where, stage.cpus) == ({0: (0, 1)}, {0: 16})
    assert stage.state.pool.cpu_free == [4000, 4000, 12_000]


def test_a_demand_that_no_empty_nodes_could_give_is_cut_down_to_what_they_could() -> None:
    stage = Stage("fifo+fit+greedy", PROFILES, nodes(2))
    stage.come("endless")
    assert (stage.cpus, stage.memory) == ({0: 12}, {0: 120})  # all of a node
    stage.come(gang("endless", 8))
    stage.end(0)
    assert stage.cpus == {1: 24}  # all of both: its GPUs' due
    stage.come(gang("eight", 2, over=1))
    stage.end(1)
    assert stage.cpus == {2: 12}  # it asked for one node


def test_it_is_cut_down_to_what_the_richest_of_its_nodes_could_give() -> None:
    poor, rich = Node("poor", 1, "gpu", 4000, 90 * GIGABYTE), Node("rich", 4, "gpu", 20_000, 100 * GIGABYTE)
    stage = Stage("fifo+fit+greedy", PROFILES, Cluster((poor, rich)))
    stage.come("endless")
    assert (stage.where, stage.cpus, stage.memory) == ({0: (1,)}, {0: 20}, {0: 100})


def test_a_job_that_nobody_knows_gets_what_it_asked_for_or_the_least_due_of_its_nodes() -> None:
    poor, rich = Node("poor", 2, "gpu", 4000, 20 * GIGABYTE), Node("rich", 2, "gpu", 12_000, 120 * GIGABYTE)
    stage = Stage("fifo+fit+greedy", PROFILES, Cluster((poor, rich)))
    stage.come(Job(0, 0, SECOND, cpu_milli=5000, memory_bytes=GIGABYTE), Job(0, 0, SECOND))
    assert (stage.cpus, stage.memory) == ({0: 5, 1: 2}, {0: 1, 1: 10})
    stage.come(Job(0, 0, SECOND, cpu_milli=50_000))
    assert stage.state.jobs[2].cpu_milli == 12_000


def test_a_job_without_gpus_has_what_it_asked_for() -> None:
    stage = Stage("fifo+fit+greedy", PROFILES)
    stage.come(Job(0, 0, SECOND, 0, cpu_milli=7000, memory_bytes=1), "six", "little")
    assert stage.cpus == {0: 7, 2: 1}


def test_an_urgent_job_takes_the_cpus_of_one_that_has_gpus_beside_free_ones() -> None:
    stage = Stage("priority+fit+preempt+greedy", PROFILES)
    stage.come("eight", "little")
    stage.come(gang("six", 1, priority=1))
    assert stage.cpus == {1: 1, 2: 6}
    assert stage.state.jobs[0].cpu_milli == 8000  # it waits for all of it again
