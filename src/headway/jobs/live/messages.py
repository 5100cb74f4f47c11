"""Messages between a queue and its clients, over its local socket: one question, one answer."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from headway.units import SECOND, counted, format_duration

MOST_BYTES = 16 << 20
"""Of a message: a command with its environment."""


class Submit(Struct, frozen=True, array_like=True, tag=0):
    """Take a job. Answered with its number."""

    command: tuple[str, ...]
    folder: str
    environment: dict[str, str]
    gpus: int = 1
    gpu_milli: int = 1000
    cpus: int = -1
    """Below 0: a share of the machine's that goes with its GPUs."""
    memory_bytes: int = 0
    tenant: str = "default"
    estimate: int = 0
    """Nanoseconds; 0: the user does not know."""
    name: str = ""
    retries: int = 0
    grace_s: float = 30.0
    priority: int = 0
    preemptible: bool = True
    model: str = ""
    """What it trains: the profile that tells what CPUs and memory do for it; empty: not known."""
    nodes: int = 0
    """Exactly so many, with the same number of GPUs on each; 0: one."""
    partition: str = ""
    """Of Slurm; empty: its default."""
    user: str = ""
    qos: str = ""
    gpu_types: tuple[str, ...] = ()


class Cancel(Struct, frozen=True, array_like=True, tag=1):
    """End a job. Answered with whether it waited or ran."""

    job: int
    at_once: bool = False


class Status(Struct, frozen=True, array_like=True, tag=2):
    """Say what is going on."""


class Stop(Struct, frozen=True, array_like=True, tag=3):
    """End the queue; answered at once. Programs go on, unless they are to be ended too."""

    kill: bool = False
    at_once: bool = False


class Answered(Struct, frozen=True, array_like=True, tag=0):
    """What was asked for."""

    value: Any


class Refused(Struct, frozen=True, array_like=True, tag=1):
    """Why it is not done, in one line."""

    reason: str


Question: TypeAlias = Submit | Cancel | Status | Stop
Answer: TypeAlias = Answered | Refused
QUESTIONS: msgspec.msgpack.Decoder[Question] = msgspec.msgpack.Decoder(Question)
ANSWERS: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


def described(jobs: Mapping[str, Any]) -> str:
    """Return the counts of a status in a line."""
    up = format_duration(round(jobs["uptime_s"]) * SECOND)
    shown = [key for key in ("waiting", "running", "ending") if jobs[key] or key != "ending"]
    counts = ", ".join(f"{jobs[key]:,} {key}" for key in shown)
    whole = f"policy {jobs['policy']}, {counted(jobs['gpus'], 'GPU')}, run {jobs['run']}, up {up}: {counts}"
    return "; ".join([whole, *_of_slurm(jobs.get("slurm", {}))])


def _of_slurm(status: Mapping[str, Any]) -> list[str]:
    """Return what only a Slurm has to tell."""
    told = [f"Slurm is away: {status['away']}"] if status.get("away") else []
    if again := status.get("held_again"):
        told.append(f"{counted(again, 'release')} that Slurm did not start in time")
    if delayed := status.get("untagged_delayed_jobs"):
        told.append(f"{counted(delayed, 'untagged job')} delayed by {status['untagged_delay_s']:,} s at most")
    return told
