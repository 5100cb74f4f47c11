"""The same quantities by the plainest means: walk the tape row by row, and look at what is where after each instant."""

from collections import defaultdict
from dataclasses import dataclass, field

from headway.core.tape import Tape, TapeRow
from headway.jobs.model.cluster import Cluster
from headway.jobs.model.job import Job
from headway.jobs.model.rows import WORD_BITS, Kind
from headway.jobs.policies.placements.fragmentation import FreeNode, Shape, fragmentation


@dataclass
class Look:
    """What there is to see after one instant."""

    time: int
    allocated: int
    effective: int
    waiting: int
    waiting_gpus: int
    running: int
    nodes_up: int
    cpus: int
    memory_bytes: int
    storage: int
    free: int
    levels: dict[str, float]
    fgd: float


@dataclass
class Running:
    """A job that runs: its GPUs, speed, and from when on it makes progress."""

    gpus: set[tuple[int, int]] = field(default_factory=set)
    nodes: set[int] = field(default_factory=set)
    speed: int = 0
    base: int = 0


NAMES = ("cpu_milli", "memory_bytes", "storage_bytes_per_second")
"""What jobs may hold besides GPUs, as nodes count it."""


class Walk:
    """One walk over a tape."""

    def __init__(self, tape: Tape, jobs: tuple[Job, ...], cluster: Cluster) -> None:
        self.jobs = jobs
        self.cluster = cluster
        self.waiting: set[int] = set()
        self.running: dict[int, Running] = {}
        self.down: set[int] = set()
        self.waits: dict[int, int] = defaultdict(int)
        self.held: dict[int, int] = defaultdict(int)
        self.still: dict[int, int] = defaultdict(int)
        self.granted = {job.id: [job.cpu_milli, job.memory_bytes, 0] for job in jobs}
        """What each job holds besides GPUs whenever it runs."""
        self.looks: list[Look] = []
        largest = max(node.gpus for node in cluster.nodes)
        shapes: dict[Shape, int] = defaultdict(int)
        for job in jobs:
            if job.gpus:
                gpus = job.gpus // job.nodes if job.nodes > 1 else min(job.gpus, largest)
                shapes[Shape(gpus, job.gpu_milli, eligible=self.eligible(job))] += 1
        self.typical = list(shapes.items())
        rows = list(tape)
        edges = {row.time for row in rows} | self.bases(rows)
        before = 0
        for time in sorted(edges):
            for job in self.waiting:
                self.waits[job] += time - before
            for job, holder in self.running.items():
                self.held[job] += time - before
                self.still[job] += max(0, min(holder.base, time) - before)
            for row in rows:
                if row.time == time:
                    self.step(row)
            before = time
            self.looks.append(self.look(time))

    def bases(self, rows: list[TapeRow]) -> set[int]:
        """When jobs that stand still go on, up to the end of the tape."""
        last = max((row.time for row in rows), default=0)
        base: dict[int, int] = {}
        found = set()
        for row in rows:
            if row.kind in (Kind.START, Kind.MIGRATE):
                base[row.subject] = row.time
            elif row.kind in (Kind.COST, Kind.PAUSE):
                base[row.subject] = max(base[row.subject], row.time) + row.value
                found.add(base[row.subject])
        return {time for time in found if time <= last}

    def eligible(self, job: Job) -> int:
        nodes = range(len(self.cluster.nodes))
        if job.partition:
            nodes = next(p.nodes for p in self.cluster.partitions if p.name == job.partition)
        types = job.gpu_types
        return sum(1 << n for n in nodes if not types or self.cluster.nodes[n].gpu_type in types)

    def step(self, row: TapeRow) -> None:
        job = row.subject
        match row.kind:
            case Kind.ARRIVED | Kind.QUEUED_AGAIN:
                self.waiting.add(job)
            case Kind.START | Kind.MIGRATE:
                self.waiting.discard(job)
                self.running[job] = Running(speed=row.value, base=row.time)
                if row.kind == Kind.START:
                    self.granted[job] = [self.jobs[job].cpu_milli, self.jobs[job].memory_bytes, 0]
                self.take(job, row.place, row.detail, 0)
            case Kind.PLACE:
                self.take(job, row.place, row.detail, row.value)
            case Kind.COST:
                self.running[job].base = row.time + row.value
            case Kind.RESPEED | Kind.REALLOCATE:
                self.running[job].speed = row.value
            case Kind.GRANT:
                self.granted[job] = [row.value, row.detail, 0]
            case Kind.STORAGE:
                self.granted[job][2] = row.value
            case Kind.PAUSE:
                self.running[job].base = max(self.running[job].base, row.time) + row.value
            case Kind.FINISHED | Kind.FAILED:
                del self.running[job]
            case Kind.CANCELLED:
                self.running.pop(job, None)
                self.waiting.discard(job)
            case Kind.PREEMPT | Kind.EVICTED:
                del self.running[job]
                self.waiting.add(job)
            case Kind.NODE_FAILED | Kind.NODE_DRAINED:
                self.down.add(row.subject)
            case Kind.NODE_RECOVERED:
                self.down.discard(row.subject)

    def take(self, job: int, node: int, mask: int, word: int) -> None:
        holder = self.running[job]
        holder.nodes.add(node)
        holder.gpus |= {(node, bit + word * WORD_BITS) for bit in range(WORD_BITS) if mask >> bit & 1}

    def look(self, time: int) -> Look:
        used: dict[tuple[int, int], int] = defaultdict(int)
        effective, host = 0, [0, 0, 0]
        for job, holder in self.running.items():
            wanted = self.jobs[job]
            for gpu in holder.gpus:
                used[gpu] += wanted.gpu_milli
            if time >= holder.base:
                effective += wanted.width_milli * holder.speed
            for node in holder.nodes:
                there = sum(1 for where, _ in holder.gpus if where == node)
                of, count = (wanted.gpus, there) if wanted.gpus else (1, 1)
                for index, name in enumerate(NAMES):
                    if getattr(self.cluster.nodes[node], name) is not None:
                        host[index] += -(-self.granted[job][index] * count // of)
        return Look(
            time=time,
            allocated=sum(used.values()),
            effective=effective,
            waiting=len(self.waiting),
            waiting_gpus=sum(self.jobs[job].width_milli for job in self.waiting),
            running=len(self.running),
            nodes_up=len(self.cluster.nodes) - len(self.down),
            cpus=host[0],
            memory_bytes=host[1],
            storage=host[2],
            free=sum(1000 - used[gpu] for gpu in self.devices()),
            levels=self.levels(used),
            fgd=self.fgd(used),
        )

    def devices(self) -> list[tuple[int, int]]:
        """All GPUs on nodes that are up."""
        nodes = enumerate(self.cluster.nodes)
        return [(index, gpu) for index, node in nodes if index not in self.down for gpu in range(node.gpus)]

    def levels(self, used: dict[tuple[int, int], int]) -> dict[str, float]:
        names = [level.name for level in self.cluster.levels]
        outside = names.index("node")
        free = sum(1000 - used[gpu] for gpu in self.devices())
        shares = {}
        for name in [*names, "gpu"]:

            def domain(gpu: tuple[int, int], name: str = name) -> object:
                node = self.cluster.nodes[gpu[0]]
                if name == "gpu":
                    return gpu
                position = names.index(name)
                if position < outside:
                    return node.path[: position + 1]
                return gpu[0] if position == outside else (gpu[0], gpu[1] // node.island_gpus[position - outside - 1])

            in_use = {domain(gpu) for gpu, milli in used.items() if milli}
            part = sum(1000 - used[gpu] for gpu in self.devices() if domain(gpu) in in_use)
            shares[name] = part / free if free else 0.0
        return shares

    def fgd(self, used: dict[tuple[int, int], int]) -> float:
        nodes = []
        for index, node in enumerate(self.cluster.nodes):
            left = [1000 - used[(index, gpu)] for gpu in range(node.gpus)] if index not in self.down else []
            nodes.append(FreeNode(left.count(1000), tuple(milli for milli in left if 0 < milli < 1000)))
        return fragmentation(nodes, self.typical)
