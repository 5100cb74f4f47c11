"""The backtest against a real Slurm: a few hundred short jobs go through it, then through headway from its own records.

    python -m bench.backtest --jobs 300 --folder /tmp/backtest

leaves what an operator would dump (``sacct.txt``, ``nodes.txt``, ``partitions.txt``, ``config.txt``) in the folder, and
prints what ``headway jobs backtest`` says about them. Needs what bench/slurm_lab.py needs.
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.slurm_lab import SlurmLab, missing
from headway.cli import main as headway

SETTINGS = {
    "PriorityWeightAge": "1000",
    "PriorityMaxAge": "00:10:00",
    "PriorityWeightJobSize": "500",
    "PriorityWeightPartition": "1000",
    "PriorityWeightFairshare": "2000",
    "PriorityDecayHalfLife": "00:05:00",
    "PriorityCalcPeriod": "1",
    "SchedulerParameters": "bf_interval=1,bf_resolution=1,sched_interval=2,sched_min_interval=100000",
}
PARTITIONS = (
    "PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityJobFactor=1",
    "PartitionName=urgent Nodes=n[1-4] MaxTime=INFINITE State=UP PriorityJobFactor=10",
)
ACCOUNTS = ("vision", "speech", "language")
GPUS_A_NODE = 4
LOAD = 1.0


def workload(jobs: int, gpus: int, mean_s: float, seed: int) -> list[tuple[float, list[str], float]]:
    """(when, options of sbatch, how long) of each job, in seconds: bursts, mostly narrow, limits too long."""
    draw = np.random.default_rng(seed)
    widths = draw.choice([1, 2, 4, 8], size=jobs, p=[0.5, 0.2, 0.2, 0.1])
    seconds = np.round(np.clip(draw.exponential(mean_s, jobs), 2, 5 * mean_s))
    rate = LOAD * gpus / float((widths * seconds).mean())
    when = np.cumsum(draw.exponential(1 / rate, jobs) * np.where(np.arange(jobs) // 25 % 2, 0.6, 1.4))
    made = []
    for start, width, length in zip(when.tolist(), widths.tolist(), seconds.tolist(), strict=True):
        nodes = max(1, width // GPUS_A_NODE)
        options = [f"--nodes={nodes}", f"--ntasks={width}", f"--gpus-per-node={min(width, GPUS_A_NODE)}"]
        options += [f"--time={int(1 + length * draw.uniform(1, 5) // 60)}", f"--account={draw.choice(ACCOUNTS)}"]
        if width <= GPUS_A_NODE and draw.random() < 0.15:
            options.append("--partition=urgent")
        made.append((start, options, length))
    return made


def record(folder: Path, jobs: int, nodes: int, mean_s: float, seed: int = 0) -> None:
    """Run the workload through Slurm, and leave its records in the folder."""
    with (
        tempfile.TemporaryDirectory(prefix="lab") as root,
        SlurmLab(
            Path(root),
            nodes=nodes,
            gpus=GPUS_A_NODE,
            settings=SETTINGS,
            partitions=PARTITIONS,
            accounts=ACCOUNTS,
        ) as lab,
    ):
        lab.dump_rules(folder)
        began = time.monotonic()
        for start, options, seconds in workload(jobs, nodes * GPUS_A_NODE, mean_s, seed):
            time.sleep(max(0.0, began + start - time.monotonic()))
            lab.submit(*options, seconds=seconds)
        while lab.waiting():
            time.sleep(1)
        lab.dump_past(folder)


def arguments(folder: Path) -> list[str]:
    """The command that an operator would give."""
    files = ["--cluster", str(folder / "nodes.txt"), "--cluster", str(folder / "partitions.txt")]
    return ["jobs", "backtest", str(folder / "sacct.txt"), *files, "--config", str(folder / "config.txt")]


def main() -> None:
    """The measurement, from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--mean-s", type=float, default=30.0, help="mean run time of a job in seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/headway-backtest"))
    given = parser.parse_args()
    if lacking := missing():
        sys.exit(f"not installed: {', '.join(lacking)}")
    shutil.rmtree(given.folder, ignore_errors=True)
    record(given.folder, given.jobs, given.nodes, given.mean_s, given.seed)
    headway(arguments(given.folder))


if __name__ == "__main__":
    main()
