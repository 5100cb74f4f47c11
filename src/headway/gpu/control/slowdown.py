"""Slow-down of a program by its whole steps: steps while the programs below are held, against like steps close in time.

A step lasts from the first launch after a wait for the GPU to the end of the wait that closes it, CPU time included; a
request that the program marks itself takes its place. What the CPU does changes from second to second by more than a
slow-down that is worth controlling, so that only steps near a hold are compared with those in it, and only like ones:
of the same kernels, or at least of as many launches. The median of many holds is the slow-down.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import exp, log, sqrt
from statistics import fmean, median, stdev
from typing import NamedTuple

MILLION = 1_000_000
MS = 1_000_000
REACH_NS = 100 * MS
"""Steps that begin so close to a hold are compared with those in it, or as close as the hold is long."""
FAR_REACH_NS = 400 * MS
"""The same of programs whose time alone does not change, or changes with the known pace of their processor: what
happens to them in bursts is then seen as a whole."""
PACE = 0.02
"""Steps whose processor took longer by this part of a step are not alike, if there are at least ``_LIKE`` that are."""
_LIKE = 9
_FAR_PACE = 0.1
"""And never those that differ by more."""
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
    cpu_ns: int = 0
    """Of its time that in which the program did not wait for the GPU: the pace of its processor. 0: not known."""


class Hold(NamedTuple):
    """A moment in which the programs below are held. From ``quiet_ns`` on nothing of theirs is in flight."""

    begin_ns: int
    quiet_ns: int
    end_ns: int
    settle_ns: int = 0
    """Steps that begin sooner than this after the hold are not compared: what the hold changed has not come back."""
    far: bool = False
    """Whether steps further off are compared, too."""
    since_ns: int = 0
    until_ns: int = LATEST_NS
    """Between these the rules of those below were the same: other steps are not compared."""
    late_ns: int = 0
    """From then on the hold has changed all that it will: with steps from then on those soon after it are compared."""

    @property
    def reach_ns(self) -> int:
        """Return how close to the hold a step must be to be compared."""
        return max(FAR_REACH_NS if self.far else REACH_NS, self.end_ns - self.begin_ns)

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
    settling: float | None = None
    """By how much steps were still slower before the hold had changed all that it does; None: it was too short."""
    plain: float | None = None
    """The excess by steps at any pace; None: the pace is not known."""

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
    around = [
        step
        for step in near
        if (hold.since_ns <= step.begin_ns and step.end_ns <= hold.begin_ns)
        or hold.end_ns + hold.settle_ns <= step.begin_ns <= hold.until_ns
    ]
    like = _Like(around)
    held = [step for step in near if step.begin_ns >= hold.quiet_ns and step.end_ns <= hold.end_ns]
    told = [(step, usual) for step in held if (usual := like.usual(step)) is not None]
    alone = [_took(step) - usual for step, usual in told if step.begin_ns >= hold.late_ns]
    if not alone:
        return None
    early = [_took(step) - usual for step, usual in told if step.begin_ns < (hold.quiet_ns + hold.late_ns) // 2]
    sampled = around[:: 1 + len(around) // _SAMPLED]
    beside = [_took(step) - usual for step in sampled if (usual := like.usual(step, 2)) is not None]
    return Value(
        -median(alone),
        len(alone),
        median(_took(step) for step in held if step.begin_ns >= hold.late_ns),
        tuple(alone),
        tuple(beside),
        median(early) - median(alone) if early and hold.late_ns else None,
        median(kind.plain - _took(step) for step, _ in told if (kind := like.of(step)))
        if any(step.cpu_ns for step, _ in told)
        else None,
    )


class _Like:
    """Steps around a hold, to be compared with others: of the same kernels, at about the same pace of the processor."""

    def __init__(self, steps: Sequence[Step]) -> None:
        kinds = defaultdict[tuple[int, ...], list[Step]](list)
        for step in steps:
            kinds[step.launches, step.kind].append(step)
            kinds[step.launches,].append(step)
        self._kinds = {kind: _Kind.of(mine) for kind, mine in kinds.items()}

    def of(self, step: Step) -> "_Kind | None":
        """Return steps of the same kernels, or of as many launches; None where there are none."""
        return self._kinds.get((step.launches, step.kind)) or self._kinds.get((step.launches,))

    def usual(self, step: Step, least: int = 1) -> float | None:
        """Return the usual time of a step like this one, as a logarithm; None where there are not ``least`` of them."""
        kind = self.of(step)
        return kind.usual(step.cpu_ns, least) if kind else None


class _Kind(NamedTuple):
    """Steps of one kind, by the time of the processor in them."""

    cpu_ns: list[int]
    took: list[float]
    """The time of each, as a logarithm."""
    plain: float
    """The usual one."""

    @classmethod
    def of(cls, steps: Sequence[Step]) -> "_Kind":
        """Return these steps, in order."""
        rows = sorted((step.cpu_ns, _took(step)) for step in steps)
        return cls([cpu for cpu, _ in rows], [took for _, took in rows], median(took for _, took in rows))

    def usual(self, cpu_ns: int, least: int) -> float | None:
        """Return the usual time of those whose processor took about as long; None where there are too few of them."""
        step_ns = exp(self.plain)
        first, last = self._within(cpu_ns, PACE * step_ns)
        if last - first < _LIKE:
            first, last = self._within(cpu_ns, _FAR_PACE * step_ns)
            while last - first > _LIKE:  # the nearest ones
                if cpu_ns - self.cpu_ns[first] > self.cpu_ns[last - 1] - cpu_ns:
                    first += 1
                else:
                    last -= 1
        return median(self.took[first:last]) if last - first >= least else None

    def _within(self, cpu_ns: int, far_ns: float) -> tuple[int, int]:
        return bisect_left(self.cpu_ns, cpu_ns - far_ns), bisect_right(self.cpu_ns, cpu_ns + far_ns)


def _took(step: Step) -> float:
    return log(step.end_ns - step.begin_ns)


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
