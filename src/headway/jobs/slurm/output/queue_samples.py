"""Parse sampled output of squeue: which jobs waited at some instants, and why.

One line a waiting job and sample, ``2026-03-01T12:00:00|123_4|QOSMaxGRESPerUser``, as this prints them now and then:
``squeue -h -t PD -o "$(date +%FT%T)|%i|%r"``. sacct keeps one reason of a job; how long it waited for which is here.
"""

import gzip
import zlib
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from headway.errors import InputError
from headway.jobs.slurm.output import lists

GZIP = b"\x1f\x8b"
LONGEST_GAP_S = 3600.0
"""A sample stands for the time until the next one, or this where the next is later: nobody sampled then."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """What samples of a queue say."""

    hours: dict[str, float]
    """Job-hours of waiting by reason, the largest first."""
    reasons: dict[str, str]
    """The reason that each job was seen with longest, by its name."""
    samples: int
    skipped: int
    """Lines that are not understood."""

    @property
    def shares(self) -> list[dict[str, object]]:
        """Return one row a reason, for ``--json``."""
        whole = sum(self.hours.values()) or 1.0
        return [{"reason": name, "job_hours": hours, "share": hours / whole} for name, hours in self.hours.items()]


def read(path: Path) -> Sampled:
    """Read a file of samples; lines that are none are counted, and a file without any is refused."""
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data[:2] == GZIP else data).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeError) as problem:
        raise InputError(f"samples {path}: cannot be read ({problem})") from None
    seen: dict[datetime, list[tuple[str, str]]] = {}
    skipped = 0
    for line in filter(None, map(str.strip, text.splitlines())):
        try:
            when, job, reason = line.split("|", 2)
            seen.setdefault(datetime.fromisoformat(when), []).append((job.strip(), reason.strip("() ")))
        except ValueError:
            skipped += 1
    if not seen:
        raise InputError(f"samples {path}: no line is like 2026-03-01T12:00:00|123|Priority")
    return _summed(seen, skipped)


def _summed(seen: dict[datetime, list[tuple[str, str]]], skipped: int) -> Sampled:
    times = sorted(seen)
    gaps = [(later - time).total_seconds() for time, later in pairwise(times)]
    usual = sorted(gaps)[len(gaps) // 2] if gaps else 0.0
    hours: dict[str, float] = {}
    by_job: dict[str, dict[str, float]] = {}
    for time, gap in zip(times, [*gaps, usual], strict=True):
        length = min(gap, LONGEST_GAP_S) / 3600
        for listed, reason in seen[time]:
            jobs = _jobs(listed)
            hours[reason] = hours.get(reason, 0.0) + length * len(jobs)
            for job in jobs:
                own = by_job.setdefault(job, {})
                own[reason] = own.get(reason, 0.0) + length
    reasons = {job: max(own, key=own.__getitem__) for job, own in by_job.items()}
    ranked = dict(sorted(hours.items(), key=lambda item: -item[1]))
    return Sampled(ranked, reasons, len(times), skipped)


def _jobs(text: str) -> list[str]:
    """Return the jobs behind ``123``, ``123_4`` or ``123_[5-10%2]``."""
    array, bracket, inside = text.partition("_[")
    if not bracket:
        return [text]
    try:
        return [f"{array}_{task}" for task in lists.tasks(inside.removesuffix("]"))]
    except InputError:
        return [text]
