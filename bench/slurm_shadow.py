"""Shadow a real Slurm while it runs a workload: its own policy, which must save nothing, and others.

    python -m bench.slurm_shadow FOLDER --jobs 100 --mean-s 12 --policies site srtf+easy

The site is that of bench/slurm_site_lab.py. Each shadow is a process of its own; where ``--user`` names a user, one of
the lab's without rights say, Slurm's commands run as that user. Printed for each: what it books, the error beside it,
and whether its tape is that of a simulation of all that it saw. Needs what bench/slurm_lab.py needs.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from bench.slurm_drive import play as drive
from bench.slurm_lab import missing
from bench.slurm_site_lab import Shape, site_lab, workload
from headway.jobs.slurm.shadow.folder import opened
from headway.runs.play import play

EVERY_S = 3
GRACE_S = 60


def shadowed(folder: Path, shape: Shape, policies: list[str], user: str = "") -> list[Path]:
    """Run the workload with a shadow for each policy beside it; return their folders."""
    folder.mkdir(parents=True, exist_ok=True)
    with site_lab(shape) as lab:
        folders = [folder / f"shadow-{number}" for number in range(len(policies))]
        watching = [_begun(each, policy, lab.root, user) for each, policy in zip(folders, policies, strict=True)]
        try:
            drive(lab, workload(shape), folder / "record")
            time.sleep(2 * EVERY_S)  # for a last look, after the last end
        finally:
            for process in watching:
                process.send_signal(signal.SIGINT)
            for process in watching:
                process.wait(GRACE_S)
    return folders


def _begun(folder: Path, policy: str, root: Path, user: str) -> "subprocess.Popen[bytes]":
    words = ["shadow", "--slurm", "--every", f"{EVERY_S}s", "--policy", policy, "-o", str(folder)]
    environment = {**os.environ, "SLURM_CONF": str(root / "slurm.conf")}
    if user:
        environment["PATH"] = f"{_commands_as(user, folder.parent / 'bin')}:{environment['PATH']}"
    with (folder.parent / f"{folder.name}.log").open("wb") as log:
        return subprocess.Popen([sys.executable, "-m", "headway", *words], env=environment, stdout=log, stderr=log)


def _commands_as(user: str, folder: Path) -> Path:
    """Write commands of Slurm's that run as a user; return their folder."""
    folder.mkdir(exist_ok=True)
    for name in ("squeue", "scontrol", "sacct", "sacctmgr"):
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec runuser -u {user} -- {shutil.which(name)} "$@"\n')
        path.chmod(0o755)
    return folder


def told(folder: Path) -> dict[str, object]:
    """Return what a shadow books, and whether its tape is that of a simulation of all that it saw."""
    command = [sys.executable, "-m", "headway", "shadow", "-o", str(folder), "--json"]
    record = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    with opened(folder) as shadow:
        shadow.play()
        assert shadow.played is not None
        whole = play(shadow.played.scene).tape.until(shadow.played.end.time)
        record["as_simulated"] = whole.digest == shadow.played.tape.digest
    return dict(record)


def main() -> None:
    """Shadow a workload, from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--mean-s", type=float, default=12.0)
    parser.add_argument("--policies", nargs="+", default=["site", "srtf+easy"])
    parser.add_argument("--user", default="", help="who looks at Slurm; else who runs this")
    given = parser.parse_args()
    if lacking := missing():
        sys.exit(f"not installed: {', '.join(lacking)}")
    for folder in shadowed(given.folder, Shape(given.jobs, mean_s=given.mean_s), given.policies, given.user):
        record = told(folder)
        keys = ("policy", "looks", "booked", "open", "outran", "revised", "as_simulated", "verdict")
        times = ("wait_real_mean_s", "saved_mean_s", "saved_low_s", "saved_high_s", "error_mean_s")
        print(json.dumps({key: record[key] for key in (*keys, *times)}, indent=1))


if __name__ == "__main__":
    main()
