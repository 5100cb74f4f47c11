"""A site with limits, tiers and preemption on a real Slurm: a fixed workload goes through it, again and again.

    python -m bench.slurm_site_lab FOLDER --runs 1 2 3 4 5
    python -m bench.slurm_site_lab FOLDER --jobs 5000 --users 30 --mean-s 6

leaves what an operator would dump in ``FOLDER/run-1`` and so on; runs that are there already are skipped. The site has
16 virtual nodes of four pretended GPUs, of two types; partitions of three tiers; QOSs that limit users and a group; a
QOS that is preempted and requeued; a tree of accounts with shares; one reservation. Needs what bench/slurm_lab.py
needs.
"""

import argparse
import math
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.slurm_drive import Step, play
from bench.slurm_lab import SlurmLab, missing
from bench.slurm_users import unix_users

NODES = {"a100": 10, "h100": 6}
GPUS_A_NODE = 4
GPUS = GPUS_A_NODE * sum(NODES.values())
REQUEUE_S = 15
SETTINGS = {
    "AccountingStorageEnforce": "limits,qos",
    "PreemptType": "preempt/qos",
    "PreemptMode": "REQUEUE",
    "PriorityWeightAge": "1000",
    "PriorityMaxAge": "00:10:00",
    "PriorityWeightFairshare": "3000",
    "PriorityWeightQOS": "2000",
    "PriorityWeightPartition": "500",
    "PriorityWeightJobSize": "200",
    "PriorityDecayHalfLife": "00:05:00",
    "PriorityCalcPeriod": "1",
    "SchedulerParameters": (
        "bf_interval=1,bf_resolution=1,bf_continue,bf_max_job_test=1000,default_queue_depth=1000,sched_interval=1,"
        "sched_min_interval=100000,batch_sched_delay=0"
    ),
}
PARTITIONS = (
    "PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=2 PriorityJobFactor=1",
    "PartitionName=urgent Nodes=n[1-4,11-12] MaxTime=00:10:00 State=UP PriorityTier=3 PriorityJobFactor=10",
    "PartitionName=scavenge Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 PriorityJobFactor=1",
)
RESERVED = "n[9-10]"
RESERVED_S = 120
MOST_GUESTS = 20
LEAVES = {
    "physics": ("ada", "emmy", "lise", "chien", "maria", "niels"),
    "bio": ("rosalind", "jane", "gregor", "barbara", "francis", "rita"),
    "vision": ("grace", "alan", "edsger", "fei", "yann", "david"),
    "speech": ("tony", "leslie", "radia", "karen", "james", "lori"),
    "robots": ("joseph", "karel", "cynthia", "rodney", "hiroshi", "marc"),
}
"""Accounts with their users, without the ``lab-`` that their names begin with."""
_TREE = (
    "modify qos normal set Priority=100 MaxTRESPU=gres/gpu=12 Preempt=scavenger",
    "modify qos high set Priority=1000 MaxJobsPU=3 Preempt=scavenger",
    "modify qos long set Priority=10 GrpTRES=gres/gpu=16 MaxWall=00:15:00 Preempt=scavenger",
    "modify qos scavenger set Priority=0 PreemptMode=requeue",
    "modify cluster lab set qos=normal,high,long,scavenger defaultqos=normal",
    "add account science fairshare=60",
    "add account industry fairshare=40",
    "add account physics parent=science fairshare=40",
    "add account bio parent=science fairshare=60 GrpTRES=gres/gpu=20",
    "add account vision parent=industry fairshare=50",
    "add account speech parent=industry fairshare=30",
    "add account robots parent=industry fairshare=20 MaxJobs=4",
)


@dataclass(frozen=True)
class Shape:
    """How much work there is, and of whom."""

    jobs: int = 400
    users: int = 10
    mean_s: float = 36.0
    load: float = 1.2
    seed: int = 21

    @property
    def people(self) -> dict[str, str]:
        """Users with their accounts."""
        each = math.ceil(self.users / len(LEAVES))
        return {f"lab-{name}": account for account, names in LEAVES.items() for name in names[:each]}


def accounting(shape: Shape) -> list[str]:
    """Return the commands of sacctmgr that make the site's QOSs, accounts and users."""
    added = [f"add qos {name}" for name in ("high", "long", "scavenger")]
    people = [
        f"add user {name} account={account} fairshare={1 + place % 3}"
        for place, (name, account) in enumerate(shape.people.items())
    ]
    return [*added, *_TREE, *people]


@dataclass(slots=True)
class _Draw:
    """Draws the jobs of a workload. What belongs together is one list, in which times count from its first job."""

    shape: Shape
    random: random.Random
    count: int = 0
    gpu_seconds: float = 0.0
    units: list[list[Step]] = field(default_factory=list)

    def name(self) -> str:
        self.count += 1
        return f"j{self.count}"

    def user(self) -> str:
        return self.random.choice(list(self.shape.people))

    def seconds(self, times: float = 1.0) -> int:
        mean = self.shape.mean_s * times
        return max(1, round(min(self.random.lognormvariate(math.log(mean) - 0.3, 0.8), 4 * mean)))

    def job(self, qos: str, *options: str, user: str, name: str = "", wide: int = 8, **given: float) -> Step:
        """Return a job of one user; ``wide`` is the most GPUs that it may want."""
        seconds = given.get("seconds", self.seconds())
        wanted = [gpus for gpus in (1, 2, 4, 8) if gpus <= wide]
        (gpus,) = self.random.choices(wanted, (0.45, 0.25, 0.2, 0.1)[: len(wanted)])
        nodes = max(1, gpus // GPUS_A_NODE)
        kind = self.random.choices(("", "a100:", "h100:"), (0.55, 0.25, 0.2))[0]
        minutes = given.get("minutes") or math.ceil(seconds * self.random.uniform(1, 4) / 60)
        self.gpu_seconds += gpus * min(seconds, 60 * minutes) * given.get("tasks", 1)
        sizes = (f"--nodes={nodes}", f"--ntasks={gpus}", f"--gpus-per-node={kind}{gpus // nodes}")
        fixed = (f"--qos={qos}", f"--account={self.shape.people[user]}", *sizes, f"--time={minutes:g}")
        return Step(given.get("when", 0.0), name or self.name(), (*fixed, *options), seconds, user)

    def array(self) -> list[Step]:
        tasks, throttle = self.random.randint(8, 12), self.random.randint(2, 4)
        self.count += tasks - 1
        return [self.job("normal", f"--array=1-{tasks}%{throttle}", user=self.user(), wide=1, tasks=tasks)]

    def chain(self, kind: str, length: int) -> list[Step]:
        user = self.user()
        steps = [self.job("normal", user=user, wide=4)]
        for place in range(1, length):
            depends = f"--dependency={kind}:{{{steps[-1].name}}}"
            steps.append(self.job("normal", depends, user=user, wide=4, when=0.2 * place))
        return steps

    def singletons(self) -> list[Step]:
        user, name = self.user(), f"s{self.count + 1}"
        self.count += 3
        return [
            self.job("normal", "--dependency=singleton", user=user, name=name, wide=2, when=0.2 * place)
            for place in range(3)
        ]

    def begins(self) -> list[Step]:
        return [self.job("normal", f"--begin=now+{self.random.randint(20, 90)}", user=self.user(), wide=4)]

    def alone(self, qos: str, *options: str, wide: int = 8, times: float = 1.0) -> list[Step]:
        return [self.job(qos, *options, user=self.user(), wide=wide, seconds=self.seconds(times))]


def workload(shape: Shape) -> list[Step]:
    """Return the steps of a workload by time; the same for the same shape."""
    draw = _Draw(shape, random.Random(shape.seed))
    jobs = shape.jobs
    units = [draw.array() for _ in range(jobs // 60)]
    units += [draw.chain("afterok", 3) for _ in range(jobs // 40)]
    units += [draw.chain("afterany", 2) for _ in range(jobs // 80)]
    units += [draw.singletons() for _ in range(jobs // 200)]
    units += [draw.begins() for _ in range(jobs // 50)]
    units += [[draw.job("normal", user=draw.user(), wide=2, seconds=200, minutes=1)] for _ in range(jobs // 60)]
    units += [draw.alone("scavenger", "--partition=scavenge", wide=4, times=1.5) for _ in range(jobs // 5)]
    units += [draw.alone("high", "--partition=urgent", wide=4, times=0.7) for _ in range(jobs // 8)]
    units += [draw.alone("long", wide=4, times=2.0) for _ in range(jobs // 8)]
    owner, guests = "lab-ada", []
    for _ in range(min(jobs // 50, MOST_GUESTS)):
        guests.append(_guest(draw.job("normal", "--reservation=course", user=owner, wide=2)))
    while draw.count < jobs:
        units.append(draw.alone("normal"))
    length = draw.gpu_seconds / GPUS / shape.load
    steps = _reservation(round(length * 0.4), owner)
    steps += [_later(step, length * 0.35 + 5 * place) for place, step in enumerate(guests)]
    for unit in units:
        begins = draw.random.random() * length
        steps += [_later(step, begins) for step in unit]
    return sorted(steps, key=lambda step: step.when)


def _reservation(begins: int, owner: str) -> list[Step]:
    """Reserve two nodes for a user; before the first job, because Slurm takes no nodes that are busy."""
    place = (f"Nodes={RESERVED}", f"StartTime=now+{begins}", f"Duration={RESERVED_S // 60}")
    made = ("scontrol", "create", "reservation", "ReservationName=course", f"Users={owner}", *place)
    left = ("scancel", "--reservation=course")  # jobs that missed it would wait for ever
    return [Step(0.0, command=made), Step(begins + RESERVED_S + 5.0, command=left)]


def _guest(step: Step) -> Step:
    """Return a job for the reservation, whose nodes have no h100."""
    return replace(step, options=tuple(option.replace("h100:", "") for option in step.options))


def _later(step: Step, seconds: float) -> Step:
    return replace(step, when=round(step.when + seconds, 2))


@contextmanager
def site_lab(shape: Shape) -> Iterator[SlurmLab]:
    """Run a Slurm that is the site of a workload, with its users, in a folder of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="lab") as root,
        unix_users(list(shape.people)),
        SlurmLab(
            Path(root),
            nodes=NODES,
            gpus=GPUS_A_NODE,
            settings=SETTINGS,
            partitions=PARTITIONS,
            accounting=accounting(shape),
            requeue_s=REQUEUE_S,
        ) as lab,
    ):
        yield lab


def record(folder: Path, shape: Shape) -> None:
    """Run the workload through a new Slurm, and leave its records in the folder."""
    with site_lab(shape) as lab:
        play(lab, workload(shape), folder)


def main() -> None:
    """Record runs, from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, nargs="+", default=[1], help="numbers of the runs")
    parser.add_argument("--jobs", type=int, default=Shape.jobs)
    parser.add_argument("--users", type=int, default=Shape.users)
    parser.add_argument("--mean-s", type=float, default=Shape.mean_s, help="run time of a usual job in seconds")
    parser.add_argument("--load", type=float, default=Shape.load)
    given = parser.parse_args()
    if lacking := missing():
        sys.exit(f"not installed: {', '.join(lacking)}")
    shape = Shape(given.jobs, given.users, given.mean_s, given.load)
    for number in given.runs:
        folder = given.folder / f"run-{number}"
        if (folder / "sacct.txt").exists():
            print(f"run {number}: recorded already")
            continue
        began = time.monotonic()
        record(folder, shape)
        print(f"run {number}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
