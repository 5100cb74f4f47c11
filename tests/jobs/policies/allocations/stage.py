"""A stage for allocations: jobs come and go by hand, and what everybody holds can be read off.

Nodes have 12 CPUs and 120 GB for 4 GPUs unless told otherwise, so a GPU's due is 3 CPUs and 30 GB.
"""

from collections.abc import Mapping
from dataclasses import replace

from headway.jobs.model.actions import Action
from headway.jobs.model.cluster import Cluster, uniform
from headway.jobs.model.events import JobArrived, JobFinished
from headway.jobs.model.job import Job
from headway.jobs.model.sensitivity import Profile
from headway.jobs.policies.registry import build
from headway.units import SECOND
from tests.conformance.divided import Divided
from tests.drive import fresh_state

GIGABYTE = 10**9


def wants(cpus: float, gigabytes: int = 30, *, reads: int = 0) -> Profile:
    """Of a program that is twice as fast with exactly so much for each GPU, and needs 1 CPU and 10 GB to run at all."""
    rows = sorted({1000, round(cpus * 1000)})
    columns = sorted({10 * GIGABYTE, gigabytes * GIGABYTE})
    matrix = [[1_000_000] * len(columns) for _ in rows]
    matrix[-1][-1] = 2_000_000
    return Profile(
        *("any", tuple(rows), tuple(columns), tuple(map(tuple, matrix))),
        read_bytes_per_second=reads,
        dataset_bytes=10**15 if reads else 0,
    )


def nodes(count: int = 1, gpus: int = 4, **more: int) -> Cluster:
    """Of 12 CPUs and 120 GB each."""
    return uniform(count, gpus, cpus_per_node=12, memory_per_node_bytes=120 * GIGABYTE, **more)


class Stage:
    """A policy and its state, led by hand."""

    def __init__(self, spec: str, profiles: Mapping[str, Profile], cluster: Cluster | None = None) -> None:
        self.policy = build(spec)
        world = Divided(cluster or nodes(), tuple(Job(i, 0, SECOND) for i in range(1000)), profiles=dict(profiles))
        self.state = fresh_state(self.policy, world)
        self.now = 0
        self._count = 0

    def come(self, *models: str | Job) -> list[Action]:
        """Jobs of one GPU that train these arrive, or those given; what is decided then."""
        self.now += SECOND
        for model in models:
            job = model if isinstance(model, Job) else Job(0, 0, 100 * SECOND, model=model)
            self.state.apply(self.now, JobArrived(replace(job, id=self._count, submit=self.now)))
            self._count += 1
        return self.decide()

    def end(self, *jobs: int) -> list[Action]:
        """These jobs finish; what is decided then."""
        self.now += SECOND
        for job in jobs:
            self.state.apply(self.now, JobFinished(job, self.state.running[job].lease))
        return self.decide()

    def decide(self) -> list[Action]:
        """What is decided, and done, now."""
        done = []
        for action in self.policy.decide(self.now, self.state):
            assert self.state.check(action) is None, self.state.check(action)
            self.state.commit(self.now, action)
            done.append(action)
        return done

    @property
    def cpus(self) -> dict[int, float]:
        """CPUs that running jobs hold, by job."""
        return {job: js.cpu_milli / 1000 for job, js in sorted(self.state.running.items())}

    @property
    def memory(self) -> dict[int, float]:
        """Gigabytes that running jobs hold, by job."""
        return {job: js.memory_bytes / GIGABYTE for job, js in sorted(self.state.running.items())}

    @property
    def where(self) -> dict[int, tuple[int, ...]]:
        """The nodes that running jobs are on."""
        return {job: tuple(node for node, _ in js.placement) for job, js in sorted(self.state.running.items())}


def gang(model: str, gpus: int, *, over: int = 0, **more: object) -> Job:
    """A job of several GPUs, on so many nodes if that is said."""
    return replace(Job(0, 0, 100 * SECOND, gpus, nodes=over, model=model), **more)  # type: ignore[arg-type]
