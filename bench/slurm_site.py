"""A made-up Slurm site of 40 mixed nodes, with the jobs of some months: what its own policy is timed on.

    python -m bench.slurm_site FOLDER

writes what an operator would dump (``sacct.txt``, ``nodes.txt``, ``partitions.txt``, ``slurm.conf``). Work is as much
as the nodes can do, limits are mostly far too long, arrays come in one go. Nothing of headway is used here: two
versions of it read the same files.
"""

import argparse
import random
from dataclasses import dataclass, replace
from pathlib import Path

from bench.readers import BEGIN, SACCT, at, span

HOUR, DAY = 3600, 86_400
ACCOUNTS = {
    "vision": ("ada", "grace", "katherine", "mary"),
    "language": ("alan", "edsger", "barbara", "tony", "leslie", "john"),
    "physics": ("emmy", "lise", "chien"),
    "bio": ("rosalind", "francis", "gregor", "jane"),
    "robots": ("joseph", "karel"),
}
SHARES = (0.28, 0.34, 0.12, 0.18, 0.08)
LIMITS = (1, 2, 4, 8, 12, 24, 48, 72)
"""Hours that people ask for."""
WAITED = 600
"""Seconds between submission and start, as the file says; a simulation does not read them."""
CONFIG = """\
ClusterName=meadow
SlurmctldHost=head
PriorityType=priority/multifactor
PriorityWeightAge=2000
PriorityWeightFairShare=10000
PriorityWeightJobSize=500
PriorityWeightPartition=1000
PriorityMaxAge=7-0
PriorityDecayHalfLife=7-0
PriorityCalcPeriod=5
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=20
"""


@dataclass(frozen=True)
class Kind:
    """Some nodes that are alike, and the jobs of their partition."""

    partition: str
    first: int
    nodes: int
    gpus: int
    gpu_type: str
    cpus: int
    memory_gb: int
    part: float
    """Its part of all jobs."""
    widths: tuple[int, ...]
    weights: tuple[float, ...]


KINDS = (
    Kind("a100", 1, 20, 8, "a100", 128, 1000, 0.64, (1, 2, 4, 8, 16, 32), (0.55, 0.13, 0.13, 0.13, 0.045, 0.015)),
    Kind("h100", 21, 4, 8, "h100", 192, 2000, 0.1, (1, 4, 8, 16), (0.4, 0.25, 0.3, 0.05)),
    Kind("v100", 25, 12, 4, "v100", 48, 380, 0.28, (1, 2, 4), (0.72, 0.16, 0.12)),
    Kind("cpu", 37, 4, 0, "", 128, 500, 0.07, (0,), (1.0,)),
)


@dataclass(frozen=True)
class Task:
    """One job."""

    submit: int
    seconds: int
    limit: int
    state: str
    kind: Kind
    partition: str
    gpus: int
    cpus: int
    account: str
    user: str


def _array(draw: random.Random) -> list[Task]:
    """Return an array of one user, mostly of one job, without its time of submission."""
    (kind,) = draw.choices(KINDS, [kind.part for kind in KINDS])
    (account,) = draw.choices(list(ACCOUNTS), SHARES)
    user = draw.choice(ACCOUNTS[account])
    (gpus,) = draw.choices(kind.widths, kind.weights)
    debug = kind.partition == "a100" and gpus in (1, 2) and draw.random() < 0.1
    usual = draw.lognormvariate(6 if debug else 9.0, 1.3)
    count = draw.choice((4, 8, 16, 32, 64)) if gpus <= 1 and draw.random() < 0.05 else 1
    asked = usual * draw.uniform(0.8, 6)
    limit = 2 * HOUR if debug else next((hours for hours in LIMITS if hours * HOUR >= asked), LIMITS[-1]) * HOUR
    cpus = gpus * kind.cpus // kind.gpus // 2 if gpus else draw.choice((4, 8, 16, 32, 64))
    made = []
    for _ in range(count):
        seconds = max(20, int(usual * draw.lognormvariate(0, 0.3)))
        (state,) = draw.choices(("COMPLETED", "FAILED", "CANCELLED"), (0.82, 0.11, 0.07))
        if state != "COMPLETED":
            seconds = max(5, int(seconds * draw.random()))
        if seconds >= limit:
            state, seconds = "TIMEOUT", limit + draw.randrange(31)
        partition = "debug" if debug else kind.partition
        made.append(Task(0, seconds, limit, state, kind, partition, gpus, cpus, account, user))
    return made


def tasks(count: int, load: float = 0.97, seed: int = 11) -> list[Task]:
    """Return jobs by submission, over as much time as the busiest nodes need for ``load`` of what they can do."""
    draw = random.Random(seed)
    arrays: list[list[Task]] = []
    while (made := sum(map(len, arrays))) < count:
        arrays.append(_array(draw)[: count - made])
    busy = dict.fromkeys(KINDS, 0)
    for task in (task for array in arrays for task in array):
        busy[task.kind] += task.seconds * task.gpus
    length = max(busy[kind] / (kind.nodes * kind.gpus) for kind in KINDS if kind.gpus) / load
    times: list[int] = []
    while len(times) < len(arrays):
        second = draw.random() * length
        working = 8 <= second / HOUR % 24 <= 19, second // DAY % 7 < 5
        if draw.random() < (1.0 if working[0] else 0.35) * (1.0 if working[1] else 0.4):
            times.append(BEGIN + int(second))
    times.sort()
    return [replace(task, submit=time) for array, time in zip(arrays, times, strict=True) for task in array]


def _row(number: int, task: Task) -> str:
    """Return a job as sacct prints it."""
    start, kind = task.submit + WAITED, task.kind
    nodes = max(1, task.gpus // kind.gpus) if kind.gpus else 1
    gpus = f"gres/gpu:{kind.gpu_type}={task.gpus},gres/gpu={task.gpus}," if task.gpus else ""
    memory = task.cpus * kind.memory_gb // kind.cpus
    tres = f"billing={task.cpus},cpu={task.cpus},{gpus}mem={memory}G,node={nodes}"
    submit, begun, ended = (at(time, "T") for time in (task.submit, start, start + task.seconds))
    return (
        f"{number}|{task.user}|{task.account}|{task.partition}|normal|1|{submit}|{submit}|{begun}|{ended}|"
        f"{span(task.seconds)}|{span(task.limit)}|{task.state}|{tres}|{tres}|{nodes}|n{kind.first:02}\n"
    )


def _node(number: int, kind: Kind) -> str:
    """Return a node as ``scontrol show node -o`` prints it."""
    gres = f"gpu:{kind.gpu_type}:{kind.gpus}" if kind.gpus else "(null)"
    tres = f",gres/gpu={kind.gpus},gres/gpu:{kind.gpu_type}={kind.gpus}" if kind.gpus else ""
    memory = kind.memory_gb * 1024
    return (
        f"NodeName=n{number:02} Arch=x86_64 CPUAlloc=0 CPUEfctv={kind.cpus} CPUTot={kind.cpus} Gres={gres} "
        f"RealMemory={memory} AllocMem=0 State=IDLE ThreadsPerCore=1 Weight=1 Partitions={kind.partition} "
        f"CfgTRES=cpu={kind.cpus},mem={memory}M,billing={kind.cpus}{tres} AllocTRES=\n"
    )


def _partition(name: str, first: int, nodes: int, factor: int) -> str:
    """Return a partition as ``scontrol show partition -o`` prints it."""
    return (
        f"PartitionName={name} AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=NO QoS=N/A MaxTime=3-00:00:00 "
        f"Nodes=n[{first:02}-{first + nodes - 1:02}] PriorityJobFactor={factor} PriorityTier=1 State=UP\n"
    )


def write(folder: Path, count: int = 20_000) -> None:
    """Write the files of the site."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [_row(number, task) for number, task in enumerate(tasks(count), 1001)]
    (folder / "sacct.txt").write_text("".join([f"{SACCT}\n", *lines]))
    nodes = [_node(number, kind) for kind in KINDS for number in range(kind.first, kind.first + kind.nodes)]
    (folder / "nodes.txt").write_text("".join(nodes))
    partitions = [_partition(kind.partition, kind.first, kind.nodes, 1) for kind in KINDS]
    (folder / "partitions.txt").write_text("".join([*partitions, _partition("debug", 1, 4, 10)]))
    (folder / "slurm.conf").write_text(CONFIG)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the files go; made if need be")
    write(parser.parse_args().folder)
