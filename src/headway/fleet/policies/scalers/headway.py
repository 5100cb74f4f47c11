"""headway: rents what the requests that will have come by the time a worker has started will need. An own design.

1. *Load.* The rate of requests, times what a full worker of the cheapest kind takes for one on average by its
   profiles, is the load in workers. What workers were really busy for the requests they answered, over that, is
   learnt as ``overhead``: batches that are not full, starts of processes, weights that are fetched.
2. *Forecast.* The rate one start-up time and one period ahead: a level with a trend (Holt), of which only a rise is
   used. A rate that differs from the level by more than chance allows (four standard deviations of Poisson arrivals, in
   the last period or in the last four) becomes the level at once: a burst is answered in one step, and its end too.
   Where a whole ``day`` has been seen, its shape (the rate then over the rate at this time of day) replaces the trend.
3. *Margin.* ``load + margin × sqrt(load)`` workers: square-root staffing, which keeps the chance to wait the same for
   small and large fleets. The margin is learnt from misses, while no worker is starting: each adds ``gain``, each
   request in time takes off as much as leaves it unchanged where the share in time is ``goal`` (Robbins and Monro).
4. *Shrink.* A worker is kept until its idle rent would have paid for a restart, ``hold`` start-up times: the rule of
   ski rental, at most twice as dear as one that knew the future.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, inf, sqrt

from headway.fleet.policies.scalers.kinds import Kinds
from headway.fleet.policies.scalers.parts import Scaler, Seen, Stabilised, Wanted
from headway.fleet.state.state import ServingState
from headway.units import HOUR, SECOND, Duration

_REMEMBERED = 1000
"""Requests over which their mean work is averaged."""
_FIRST_OVERHEAD = 1.25
_OVERHEAD_WEIGHT = 0.05
_MOST_OVERHEAD = 20.0
_LEAST_OVERHEAD = 0.2
_FIRST_MARGIN = 1.0
_MOST_MARGIN = 4.0
_LEVEL_NS, _TREND_NS = 60 * SECOND, 240 * SECOND
"""Over how long level and trend are averaged."""
_FEW = 4
"""Periods whose mean may make the level jump."""
_DEVIATIONS = 4.0
"""Of a load from its level that chance does not explain."""
_BINS = 96
"""Parts of a day whose load is kept."""


@dataclass(eq=False)
class HeadwayScaler(Scaler):
    """Rents by forecast, with a margin that misses teach it."""

    name = "headway"

    goal: float = 0.99
    """The share of requests in time to aim at."""
    gain: float = field(default=0.05, kw_only=True)
    hold: float = field(default=1.0, kw_only=True)
    smooth: Duration = field(default=Duration(_LEVEL_NS), kw_only=True)
    """Over how long the load is averaged; its trend over four times as long."""
    day: Duration = field(default=Duration(24 * HOUR), kw_only=True)

    def __post_init__(self) -> None:
        """Raise for an option that makes no sense."""
        super().__post_init__()
        self.check("goal", self.goal, 0.01, 1)
        self.check("gain", self.gain, 0, 10)
        self.check("hold", self.hold, 0)
        self.check("smooth", self.smooth, 1)
        self.check("day", self.day, 1)

    def bind(self, state: ServingState, kinds: Kinds) -> None:
        """Begin without a forecast."""
        super().bind(state, kinds)
        self._seconds = kinds.kinds[0].seconds
        self._stabilised = Stabilised(int(self.hold * state.fleet.startup))
        self._horizon = state.fleet.startup + self.every
        self._forecast = Forecast(self.every, self.smooth, self.day)
        self._work, self._counted = 0.0, 0
        """Seconds that a request takes on average, and how many requests that is of."""
        self._overhead = _FIRST_OVERHEAD
        self._margin = _FIRST_MARGIN

    def scale(self, now: int, state: ServingState, seen: Seen) -> Wanted:
        """Return the workers for the forecast load with its margin, or a higher number wanted a short while ago."""
        self._learn(seen)
        seconds = seen.duration / SECOND
        if arrived := sum(seen.arrived):
            weight = arrived / (arrived + min(self._counted, _REMEMBERED))
            self._work += weight * (self._ideal(seen.arrived) / arrived - self._work)
            self._counted += arrived
        rate = self._forecast.ahead(now, arrived / seconds, 1 / seconds, self._horizon)
        load = self._overhead * self._work * rate
        needed = load + self._margin * sqrt(load)
        return self.kinds.bounded(self._by_kind(self._stabilised.highest(now, ceil(needed))))

    def _learn(self, seen: Seen) -> None:
        """Update the overhead by what answered requests took, and the margin by misses."""
        answered = self._ideal(seen.answered)
        if answered:
            taken = seen.busy_workers * seen.duration / SECOND / answered
            weight = min(1.0, _OVERHEAD_WEIGHT * self.every / (15 * SECOND))
            overhead = self._overhead + weight * (taken - self._overhead)
            self._overhead = min(max(overhead, _LEAST_OVERHEAD), _MOST_OVERHEAD)
        if not seen.starting:  # no margin would have answered a burst before its workers have started
            allowed = (1 - self.goal) * (seen.ended - seen.missed)
            change = self.gain * (self.goal * seen.missed - allowed)
            self._margin = min(max(self._margin + change, 0.0), _MOST_MARGIN)

    def _ideal(self, requests: Sequence[int]) -> float:
        """Return the seconds that a full worker of the cheapest kind takes for these requests."""
        return sum(
            count * seconds
            for count, seconds in zip(requests, self._seconds, strict=True)
            if count and seconds < inf  # what the cheapest kind cannot run is left to the floors
        )

    def _by_kind(self, workers: int) -> list[int]:
        """Return so many workers of the cheapest kind as workers of all kinds: fewer of a faster one are enough."""
        counts, left = [], float(workers)
        for kind in self.kinds.kinds:
            pairs = zip(self._seconds, kind.seconds, strict=True)
            ratios = [mine / theirs for mine, theirs in pairs if mine < inf and 0 < theirs < inf]
            speed = sum(ratios) / len(ratios) if ratios else 1.0
            counts.append(min(len(kind.workers), max(0, ceil(left / speed - 1e-9))))
            left -= counts[-1] * speed
        return counts


class Forecast:
    """Forecasts a rate from its level and trend, and from earlier days."""

    def __init__(self, every: int, smooth: int, day: int) -> None:
        self._level_weight = min(1.0, every / smooth)
        self._trend_weight = min(1.0, every / (4 * smooth))
        self._day = day
        self._began = -1
        self._last = -1
        self._recent: deque[float] = deque(maxlen=_FEW)
        self._age = 1
        """Periods since the level jumped."""
        self._level = self._trend = 0.0
        """The rate, and by how much it rises in a nanosecond."""
        self._shape: list[float | None] = [None] * _BINS
        """Mean rate by part of a day, later days with more weight."""

    def ahead(self, now: int, rate: float, each: float, horizon: int) -> float:
        """Note the rate since the last call; return the highest rate to expect within ``horizon``.

        ``each``: what one request adds to it, which says how far it is from its level by chance alone.
        """
        if self._began < 0:
            self._began, self._last, self._level = now, now, rate
            return rate
        step = max(1, now - self._last)
        before, self._last = self._level, now
        self._level += self._trend * step
        self._recent.append(rate)
        self._age += 1
        if (jumped := self._jumped(each)) is not None:
            self._level, self._trend, self._age = jumped, 0.0, 1
            self._recent.clear()
        else:
            weight = max(self._level_weight, 1 / self._age)  # the mean since a jump, until that is long ago
            self._level = max(0.0, self._level + weight * (rate - self._level))
            self._trend += self._trend_weight * ((self._level - before) / step - self._trend)
        grown = self._grown(now, horizon)
        at = self._bin(now)
        known = self._shape[at]
        self._shape[at] = rate if known is None else known + 0.3 * (rate - known)
        if grown is not None:
            return max(self._level, self._level * grown)
        return self._level + max(0.0, self._trend) * horizon

    def _jumped(self, each: float) -> float | None:
        """Return the rate of the last period, or the mean of the last few, if chance does not explain it; else None."""
        deviation = sqrt(max(self._level, each) * each)
        for count in (1, _FEW):
            mean = sum(list(self._recent)[-count:]) / count
            if len(self._recent) >= count and abs(mean - self._level) > _DEVIATIONS * deviation / sqrt(count):
                return mean
        return None

    def _bin(self, time: int) -> int:
        return time % self._day * _BINS // self._day

    def _grown(self, now: int, horizon: int) -> float | None:
        """Return how much higher the rate was later in earlier days; None before a whole day has been seen."""
        if now - self._began < self._day:
            return None
        then, later = self._shape[self._bin(now)], self._shape[self._bin(now + horizon)]
        return later / then if then and later else None
