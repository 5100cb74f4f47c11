"""Play a plan through a Slurm of bench/slurm_lab.py, and leave what an operator would dump in a folder."""

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from bench.slurm_lab import SlurmLab

SAMPLED_S = 2.0
"""Seconds between two looks at the queue."""


@dataclass(frozen=True, slots=True)
class Step:
    """What happens at a second of the plan: a job is submitted, or a command is given."""

    when: float
    name: str = ""
    """Of the job. ``{name}`` in options of later steps stands for its number."""
    options: tuple[str, ...] = ()
    """Of sbatch."""
    seconds: float = 0.0
    user: str = ""
    """Empty: root."""
    stubborn: bool = False
    """Whether the job does not listen to SIGTERM."""
    command: tuple[str, ...] = ()
    """A command instead of a job, e.g. of scontrol. ``{name}`` stands for the number of a job here too."""


@dataclass(slots=True)
class _Played:
    numbers: dict[str, str] = field(default_factory=dict)
    samples: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    reservations: dict[str, str] = field(default_factory=dict)


def play(lab: SlurmLab, plan: Sequence[Step], folder: Path) -> None:
    """Play the steps of a plan, wait for the last job, and write what Slurm prints about it."""
    lab.dump_usage(folder)
    played = _Played()
    began = time.monotonic()
    for step in plan:
        _wait(lab, played, began + step.when)
        _do(lab, played, step)
    while lab.waiting():
        _wait(lab, played, time.monotonic() + SAMPLED_S)
    lab.dump(folder)
    (folder / "queue.txt").write_text("".join(played.samples))
    (folder / "reservations.txt").write_text("".join(played.reservations.values()))
    (folder / "refused.json").write_text(json.dumps(played.refused, indent=1) + "\n")


def _do(lab: SlurmLab, played: _Played, step: Step) -> None:
    if step.command:
        lab.run(*(part.format(**played.numbers) for part in step.command))
        for line in lab.run("scontrol", "show", "reservation", "-o").splitlines(keepends=True):
            if match := re.match(r"ReservationName=(\S+)", line):
                played.reservations.setdefault(match[1], line)
        return
    options = (f"--job-name={step.name}", *(option.format(**played.numbers) for option in step.options))
    try:
        number = lab.submit(*options, seconds=step.seconds, user=step.user, stubborn=step.stubborn)
    except RuntimeError as problem:
        played.refused[step.name] = str(problem).splitlines()[-1]
    else:
        played.numbers[step.name] = number


def _wait(lab: SlurmLab, played: _Played, until: float) -> None:
    """Wait, and look at the queue meanwhile."""
    while (left := until - time.monotonic()) > 0:
        if left < SAMPLED_S / 2:
            time.sleep(left)
            return
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")
        lines = lab.run("squeue", "-h", "-t", "PD", "-o", f"{now}|%i|%r")
        played.samples.append(lines)
        time.sleep(max(0.0, min(SAMPLED_S, until - time.monotonic())))
