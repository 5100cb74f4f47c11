"""Kill the queue, its runners and its programs at random, and prove that nothing is lost and nothing runs twice.

``python -m bench.queue_faults --kills 500``. Every job has to end exactly once, no program may run twice at once, a
kill may cost no more than the steps since the last checkpoint, and the tape that is left replays identically and is
sound.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import queue_faults_program as program
from bench.serve_rows import Rows
from headway.device import processes
from headway.errors import QueueError
from headway.jobs.experiment.observed import last_rows
from headway.jobs.live import client
from headway.jobs.live.ground import run_queue
from headway.jobs.live.messages import Cancel, Status, Stop, Submit
from headway.jobs.live.place import Place, place_of
from headway.jobs.live.store import read
from headway.jobs.model.rows import Kind
from headway.runs.folder.folder import open_run
from headway.runs.result import Run
from headway.units import HOUR, SECOND

POLICY = "srtf+easy"
GPUS = 4
STEPS = (20, 200)
RETRIES = 10_000
"""A program that is killed has failed, as far as anybody can know."""
ENDS_WITHIN_S = 300.0
_ENDS = (int(Kind.FINISHED), int(Kind.FAILED), int(Kind.CANCELLED))


@dataclass
class Report:
    """What was seen."""

    kills: Counter[str] = field(default_factory=Counter)
    jobs: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    starts: int = 0
    twice: list[str] = field(default_factory=list)
    lost_steps: int = 0
    """The most that one kill cost a program."""
    problems: list[str] = field(default_factory=list)
    rows: int = 0
    wall_s: float = 0.0

    def record(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {**vars(self), "kills": dict(self.kills), "ended": dict(self.ended)}


class Daemon:
    """A queue in a process of its own, forked so that it starts at once."""

    def __init__(self, place: Place, gpus: str = str(GPUS), engine: str = "local", policy: str = POLICY) -> None:
        self.place, self._gpus, self._engine, self._policy = place, gpus, engine, policy
        self.pid = 0

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.pid = os.fork()
        if not self.pid:
            try:
                os.setsid()
                log = os.open(self.place.folder.parent / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                for stream in (1, 2):
                    os.dup2(log, stream)
                say = lambda line: print(line, flush=True)  # noqa: E731
                run_queue(self.place, self._gpus, self._policy, HOUR, (), say, lambda: None, engine=self._engine)
                os._exit(0)
            except BaseException as problem:  # noqa: BLE001 - a forked child never returns into the caller
                print(f"{type(problem).__name__}: {problem}", flush=True)
                os._exit(1)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                client.ask(self.place, Status())
                return
            except QueueError:
                if os.waitpid(self.pid, os.WNOHANG)[0]:
                    raise AssertionError(
                        f"the queue ended at its start: see {self.place.folder.parent / 'log'}"
                    ) from None
                time.sleep(0.005)
        raise AssertionError("the queue does not answer")

    def kill(self) -> None:
        """Kill it as nothing can be handled."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def stop(self) -> None:
        """End it in good order."""
        client.ask(self.place, Stop())
        os.waitpid(self.pid, 0)


def play(folder: Path, kills: int, jobs: int, seed: int) -> Report:
    """Run jobs under kills, and check what is left."""
    place, draw, report = place_of(str(folder / "queue")), random.Random(seed), Report()
    work = folder / "work"
    work.mkdir()
    daemon = Daemon(place)
    began = time.monotonic()
    daemon.start()
    cancelled = submit(place, work, jobs, draw)
    report.jobs = jobs
    left = kills
    while left and not over(place, jobs):
        time.sleep(draw.uniform(0.0, 0.15))
        what = draw.choice(("queue", "runner", "program"))
        if what == "queue":
            daemon.kill()
            time.sleep(draw.choice((0.0, 0.0, 0.1)))
            daemon.start()
        elif not _kill_one(place, what, draw):
            continue
        report.kills[what] += 1
        left -= 1
        if left and len(alive(place, jobs)) < GPUS:
            jobs += GPUS
            cancelled |= submit(place, work, GPUS, draw, first=jobs - GPUS)
            report.jobs = jobs
    await_end(place, jobs)
    daemon.stop()
    check(place, work, cancelled, report)
    report.wall_s = round(time.monotonic() - began, 1)
    return report


def submit(
    place: Place, work: Path, count: int, draw: random.Random, first: int = 0, between: tuple[int, int] = STEPS
) -> set[int]:
    """Submit jobs of so many steps, and cancel a few of them; return those."""
    cancelled = set()
    for number in range(first, first + count):
        steps = draw.randint(*between)
        command = (sys.executable, "-S", "-I", program.__file__, str(work / str(number)), str(steps))
        asked = Submit(
            command,
            str(work),
            {"PATH": os.environ["PATH"]},
            draw.choice((1, 1, 2, 4)),
            cpus=0,
            estimate=round(steps * program.STEP_S * SECOND),
            retries=RETRIES,
            grace_s=5.0,
            name=f"count-{number}",
        )
        found = client.ask(place, asked)
        assert found == number, (found, number)
        (work / f"{number}.steps").write_text(str(steps))
        if draw.random() < 0.1:
            client.ask(place, Cancel(number))
            cancelled.add(number)
    return cancelled


def _kill_one(place: Place, what: str, draw: random.Random) -> bool:
    """Kill the runner or the program of a lease that runs; return whether there was one."""
    past = read(place.store)
    assert past is not None
    found = []
    for lease in past.leases:
        if not lease.gone:
            try:
                told = json.loads((place.run(past.run) / "leases" / str(lease.order.lease) / "began").read_bytes())
            except (OSError, ValueError):
                continue
            index = ("runner", "program").index(what)
            if processes.alive(told[what], told["ticks"][index]):
                found.append(told[what])
    if not found:
        return False
    try:
        os.kill(draw.choice(found), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def alive(place: Place, jobs: int) -> list[int]:
    """Return the jobs that have not ended."""
    past = read(place.store)
    assert past is not None
    ended = last_rows(past.tape)
    return [job for job in range(jobs) if job not in ended]


def over(place: Place, jobs: int) -> bool:
    """Return whether every job has ended."""
    return not alive(place, jobs)


def await_end(place: Place, jobs: int) -> None:
    """Wait until every job has ended."""
    until = time.monotonic() + ENDS_WITHIN_S
    while left := alive(place, jobs):
        if time.monotonic() > until:
            raise AssertionError(f"jobs {left[:10]} have not ended after {ENDS_WITHIN_S:g} s")
        time.sleep(0.2)


def check(place: Place, work: Path, cancelled: set[int], report: Report) -> None:
    """Look at the tape and at what the programs wrote."""
    past = read(place.store)
    assert past is not None
    left = last_rows(past.tape)
    problems = report.problems
    for job in range(report.jobs):
        name = Kind(left[job][1]).name.lower() if job in left else "never"
        report.ended[name] += 1
        rows = past.tape.rows[past.tape.column("subject") == job]
        ends = [row for row in rows.tolist() if row[1] in _ENDS]
        again = [row for row in rows.tolist() if row[1] == int(Kind.QUEUED_AGAIN)]
        if len(ends) - len(again) != 1:
            problems.append(f"job {job} ended {len(ends) - len(again)} times")
        if (name == "cancelled") != (job in cancelled) and name != "finished":
            problems.append(f"job {job} is {name}")
        _check_program(work, job, name, report)
    if open_leases := [lease.order.lease for lease in past.leases if not lease.gone]:
        problems.append(f"leases {open_leases} are not gone")
    run = Run(open_run(place.folder))
    report.rows = len(run.stored.tape)
    if (difference := run.replay()) is not None:
        problems.append(f"replay differs: {difference}")
    problems += [f"audit: {finding}" for finding in run.audit()[:5]]


def _check_program(work: Path, job: int, name: str, report: Report) -> None:
    try:
        lines = [line.split() for line in (work / str(job)).read_text().splitlines()]
    except FileNotFoundError:
        lines = []
    steps = int((work / f"{job}.steps").read_text())
    report.twice += [f"job {job}: {' '.join(line)}" for line in lines if line[0] == "twice"]
    seen = 0
    for line in lines:
        if line[0] == "start":
            report.starts += 1
            report.lost_steps = max(report.lost_steps, seen - int(line[1]))
        if line[0] in ("start", "step", "saved", "end"):
            seen = int(line[1])
    ends = [line for line in lines if line[0] == "end"]
    if name == "finished" and (not ends or int(ends[-1][1]) != steps):
        report.problems.append(f"job {job} finished without its last step")
    if name == "finished" and len(ends) != 1:
        report.kills["after the end"] += len(ends) - 1  # killed between its last line and its exit


def main() -> int:
    """Run and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", default="")
    parser.add_argument("--out", type=Path, help="folder of the rows of the page, which this one is added to")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = play(Path(given.folder or folder), given.kills, given.jobs, given.seed)
    print(json.dumps(report.record(), indent=2))
    if given.out:
        Rows(given.out, "faults").add(report.record())
    return 1 if report.problems or report.twice or report.lost_steps > program.SAVE_EVERY else 0


if __name__ == "__main__":
    sys.exit(main())
