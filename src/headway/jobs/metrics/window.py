"""Select the jobs that are measured: all, those after a warm-up, or a range in a steady state.

Jobs that are not measured load the system like all others; they are only not asked how they fared. What is a property
of time and not of jobs (utilisation, queue) is taken from the first measured submission to the last measured end; what
headlines and tables say of it, while measured jobs arrive, because a few long jobs may stretch the rest.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from headway.errors import ExperimentError
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.metrics.timeline import waiting
from headway.jobs.model.job import Job
from headway.units import parse_duration

GROWTH = 1.5
"""A queue that is so many times as long in the last quarter as in the first has grown."""
FEWEST_WAITING = 5.0
"""A queue shorter than this at its end is none to speak of."""
_RANGE = re.compile(r"\s*(\d*)\s*:\s*(\d*)\s*")
_SHARE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*%\s*")


@dataclass(frozen=True, slots=True)
class Window:
    """Jobs ``first`` up to but not including ``last``, numbered from 0 in submission order."""

    first: int
    last: int

    @property
    def jobs(self) -> slice:
        """Return the jobs as positions in anything that has one entry a job."""
        return slice(self.first, self.last)


def check_texts(jobs: str, warmup: str | int | float) -> None:
    """Refuse what can be seen to be wrong before there is a workload."""
    if jobs and warmup != "":
        raise ExperimentError("measure.jobs and measure.warmup are both given: give one")
    if jobs:
        _range(jobs)
    if warmup != "" and not _SHARE.fullmatch(str(warmup)):
        _length(str(warmup))


def window_of(jobs: Sequence[Job], numbers: str, warmup: str | int | float, carried: int = 0) -> Window | None:
    """Return the jobs to be measured: ``4000:5000``, or after a warm-up of ``10%`` or ``2d``; None for all.

    Of the jobs that ran or waited before the run began, the first ``carried``, none is: numbers and shares count from
    the first one after them.
    """
    check_texts(numbers, warmup)
    if carried:
        chosen = window_of(jobs[carried:], numbers, warmup)
        return Window(carried, len(jobs)) if chosen is None else Window(carried + chosen.first, carried + chosen.last)
    if numbers:
        first, last = _range(numbers)
        last = len(jobs) if last is None else last
        if last > len(jobs) or first >= last:
            raise ExperimentError(f"jobs to measure {numbers!r}: the workload has {len(jobs):,} jobs, numbered from 0")
        return Window(first, last)
    if warmup == "":
        return None
    text = str(warmup)
    if share := _SHARE.fullmatch(text):
        first = math.ceil(float(share[1]) / 100 * len(jobs))
    else:
        begins = jobs[0].submit + _length(text)
        first = next((number for number, job in enumerate(jobs) if job.submit >= begins), len(jobs))
    if first >= len(jobs):
        raise ExperimentError(f"warm-up {text!r} leaves none of the {len(jobs):,} jobs to be measured")
    return Window(first, len(jobs))


def _range(text: str) -> tuple[int, int | None]:
    match = _RANGE.fullmatch(text)
    if match is None or not (match[1] or match[2]):
        raise ExperimentError(f"jobs to measure {text!r} are not understood: write them like 4000:5000 or 4000:")
    first, last = int(match[1] or 0), int(match[2]) if match[2] else None
    if last is not None and first >= last:
        raise ExperimentError(f"jobs to measure {text!r}: there is no job from {first} up to but not including {last}")
    return first, last


def _length(text: str) -> int:
    if text.strip().startswith("-"):
        raise ExperimentError(f"warm-up {text!r} must not be negative")
    return parse_duration(text, what="warm-up") if text.strip() else 0


# --- on a tape ------------------------------------------------------------------------------------------------


def span_of(ledger: Ledger, window: Window | None) -> tuple[int, int]:
    """Return first measured submission and last measured end; the last row instead when some have not ended."""
    if window is None:
        return ledger.span
    arrived = ledger.arrived[window.jobs]
    if not arrived.any():
        return ledger.horizon, ledger.horizon
    start = int(ledger.submit[window.jobs][arrived].min())
    whole = bool(ledger.gone[window.jobs].all())
    return start, int(ledger.end[window.jobs].max()) if whole else ledger.horizon


def arrivals_of(ledger: Ledger, window: Window | None) -> tuple[int, int]:
    """Return first and last measured submission; the last row instead while measured jobs have not arrived."""
    chosen = slice(None) if window is None else window.jobs
    start, end = span_of(ledger, window)
    arrived = ledger.arrived[chosen]
    came = arrived | (ledger.withdrawn[chosen] >= 0)
    if not arrived.any() or not came.all():
        return start, end
    return start, max(start, max(job.submit for job in ledger.jobs[chosen]))


def grew(early: float, late: float) -> bool:
    """Return whether a queue of these mean lengths, in the first and the last quarter, has grown to speak of."""
    return late >= FEWEST_WAITING and late >= GROWTH * early


def still_growing(ledger: Ledger, window: Window | None) -> str | None:
    """Return a warning when the queue grows all the time in which measured jobs arrive: that is no steady state."""
    if window is None or not ledger.arrived[window.jobs].any():
        return None
    submitted = ledger.submit[window.jobs][ledger.arrived[window.jobs]]
    edges = np.linspace(float(submitted.min()), float(submitted.max()), 5).astype(np.int64).tolist()
    queue = waiting(ledger, np.ones_like(ledger.width))
    means = [queue.mean(start, end) for start, end in pairwise(edges)]
    rising = all(before < after for before, after in pairwise(means))
    if not rising or not grew(means[0], means[-1]):
        return None
    return f"no steady state: while measured jobs arrived the queue grew from {means[0]:.0f} to {means[-1]:.0f} jobs"
