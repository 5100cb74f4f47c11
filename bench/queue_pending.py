"""Measure one decision over a large queue: 5,000 jobs wait, 3,000 run, on 1,000 nodes, from what Slurm prints.

    python -m bench.queue_pending [--policies site fifo+easy srtf+easy] [--waiting 5000] [--nodes 1000] [--json]

What ``squeue``, ``scontrol show node``, ``show partition`` and ``show config`` would print is drawn once, from a fixed
seed, and written down. Timed is what ``headway shadow --slurm`` does with it at its first look: the listing is read,
records are made of it, the jobs and the cluster are built, and the policy decides over all that run and wait. Every job
of the listing has to be there, and the audit has to find nothing.
"""

import argparse
import json
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

from headway.core.collector import no_collection
from headway.jobs.slurm.live.rows import FIELDS, jobs as rows_of_squeue
from headway.jobs.slurm.shadow.folder import SITE, Shadow, opened
from headway.jobs.slurm.shadow.looks import row_of
from headway.jobs.slurm.shadow.records import Look, expanded, plain
from headway.jobs.slurm.shadow.world import World
from headway.units import MINUTE, SECOND

MARK = "|0123456789ab|"
NOW = 1_772_323_200
GPUS = 8
_NODE = (
    "NodeName={name} Arch=x86_64 CoresPerSocket=32 CPUAlloc=0 CPUEfctv=128 CPUTot=128 CPULoad=3.10 "
    "AvailableFeatures=a100 ActiveFeatures=a100 Gres=gpu:a100:8 NodeAddr={name} NodeHostName={name} Version=22.05.8 "
    "OS=Linux RealMemory=1031000 AllocMem=0 "
    "FreeMem=900000 Sockets=2 Boards=1 State=MIXED ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A "
    "MCS_label=N/A Partitions={partitions} BootTime=2026-01-05T08:00:00 "
    "CfgTRES=cpu=128,mem=1031000M,billing=128,gres/gpu=8"
)
_CONFIG = """\
SchedulerType=sched/backfill
SelectType=select/cons_tres
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightFairshare=10000
PriorityWeightQOS=2000
PriorityWeightJobSize=500
PriorityMaxAge=7-0
SchedulerParameters=bf_max_job_test=1000,bf_interval=30
"""


def cluster(folder: Path, nodes: int) -> list[str]:
    """Write the files of a cluster; return those but its settings."""
    names = [f"gpu{number:04}" for number in range(nodes)]
    half = nodes // 2
    lines = [
        _NODE.format(name=name, partitions="batch,short" if place < half else "batch")
        for place, name in enumerate(names)
    ]
    (folder / "nodes.txt").write_text("\n".join(lines) + "\n")
    (folder / "partitions.txt").write_text(
        f"PartitionName=batch State=UP Nodes=gpu[0000-{nodes - 1:04}] PriorityTier=1 MaxTime=7-00:00:00\n"
        f"PartitionName=short State=UP Nodes=gpu[0000-{half - 1:04}] PriorityTier=1 MaxTime=04:00:00\n"
    )
    (folder / "slurm.conf").write_text(_CONFIG)
    return [str(folder / "nodes.txt"), str(folder / "partitions.txt")]


def _time(second: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def listing(nodes: int, waiting: int, running: int, seed: int = 1) -> str:
    """Return what ``squeue`` prints, as the client asks for it; what runs fits on the nodes."""
    draw = random.Random(seed)
    left = nodes * GPUS * 92 // 100
    rows = []
    for number in range(running + waiting):
        runs = number < running
        gpus = draw.choices((1, 2, 4, 8, 16, 32), (40, 20, 15, 15, 6, 4))[0]
        if runs and gpus > left - (running - number):
            gpus = 1
        left -= gpus if runs else 0
        hosts = max(1, gpus // GPUS)
        account = draw.choice(("bio", "physics", "vision", "speech", "robots"))
        submit = NOW - draw.randint(60, 3 * 86_400)
        start = NOW - draw.randint(1, 86_400)
        hours = draw.choice((1, 4, 12, 24, 72, 168))
        cell = {
            "JobID": str(100_000 + number),
            "ArrayJobID": str(100_000 + number),
            "ArrayTaskID": "N/A",
            "State": "RUNNING" if runs else "PENDING",
            "Reason": "None" if runs else "Priority",
            "UserName": f"{account}{draw.randint(0, 39)}",
            "Account": account,
            "QOS": draw.choice(("normal", "long")),
            "Partition": "short" if hours <= 4 and draw.random() < 0.5 else "batch",
            "PriorityLong": str(draw.randint(1, 9999)),
            "SubmitTime": _time(min(submit, start)),
            "EligibleTime": _time(min(submit, start)),
            "StartTime": _time(start) if runs else "N/A",
            "EndTime": _time(start + 3600 * hours) if runs else "N/A",
            "TimeLimit": f"{hours}:00:00",
            "NumNodes": str(hosts),
            "NumCPUs": str(8 * gpus),
            "MinMemory": "64G",
            "tres-alloc": f"cpu={8 * gpus},mem={64 * gpus}G,node={hosts},billing={gpus},gres/gpu={gpus}",
            "Requeue": "1",
            "BatchFlag": "1",
            "RestartCnt": "0",
            "exit_code": "0:0",
            "Name": "train.sh",
        }
        rows.append("".join(f"{cell.get(name, '')}{MARK}" for name in FIELDS))
    return "\n".join(rows)


class Clock:
    """Adds up what parts of a measurement take, in seconds."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = {}
        self.cpu_s = 0.0
        """Of all parts, in CPU time: what the machine does besides does not count."""

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time a part."""
        began, cpu = perf_counter(), process_time()
        yield
        self.parts[name] = perf_counter() - began
        self.cpu_s += process_time() - cpu


def measured(shadow: Shadow, text: str) -> Clock:
    """Take one look from what squeue printed, and decide; return what each part took."""
    clock = Clock()
    with no_collection(), clock.part("read the listing"):
        rows = [plain(row) for row in expanded(row_of(job) for job in rows_of_squeue(text, MARK))]
        look = Look(NOW * SECOND, "slurm", "", rows, whole=True, instants=True)
    with no_collection(), clock.part("records"):
        shadow.records.add(shadow.records.fresh(look))
    with no_collection(), clock.part("jobs and cluster"):
        scene = shadow.scene(shadow.settings.policy)
    with clock.part("state and decision"):
        shadow.played = shadow.world.look(scene, shadow.at(scene))
    return clock


def checked(shadow: Shadow, jobs: int) -> dict[str, int]:
    """Return how many run and wait after the decision; refuse a wrong one."""
    assert shadow.played is not None
    state, scene = shadow.played.end.state, shadow.played.scene
    assert len(scene.jobs) == jobs, f"{len(scene.jobs):,} of {jobs:,} jobs were built"
    assert len(state.jobs) == jobs, f"{len(state.jobs):,} of {jobs:,} jobs are there"
    assert not scene.audit(shadow.played.tape, complete=False), "the decision breaks a rule"
    return {"running": len(state.running), "waiting": len(state.jobs) - len(state.running)}


def one(policy: str, folder: Path, files: list[str], text: str, jobs: int, repeats: int) -> dict[str, object]:
    """Return what a decision under one policy takes: medians of some repetitions."""
    found: list[Clock] = []
    decided: list[float] = []
    counts: dict[str, int] = {}
    for repeat in range(repeats):
        place = folder / f"{policy.replace('+', '-')}-{repeat}"
        with opened(place, policy, files, str(folder / "slurm.conf")) as shadow:
            found.append(measured(shadow, text))
            assert shadow.played is not None
            later = World().look(shadow.played.scene, shadow.at(shadow.played.scene) + MINUTE)
            decided.append(max(*shadow.played.decide_ns[1:], *later.decide_ns) / SECOND)
            if not repeat:
                counts = checked(shadow, jobs)
    parts = {name: median(clock.parts[name] for clock in found) for name in found[0].parts}
    total = median(sum(clock.parts.values()) for clock in found)
    cpu = median(clock.cpu_s for clock in found)
    return {"policy": policy, "total_s": total, "cpu_s": cpu, "decision_s": median(decided), **counts, "parts_s": parts}


def main() -> None:
    """Measure, from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", nargs="+", default=[SITE, "fifo+easy", "srtf+easy"])
    parser.add_argument("--waiting", type=int, default=5000)
    parser.add_argument("--running", type=int, default=3000)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    text = listing(given.nodes, given.waiting, given.running)
    show: Callable[[dict[str, object]], None] = (lambda row: print(json.dumps(row))) if given.json else _shown
    with tempfile.TemporaryDirectory() as root:
        files = cluster(Path(root), given.nodes)
        for policy in given.policies:
            show(one(policy, Path(root), files, text, given.waiting + given.running, given.repeats))


def _shown(row: dict[str, object]) -> None:
    parts = row["parts_s"]
    assert isinstance(parts, dict)
    said = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in parts.items())
    print(f"{row['policy']}: {row['total_s']:.2f} s, {row['cpu_s']:.2f} s of CPU: {said}")
    print(f"  then {row['running']:,} run, {row['waiting']:,} wait", end="; ")
    print(f"the longest decision of the minute after that took {row['decision_s']:.3f} s", flush=True)


if __name__ == "__main__":
    main()
