"""Compute confidence intervals for means, quantiles and paired changes. Method: docs/guides/statistics.md.

Jobs of one run are not independent: a congested week makes many of them late together. Drawing jobs one by one, as the
plain bootstrap does, would give intervals that are far too narrow. Here whole stretches of consecutive jobs are drawn
(circular moving blocks, Politis and Romano 1992), so that what happened together stays together. The length of a block
comes from the autocorrelation (Politis and White 2004, corrected 2009), and is at least the cube root of the number of
jobs. Blocks may be few: an interval is widened as Student's t is wider than the normal distribution.

With several seeds the unit is the run: ``replicated_interval`` over one number a seed.

Where no value is below 0 no interval is: times are never negative, and a change is never below -1, for the intervals
of relative changes are made on the logarithm of the ratio.

Values stand in submission order; what is nan does not count. Of fewer than eight jobs or two runs there is no interval:
(nan, nan). Nor is there one where jobs that count are so few that a resample may hold none of them: to leave such
resamples out would favour the others.
"""

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from headway.streams import stream

Interval = tuple[float, float]
Values = Sequence[float] | npt.NDArray[np.float64] | npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Statistic = Callable[[_Floats], _Floats]
"""From means, one row a resample and one column a quantity, to one number a resample."""

LEVEL = 0.95
RESAMPLES = 1000
UNKNOWN: Interval = (math.nan, math.nan)
FEWEST_JOBS = 8
"""Of fewer there is no interval: so few say little about others, and resamples of them are all alike."""
_DRAWN_AT_ONCE = 1_000_000
_ROUNDING = 1e-9
_LARGEST_LOG = 700.0
_EXACT_DEGREES = 60
"""Up to so many degrees of freedom Student's distribution is summed exactly; beyond, a series is as good."""


def mean_interval(
    values: Values, *, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = 0, block: int | None = None
) -> Interval:
    """Return the confidence interval of the mean, by resampling blocks of consecutive values."""
    known = _known(values)
    if len(known) < FEWEST_JOBS:
        return UNKNOWN
    length = block or block_length(known)
    interval = _interval(known[:, None], length, lambda means: means[:, 0], level, resamples, seed)
    return _not_below_zero(interval, known)


def quantile_interval(
    values: Values,
    share: float,
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
    block: int | None = None,
) -> Interval:
    """Return where a quantile lies: ``share`` 0.99 is the 99th percentile.

    How sure is it that this share of jobs lies below the quantile found? The ends of that interval, read off the
    values as quantiles again, are the answer (Woodruff 1952): no resample has to be sorted.
    """
    known = _known(values)
    if len(known) < FEWEST_JOBS:
        return UNKNOWN
    below = (known <= np.quantile(known, share)).astype(np.float64)
    length = block or block_length(below)
    low, high = _interval(below[:, None], length, lambda means: means[:, 0], level, resamples, seed)
    centre = float(below.mean())
    shares = np.clip([share - (centre - low), share + (high - centre)], 0.0, 1.0)
    ends = np.quantile(known, shares)
    return float(ends[0]), float(ends[1])


def paired_interval(
    values: Values,
    reference: Values,
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
    block: int | None = None,
) -> Interval:
    """Return how far the mean is from that of the same jobs elsewhere: -0.25 is a quarter less.

    Both are drawn together, job by job: what makes a job long in both runs cancels out, and a small change between two
    policies shows although jobs differ by orders of magnitude. A job that is nan in one run counts in the other alone.
    """
    mine, others = _floats(values), _floats(reference)
    here, there = np.isfinite(mine), np.isfinite(others)
    sums = np.column_stack((np.where(here, mine, 0.0), here, np.where(there, others, 0.0), there))
    return summed_interval(sums, level=level, resamples=resamples, seed=seed, block=block)


def summed_interval(
    sums: _Floats,
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
    block: int | None = None,
) -> Interval:
    """Return where a relative change lies, from rows of a sum and a count for either run.

    A row is a job or a batch of consecutive jobs.
    """
    if len(sums) < FEWEST_JOBS or min(sums[:, 1].sum(), sums[:, 3].sum()) < FEWEST_JOBS:
        return UNKNOWN
    mine, known, others, others_known = sums.mean(axis=0)
    if not (mine > 0 and others > 0):
        return UNKNOWN
    mean, reference = mine / known, others / others_known
    pull = (sums[:, 0] - mean * sums[:, 1]) / known
    push = (sums[:, 2] - reference * sums[:, 3]) / others_known
    length = block or block_length(pull - mean / reference * push)
    return _as_change(_interval(sums, length, _log_ratio, level, resamples, seed))


def replicated_interval(values: Values, *, level: float = LEVEL) -> Interval:
    """Return where the mean over seeds lies: Student's t over one number a run, for runs are independent."""
    known = _known(values)
    if len(known) < 2:
        return UNKNOWN
    mean = float(known.mean())
    reach = student(level, len(known) - 1) * float(known.std(ddof=1)) / math.sqrt(len(known))
    return _not_below_zero((mean - reach, mean + reach), known)


def replicated_change(values: Values, reference: Values, *, level: float = LEVEL) -> Interval:
    """Return where the relative change between two means over seeds lies, the runs of a seed being a pair.

    The change is that of the means; how far each pair is from it, in units of the mean, is what varies by chance.
    """
    mine, others = _floats(values), _floats(reference)
    both = np.isfinite(mine) & np.isfinite(others)
    mine, others = mine[both], others[both]
    if len(mine) < 2 or not (mine.mean() > 0 and others.mean() > 0):
        return UNKNOWN
    centre = math.log(mine.mean() / others.mean())
    low, high = replicated_interval(mine / mine.mean() - others / others.mean(), level=level)
    return _as_change((centre + low, centre + high))


# --- blocks ---------------------------------------------------------------------------------------------------


def block_length(values: Values) -> int:
    """Return how many consecutive values to draw together.

    Politis and White: find the lag after which autocorrelations are noise, weigh those before it with a flat-top
    window, and take the length that makes the variance of the mean most exact; then double it, for too short a block
    makes an interval too narrow, too long a one only makes it less steady. At least the cube root of their number, at
    most a quarter of it and three times its square root.
    """
    known = _known(values)
    count = len(known)
    least = max(1, round(math.cbrt(count)))
    most = max(1, min(count // 4, math.ceil(3 * math.sqrt(count))))
    covariance = _covariances(known, min(count - 1, 2 * most))
    if count < 4 or covariance[0] <= 0:
        return min(least, most)
    last = _last_lag(covariance / covariance[0], count)
    lags = np.arange(1, min(2 * last, len(covariance) - 1) + 1)
    weighed = np.minimum(1.0, 2.0 * (1.0 - lags / (2 * last + 1e-9))) * covariance[lags]
    spectrum = float(covariance[0] + 2 * weighed.sum())
    slope = float(2 * (lags * weighed).sum())
    if spectrum <= 0:
        return min(least, most)
    best = 2 * math.ceil(math.cbrt(1.5 * (slope / spectrum) ** 2 * count))
    return min(max(best, least), most)


def _covariances(values: _Floats, lags: int) -> _Floats:
    """Return the autocovariances of lag 0, 1, …, computed by a Fourier transform."""
    count = len(values)
    size = 1 << (2 * count - 1).bit_length()
    spectrum = np.fft.rfft(values - values.mean(), size)
    return np.fft.irfft(spectrum * spectrum.conj(), size)[: lags + 1] / count


def _last_lag(correlation: _Floats, count: int) -> int:
    """Return the lag after which a row of autocorrelations is within what independent values would show."""
    needed = max(5, math.ceil(math.sqrt(math.log10(count))))
    noise = np.abs(correlation[1:]) < 2 * math.sqrt(math.log10(count) / count)
    quiet = 0
    for lag, within in enumerate(noise.tolist(), start=1):
        quiet = quiet + 1 if within else 0
        if quiet == needed:
            return max(1, lag - needed)
    return max(1, len(noise) // 2)


def _interval(
    quantities: _Floats, length: int, statistic: _Statistic, level: float, resamples: int, seed: int
) -> Interval:
    """Return the percentile interval of a statistic over circular moving blocks; unknown if a resample is empty."""
    count = len(quantities)
    length = min(length, count)
    blocks = -(-count // length)
    centre = quantities.mean(axis=0)
    wrapped = np.concatenate((quantities, quantities[: length - 1])) - centre
    sums = np.cumsum(np.concatenate((np.zeros((1, quantities.shape[1])), wrapped)), axis=0)
    of_block = np.ascontiguousarray((sums[length:] - sums[:-length]).T)
    means = np.empty((resamples, quantities.shape[1]))
    draws = stream(seed, "bootstrap")
    batch = max(1, _DRAWN_AT_ONCE // blocks)
    for first in range(0, resamples, batch):
        starts = draws.integers(0, count, (min(batch, resamples - first), blocks))
        for column, block_sums in enumerate(of_block):
            means[first : first + batch, column] = block_sums[starts].sum(axis=1) / (blocks * length)
    # as many values as there are, not a whole number of blocks; and blocks are few where the memory is long
    stretch = math.sqrt(blocks * length / count)
    if blocks > 1:
        stretch *= math.sqrt(blocks / (blocks - 1)) * student(level, blocks - 1) / _normal(level)
    drawn = centre + means
    drawn[np.abs(drawn) <= _ROUNDING * np.abs(centre)] = 0.0  # what was drawn adds up to nothing
    with np.errstate(divide="ignore", invalid="ignore"):
        statistics = statistic(drawn)
        estimate = float(statistic(centre[None, :])[0])
    if not (math.isfinite(estimate) and np.isfinite(statistics).all()):
        return UNKNOWN
    low, high = np.quantile(statistics, ((1 - level) / 2, (1 + level) / 2))
    return estimate + stretch * (float(low) - estimate), estimate + stretch * (float(high) - estimate)


def _log_ratio(means: _Floats) -> _Floats:
    return np.log(means[:, 0] / means[:, 1]) - np.log(means[:, 2] / means[:, 3])


def _as_change(logs: Interval) -> Interval:
    """Return the interval of a log ratio as an interval of a relative change; unknown where it overflows."""
    low, high = (math.expm1(end) if end < _LARGEST_LOG else math.inf for end in logs)
    return (low, high) if math.isfinite(low) and math.isfinite(high) else UNKNOWN


def _not_below_zero(interval: Interval, values: _Floats) -> Interval:
    """Return an interval of a mean: of what is never below 0 it is not either."""
    return (max(0.0, interval[0]), interval[1]) if values.min() >= 0 else interval


def _floats(values: Values) -> _Floats:
    return np.asarray(values, dtype=np.float64)


def _known(values: Values) -> _Floats:
    floats = _floats(values)
    return floats[np.isfinite(floats)]


# --- Student's t ----------------------------------------------------------------------------------------------


def student(level: float, degrees: int) -> float:
    """Return how many standard errors to either side hold this share of Student's distribution."""
    if degrees > _EXACT_DEGREES:
        return _expanded(_normal(level), degrees)
    low, high = 0.0, 1.0
    while _held(high, degrees) < level:
        low, high = high, 2 * high
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _held(middle, degrees) < level else (low, middle)
    return (low + high) / 2


def _normal(level: float) -> float:
    return NormalDist().inv_cdf((1 + level) / 2)


def _expanded(normal: float, degrees: int) -> float:
    """Return the first terms of the expansion around the normal distribution (Abramowitz and Stegun 26.7.5)."""
    first = (normal**3 + normal) / 4
    second = (5 * normal**5 + 16 * normal**3 + 3 * normal) / 96
    third = (3 * normal**7 + 19 * normal**5 + 17 * normal**3 - 15 * normal) / 384
    return normal + first / degrees + second / degrees**2 + third / degrees**3


def _held(reach: float, degrees: int) -> float:
    """Return the share of Student's distribution within ``reach`` of 0 (Abramowitz and Stegun 26.7.3, 26.7.4)."""
    angle = math.atan(reach / math.sqrt(degrees))
    square = math.cos(angle) ** 2
    odd = degrees % 2 == 1
    term = math.cos(angle) if odd else 1.0
    total = term if degrees > 1 else 0.0
    for step in range(2 if odd else 1, degrees - 1, 2):
        term *= square * step / (step + 1)
        total += term
    inner = math.sin(angle) * total
    return 2 / math.pi * (angle + inner) if odd else inner
