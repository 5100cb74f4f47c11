"""How fast jobs run where they are, what stopping and moving cost, and that their ends follow to the nanosecond."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from headway.jobs.model.cluster import Cluster, Level, Node, uniform
from headway.jobs.model.job import Job, Outcome, workload
from headway.jobs.model.resources import UNCOUNTED, Grant, Placement
from headway.jobs.model.rows import Kind
from headway.jobs.model.sensitivity import Matrix
from headway.jobs.model.speed import Costs, SpeedModel
from headway.units import SECOND
from tests.conformance.checks import check_delivered
from tests.drive import World, drive, seconds_of

LEVELS = (Level("zone", 10), Level("rack", 25), Level("node", 100), Level("island", 400))


def racks() -> Cluster:
    """Eight nodes of four GPUs in islands of two; two nodes a rack, two racks a zone."""
    return uniform(8, 4, nodes_per_group=[("zone", 4), ("rack", 2)], levels=LEVELS, island_gpus=(2,))


@pytest.mark.parametrize(
    ("placement", "level"),
    [
        (((0, 0b0001),), "gpu or island"),
        (((0, 0b0011),), "gpu or island"),
        (((0, 0b1100),), "gpu or island"),
        (((0, 0b0110),), "node"),
        (((0, 0b1111),), "node"),
        (((0, 0b0001), (1, 0b0001)), "rack"),
        (((0, 0b0001), (2, 0b0001)), "zone"),
        (((0, 0b0001), (7, 0b0001)), "beyond"),
    ],
)
def test_the_smallest_common_domain(placement: Placement, level: str) -> None:
    names = {-1: "beyond", 0: "zone", 1: "rack", 2: "node", 3: "gpu or island"}
    assert names[SpeedModel(racks()).level_spanned(placement)] == level


def test_communication_slows_down_by_the_level_spanned() -> None:
    model = SpeedModel(racks())
    job = Job(0, 0, 1, 2, communication_ppm=200_000)
    apart = {
        "island": ((0, 0b0011),),
        "node": ((0, 0b0110),),
        "rack": ((0, 1), (1, 1)),
        "zone": ((0, 1), (2, 1)),
    }
    speeds = {name: model.of(job, placement, Grant(0, 0)) for name, placement in apart.items()}
    assert speeds["island"] == 1_000_000
    for name, slower in (("node", 4), ("rack", 16), ("zone", 40)):
        assert speeds[name] == 1_000_000 * 1_000_000 // (1_000_000 + 200_000 * (slower - 1))
    assert model.of(job, ((0, 1), (7, 1)), Grant(0, 0)) <= speeds["zone"], "beyond the outermost level is no faster"
    assert model.of(replace(job, communication_ppm=0), ((0, 1), (7, 1)), Grant(0, 0)) == 1_000_000
    assert model.of(replace(job, gpus=1), ((0, 1),), Grant(0, 0)) == 1_000_000


def test_the_slowest_gpu_type_sets_the_pace() -> None:
    nodes = (Node("a", 4, "A100"), Node("b", 4, "V100"), Node("c", 4, "new"))
    model = SpeedModel(Cluster(nodes, gpu_speed_ppm={"V100": 400_000, "new": 2_000_000}))
    job = Job(0, 0, 1, 2)
    assert model.of(job, ((0, 3),), Grant(0, 0)) == 1_000_000
    assert model.of(job, ((2, 3),), Grant(0, 0)) == 2_000_000
    assert model.of(job, ((0, 1), (1, 1)), Grant(0, 0)) == 400_000
    assert not model.constant
    assert SpeedModel(uniform(2, 4)).constant


def test_what_a_job_holds_is_asked_at_the_pace_of_its_gpus_and_what_nobody_counts_is_endless() -> None:
    asked: list[tuple[Grant, int]] = []

    class Half(Matrix):
        def of(self, job: Job, grant: Grant, pace_ppm: int) -> int:
            asked.append((grant, pace_ppm))
            return pace_ppm // 2

    cluster = Cluster((Node("a", 4, "fast", cpu_milli=8000),), gpu_speed_ppm={"fast": 2_000_000})
    model = SpeedModel(cluster, sensitivity=Half({}))
    assert model.of(Job(0, 0, 1), ((0, 1),), Grant(2000, 77)) == 1_000_000
    assert asked == [(Grant(2000, UNCOUNTED, UNCOUNTED), 2_000_000)]


@given(speed=st.integers(1, 3_000_000), work=st.integers(1, 10**12))
def test_an_end_is_rounded_up_to_the_nanosecond_in_which_the_work_is_done(speed: int, work: int) -> None:
    cluster = Cluster((Node("a", 1, "odd"),), gpu_speed_ppm={"odd": speed})
    made = drive("fifo", World(cluster, workload([Job(0, 5, work)])))
    assert made.ends == {0: 5 + -(-work * 1_000_000 // speed)}
    check_delivered(made)


def test_a_neighbour_slows_a_share_down_while_it_is_there() -> None:
    jobs = workload(
        [Job(0, 0, 10 * SECOND, gpu_milli=500), Job(0, 2 * SECOND, 3 * SECOND, gpu_milli=400), Job(0, 0, SECOND, 4)]
    )
    made = drive("fifo+fit", World(uniform(2, 4), jobs, sharing_penalty_ppm=500_000))
    respeeds = [(row.time, row.subject, row.value) for row in made.rows(Kind.RESPEED)]
    alone, beside, guest = 1_000_000, 800_000, 750_000
    left = 2 * SECOND + 3 * SECOND * 1_000_000 // guest
    assert respeeds == [(2 * SECOND, 0, beside), (left, 0, alone)]
    done = 2 * SECOND + (left - 2 * SECOND) * beside // 1_000_000
    assert made.ends[0] == left + 10 * SECOND - done
    check_delivered(made)


def test_two_neighbours_who_end_together_end_once_each() -> None:
    jobs = workload([Job(0, 0, SECOND, gpu_milli=300) for _ in range(3)])
    made = drive("fifo", World(uniform(1, 1), jobs, sharing_penalty_ppm=250_000))
    assert len(made.rows(Kind.FINISHED)) == 3
    assert made.rows(Kind.STALE) == []
    check_delivered(made)


def test_a_share_that_was_slowed_down_ends_after_it_is_tried_again() -> None:
    """An end that was moved under one lease says nothing about the next one."""
    failing = Job(0, 0, 4 * SECOND, gpu_milli=500, outcome=Outcome.FAILS, outcome_after=2 * SECOND, retries=1)
    made = drive(
        "fifo", World(uniform(1, 1), workload([failing, Job(0, 1, SECOND, gpu_milli=500)]), sharing_penalty_ppm=250_000)
    )
    assert len(made.rows(Kind.FAILED)) == 2
    check_delivered(made)


def test_costs_move_the_end() -> None:
    jobs = workload([Job(0, 0, 10 * SECOND, 4), Job(0, 4 * SECOND, SECOND, 4)])
    free = drive("srtf", World(uniform(1, 4), jobs, costs=Costs(0, 0)))
    assert free.ends == {0: 11 * SECOND, 1: 5 * SECOND}
    charged = drive("srtf", World(uniform(1, 4), jobs, costs=Costs(preemption=3 * SECOND)))
    assert charged.ends == {0: 14 * SECOND, 1: 5 * SECOND}
    own = tuple(replace(job, checkpoint=SECOND, restore=SECOND // 2) for job in jobs)
    assert drive("srtf", World(uniform(1, 4), own)).ends == {0: 12 * SECOND + SECOND // 2, 1: 5 * SECOND}


def test_two_jobs_on_a_slow_gpu_do_not_swap_for_ever() -> None:
    """Each has less work left than the other has time to run: preemption must not go by that."""
    slow = Cluster((Node("a", 1, "V100"),), gpu_speed_ppm={"V100": 400_000})
    made = drive("srtf", World(slow, seconds_of((0, 1, 1), (0, 1, 1))))
    assert made.rows(Kind.PREEMPT) == []
    assert made.ends == {0: 2_500_000_000, 1: 5_000_000_000}
    restoring = World(uniform(1, 4), seconds_of((0, 10, 4), (1, 2, 4), (4, 9, 4)), costs=Costs(preemption=5 * SECOND))
    assert len(drive("srtf", restoring).rows(Kind.PREEMPT)) == 1, "a checkpoint being loaded is no reason to stop again"
