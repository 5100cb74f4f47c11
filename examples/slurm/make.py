"""Makes the files of this folder: what the operator of a small, invented Slurm site would dump.

    python examples/slurm/make.py

Jobs are drawn, scheduled with headway's own model of Slurm and given a few seconds of delay, then written as ``sacct``
writes them, with the steps, arrays, cancellations, failures and jobs still running that a real dump has.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from headway.core.scheduler import Scheduler
from headway.core.tape import TapeWriter
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.model.cluster import Cluster, Node, Partition
from headway.jobs.model.job import Job, Outcome, workload
from headway.jobs.policies.registry import build
from headway.jobs.sim.cluster import SimulatedCluster
from headway.jobs.state.state import TrainingState
from headway.units import HOUR, MINUTE, SECOND

FOLDER = Path(__file__).parent
BEGAN = datetime(2026, 3, 2, 8, 0, 0, tzinfo=UTC)
ACCOUNTS = {"vision": ("ada", "grace"), "language": ("alan", "edsger", "barbara"), "physics": ("emmy",)}
SHARES = (0.35, 0.5, 0.15)
COLUMNS = (
    *("JobID", "JobName", "User", "Account", "Partition", "QOS", "State", "Submit", "Eligible", "Start", "End"),
    *("Elapsed", "Timelimit", "NNodes", "ReqTRES", "AllocTRES"),
)
CPUS_A_GPU, MEMORY_A_GPU_GB = 8, 60
CONFIG = """\
ClusterName=orchid
SlurmctldHost=head
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightFairShare=4000
PriorityMaxAge=3-0
PriorityDecayHalfLife=3-0
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=120,bf_max_job_test=200,bf_window=10080
"""
POLICY = (
    "multifactor(age_weight=1000,fairshare_weight=4000,size_weight=0,qos_weight=0,partition_weight=0,max_age=3d,"
    "half_life=3d,fair_tree=true)+conservative(depth=200,interval=2m,slurm=true)"
)


def cluster() -> Cluster:
    """Ten nodes of eight A100s and four older ones of four V100s."""
    new = [Node(f"gpu{i:02d}", 8, "a100", 96_000, 1_000 * 2**30) for i in range(1, 11)]
    old = [Node(f"old{i}", 4, "v100", 48_000, 380 * 2**30) for i in range(1, 5)]
    return Cluster(
        (*new, *old), partitions=(Partition("gpu", tuple(range(10))), Partition("old", tuple(range(10, 14))))
    )


def drawn(count: int = 500, seed: int = 7) -> tuple[Job, ...]:
    """Five days of work: many one-GPU jobs, some of a node or two, with the rhythm of a day."""
    draw = np.random.default_rng(seed)
    jobs: list[Job] = []
    time = 0.0
    while len(jobs) < count:
        hour = (8 + time / 3600) % 24
        time += draw.exponential(420 if 9 <= hour <= 19 else 1400)
        account = draw.choice(list(ACCOUNTS), p=SHARES)
        old = draw.random() < 0.15
        gpus = int(
            draw.choice(
                [1, 2, 4] if old else [1, 2, 4, 8, 16], p=[0.6, 0.2, 0.2] if old else [0.45, 0.15, 0.15, 0.18, 0.07]
            )
        )
        seconds = int(np.clip(draw.lognormal(8.9, 1.25), 60, 2 * 86_400))
        limit = int(np.ceil(min(3 * 86_400, seconds * draw.uniform(1.1, 6)) / 1800) * 1800)
        outcome, after = Outcome.FINISHES, 0
        fate = draw.random()
        if fate < 0.12:
            outcome, after = Outcome.FAILS, max(30, int(seconds * draw.uniform(0.02, 0.5)))
        elif fate < 0.2:
            outcome, after = Outcome.CANCELLED, max(30, int(seconds * draw.uniform(0.1, 0.9)))
        jobs.append(
            Job(
                id=len(jobs),
                submit=int(time) * SECOND,
                work=seconds * SECOND,
                gpus=gpus,
                nodes=2 if gpus == 16 else 1,
                tenant=str(account),
                user=str(draw.choice(ACCOUNTS[account])),
                partition="old" if old else "gpu",
                cpu_milli=gpus * CPUS_A_GPU * 1000,
                memory_bytes=gpus * MEMORY_A_GPU_GB * 2**30,
                estimate=limit * SECOND,
                outcome=outcome,
                outcome_after=after * SECOND,
                patience=int(draw.uniform(0.5, 5)) * HOUR + MINUTE if draw.random() < 0.03 else 0,
            )
        )
    return workload(jobs)


def starts(jobs: tuple[Job, ...]) -> list[int]:
    """When each job starts under the site's policy; -1 for one that was cancelled before."""
    policy = build(POLICY)
    state = TrainingState(cluster(), to_come=len(jobs), arrangement=policy)
    policy.bind(state)
    tape = TapeWriter()
    Scheduler(state, policy, SimulatedCluster(jobs, state), tape).run()
    return [int(start) for start in Ledger(tape.close(), jobs, cluster()).first_start]


def clock(time: int) -> str:
    """As sacct writes a time."""
    return (BEGAN + timedelta(seconds=time // SECOND)).strftime("%Y-%m-%dT%H:%M:%S")


def span(time: int) -> str:
    """As sacct writes a length of time."""
    days, rest = divmod(time // SECOND, 86_400)
    text = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days}-{text}" if days else text


def rows(jobs: tuple[Job, ...]) -> list[str]:
    """One line a job and one a step, as of the moment of the dump."""
    draw = np.random.default_rng(1)
    begun = starts(jobs)
    dump = jobs[-1].submit
    lines = ["|".join(COLUMNS)]
    array = 0
    for number, (job, start) in enumerate(zip(jobs, begun, strict=True), 4711):
        kind = job.partition == "gpu" and job.gpus == 1 and draw.random() < 0.1
        array = array + 1 if kind else 0
        name = f"{number - array}_{array}" if kind else str(number)
        lines += row(job, name, start + int(draw.integers(1, 20)) * SECOND if start >= 0 else -1, dump)
    return lines


def row(job: Job, name: str, start: int, dump: int) -> list[str]:
    """The lines of one job."""
    kind = "a100" if job.partition == "gpu" else "v100"
    tres = (
        f"cpu={job.cpu_milli // 1000},gres/gpu:{kind}={job.gpus},gres/gpu={job.gpus},mem={job.gpus * MEMORY_A_GPU_GB}G"
    )
    tres = f"billing={job.gpus},{tres},node={max(1, job.nodes)}"
    end = start + job.ends_after if start >= 0 else job.submit + job.patience
    states = {Outcome.FINISHES: "COMPLETED", Outcome.FAILS: "FAILED", Outcome.CANCELLED: "CANCELLED by 1004"}
    state, allocated = states[job.outcome], tres
    if start < 0:
        state, allocated = "CANCELLED by 1004", ""
    elif start > dump:
        state, allocated, start = "PENDING", "", -1
    elif end > dump:
        state = "RUNNING"
    ended = "Unknown" if state in ("PENDING", "RUNNING") else clock(end)
    elapsed = 0 if start < 0 else min(end, dump) - start
    head = [
        name,
        "train.sh",
        job.user,
        job.tenant,
        job.partition,
        "normal",
        state,
        clock(job.submit),
        clock(job.submit),
    ]
    begun = clock(start) if start >= 0 else "Unknown" if state == "PENDING" else "None"
    tail = [begun, ended, span(elapsed), span(job.estimate), str(max(1, job.nodes)), tres, allocated]
    lines = ["|".join([*head, *tail])]
    if start >= 0 and state != "RUNNING":
        step = state.split()[0]
        inner = [f"{name}.batch", "batch", "", job.tenant, "", "", step, begun, begun]
        lines.append("|".join([*inner, begun, ended, span(elapsed), "", "1", "", allocated.partition(",")[2]]))
    return lines


def nodes() -> str:
    """As ``scontrol show node -o`` prints them."""
    lines = []
    for node in cluster().nodes:
        partition = "gpu" if node.name.startswith("gpu") else "old"
        cpus, memory = (node.cpu_milli or 0) // 1000, (node.memory_bytes or 0) // 2**20
        lines.append(
            f"NodeName={node.name} Arch=x86_64 CoresPerSocket={cpus // 2} CPUAlloc=0 CPUEfctv={cpus} CPUTot={cpus} "
            "CPULoad=0.10 AvailableFeatures=(null) ActiveFeatures=(null) "
            f"Gres=gpu:{node.gpu_type}:{node.gpus}(S:0-1) NodeAddr={node.name} NodeHostName={node.name} "
            f"Version=22.05.8 OS=Linux RealMemory={memory} AllocMem=0 FreeMem={memory} Sockets=2 Boards=1 State=IDLE "
            f"ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions={partition} "
            f"CfgTRES=cpu={cpus},mem={memory}M,billing={cpus},gres/gpu={node.gpus},"
            f"gres/gpu:{node.gpu_type}={node.gpus} AllocTRES="
        )
    return "\n".join(lines) + "\n"


def partitions() -> str:
    """As ``scontrol show partition -o`` prints them."""
    lists = {"gpu": "gpu[01-10]", "old": "old[1-4]"}
    return "".join(
        f"PartitionName={name} AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL "
        f"Default={'YES' if name == 'gpu' else 'NO'} QoS=N/A DefaultTime=NONE MaxNodes=UNLIMITED MaxTime=3-00:00:00 "
        f"MinNodes=0 Nodes={listed} PriorityJobFactor=1 PriorityTier=1 OverSubscribe=NO PreemptMode=OFF State=UP\n"
        for name, listed in lists.items()
    )


def main() -> None:
    """Write all files."""
    jobs = drawn()
    (FOLDER / "sacct.txt").write_text("\n".join(rows(jobs)) + "\n")
    (FOLDER / "nodes.txt").write_text(nodes())
    (FOLDER / "partitions.txt").write_text(partitions())
    (FOLDER / "slurm.conf").write_text(CONFIG)


if __name__ == "__main__":
    main()
