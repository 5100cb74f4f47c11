"""Record small cases of one rule each from a real Slurm.

    python -m bench.slurm_rules_lab FOLDER [CASE ...]

leaves what an operator would dump in a folder a case; cases that are there already are skipped. The cases are in
bench/slurm_rule_cases.py. Needs what bench/slurm_lab.py needs.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from bench.slurm_drive import play
from bench.slurm_lab import SlurmLab, missing
from bench.slurm_rule_cases import CASES, USERS, Case
from bench.slurm_users import unix_users

REQUEUE_S = 10


def record(folder: Path, case: Case) -> None:
    """Play a case through a new Slurm, and leave its records in the folder."""
    with (
        tempfile.TemporaryDirectory(prefix="lab") as root,
        unix_users(list(USERS)),
        SlurmLab(
            Path(root),
            nodes=case.nodes,
            settings=case.all_settings,
            partitions=case.partitions,
            accounting=case.all_accounting,
            requeue_s=REQUEUE_S,
        ) as lab,
    ):
        play(lab, case.plan, folder)


def main() -> None:
    """Record cases, from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"all by default: {', '.join(CASES)}")
    given = parser.parse_args()
    if lacking := missing():
        sys.exit(f"not installed: {', '.join(lacking)}")
    for name in given.cases or CASES:
        if (given.folder / name / "sacct.txt").exists():
            print(f"{name}: recorded already")
            continue
        began = time.monotonic()
        record(given.folder / name, CASES[name])
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
