"""Replay what bench/slurm_drive.py recorded: recorded and simulated starts, job by job.

Jobs are known by the name that they were submitted with, and their task: their numbers differ from run to run. Times
are seconds since the first submission.
"""

import gzip
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from headway import api as hw
from headway.runs.result import Run

_FILES = ("nodes", "partitions", "qos", "assoc", "sshare", "config", "reservations", "transactions", "events")


@dataclass(frozen=True, slots=True)
class Past:
    """A job as Slurm ran it."""

    number: str
    """As sacct prints it: ``12``, ``12_3``."""
    qos: str
    user: str
    submit: float
    start: float | None
    """Its first one."""
    end: float | None
    """Its last one."""
    preempted: int
    state: str


@dataclass(frozen=True, slots=True)
class Simulated:
    """A job as it was replayed."""

    start: float | None
    end: float | None
    preempted: int


def trace(folder: Path) -> Path:
    """Return the file with a folder's jobs."""
    plain = folder / "sacct.txt"
    return plain if plain.exists() else folder / "sacct.txt.gz"


def cluster_files(folder: Path) -> list[str]:
    """Return the files of a folder that tell of the cluster and its rules."""
    paths = (folder / f"{name}.txt" for name in _FILES)
    return [str(path) for path in paths if path.exists() and path.stat().st_size]


def arguments(folder: Path) -> list[str]:
    """Return the command that an operator would give."""
    files = [part for path in cluster_files(folder) for part in ("--cluster", path)]
    return ["jobs", "backtest", str(trace(folder)), *files, "--config", str(folder / "config.txt")]


def past(folder: Path) -> dict[str, Past]:
    """Return the recorded jobs by name; of those that were submitted under one name the second is ``name.2``."""
    jobs: dict[str, Past] = {}
    numbers: dict[str, str] = {}
    seen: dict[str, int] = {}
    first = begins(folder)
    for row in rows(trace(folder)):
        number = row["JobID"]
        _, _, task = number.partition("_")
        if number not in numbers:
            name = row["JobName"] + (f"_{task}" if task else "")
            seen[name] = seen.get(name, 0) + 1
            numbers[number] = name if seen[name] == 1 else f"{name}.{seen[name]}"
        name = numbers[number]
        submit, start, end = (_after(first, row[key]) for key in ("Submit", "Start", "End"))
        before = jobs.get(name)
        preempted = int(row["State"] == "PREEMPTED") + (before.preempted if before else 0)
        this = Past(number, row["QOS"], row["User"], submit or 0.0, start, end, preempted, row["State"])
        if before is not None:
            begun = before.start if start is None else start if before.start is None else min(start, before.start)
            this = replace(this, submit=min(this.submit, before.submit), start=begun)
        jobs[name] = this
    return jobs


def replay(folder: Path) -> tuple[dict[str, Simulated], Run]:
    """Return the replayed jobs by the same names, and the run."""
    config = str(folder / "config.txt")
    recorded = past(folder)
    work = hw.Jobs(str(trace(folder)), cluster=cluster_files(folder))
    run = hw.simulate(work, f"slurm:{config}")
    table = {row["name"]: row for row in run.table("jobs").iter_rows(named=True)}
    early = min(table.values(), key=lambda row: row["submit_s"])
    later = (seconds(early["submit"]) or 0.0) - early["submit_s"] - begins(folder)
    made = {}
    for name, job in recorded.items():
        row = table.get(job.number)
        if row is not None:
            start, end = (None if row[key] is None else row[key] + later for key in ("first_start_s", "end_s"))
            made[name] = Simulated(start, end, row["preemptions"])
    return made, run


def begins(folder: Path) -> float:
    """Return the second of the first submission."""
    return min(seconds(row["Submit"]) or 0.0 for row in rows(trace(folder)))


def rows(path: Path) -> Iterator[dict[str, str]]:
    """Yield what sacct printed, column by column."""
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    lines = text.splitlines()
    head = lines[0].split("|")
    for line in lines[1:]:
        yield dict(zip(head, line.split("|", len(head) - 1), strict=True))


def seconds(text: str) -> float | None:
    """Return a time in seconds; None where there is none."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=None).timestamp()
    except ValueError:
        return None


def _after(first: float, text: str) -> float | None:
    at = seconds(text)
    return None if at is None else at - first
