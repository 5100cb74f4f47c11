"""tune, step by step, by hand: nodes of 4 GPUs with 12 CPUs and 120 GB, a GPU's due being 3 CPUs and 30 GB."""

from headway.jobs.model.actions import ReallocateJob, StartJob
from headway.jobs.model.cluster import Cluster, Node
from headway.jobs.model.job import Job
from headway.jobs.model.resources import Grant
from headway.jobs.model.sensitivity import Profile
from headway.units import SECOND
from tests.jobs.policies.allocations.stage import GIGABYTE, Stage, gang, nodes, wants

TEN, SIX, FIVE, FOUR, LITTLE = wants(10), wants(6), wants(5), wants(4), wants(1, 10)


# --- 1: who runs is a matter of GPUs alone; larger demands first ------------------------------------------------------


def test_jobs_wait_for_gpus_alone() -> None:
    stage = Stage("fifo+fit+tune", {"ten": TEN})
    stage.come("ten", "ten", "ten", "ten", "ten")
    assert stage.cpus == {0: 3, 1: 3, 2: 3, 3: 3}


def test_of_jobs_that_start_together_the_one_with_more_gpus_is_served_first() -> None:
    stage = Stage("fifo+fit+tune", {"six": SIX, "four": FOUR})
    stage.come("six", gang("four", 2))
    assert stage.cpus == {0: 3, 1: 8}


def test_then_the_one_that_wants_more_cpus_and_then_more_memory() -> None:
    stage = Stage("fifo+fit+tune", {"six": SIX, "eight": wants(8)})
    stage.come("six", "eight")
    assert stage.cpus == {0: 3, 1: 8}
    stage = Stage("fifo+fit+tune", {"less": wants(3, 60), "more": wants(3, 80)})
    stage.come("less", "more")
    assert stage.memory == {0: 30, 1: 80}


# --- 2: the full demand, on the node with least free that can give it -------------------------------------------------


def test_a_job_gets_its_full_demand_on_the_node_with_least_free_that_has_it() -> None:
    stage = Stage("fifo+fit+tune", {"ten": TEN, "six": SIX, "four": FOUR}, nodes(2))
    stage.come("four")
    stage.come("six")
    assert (stage.where, stage.cpus) == ({0: (0,), 1: (0,)}, {0: 4, 1: 6})
    stage.come("four")
    assert (stage.where[2], stage.cpus[2]) == ((1,), 4)  # the fuller node has 2 CPUs left


def test_of_nodes_with_as_many_free_gpus_the_one_with_fewer_free_cpus_is_taken() -> None:
    stage = Stage("fifo+fit+tune", {"five": FIVE, "four": FOUR, "two": wants(2)}, nodes(2))
    stage.come("four", "ten")  # unknown jobs want their due: both go to the first node
    stage.come(gang("four", 2), "five")
    assert stage.where == {0: (0,), 1: (0,), 2: (1,), 3: (0,)}
    stage.come("two")
    assert (stage.where[4], stage.cpus[4]) == ((1,), 2)


def test_a_job_over_several_nodes_gets_on_each_in_proportion_to_its_gpus_there() -> None:
    stage = Stage("fifo+fit+tune", {"two": wants(2, 20)}, nodes(2))
    stage.come(gang("two", 6))
    assert [node for node, _ in stage.state.running[0].placement] == [0, 1]
    assert stage.state.pool.cpu_free == [12_000 - 8_000, 12_000 - 4_000]
    assert stage.state.pool.memory_free == [40 * GIGABYTE, 80 * GIGABYTE]


# --- 3: no node has it: due of everything -----------------------------------------------------------------------------


def test_a_job_whose_demand_no_node_has_asks_for_its_due_of_everything() -> None:
    stage = Stage("fifo+fit+tune", {"eight": wants(8), "six": wants(6, 10)})
    stage.come("eight")
    actions = stage.come("six")
    assert actions == [StartJob(1, ((0, 2),), Grant(3000, 30 * GIGABYTE))]  # more memory than it wanted
    assert stage.cpus == {0: 8, 1: 3}


def test_a_demand_below_the_due_is_never_raised_to_it() -> None:
    stage = Stage("fifo+fit+tune", {"little": LITTLE})
    stage.come(*["little"] * 4)
    assert (set(stage.cpus.values()), set(stage.memory.values())) == ({1}, {10})


# --- 4 and 5: others are brought down, and now it fits ----------------------------------------------------------------


def test_others_are_brought_down_to_their_due_until_the_job_has_its_own() -> None:
    stage = Stage("fifo+fit+tune", {"ten": TEN, "six": SIX})
    stage.come("ten")
    assert stage.cpus == {0: 10}
    actions = stage.come("six")
    due = Grant(3000, 30 * GIGABYTE)
    assert actions == [ReallocateJob(0, due), StartJob(1, ((0, 2),), due)]


def test_the_one_with_more_cpus_a_gpu_comes_down_first_and_no_more_than_needed() -> None:
    stage = Stage("fifo+fit+tune", {"six": SIX, "four": FOUR, "nine": wants(9)})
    stage.come("four", "six")
    actions = stage.come("nine")
    due = Grant(3000, 30 * GIGABYTE)
    assert actions[:2] == [ReallocateJob(1, due), StartJob(2, ((0, 4),), due)]


def test_then_the_one_with_more_memory_a_gpu() -> None:
    stage = Stage("fifo+fit+tune", {"less": wants(3, 45), "more": wants(3, 60), "much": wants(3, 90)})
    stage.come("less", "more")
    actions = stage.come("much")
    due = Grant(3000, 30 * GIGABYTE)
    assert actions[:2] == [ReallocateJob(1, due), StartJob(2, ((0, 4),), due)]


def test_a_job_on_one_node_comes_down_before_one_on_two_with_more_cpus_a_gpu() -> None:
    profiles = {"five": FIVE, "less": wants(4.5), "four": FOUR, "little": LITTLE}
    stage = Stage("fifo+fit+tune", profiles, nodes(2))
    stage.come(gang("five", 2, over=2))
    stage.come("less", gang("little", 3))
    assert stage.where == {0: (0, 1), 1: (0,), 2: (1,)}
    stage.come("four")
    assert stage.where[3] == (0,)
    assert stage.cpus == {0: 10, 1: 3, 2: 3, 3: 3}


def test_one_that_comes_down_in_cpus_may_go_up_in_memory_and_then_others_come_down_in_that() -> None:
    """Job 0 has CPUs and little memory, job 1 the memory and few CPUs: each is due what the other one has to give up.
    So one of them gives first and takes later."""
    stage = Stage("fifo+fit+tune", {"cpus": wants(10, 10), "memory": wants(1, 100), "four": FOUR})
    stage.come("cpus", "memory")
    assert (stage.cpus, stage.memory) == ({0: 10, 1: 1}, {0: 10, 1: 100})
    actions = stage.come("four")
    due = Grant(3000, 30 * GIGABYTE)
    first = ReallocateJob(0, Grant(3000, 10 * GIGABYTE))
    assert actions[:4] == [first, ReallocateJob(1, due), ReallocateJob(0, due), StartJob(2, ((0, 4),), due)]


def test_a_full_node_gives_everybody_their_due_of_storage_too() -> None:
    cluster = nodes(1, storage_bytes_per_second=400)
    stage = Stage("fifo+fit+tune", {"reads": wants(1, 10, reads=100)}, cluster)
    stage.come("reads")
    assert stage.state.running[0].storage == 200  # twice the reference speed
    stage.come("reads", "reads")
    assert sorted(js.storage for js in stage.state.running.values()) == [100, 100, 200]
    stage.come("reads")
    assert [js.storage for js in stage.state.running.values()] == [100] * 4


# --- those that run ---------------------------------------------------------------------------------------------------


def test_what_a_job_leaves_behind_goes_to_those_that_stay() -> None:
    stage = Stage("fifo+fit+tune", {"ten": TEN, "six": SIX})
    stage.come("ten", "six")
    assert stage.cpus == {0: 3, 1: 3}
    assert stage.end(1) == [ReallocateJob(0, Grant(10_000, 30 * GIGABYTE))]
    assert stage.decide() == []


def test_jobs_stay_where_they_are() -> None:
    stage = Stage("fifo+fit+tune", {"ten": TEN}, nodes(2, 2))
    stage.come("ten", "ten", "ten")
    before = stage.where
    assert before == {0: (0,), 1: (1,), 2: (0,)}  # the third finds no node with its demand, nor with its due
    stage.end(1)
    assert stage.where == {job: before[job] for job in (0, 2)}


def test_in_rounds_nothing_is_divided_between_them() -> None:
    stage = Stage("fifo+fit+tune+round(1m)", {"ten": TEN, "six": SIX})
    stage.now = 59 * SECOND
    stage.come("ten", "six")
    assert stage.cpus == {0: 3, 1: 3}
    assert stage.end(1)[0].__class__.__name__ == "WakeAt"
    assert stage.cpus == {0: 3}
    stage.now = 120 * SECOND
    stage.decide()
    assert stage.cpus == {0: 10}


# --- jobs and nodes of other kinds ------------------------------------------------------------------------------------


def test_a_job_that_nobody_knows_gets_what_it_asked_for_or_its_due() -> None:
    stage = Stage("fifo+fit+tune", {})
    stage.come(Job(0, 0, SECOND, cpu_milli=5000, memory_bytes=GIGABYTE), Job(0, 0, SECOND))
    assert (stage.cpus, stage.memory) == ({0: 5, 1: 3}, {0: 1, 1: 30})


def test_a_job_without_gpus_keeps_what_it_asked_for_and_gpus_without_their_due_stay_idle() -> None:
    stage = Stage("fifo+fit+tune", {"four": FOUR})
    stage.come(Job(0, 0, SECOND, 0, cpu_milli=7000, memory_bytes=GIGABYTE), "four", "four")
    assert stage.cpus == {0: 7, 1: 4}  # for both dues 6 CPUs would be needed
    stage.end(0)
    assert stage.cpus == {1: 4, 2: 4}


def test_a_share_of_a_gpu_gets_its_share_rounded_up() -> None:
    stage = Stage("fifo+fit+tune", {"odd": wants(1.001, 10)})
    stage.come(gang("odd", 1, gpu_milli=500))
    assert stage.cpus == {0: 0.501}


def test_a_faster_gpu_wants_more_cpus_to_feed_it() -> None:
    fast = Node("fast", 4, "new", 12_000, 120 * GIGABYTE)
    slow = Node("slow", 4, "old", 12_000, 120 * GIGABYTE)
    cluster = Cluster((fast, slow), gpu_speed_ppm={"new": 2_000_000, "old": 500_000})
    stage = Stage("fifo+fit+tune", {"two": wants(2)}, cluster)
    stage.come(gang("two", 1, gpu_types=("new",)), gang("two", 1, gpu_types=("old",)))
    assert stage.cpus == {0: 4, 1: 2}
    assert {job: js.speed for job, js in stage.state.running.items()} == {0: 4_000_000, 1: 1_000_000}


def test_dues_are_those_of_the_job_s_own_nodes() -> None:
    cluster = Cluster((Node("large", 2, "gpu", 12_000, 120 * GIGABYTE), Node("small", 2, "gpu", 4_000, 20 * GIGABYTE)))
    stage = Stage("fifo+fit+tune", {"ten": TEN}, cluster)
    stage.come(gang("ten", 4))
    assert (stage.cpus, stage.memory) == ({0: 8}, {0: 40})  # 2 CPUs and 10 GB a GPU, as the small node has
    stage.end(0)
    stage.come("ten", "ten", "ten", "ten")
    assert stage.where == {1: (0,), 2: (1,), 3: (1,), 4: (0,)}
    assert stage.cpus == {1: 6, 2: 2, 3: 2, 4: 6}


# --- 6: what is left, where it is asked for ---------------------------------------------------------------------------


def steady(most: int) -> Profile:
    """Of a program whose speed grows with each CPU up to so many."""
    return Profile("any", (1000, most * 1000), (10 * GIGABYTE,), ((1_000_000,), (most * 1_000_000,)))


def test_what_is_left_goes_to_those_held_to_their_due_only_where_asked_for() -> None:
    profiles = {"eight": steady(8), "six": steady(6)}
    plain, whole = (Stage(f"fifo+fit+{name}", profiles) for name in ("tune", "tune(leftovers=true)"))
    for stage in (plain, whole):
        stage.come("eight", "six")
    assert plain.cpus == {0: 8, 1: 3}
    assert whole.cpus == {0: 8, 1: 4}


def test_who_gains_most_by_what_is_left_has_it_first() -> None:
    stage = Stage("fifo+fit+tune(leftovers=true)", {"nine": steady(9), "slow": wants(11), "little": LITTLE})
    stage.come("slow", gang("nine", 2), "little")
    assert stage.cpus == {0: 3, 1: 8, 2: 1}  # two CPUs are worth ten times as much to the second


def test_what_was_left_is_given_back_to_who_comes() -> None:
    stage = Stage("fifo+fit+tune(leftovers=true)", {"eight": steady(8), "six": steady(6), "five": steady(5)})
    stage.come("eight", "six")
    assert stage.cpus == {0: 8, 1: 4}
    stage.come("five", "five")
    assert stage.cpus == {0: 3, 1: 3, 2: 3, 3: 3}
    stage.end(3)
    assert sum(stage.cpus.values()) == 12


def test_a_job_over_several_nodes_gets_what_the_tightest_of_them_has_left() -> None:
    stage = Stage("fifo+fit+tune(leftovers=true)", {"wide": steady(6), "four": steady(4)}, nodes(2))
    stage.come(gang("wide", 2, over=2), "four", "four")
    assert min(stage.state.pool.cpu_free) >= 0
    assert stage.cpus[0] == 12
