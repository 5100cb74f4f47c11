"""slower_than_proportional: finds jobs on a tape that would have been faster with their proportional share."""

from headway.core.tape import Tape, TapeWriter
from headway.jobs.audit.proportional_share import slower_than_proportional
from headway.jobs.model.actions import Action, MigrateJob, PreemptJob, ReallocateJob, StartJob
from headway.jobs.model.cluster import Cluster, Node
from headway.jobs.model.events import JobArrived
from headway.jobs.model.job import Job
from headway.jobs.model.resources import Grant
from headway.jobs.model.sensitivity import Matrix, Profile
from headway.jobs.model.speed import SpeedModel
from headway.jobs.policies.registry import build
from headway.jobs.state.state import TrainingState
from headway.units import SECOND

GIGABYTE = 10**9
GROWS = Profile("grows", (1000, 4000), (10 * GIGABYTE, 40 * GIGABYTE), ((250_000, 250_000), (500_000, 1_000_000)))
CLUSTER = Cluster(
    (Node("a", 4, "gpu", 16_000, 160 * GIGABYTE), Node("b", 4, "gpu", 8_000, 80 * GIGABYTE)),
    gpu_speed_ppm={"gpu": 1_000_000},
)
DUE, LESS, MORE = Grant(4000, 40 * GIGABYTE), Grant(3999, 40 * GIGABYTE), Grant(9000, 90 * GIGABYTE)


def tape_of(*steps: tuple[int, Action], jobs: tuple[Job, ...], speed: SpeedModel) -> Tape:
    """What a state writes down when these actions are done at these seconds."""
    policy = build("fifo+tune")
    state = TrainingState(CLUSTER, to_come=len(jobs), arrangement=policy, speed=speed)
    policy.bind(state)
    writer = TapeWriter()
    state.journal = writer.append
    for job in jobs:
        state.apply(0, JobArrived(job))
    for second, action in steps:
        assert state.check(action) is None
        state.commit(second * SECOND, action)
    return writer.close()


def model(believed: Profile = GROWS, true: Profile = GROWS) -> SpeedModel:
    return SpeedModel(CLUSTER, sensitivity=Matrix({"grows": true}), profiles={"grows": believed})


def found(*steps: tuple[int, Action], speed: SpeedModel | None = None, **more: object) -> list[tuple[int, str]]:
    """(second, the job's number) of what is found; job 0 grows by both, of job 1 nobody knows anything."""
    speed = speed or model()
    jobs = (Job(0, 0, 100 * SECOND, model="grows", **more), Job(1, 0, 100 * SECOND, model="unheard-of"))  # type: ignore[arg-type]
    tape = tape_of(*steps, jobs=jobs, speed=speed)
    return [
        (each.time // SECOND, each.text.split()[1]) for each in slower_than_proportional(CLUSTER, jobs, tape, speed)
    ]


def start(job: int, grant: Grant, node: int = 0, mask: int = 1) -> StartJob:
    return StartJob(job, ((node, mask),), grant)


def test_a_job_with_its_due_or_more_is_not_below_it() -> None:
    assert found((0, start(0, DUE))) == []
    assert found((0, start(0, MORE))) == []
    assert found((0, start(0, LESS, node=1))) == []  # half as much is due there


def test_a_thousandth_of_a_cpu_less_is_found_where_it_costs_speed() -> None:
    assert found((0, start(0, LESS))) == [(0, "0")]
    assert found((0, start(0, DUE)), (5, ReallocateJob(0, LESS))) == [(5, "0")]
    assert found((0, start(0, LESS, node=1)), (5, MigrateJob(0, ((0, 2),)))) == [(5, "0")]


def test_less_that_costs_nothing_is_not_found() -> None:
    assert found((0, start(1, Grant(0, 0)))) == []
    flat = Profile("grows", (1000,), (10 * GIGABYTE,), ((500_000,),))
    assert found((0, start(0, Grant(1000, 10 * GIGABYTE))), speed=model(flat, flat)) == []


def test_what_is_held_in_passing_is_not_found() -> None:
    assert found((0, start(0, DUE)), (5, ReallocateJob(0, LESS)), (5, ReallocateJob(0, MORE))) == []
    assert found((0, start(0, LESS)), (0, ReallocateJob(0, DUE))) == []


def test_a_job_that_stopped_is_looked_at_again_only_when_it_starts() -> None:
    steps = ((0, start(0, LESS)), (0, PreemptJob(0)), (9, start(0, LESS, mask=2)))
    assert found(*steps) == [(9, "0")]


def test_it_is_judged_by_what_is_believed() -> None:
    flat = Profile("grows", (1000,), (10 * GIGABYTE,), ((500_000,),))
    assert found((0, start(0, LESS)), speed=model(believed=flat)) == []
    assert found((0, start(0, LESS)), speed=model(true=flat)) == [(0, "0")]


def test_a_share_is_due_its_share() -> None:
    half = Grant(2000, 20 * GIGABYTE)
    assert found((0, start(0, half)), gpu_milli=500) == []
    assert found((0, start(0, Grant(1999, 20 * GIGABYTE))), gpu_milli=500) == [(0, "0")]
