"""Kill nodes, programs, headway and the controller of a real Slurm at random; every job has to end exactly once.

``python -m bench.queue_slurm_faults --kills 50``. What is checked is what ``bench/queue_faults.py`` checks: no job is
lost, none ends twice or runs twice at once, a kill costs no more than the steps since the last checkpoint, and the tape
replays identically and is sound.

A controller that forgets its last seconds leaves damage in Slurm itself, which this script mends as an operator would:
nodes that it drains because a number of a job came twice, GPUs that it takes for used where nothing runs.
"""

import argparse
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench import queue_faults_program as program
from bench.queue_faults import ENDS_WITHIN_S, Daemon, Report, alive, check, over, submit
from bench.serve_rows import Rows
from bench.slurm_lab import SlurmLab
from headway.jobs.live.place import place_of

NODES = 3
STEPS = (100, 600)
LEAST_ALIVE = 6
WHAT = ("node", "program", "headway", "slurmctld")
COLUMNS = ("kills", "jobs", "ended", "starts", "twice", "lost_steps", "problems", "wall_s")


def play(folder: Path, lab: SlurmLab, kills: int, jobs: int, seed: int) -> Report:
    """Run jobs under kills, and check what is left."""
    os.environ.update(lab.environment)
    place, draw, report = place_of(str(folder / "queue")), random.Random(seed), Report()
    work = folder / "work"
    work.mkdir()
    daemon = Daemon(place, "", "slurm")
    began = time.monotonic()
    daemon.start()
    cancelled = submit(place, work, jobs, draw, between=STEPS)
    left = kills
    while left and not over(place, jobs):
        time.sleep(draw.uniform(0.2, 2.0))
        report.kills["mended"] += _mend(lab)
        what = WHAT[(kills - left) % len(WHAT)]
        if not _kill(lab, daemon, work, what, draw):
            continue
        report.kills[what] += 1
        left -= 1
        if left and len(alive(place, jobs)) < LEAST_ALIVE:
            cancelled |= submit(place, work, LEAST_ALIVE, draw, first=jobs, between=STEPS)
            jobs += LEAST_ALIVE
    report.jobs = jobs
    _await_end(lab, lambda: alive(place, jobs), report)
    until = time.monotonic() + 30
    while (left_over := _left_over(lab)) and time.monotonic() < until:
        time.sleep(0.5)
    daemon.stop()
    check(place, work, cancelled, report)
    report.problems += [f"left in Slurm: {line}" for line in left_over]
    report.wall_s = round(time.monotonic() - began, 1)
    return report


def _await_end(lab: SlurmLab, left: Callable[[], list[int]], report: Report) -> None:
    """Wait until every job has ended, and mend what the kills have left."""
    until = time.monotonic() + ENDS_WITHIN_S
    while jobs := left():
        if time.monotonic() > until:
            raise AssertionError(f"jobs {jobs[:10]} have not ended after {ENDS_WITHIN_S:g} s")
        report.kills["mended"] += _mend(lab)
        time.sleep(1.0)


def _mend(lab: SlurmLab) -> int:
    """Do what an operator does after such kills; return how much there was to do."""
    done = 0
    for line in lab.run("scontrol", "-d", "show", "node", "-o").splitlines():
        name = line.split()[0].removeprefix("NodeName=")
        if "State=IDLE+DRAIN" in line:
            lab.run("scontrol", "update", f"NodeName={name}", "State=RESUME")
            done += 1
        elif "State=IDLE " in line and re.search(r"GresUsed=gpu:\w+:[1-9]", line):
            lab.stop("slurmctld")
            lab.start("slurmctld")
            lab.until_answers()
            done += 1
    return done


def _left_over(lab: SlurmLab) -> list[str]:
    """Return the jobs of headway that Slurm has, without its lock."""
    return [line for line in lab.run("squeue", "-h", "-o", "%i %T %k").splitlines() if "headway:" in line]


def _kill(lab: SlurmLab, daemon: Daemon, work: Path, what: str, draw: random.Random) -> bool:
    """Kill something and start it again; return whether there was one."""
    if what == "headway":
        daemon.kill()
        time.sleep(draw.choice((0.0, 1.0)))
        daemon.start()
    elif what == "program":
        if not (found := _programs(work)):
            time.sleep(0.2)
            return False
        try:
            os.kill(draw.choice(found), signal.SIGKILL)
        except ProcessLookupError:
            return False
    else:
        name = "slurmctld" if what == "slurmctld" else f"n{draw.randint(1, lab.nodes)}"
        lab.kill(name)
        time.sleep(draw.uniform(0.5, 2.0))
        lab.start(name)
        lab.until_answers()
    return True


def _programs(work: Path) -> list[int]:
    """Return the programs that run: those with their file among their arguments."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if program.__file__.encode() in words and any(str(work).encode() in word for word in words):
            found.append(int(entry))
    return found


def main() -> int:
    """Run and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder of the rows of the page, which this one is added to")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as root:
        with lab_of(Path(root)) as lab:
            report = play(Path(folder), lab, given.kills, given.jobs, given.seed)
        log = (Path(folder) / "log").read_text()
    print(json.dumps(report.record(), indent=2))
    if given.out:
        Rows(given.out, "slurm-faults").add(report.record())
    bad = bool(report.problems or report.twice) or report.lost_steps > program.SAVE_EVERY
    if bad:
        print(log, file=sys.stderr)
    return int(bad)


def lab_of(root: Path) -> SlurmLab:
    """Return the Slurm that is killed: nodes that are silent for ten seconds are down."""
    settings = {"KillWait": "2", "MessageTimeout": "3"}
    return SlurmLab(root, nodes=NODES, accounted=False, requeue_s=1, timeout_s=10, settings=settings)


if __name__ == "__main__":
    sys.exit(main())
