"""Runs to measure: small random workloads on small clusters with everything that can happen in them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from hypothesis import strategies as st
from msgspec import structs

from headway.core.scheduler import Scheduler
from headway.core.tape import Tape, TapeWriter
from headway.jobs.model.actions import Action, MigrateJob, PreemptJob, ReallocateJob, StartJob
from headway.jobs.model.cluster import Cluster, Level, Node, Partition, Tenant
from headway.jobs.model.job import Job, Outcome, workload
from headway.jobs.model.resources import Grant, Placement
from headway.jobs.model.sensitivity import Matrix
from headway.jobs.model.speed import Costs, SpeedModel
from headway.jobs.policies.registry import build
from headway.jobs.sim.cluster import SimulatedCluster
from headway.jobs.sim.faults import FailureModel, Faults, Maintenance
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.state import TrainingState


@dataclass(frozen=True)
class Recorded:
    """A tape and what it belongs to."""

    tape: Tape
    jobs: tuple[Job, ...]
    cluster: Cluster


CLUSTER = Cluster(
    nodes=(
        Node("a", 4, "old", 8000, 64, 100, path=("z0", "r0"), island_gpus=(2,)),
        Node("b", 4, "old", 8000, None, path=("z0", "r0"), island_gpus=(3,)),
        Node("c", 8, "new", None, 64, path=("z0", "r1"), island_gpus=(4,)),
        Node("d", 2, "new", 8000, 64, 50, path=("z1", "r0"), island_gpus=(1,)),
    ),
    levels=(Level("zone", 10), Level("rack", 20), Level("node", 40), Level("island", 80)),
    partitions=(Partition("front", (0, 1)), Partition("back", (2, 3))),
    tenants=(Tenant("x", weight=2), Tenant("y")),
    gpu_speed_ppm={"new": 1_500_000},
)


class Moody(Matrix):
    """A job's speed depends on all that it holds, for no reason."""

    def of(self, job: Job, grant: Grant, pace_ppm: int) -> int:
        """Anything from a little to three times the pace."""
        return pace_ppm * (1 + sum(grant) % 29) // 10


class Restless:
    """fifo that now and then preempts or moves a job for no reason: nothing that can be on a tape stays untried.

    A generous one gives jobs other CPUs, memory and storage bandwidth than they asked for, and changes its mind.
    """

    def __init__(self, random: Random, *, generous: bool = False) -> None:
        self.generous = generous
        self.calm = build("fifo+fit", placement=random.choice(["best-fit", "first-fit", "spread"]))
        self.name = self.calm.name
        self.random = random
        self.whims = 12

    def decide(self, now: int, state: TrainingState) -> Iterator[Action]:
        """Some whim, then what fifo does."""
        for action in self.moods(now, state):
            if self.generous and isinstance(action, StartJob | MigrateJob) and self.random.random() < 0.7:
                given = structs.replace(action, grant=self.grant())
                action = given if state.check(given) is None else action
            yield action

    def grant(self) -> Grant:
        """Anything."""
        return Grant(self.random.randint(0, 4000), self.random.randint(0, 30), self.random.choice([0, 0, 7, 20]))

    def moods(self, now: int, state: TrainingState) -> Iterator[Action]:
        """Changes of mind, moves and preemptions, and what fifo does."""
        for js in list(state.running.values()) if self.generous else ():
            other = ReallocateJob(js.id, self.grant())
            if self.random.random() < 0.3 and state.check(other) is None:
                yield other
        for js in list(state.running.values()):
            if js.job.preemptible and self.whims and self.random.random() < 0.15:
                self.whims -= 1
                target = self.elsewhere(state, js)
                yield PreemptJob(js.id) if target is None else MigrateJob(js.id, target)
        yield from self.calm.decide(now, state)

    def elsewhere(self, state: TrainingState, js: JobState) -> Placement | None:
        """Other GPUs for a job, if it is to move and there are any."""
        if self.random.random() < 0.5:
            return None
        target = self.calm.placement.place(state.pool, js)
        return None if target == js.placement else target


def job(draw: Random) -> Job:
    """Any job that the cluster can run; most are wide, so that they wait, push each other out and spread over nodes."""
    partition = draw.choice(["", "", "front", "back"])
    share = draw.random() < 0.35
    work = draw.randint(1, 40)
    outcome = draw.choice([Outcome.FINISHES, Outcome.FINISHES, Outcome.FAILS, Outcome.CANCELLED])
    return Job(
        0,
        submit=draw.randint(0, 50),
        work=work,
        gpus=1 if share else draw.choice([0, 1, 2, 3, 5, 8, 8]),
        gpu_milli=draw.choice([100, 300, 500, 999]) if share else 1000,
        tenant=draw.choice(["x", "y", "z"]),
        partition=partition,
        gpu_types=draw.choice([(), (), ("new",)]) if partition != "front" else (),
        cpu_milli=draw.choice([1, 500, 1700]),
        memory_bytes=draw.randint(0, 5),
        preemptible=draw.random() < 0.9,
        checkpoint_every=draw.choice([0, 3]),
        restore=draw.randint(0, 3),
        communication_ppm=draw.choice([0, 200_000]),
        outcome=outcome,
        outcome_after=draw.randint(1, work) if outcome else 0,
        retries=draw.randint(0, 2),
        patience=draw.choice([0, 0, 0, 7]),
    )


PLAIN = replace(CLUSTER, gpu_speed_ppm={}, levels=tuple(Level(level.name) for level in CLUSTER.levels))
"""The same cluster at one speed everywhere."""


@st.composite
def recorded(
    draw: st.DrawFn, cluster: Cluster = CLUSTER, *, whole: bool = False, generous: bool | None = None
) -> Recorded:
    """A run, perhaps cut off unless it is to be ``whole``; ``generous``: with what jobs hold divided at will."""
    generous = draw(st.booleans()) if generous is None else generous
    count, seed = draw(st.integers(0, 25)), draw(st.integers(0, 10**6))
    random = Random(seed)
    work = workload(job(random) for _ in range(count))
    policy = Restless(random, generous=generous)
    faults = None
    if draw(st.booleans()):
        drains = (Maintenance((1,), 20, 10, 5), Maintenance((3,), 8, 30))
        faults = Faults(len(cluster.nodes), seed, FailureModel(60, 9), drains)
    penalty = draw(st.sampled_from([0, 300_000])) if cluster is CLUSTER else 0
    state = TrainingState(
        cluster,
        to_come=len(work),
        arrangement=policy.calm,
        speed=SpeedModel(cluster, sharing_penalty_ppm=penalty, sensitivity=Moody({}) if generous else None),
        costs=Costs(draw(st.integers(0, 4)), draw(st.integers(0, 4)), draw(st.sampled_from([0, 0, 1, 5]))),
    )
    policy.calm.bind(state)
    writer = TapeWriter()
    Scheduler(state, policy, SimulatedCluster(work, state, faults), writer).run()
    tape = writer.close()
    if len(tape) and not whole and draw(st.booleans()):
        tape = tape.until(draw(st.integers(0, int(tape.column("time")[-1]))))
    return Recorded(tape, work, cluster)
