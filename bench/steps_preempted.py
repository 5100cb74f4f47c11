"""Preempt a torch program at random, and compare it with an undisturbed run: samples and losses have to be the same.

``python -m bench.steps_preempted --ranks 4 --times 20``: SIGTERM at drawn steps; the program saves, ends and is started
again. Every rank writes the samples and the loss of each step: the lines have to be those of the undisturbed run, none
missing, none twice, and the weights at the end too, bit by bit. ``--kills 5`` kills it as well, by SIGKILL: then steps
since the last checkpoint are taken again, with the same samples and losses, and no more of them than lie between two
checkpoints.
"""

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.serve_rows import Row, Rows
from headway.program.protocol import SAVED, SAVED_FILE

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "bench" / "steps_preempted_program.py"
BATCHES, EPOCHS = 60, 3
STEPS = BATCHES * EPOCHS
EVERY = 10
WITHIN_S = 300.0
COLUMNS = ("ranks", "workers", "preempted", "killed", "starts", "steps", "again", "identical")


@dataclass
class Report:
    """What was seen."""

    ranks: int
    workers: int
    preempted: int = 0
    killed: int = 0
    starts: int = 0
    steps: int = 0
    """Those of rank 0, without those that were taken again."""
    again: int = 0
    """Steps that were taken again, of all ranks and after all kills."""
    problems: list[str] = field(default_factory=list)
    wall_s: float = 0.0


class Trial:
    """A program in a folder, started again and again until it ends."""

    def __init__(self, folder: Path, ranks: int, workers: int, every: int | None, step_s: float) -> None:
        self.folder, self.ranks = folder, ranks
        self.folder.mkdir(parents=True)
        self.mark = folder / "mark"
        launcher = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}") if ranks > 1 else ()
        more = () if every is None else (f"--every={every}",)
        words = (f"--batches={BATCHES}", f"--epochs={EPOCHS}", f"--workers={workers}", f"--step-s={step_s}", *more)
        self._command = [sys.executable, *launcher, str(PROGRAM), str(folder), *words]

    def lines(self, rank: int = 0) -> list[str]:
        """Return what a rank has written so far."""
        path = self.folder / f"rank-{rank}"
        return path.read_text().splitlines() if path.exists() else []

    def start(self) -> "subprocess.Popen[bytes]":
        """Start the program."""
        self.mark.unlink(missing_ok=True)
        paths = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
        wanted = {
            "HEADWAY_CHECKPOINTS": str(self.folder / "checkpoints"),
            SAVED_FILE: str(self.mark),
            "PYTHONPATH": paths,
        }
        with (self.folder / "output").open("ab") as output:
            return subprocess.Popen(
                self._command, env={**os.environ, **wanted}, stdout=output, stderr=output, start_new_session=True
            )

    def ended(self, program: "subprocess.Popen[bytes]") -> int:
        """Return how it ended: 85 also where its launcher has a status of its own."""
        status = program.wait(WITHIN_S)
        return SAVED if self.mark.exists() and self.ranks > 1 else status

    def until(self, program: "subprocess.Popen[bytes]", steps: int) -> None:
        """Wait until the first rank has taken so many steps, or the program has ended."""
        end = time.monotonic() + WITHIN_S
        while len(self.lines()) < steps and program.poll() is None:
            if time.monotonic() > end:
                raise TimeoutError(f"{self.folder}: {len(self.lines())} of {steps} steps after {WITHIN_S:.0f} s")
            time.sleep(0.002)


def run(folder: Path, ranks: int, times: int, kills: int = 0, workers: int = 0, seed: int = 1) -> Report:
    """Preempt and kill a program so often, and compare it with one that is not."""
    begun, report = time.monotonic(), Report(ranks, workers)
    alone = Trial(folder / "undisturbed", ranks, workers, None, 0.0)
    if (status := alone.ended(alone.start())) != 0:
        report.problems.append(f"undisturbed: exit status {status}: {_tail(alone)}")
    trial = Trial(folder / "disturbed", ranks, workers, EVERY if kills else None, 0.01)
    _disturb(trial, report, times, kills, random.Random(seed))
    _compare(alone, trial, report)
    report.wall_s = round(time.monotonic() - begun, 1)
    return report


def _disturb(trial: Trial, report: Report, times: int, kills: int, draw: random.Random) -> None:
    plan = [signal.SIGTERM] * times + [signal.SIGKILL] * kills
    draw.shuffle(plan)
    for left, number in zip(range(len(plan), 0, -1), plan, strict=True):
        done = len(trial.lines())
        steps = draw.randint(1, max(1, 2 * (STEPS - done) // (left + 1) - 2))
        program = trial.start()
        report.starts += 1
        trial.until(program, done + steps)
        if number == signal.SIGKILL:
            _kill_all(program)
            program.wait()
            report.killed += 1
            continue
        program.send_signal(number)
        status = trial.ended(program)
        if status != SAVED:
            report.problems.append(f"preempted: exit status {status} after {done + steps} steps: {_tail(trial)}")
            return
        report.preempted += 1
    report.starts += 1
    if (status := trial.ended(trial.start())) != 0:
        report.problems.append(f"at the end: exit status {status}: {_tail(trial)}")


def _kill_all(program: "subprocess.Popen[bytes]") -> None:
    """Kill a program and its ranks, which torchrun puts into sessions of their own."""
    found = [program.pid]
    for pid in found:
        children = Path(f"/proc/{pid}/task/{pid}/children")
        found += [int(child) for child in children.read_text().split()] if children.exists() else []
    for pid in found:
        os.kill(pid, signal.SIGKILL)


def _compare(alone: Trial, trial: Trial, report: Report) -> None:
    for rank in range(report.ranks):
        wanted, found = alone.lines(rank), trial.lines(rank)
        whole = dict[str, str]()
        for line in found:
            step = line.partition(" ")[0]
            if whole.setdefault(step, line) != line:
                report.problems.append(f"rank {rank}: step {step} taken again differs")
        report.again += len(found) - len(whole)
        if len(wanted) != STEPS or sorted(wanted) != sorted(whole.values()):
            report.problems.append(f"rank {rank}: {len(whole)} steps, not those of the undisturbed run")
        if not report.killed and found != wanted:
            report.problems.append(f"rank {rank}: other lines, or in another order, than in the undisturbed run")
        report.steps = len(whole)
    if report.again > report.killed * EVERY * report.ranks:
        report.problems.append(f"{report.again} steps were taken again after {report.killed} kills")
    weights = [(each.folder / "weights").read_text() for each in (alone, trial) if (each.folder / "weights").exists()]
    if len(weights) != 2 or len(set(weights)) != 1:
        report.problems.append("the weights at the end differ")


def free_port() -> int:
    """Return a port that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _tail(trial: Trial) -> str:
    return " | ".join((trial.folder / "output").read_text().splitlines()[-5:])


def row_of(report: Report) -> Row:
    """Return it as a row."""
    return {**asdict(report), "identical": not report.problems}


def main() -> None:
    """Preempt and say what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--times", type=int, default=20, help="how often it is preempted")
    parser.add_argument("--kills", type=int, default=0, help="how often it is killed as well")
    parser.add_argument("--workers", type=int, default=0, help="of the loader of each rank")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="folder of the rows of the page, which this one is added to")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = run(Path(folder), given.ranks, given.times, given.kills, given.workers, given.seed)
    row = row_of(report)
    if given.out:
        Rows(given.out, "preempted").add(row)
    else:
        print(json.dumps(row))
    sys.exit(1 if report.problems else 0)


if __name__ == "__main__":
    main()
