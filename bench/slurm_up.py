"""Start the Slurm of the tests on this machine and leave it running; stop it again. See scripts/slurm-up.

scripts/slurm-up --nodes 4 --gpus 4
scripts/slurm-down
"""

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from bench.slurm_lab import SlurmLab, missing

FOLDER = "/tmp/headway-slurm"
WITHIN_S = 120.0


def up(folder: Path, nodes: int, gpus: int, accounted: bool) -> int:
    """Start it in a process of its own, and say how commands find it."""
    if lacking := missing(accounted=accounted):
        return _complain(f"not installed: {', '.join(lacking)}; on Debian: scripts/system as root")
    if os.geteuid() != 0:
        return _complain("needs root, for the files of the pretended GPUs")
    if _pid(folder):
        return _complain(f"runs already in {folder}: scripts/slurm-down stops it")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    words = ["keep", f"--folder={folder}", f"--nodes={nodes}", f"--gpus={gpus}", *(["--accounting"] * accounted)]
    with (folder / "keeper.log").open("wb") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "bench.slurm_up", *words], stdout=log, stderr=log, start_new_session=True
        )
    until = time.monotonic() + WITHIN_S
    while not (folder / "ready").exists():
        if keeper.poll() is not None or time.monotonic() > until:
            keeper.kill()
            return _complain((folder / "keeper.log").read_text().strip() or "did not start")
        time.sleep(0.1)
    print(f"Slurm with {nodes} nodes of {gpus} pretended GPUs, all on this machine. In your shell:\n")
    print(f"  export SLURM_CONF={folder}/lab/slurm.conf\n\nThen:\n")
    print("  squeue; sinfo\n  headway queue start --engine slurm\n  scripts/slurm-down")
    keeper.returncode = 0  # it outlives this process on purpose
    return 0


def keep(folder: Path, nodes: int, gpus: int, accounted: bool) -> int:
    """Run it until SIGTERM."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    (folder / "lab").mkdir()
    folder.chmod(0o755)
    with SlurmLab(folder / "lab", nodes=nodes, gpus=gpus, accounted=accounted):
        (folder / "pid").write_text(str(os.getpid()))
        (folder / "ready").touch()
        signal.sigwait({signal.SIGTERM, signal.SIGINT})
    return 0


def down(folder: Path) -> int:
    """Stop it and remove its folder."""
    pid = _pid(folder)
    if not pid:
        return _complain(f"none runs in {folder}")
    os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + WITHIN_S
    while _pid(folder) and time.monotonic() < until:
        time.sleep(0.1)
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def _pid(folder: Path) -> int:
    """Return the process that keeps it; 0 where none does."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((folder / "pid").read_text())
        if b"bench.slurm_up" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    return 0


def _complain(line: str) -> int:
    print(f"slurm: {line}", file=sys.stderr)
    return 1


def main() -> int:
    """Do what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("up", "keep", "down"))
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--gpus", type=int, default=4, help="of each node, pretended")
    parser.add_argument("--accounting", action="store_true", help="with slurmdbd and a database, for sacct")
    parser.add_argument("--folder", type=Path, default=Path(FOLDER))
    given = parser.parse_args()
    if given.what == "down":
        return down(given.folder)
    start = up if given.what == "up" else keep
    return start(given.folder.absolute(), given.nodes, given.gpus, given.accounting)


if __name__ == "__main__":
    sys.exit(main())
