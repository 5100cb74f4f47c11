"""Draw workloads of any size that look like those of large training clusters.

The shapes follow what was published of Philly (Jeon et al., ATC 2019) and Helios (Hu et al., SC 2021): most jobs use
one GPU, durations are heavy-tailed, a few tenants submit most of the work, days and weeks have a rhythm, and nearly
half of the jobs fail or are cancelled. Each quantity has its own stream, so one option does not disturb another.
"""

import numpy as np
import numpy.typing as npt

from headway.core.collector import no_collection
from headway.errors import ExperimentError
from headway.jobs.model.job import Job, Outcome, workload
from headway.jobs.traces.build import build
from headway.jobs.traces.workloads.adjust import overshot
from headway.streams import stream
from headway.units import DAY, HOUR, SECOND

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_WIDTHS = np.array([1, 2, 4, 8, 16, 32, 64])
_WIDTH_SHARES = [0.70, 0.07, 0.08, 0.12, 0.02, 0.007, 0.003]
_MEDIAN_SECONDS = 900.0
_SIGMA = 2.1
LONGEST = 60 * DAY
"""How long a drawn job runs at most, unless said."""
_WIDER_IS_LONGER = 0.2
_FAILS, _CANCELLED = 0.20, 0.25
_TENANTS, _USERS_A_TENANT = 12, 8
_NIGHT, _WEEKEND, _WORKDAYS = 0.5, 0.6, 5
_LONGEST_SPAN = 2**62


def _shares(count: int) -> FloatArray:
    """Return Zipf weights: the k-th has 1/k of the first."""
    weights = 1.0 / np.arange(1, count + 1)
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def _hourly_rate(hours: int) -> FloatArray:
    """Return relative arrivals an hour: calm nights, busy afternoons, quiet weekends, from Monday 0:00 on."""
    hour = np.arange(hours)
    daily = 1.0 - _NIGHT * np.cos(2 * np.pi * (hour % 24 - 3) / 24)
    return np.asarray(daily * np.where(hour // 24 % 7 >= _WORKDAYS, _WEEKEND, 1.0), dtype=np.float64)


def _arrivals(jobs: int, span: int, seed: int) -> IntArray:
    """Draw so many Poisson arrivals whose rate follows the rhythm; the first at 0 and the last at ``span``."""
    uniform = np.sort(stream(seed, "synthetic.arrivals").random(jobs))
    if jobs == 1 or uniform[-1] == uniform[0]:
        return np.zeros(jobs, dtype=np.int64)
    uniform = (uniform - uniform[0]) / (uniform[-1] - uniform[0])
    hours = span // HOUR + 2
    edges = np.minimum(np.arange(hours, dtype=np.float64) * HOUR, float(span))
    passed = np.concatenate(([0.0], np.cumsum(_hourly_rate(hours - 1) * np.diff(edges))))
    times = np.interp(uniform * passed[-1], passed, edges).astype(np.int64)
    times[-1] = span
    return np.maximum.accumulate(times)


def _durations(widths: IntArray, longest: int, seed: int) -> IntArray:
    draws = stream(seed, "synthetic.durations").lognormal(np.log(_MEDIAN_SECONDS), _SIGMA, widths.size)
    whole = np.ceil(np.minimum(draws * widths**_WIDER_IS_LONGER, longest / SECOND))
    return np.maximum(whole, 1).astype(np.int64) * SECOND


def _outcomes(work: IntArray, seed: int) -> tuple[IntArray, IntArray]:
    """Draw how each job ends, and after how much work: failures come early, people give up late."""
    draws = stream(seed, "synthetic.outcomes")
    kind = draws.choice(3, size=work.size, p=[1 - _FAILS - _CANCELLED, _FAILS, _CANCELLED])
    part = np.where(kind == Outcome.FAILS, draws.beta(1, 4, work.size), draws.beta(3, 2, work.size))
    after = np.clip((work * part).astype(np.int64), 1, work)
    return kind.astype(np.int64), np.where(kind == Outcome.FINISHES, 0, after)


def _owners(jobs: int, seed: int) -> tuple[list[str], list[str]]:
    """Return the tenant and the user of each job."""
    draws = stream(seed, "synthetic.owners")
    tenants = draws.choice(_TENANTS, size=jobs, p=_shares(_TENANTS))
    users = draws.choice(_USERS_A_TENANT, size=jobs, p=_shares(_USERS_A_TENANT))
    tenant_names = np.array([f"tenant{index:02d}" for index in range(_TENANTS)], dtype=object)
    user_names = np.array(
        [f"{name}-u{index}" for name in tenant_names for index in range(_USERS_A_TENANT)], dtype=object
    )
    return tenant_names[tenants].tolist(), user_names[tenants * _USERS_A_TENANT + users].tolist()


def _communication(widths: IntArray, seed: int) -> IntArray:
    """Draw the share of time spent communicating, in parts per million: none on one GPU, more the wider the job."""
    draws = stream(seed, "synthetic.communication").uniform(30_000, 80_000, widths.size)
    return np.minimum(draws * np.log2(widths), 500_000).astype(np.int64)


def _span(run: IntArray, widths: IntArray, gpus: int, load: float) -> int:
    brought = float(np.dot(run.astype(np.float64), widths.astype(np.float64)))
    span = brought / (load * gpus)
    if not span < _LONGEST_SPAN:
        raise ExperimentError(
            f"{run.size} jobs at load {load} on {gpus} GPUs would span {span / DAY / 365:.0f} years: use more GPUs"
        )
    return max(round(span), 1)


def philly_like(
    jobs: int,
    *,
    seed: int = 0,
    gpus: int = 512,
    load: float = 0.8,
    outcomes: bool = True,
    estimates: bool = True,
    longest: int = LONGEST,
) -> tuple[Job, ...]:
    """Draw ``jobs`` jobs for a cluster of ``gpus`` devices, the same for the same arguments.

    ``load`` is the GPU time they bring over what the cluster offers between the first and the last arrival (see
    ``offered_load``). Without ``outcomes`` every job finishes; without ``estimates`` users announce no run time. No job
    has more work than ``longest`` or announces more, as where a cluster has a time limit.
    """
    if jobs < 1 or gpus < 1:
        raise ExperimentError(f"a workload of {jobs} jobs for {gpus} GPUs cannot be drawn: both must be at least 1")
    if not 0 < load < float("inf"):
        raise ExperimentError(f"load {load} must be above 0")
    drawn = stream(seed, "synthetic.widths").choice(_WIDTHS, size=jobs, p=_WIDTH_SHARES)
    widths = np.minimum(drawn, gpus).astype(np.int64)
    if longest < SECOND:
        raise ExperimentError(f"longest {longest / SECOND:g} s must be at least 1 s")
    work = _durations(widths, longest, seed)
    kind, after = _outcomes(work, seed) if outcomes else (np.zeros_like(work), np.zeros_like(work))
    run = np.where(kind == Outcome.FINISHES, work, after)
    tenants, users = _owners(jobs, seed)
    columns = {
        "submit": _arrivals(jobs, _span(run, widths, gpus, load), seed).tolist(),
        "work": work.tolist(),
        "gpus": widths.tolist(),
        "tenant": tenants,
        "user": users,
        "communication_ppm": _communication(widths, seed).tolist(),
        "outcome": map(tuple(Outcome).__getitem__, kind.tolist()),
        "outcome_after": after.tolist(),
    }
    if estimates:
        announced = overshot(work, stream(seed, "synthetic.estimates"))
        columns["estimate"] = np.minimum(announced, np.maximum(work, longest)).tolist()
    with no_collection():
        return workload(build(jobs, columns))
