"""Makes the files of an invented Slurm site whose policy is its QOSs: limits, tiers, preemption, throttles, chains.

    python -m examples.slurm.site FOLDER [--jobs 20000] [--seed 1] [--load 0.95] [--planted] [--without PART,PART]

The jobs are scheduled by the small imitation of Slurm in this folder, which uses nothing of headway. ``--planted``
lowers the group limit of QOS long far below what stands idle.
"""

import argparse
from pathlib import Path

from examples.slurm.site.dump import write
from examples.slurm.site.jobs import Draw, Job
from examples.slurm.site.rules import PARTS, Site, site
from examples.slurm.site.scheduler import Scheduler

JOBS, LOAD = 20_000, 0.95


def made(
    folder: Path, jobs: int = JOBS, seed: int = 1, load: float = LOAD, planted: bool = False, without: str = ""
) -> tuple[Site, list[Job], Scheduler]:
    """Draw jobs, schedule them and write all files; return what was made."""
    rules = site([part for part in without.split(",") if part], planted)
    drawn = Draw(rules, jobs, seed, load).jobs
    scheduler = Scheduler(rules, drawn)
    scheduler.run()
    refused = {job.number for job in scheduler.refused}
    kept = [job for job in drawn if job.number not in refused]
    write(folder, rules, kept)
    return rules, kept, scheduler


def main() -> None:
    """Make the files from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--load", type=float, default=LOAD, help="work over what the GPUs can do in the time")
    parser.add_argument("--planted", action="store_true", help="QOS long may hold far fewer GPUs than stand idle")
    parser.add_argument("--without", default="", help=f"leave out some of {', '.join(PARTS)}")
    given = parser.parse_args()
    _, kept, scheduler = made(given.folder, given.jobs, given.seed, given.load, given.planted, given.without)
    waits = [job.start - job.eligible for job in kept if job.start >= 0]
    print(
        f"{len(kept):,} jobs over {(kept[-1].submit - kept[0].submit) / 86_400:.0f} days, mean wait "
        f"{sum(waits) / len(waits) / 3600:.2f} h; {scheduler.preempted:,} preemptions, "
        f"{len(scheduler.refused):,} jobs refused at submission"
    )


if __name__ == "__main__":
    main()
