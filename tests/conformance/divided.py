"""Worlds in which CPUs, memory and storage bandwidth are there to be divided, and jobs with profiles to divide them by.

They are the worlds of ``tests/strategies.py`` with other nodes and other jobs: nodes differ in what they have for each
GPU, some things are not counted, GPUs may be faster than the reference, and jobs may ask for more than there is.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

from hypothesis import strategies as st

from headway.jobs.model.cluster import Cluster, Node, Tenant
from headway.jobs.model.job import Job, workload
from headway.jobs.model.sensitivity import Matrix, Profile, Scalar
from headway.jobs.model.speed import Costs, SpeedModel
from headway.jobs.sim.faults import FailureModel, Faults
from headway.units import SECOND
from tests.drive import World
from tests.strategies import GPU_TYPES, fits, specs, worlds

GIGABYTE = 10**9
MODELS = ("image", "language", "speech")


@dataclass(frozen=True)
class Divided(World):
    """A world whose jobs feel what they hold."""

    profiles: dict[str, Profile] = field(default_factory=dict)
    scalar: bool = False

    def speed(self) -> SpeedModel:
        """By the profiles."""
        sensitivity = (Scalar if self.scalar else Matrix)(self.profiles)
        return SpeedModel(
            self.cluster,
            sharing_penalty_ppm=self.sharing_penalty_ppm,
            sensitivity=sensitivity,
            profiles=self.profiles,
        )


def stairs(model: str, cpus: tuple[int, ...], gigabytes: tuple[int, ...]) -> Profile:
    """Reference speed at the first cell, half as much more with each step of CPUs, a fifth more with one of memory."""
    return Profile(
        model,
        tuple(1000 * count for count in cpus),
        tuple(GIGABYTE * size for size in gigabytes),
        tuple(
            tuple(1_000_000 + 500_000 * row + 200_000 * column for column in range(len(gigabytes)))
            for row in range(len(cpus))
        ),
    )


@st.composite
def profiles(draw: st.DrawFn, model: str) -> Profile:
    """A matrix that never falls, of a few cells, at any numbers."""
    cpus = draw(st.lists(st.integers(250, 8000), min_size=0, max_size=2, unique=True))
    sizes = draw(st.lists(st.integers(10**9, 150 * GIGABYTE), min_size=0, max_size=2, unique=True))
    rows = tuple(sorted({*cpus, draw(st.sampled_from([500, 1000, 1999]))}))
    columns = tuple(sorted({*sizes, draw(st.sampled_from([8 * GIGABYTE, 20_830_000_001]))}))
    matrix: list[tuple[int, ...]] = []
    for _ in rows:
        row: list[int] = []
        for column in range(len(columns)):
            least = max(row[-1] if row else 200_000, matrix[-1][column] if matrix else 0)
            row.append(least + draw(st.sampled_from([0, 0, 1, 300_000, 777_777])))
        matrix.append(tuple(row))
    reads = draw(st.sampled_from([0, 50_000_000, 200_000_003]))
    dataset = draw(st.sampled_from([0, 100 * GIGABYTE, 300 * GIGABYTE])) if reads else 0
    return Profile(model, rows, columns, tuple(matrix), read_bytes_per_second=reads, dataset_bytes=dataset)


@st.composite
def _machines(draw: st.DrawFn, cluster: Cluster) -> Cluster:
    """The same nodes with other hosts, of one or two kinds; of each thing counted on all nodes or on none."""
    counts = draw(st.sampled_from([(1, 1, 0), (1, 1, 1), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (0, 1, 1)]))
    kinds = [
        (draw(st.integers(1000, 8000)), draw(st.integers(10**10, 10**11)), draw(st.integers(2 * 10**7, 3 * 10**8)))
        for _ in range(draw(st.integers(1, 2)))
    ]
    nodes = []
    for node in cluster.nodes:
        kind = kinds[draw(st.integers(0, len(kinds) - 1))]
        has = [each * max(1, node.gpus) + draw(st.integers(0, 1)) for each in kind]
        cpu_milli, memory_bytes, storage = (
            value if counted else None for value, counted in zip(has, counts, strict=True)
        )
        nodes.append(replace(node, cpu_milli=cpu_milli, memory_bytes=memory_bytes, storage_bytes_per_second=storage))
    if draw(st.integers(0, 3)) == 0:
        nodes.append(_without_gpus(nodes[0]))
    speeds = dict(cluster.gpu_speed_ppm)
    if draw(st.integers(0, 2)) == 0:
        speeds["A100"] = draw(st.sampled_from([1_700_000, 2_500_001]))
    return replace(cluster, nodes=tuple(nodes), gpu_speed_ppm=speeds)


def _without_gpus(like: Node) -> Node:
    return replace(like, name="host", gpus=0)


@st.composite
def divided_worlds(draw: st.DrawFn, *, quotas: bool | None = None, max_jobs: int = 8) -> Divided:
    """Somebody's nodes, jobs of three kinds and of none, and what a reallocation costs."""
    world = draw(worlds(quotas=quotas, max_jobs=max_jobs))
    cluster = draw(_machines(world.cluster))
    known = {model: draw(profiles(model)) for model in MODELS}
    crowd = draw(st.integers(1, 3))
    jobs = [draw(_trained(cluster, job, narrow=crowd > 1)) for job in world.jobs for _ in range(crowd)]
    left = workload(job for job in jobs if _could_run(cluster, job)) or (Job(0, 0, SECOND),)
    costs = world.costs or Costs()
    costs = replace(costs, reallocation=draw(st.sampled_from([0, 0, SECOND + 1])))
    return Divided(
        cluster, left, world.faults, costs, world.sharing_penalty_ppm, world.told, known, draw(st.integers(0, 3)) == 0
    )


@st.composite
def _trained(draw: st.DrawFn, cluster: Cluster, job: Job, *, narrow: bool) -> Job:
    """A job that trains something, or nobody knows what; some ask for CPUs and memory, some for too much."""
    if not job.gpus:
        return job
    if narrow and not job.nodes:  # many that share a node have something to divide
        job = replace(job, gpus=min(job.gpus, 1 + draw(st.integers(0, 1))), submit=job.submit // 8)
    job = replace(job, model=draw(st.sampled_from(["", "unheard-of", *MODELS, *MODELS])), cpu_milli=0, memory_bytes=0)
    asks = draw(st.integers(0, 3))
    if asks == 0 and draw(st.booleans()):
        return replace(job, gpus=0, gpu_milli=1000, nodes=0, cpu_milli=draw(st.sampled_from([500, 3000])))
    if asks == 1:
        cpus = draw(st.sampled_from([1, 700, 2500, 9000]))
        job = replace(job, cpu_milli=cpus * job.gpus + 1, memory_bytes=draw(st.integers(0, 90)) * GIGABYTE)
    return job


def _could_run(cluster: Cluster, job: Job) -> bool:
    """What a job with GPUs asks for besides is no reason to leave it out: it is given less."""
    return fits(cluster, replace(job, cpu_milli=0, memory_bytes=0) if job.gpus else job)


@st.composite
def divided_specs(draw: st.DrawFn, allocation: str, cluster: Cluster, *, order: str = "", placement: str = "") -> str:
    """The name of a policy with this allocation, deciding at every event or in rounds."""
    spec = draw(specs(order=order, placement=placement, cluster=cluster))
    return f"{spec}+{allocation}{draw(st.sampled_from(['', '', '+round(7s)', '+round(300s)']))}"


def crowded(seed: int) -> Divided:
    """A small cluster where many short jobs meet, most of which could use more than their due, all from one number.

    What hypothesis draws piece by piece is mostly small; here there is something to divide nearly all the time.
    """
    dice = Random(seed)
    counts = dice.choice([(1, 1, 0), (1, 1, 1), (1, 1, 1), (1, 0, 0), (0, 1, 1)])
    nodes = []
    each = [
        (dice.randint(1500, 4500), dice.randint(2 * 10**10, 7 * 10**10), dice.randint(2 * 10**7, 10**8)) for _ in "ab"
    ]
    for index in range(dice.randint(1, 3)):
        gpus = dice.randint(1, 4)
        has = [amount * gpus + dice.randint(0, 3) for amount in dice.choice(each)]
        host = [value if counted else None for value, counted in zip(has, counts, strict=True)]
        nodes.append(Node(f"n{index}", gpus, dice.choice(GPU_TYPES), *host))
    tenants = (Tenant("a", 2, 1, None, True), Tenant("b", 1, None, None)) if dice.random() < 0.3 else ()
    speeds = {"A100": dice.choice([1_000_000, 1_000_000, 1_700_001]), "V100": dice.choice([400_000, 1_000_000])}
    cluster = Cluster(tuple(nodes), tenants=tenants, gpu_speed_ppm=speeds)
    jobs = [_one_of_many(dice, cluster) for _ in range(dice.randint(5, 25))]
    faults: Callable[[], Faults] | None = None
    if dice.random() < 0.2:
        faults = partial(Faults, len(nodes), seed, FailureModel(100 * SECOND, 10 * SECOND), ())
    costs = Costs(dice.choice([None, 0, SECOND]), dice.choice([None, SECOND]), dice.choice([0, 0, SECOND + 1]))
    known = {model: _hungry(dice, model) for model in MODELS}
    fitting = workload(job for job in jobs if _could_run(cluster, job)) or (Job(0, 0, SECOND),)
    return Divided(cluster, fitting, faults, costs, dice.choice([0, 250_000]), f"crowded({seed})", known)


def _one_of_many(dice: Random, cluster: Cluster) -> Job:
    gpus = dice.choice([1, 1, 1, 2, 2, 4])
    job = Job(
        0,
        dice.randint(0, 20) * SECOND,
        dice.randint(1, 30) * SECOND + dice.randint(0, 3),
        gpus,
        tenant=dice.choice([tenant.name for tenant in cluster.tenants] or ["x", "y"]),
        nodes=dice.choice([0, 0, 0, 1, 2]) if gpus % 2 == 0 else 0,
        estimate=dice.choice([0, 10 * SECOND]),
        priority=dice.randint(0, 1),
        preemptible=dice.random() < 0.9,
        restore=dice.choice([0, SECOND]),
        checkpoint_every=5 * SECOND,
        communication_ppm=dice.choice([0, 300_000]),
        model=dice.choice([*MODELS, *MODELS, "unheard-of"]),
    )
    match dice.randint(0, 9):
        case 0:
            return replace(job, gpus=0, nodes=0, cpu_milli=dice.randint(1, 5000), memory_bytes=dice.randint(0, 10**11))
        case 1 | 2:
            return replace(job, gpus=1, nodes=0, gpu_milli=dice.choice([100, 333, 500, 700]))
        case 3:
            return replace(job, cpu_milli=dice.randint(1, 20_000), memory_bytes=dice.randint(1, 10**11))
        case _:
            return job


def _hungry(dice: Random, model: str) -> Profile:
    """Gains by more CPUs, by more memory, by both, or by neither."""
    rows = sorted([dice.randint(500, 2000), *dice.sample(range(2001, 9000), dice.randint(0, 3))])
    columns = sorted(
        [dice.randint(10**10, 2 * 10**10), *dice.sample(range(3 * 10**10, 15 * 10**10), dice.randint(0, 2))]
    )
    matrix: list[tuple[int, ...]] = []
    for _ in rows:
        row: list[int] = []
        for column in range(len(columns)):
            least = max(row[-1] if row else 300_000, matrix[-1][column] if matrix else 0)
            row.append(least + dice.choice([0, 1, dice.randint(0, 900_000)]))
        matrix.append(tuple(row))
    reads = dice.choice([0, 10**8])
    return Profile(
        *(model, tuple(rows), tuple(columns), tuple(matrix)),
        read_bytes_per_second=reads,
        dataset_bytes=reads * 2000,
        working_bytes=dice.choice([0, 10**9]),
    )
