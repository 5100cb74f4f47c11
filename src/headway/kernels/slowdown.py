"""Slow-down of a program by its whole steps: steps while the programs below are held, against like steps close in time.

A step lasts from the first launch after a wait for the GPU to the end of the wait that closes it, CPU time included; a
request that the program marks itself takes its place. What the CPU does changes from second to second by more than a
slow-down that is worth controlling, so that only steps near a hold are compared with those in it, and only like ones:
of the same kernels, or at least of as many launches. The median of many holds is the slow-down.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import exp, log, sqrt
from statistics import fmean, median, stdev
from typing import NamedTuple

MILLION = 1_000_000
MS = 1_000_000
REACH_NS = 100 * MS
"""Steps that begin so close to a hold are compared with those in it, or as close as the hold is long."""
EVEN_REACH_NS = 400 * MS
"""The same of programs whose time alone does not change: what happens to them in bursts is then seen as a whole."""
LATEST_NS = 1 << 62
LEAST_HOLDS = 3
"""There is no value before so many holds."""
FEW_HOLDS = 10
_NORMAL = 1.4826
"""Standard deviation over the median deviation, where values are normal."""
BIAS_PPM = 8_000
"""What a hold begins and ends with (clocks, caches, arrivals that queue) is off by about this: alone against alone."""
_SAMPLED = 50
"""Of the steps beside at most about so many a hold are kept, for the mean and the tail."""
_OUTLIER = 0.7
_COUNTS = 0.1
"""A hold of less weight is not among those that an estimate is said to rest on."""
_OF_MEDIAN = 1.2533
"""Standard error of a median over that of a mean."""


class Step(NamedTuple):
    """One whole step, or a marked request."""

    begin_ns: int
    end_ns: int
    launches: int
    kind: int = 0
    marked: bool = False


class Hold(NamedTuple):
    """A moment in which the programs below are held. From ``quiet_ns`` on nothing of theirs is in flight."""

    begin_ns: int
    quiet_ns: int
    end_ns: int
    settle_ns: int = 0
    """Steps that begin sooner than this after the hold are not compared: what the hold changed has not come back."""
    even: bool = False
    """Whether the program's time alone does not change from second to second."""
    since_ns: int = 0
    until_ns: int = LATEST_NS
    """Between these the rules of those below were the same: other steps are not compared."""

    @property
    def reach_ns(self) -> int:
        """Return how close to the hold a step must be to be compared."""
        return max(EVEN_REACH_NS if self.even else REACH_NS, self.end_ns - self.begin_ns)

    @property
    def known_ns(self) -> int:
        """Return when the steps that it is compared with have ended, nearly all of them."""
        last_ns = min(self.end_ns + self.settle_ns + self.reach_ns, self.until_ns)
        return last_ns + max(REACH_NS, self.end_ns - self.begin_ns) // 2


class Value(NamedTuple):
    """What one hold tells."""

    excess: float
    """Logarithm of the slow-down."""
    steps: int
    took: float
    """Median logarithm of the times of the held steps, in nanoseconds."""
    alone: tuple[float, ...] = ()
    beside: tuple[float, ...] = ()
    """Times of held steps and of some of the others, as logarithms of their ratio to the usual one of their like."""

    @property
    def felt(self) -> float:
        """Return the excess by the median or by the mean, whichever is more: a few long delays show in the mean."""
        if not self.alone or not self.beside:
            return self.excess
        far = [[max(-_OUTLIER, min(_OUTLIER, each)) for each in part] for part in (self.beside, self.alone)]
        return max(self.excess, fmean(far[0]) - fmean(far[1]))


class Estimate(NamedTuple):
    """A slow-down, its interval of 95 %, and how many holds and steps it rests on."""

    value_ppm: int
    low_ppm: int
    high_ppm: int
    holds: int
    steps: int


def value_of(hold: Hold, steps: Iterable[Step]) -> Value | None:
    """Return what a hold tells of the program whose steps these are; None where there is nothing to compare."""
    near = [
        step
        for step in steps
        if hold.begin_ns - hold.reach_ns <= step.begin_ns <= hold.end_ns + hold.settle_ns + hold.reach_ns
        and step.end_ns > step.begin_ns
    ]
    if any(step.marked for step in near):
        near = [step for step in near if step.marked]
    held = [step for step in near if step.begin_ns >= hold.quiet_ns and step.end_ns <= hold.end_ns]
    kinds: dict[tuple[int, int], list[float]] = defaultdict(list)
    sizes: dict[int, list[float]] = defaultdict(list)
    for step in near:
        before = hold.since_ns <= step.begin_ns and step.end_ns <= hold.begin_ns
        if before or hold.end_ns + hold.settle_ns <= step.begin_ns <= hold.until_ns:
            took = log(step.end_ns - step.begin_ns)
            kinds[step.launches, step.kind].append(took)
            sizes[step.launches].append(took)
    usual = {kind: median(took) for kind, took in kinds.items()}
    of_size = {size: median(took) for size, took in sizes.items()}
    alone, times = [], []
    for step in held:
        like = usual.get((step.launches, step.kind), of_size.get(step.launches))
        if like is not None:
            alone.append(log(step.end_ns - step.begin_ns) - like)
            times.append(log(step.end_ns - step.begin_ns))
    if not alone:
        return None
    beside = [each - usual[kind] for kind, took in kinds.items() if len(took) > 1 for each in took]
    sampled = tuple(beside[:: 1 + len(beside) // _SAMPLED])
    return Value(-median(alone), len(alone), median(times), tuple(alone), sampled)


def estimate(
    values: Sequence[Value], weights: Sequence[float] = (), residuals: Sequence[float] = ()
) -> Estimate | None:
    """Return the slow-down that holds tell together; None before there are enough of them.

    ``weights``: how much each counts, 1 at most. ``residuals``: by what holds missed what is known of them, where more
    than these holds tell the noise. The interval is the wider one of two: by the spread, and by ranks, which holds for
    bursts, too.
    """
    if len(values) < LEAST_HOLDS:
        return None
    excess = [value.excess for value in values]
    weights = weights or [1.0] * len(excess)
    count = sum(weights)
    middle = quantile(excess, weights, 0.5)
    half = student(len(excess)) * _OF_MEDIAN * deviation(residuals or excess) / sqrt(count)
    rank = 0.98 / sqrt(count)
    low = min(middle - half, quantile(excess, weights, 0.5 - rank))
    high = max(middle + half, quantile(excess, weights, 0.5 + rank))
    counted = [value for value, weight in zip(values, weights, strict=True) if weight >= _COUNTS] or values
    value_ppm, low_ppm, high_ppm = (round(exp(x) * MILLION) for x in (middle, low, high))
    return Estimate(value_ppm, low_ppm, high_ppm, len(counted), sum(value.steps for value in counted))


def quantile(values: Sequence[float], weights: Sequence[float], share: float) -> float:
    """Return the value below which this share of the weight lies; in the middle of two where it is between them."""
    ordered = sorted(zip(values, weights, strict=True))
    aim, passed = share * sum(weights), 0.0
    for at, (value, weight) in enumerate(ordered[:-1]):
        passed += weight
        if abs(passed - aim) < 1e-9:
            return (value + ordered[at + 1][0]) / 2
        if passed > aim:
            return value
    return ordered[-1][0]


def with_prior(found: Estimate, usual: float, spread: float) -> Estimate:
    """Return an estimate that also knows what such slow-downs usually are: their excess and its standard deviation.

    Where what was measured is far above that, it counts alone.
    """
    value, half = log(found.value_ppm / MILLION), log(found.high_ppm / found.value_ppm)
    noise = half / student(found.holds)
    if value - usual > 2 * sqrt(spread**2 + noise**2):
        return found
    measured, known = 1 / max(half / 1.96, 1e-6) ** 2, 1 / max(spread, 1e-6) ** 2
    middle = (value * measured + usual * known) / (measured + known)
    half = 1.96 / sqrt(measured + known)
    low, best, high = (round(exp(x) * MILLION) for x in (middle - half, middle, middle + half))
    return Estimate(best, low, high, found.holds, found.steps)


def widened(found: Estimate) -> Estimate:
    """Return an estimate whose interval also knows by how much holds are off, however many there are."""
    low, high = found.value_ppm - found.low_ppm, found.high_ppm - found.value_ppm
    return found._replace(
        low_ppm=found.value_ppm - round(sqrt(low**2 + BIAS_PPM**2)),
        high_ppm=found.value_ppm + round(sqrt(high**2 + BIAS_PPM**2)),
    )


def deviation(values: Sequence[float]) -> float:
    """Return the spread of values around their median; of few values not less than their standard deviation."""
    middle = median(values)
    robust = _NORMAL * median(abs(value - middle) for value in values)
    return max(robust, stdev(values)) if 1 < len(values) < 2 * FEW_HOLDS else robust


def student(count: int) -> float:
    """Return about the 97.5 % point of Student's distribution."""
    free = max(1, count - 1)
    return 1.96 + 2.4 / free + 8.4 / free**3
