"""tetris, the allocation and the order: remaining work times packed demand, the one that matches what is free first."""

from headway.jobs.model.actions import PreemptJob, StartJob
from headway.units import SECOND
from tests.jobs.policies.allocations.stage import Stage, gang, nodes, wants

PROFILES = {"cpus": wants(6, 10), "memory": wants(1, 60), "one": wants(1, 10), "three": wants(3)}


def started(stage: Stage, *jobs: tuple[str, int, int]) -> list[int]:
    """In which order jobs of (model, GPUs, seconds of work) start that arrive together."""
    actions = stage.come(*(gang(model, gpus, work=work * SECOND) for model, gpus, work in jobs))
    return [action.job for action in actions if isinstance(action, StartJob)]


def test_the_order_is_remaining_time_times_the_part_of_the_cluster() -> None:
    stage = Stage("tetris+fit+tune", PROFILES)
    # Packed demands: 1 of 4 GPUs, 6 of 12 CPUs, 10 of 120 GB = 10/12; 1/4 + 1/12 + 1/12 = 5/12; twice that.
    assert started(stage, ("cpus", 1, 11), ("one", 1, 20), ("one", 2, 9)) == [2, 1, 0]


def test_without_an_allocation_demands_are_what_jobs_ask_for() -> None:
    stage = Stage("tetris+fit", {}, nodes())
    stage.come(gang("", 1, work=10 * SECOND, cpu_milli=9000), gang("", 1, work=12 * SECOND, cpu_milli=1000))
    assert list(stage.state.running) == [1, 0]


def test_the_order_preempts_for_a_job_with_less_left_and_never_swaps_back() -> None:
    stage = Stage("tetris+fit+tune", PROFILES, nodes(1, 1))
    started(stage, ("one", 1, 100))
    actions = stage.come(gang("one", 1, work=30 * SECOND))
    assert [type(action) for action in actions] == [PreemptJob, StartJob]
    stage.now += SECOND
    assert stage.decide() == []


def test_the_allocation_prefers_what_matches_what_is_free() -> None:
    """Jobs 1 and 2 have as much left to do and want parts of the same size, one of the CPUs, one of the memory."""
    stage = Stage("fifo+fit+tetris+no-preempt", {**PROFILES, "mirror": wants(6, 10), "image": wants(1, 60)})
    assert started(stage, ("cpus", 1, 100)) == [0]  # half of the CPUs are gone, and nearly no memory
    assert started(stage, ("mirror", 1, 50), ("image", 1, 50)) == [2]  # its twin's 6 CPUs are then not free
    assert stage.cpus == {0: 6, 2: 1}


def test_the_allocation_s_demands_are_static_and_full() -> None:
    stage = Stage("fifo+fit+tetris", PROFILES)
    started(stage, ("cpus", 1, 10), ("cpus", 1, 20), ("cpus", 1, 30))
    assert stage.cpus == {0: 6, 1: 6}
    stage.end(0)
    assert stage.cpus == {1: 6, 2: 6}


def test_the_policy_s_order_breaks_ties() -> None:
    equal = [("one", 1, 10), ("one", 1, 10)]
    assert started(Stage("fifo+fit+tetris", PROFILES), *equal) == [0, 1]
    stage = Stage("priority+fit+tetris", PROFILES)
    actions = stage.come(gang("one", 1), gang("one", 1, priority=5))
    assert [action.job for action in actions if isinstance(action, StartJob)] == [1, 0]


def test_the_allocation_preempts_for_less_left_whatever_is_free() -> None:
    stage = Stage("fifo+fit+tetris", PROFILES, nodes(1, 1))
    started(stage, ("three", 1, 100))
    actions = stage.come(gang("one", 1, work=10 * SECOND))
    assert [type(action) for action in actions] == [PreemptJob, StartJob]
    assert stage.policy.preempts
