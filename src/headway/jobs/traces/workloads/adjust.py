"""Change a workload before the run: more load, other estimates. Exact, in whole nanoseconds."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from headway.errors import ExperimentError, unknown_name
from headway.jobs.model.job import Job
from headway.jobs.model.submission import Terms
from headway.jobs.traces.build import altered
from headway.streams import stream
from headway.units import DAY, HOUR, MINUTE, WHOLE_GPU_MILLI

IntArray = npt.NDArray[np.int64]
ESTIMATES = ("trace", "exact", "factor:N", "user")

_LIMITS = np.array(
    [10 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR, 12 * HOUR, DAY, 2 * DAY, 3 * DAY, 7 * DAY, 14 * DAY],
    dtype=np.int64,
)
"""Time limits that people ask for; beyond the last they ask for whole days."""


_LONGEST = 40
"""Digits of a factor, and the largest power of ten in it."""


def _positive(value: object, what: str) -> Fraction:
    """Parse a number above 0 as it was written: 1.2 is 6/5, not the nearest binary fraction."""
    written = str(value).strip()
    power = written.lower().rpartition("e")[2].lstrip("+-") if "e" in written.lower() else ""
    if len(written) > _LONGEST or (power.isdecimal() and int(power) > _LONGEST):  # exact, it would fill the memory
        raise ExperimentError(f"{what} {written[:_LONGEST]!r} is too large, too small or too long")
    try:
        exact = Fraction(written)
    except (ValueError, ZeroDivisionError):
        raise ExperimentError(f"{what} {value!r} is not a number") from None
    if exact <= 0:
        raise ExperimentError(f"{what} {value!r} must be above 0")
    return exact


def load_scale(jobs: Sequence[Job], factor: float | str | Fraction) -> tuple[Job, ...]:
    """Return the jobs arriving ``factor`` times as fast: submit times are divided, and rounded down."""
    exact = _positive(factor, "load factor")
    submits = [job.submit * exact.denominator // exact.numerator for job in jobs]
    return altered(jobs, {"submit": submits, "terms": [_scaled(job.terms, exact) for job in jobs]})


def _scaled(terms: Terms | None, factor: Fraction) -> Terms | None:
    if terms is None or not terms.begin:
        return terms
    return replace(terms, begin=terms.begin * factor.denominator // factor.numerator)


def offered_load(jobs: Sequence[Job], gpus: int) -> float:
    """Return the jobs' GPU time over what ``gpus`` devices offer between the first and the last submission."""
    span = (jobs[-1].submit - jobs[0].submit) * gpus * WHOLE_GPU_MILLI if jobs else 0
    brought = sum(job.width_milli * job.ends_after for job in jobs)
    return brought / span if span else float("inf")


def overshot(run: IntArray, draws: np.random.Generator) -> IntArray:
    """Draw estimates as users give them: a few times too long, rounded up to a common limit."""
    wanted = run.astype(np.float64) * (1.0 + draws.exponential(1.5, run.size))
    days = np.minimum(np.ceil(wanted / DAY), 100_000).astype(np.int64) * DAY
    position = np.searchsorted(_LIMITS, wanted.astype(np.int64))
    rounded = np.where(position < _LIMITS.size, _LIMITS[np.minimum(position, _LIMITS.size - 1)], days)
    return np.maximum(rounded, run)


def estimates(jobs: Sequence[Job], spec: str, seed: int = 0) -> tuple[Job, ...]:
    """Return jobs with other estimates of their run time.

    ``trace``: as the trace gives them, none where it gives none. ``exact``: the time they will run.
    ``factor:3``: three times that, rounded up. ``user``: drawn from ``seed``, too long by a factor and rounded up to
    a common limit.
    """
    kind, colon, number = spec.partition(":")
    if spec == "trace":
        return tuple(jobs)
    run = [job.ends_after for job in jobs]
    if spec == "exact":
        return altered(jobs, {"estimate": run})
    if kind == "factor" and colon:
        exact = _positive(number, "estimate factor")
        return altered(jobs, {"estimate": [-(-time * exact.numerator // exact.denominator) for time in run]})
    if spec == "user":
        drawn = overshot(np.array(run, dtype=np.int64), stream(seed, "traces.estimates"))
        return altered(jobs, {"estimate": drawn.tolist()})
    raise ExperimentError(unknown_name("estimate", spec, ESTIMATES))
