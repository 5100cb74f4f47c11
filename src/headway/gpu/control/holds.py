"""Holds: when the programs below are held for a moment, and what these moments tell of the programs above.

A hold begins at a drawn time, while a program above is at work. It counts from when nothing of the programs below is in
flight, and ends after a few whole steps above. Then nobody is held for about twenty times as long.

Where a program is even from hold to hold (the GPU is its bound, not the CPU) and its slow-down is near the aim, holds
are longer, and steps near their edges are left out: there the GPU's clock is still that of before. On a GPU at its
power limit the clock follows for a tenth of a second and more: one such hold in a few is deep, and its late steps tell
by how much the early ones, and so those of the other holds, were still too slow.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log, sqrt
from statistics import median

from headway.gpu.control.slowdown import (
    LEAST_HOLDS,
    MS,
    Estimate,
    Hold,
    Step,
    Value,
    deviation,
    estimate,
    quantile,
    value_of,
)

SECOND = 1000 * MS
SHOWN_NS = 20 * SECOND
"""A hold this long ago counts half."""
KEPT_NS = 60 * SECOND
_KEPT_STEPS = 4096
_EVEN = 0.01
_EVEN_HOLDS = 5
_SHOWN_HOLDS = 10
_WORKED_NS = 250 * MS
_FAR = 1.5
"""Holds at a boldness further off than this (a logarithm) tell nothing of the present one."""
_DEEP_EVERY = 4
_MATTERS = 0.005
_PROCESSOR = 0.02
"""By about so much programs below slow the processor of the one above: what is known before it is measured."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the dial reads of one client. Counters run since the client joined.

    ``steps``: its whole steps since the last call. Where the time alone is known without holding anybody (in a
    simulation), ``actual_ns`` and ``alone_ns`` count instead. ``filled_ns``: when its work in flight ends.
    """

    index: int
    priority: int
    actual_ns: int = 0
    alone_ns: int = 0
    since_ns: int = 0
    epochs: int = 0
    program: str = ""
    filled_ns: int = 0
    steps: Sequence[Step] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """What one hold told, when, and how bold the programs below were then (a logarithm, up to a constant)."""

    at_ns: int
    scale: float
    value: Value
    hold: Hold | None = None
    """None where the time alone is known without one."""


@dataclass(slots=True)
class Watch:
    """The steps of one program above, and what holds have told of it."""

    steps: deque[Step] = field(default_factory=lambda: deque(maxlen=_KEPT_STEPS))
    pending: list[tuple[Hold, float]] = field(default_factory=list)
    measured: deque[Measured] = field(default_factory=lambda: deque(maxlen=200))
    count: int = 0
    """Measurements so far."""
    epochs: int = -1
    worked_ns: int = -_WORKED_NS
    actual_ns: int = 0
    alone_ns: int = 0
    known_epochs: int = 0
    changed_ns: int = 0
    """When the rules of those below last changed."""
    even: bool = False
    """Whether holds agree."""

    def read(self, now_ns: int, seen: Seen, scale: float) -> None:
        """Take in what a client has done since the last call."""
        self.steps.extend(seen.steps)
        if seen.epochs != self.epochs:
            self.worked_ns = now_ns if self.epochs >= 0 else self.worked_ns
            self.epochs = seen.epochs
        if seen.steps:
            self.worked_ns = now_ns
        self._known(now_ns, seen, scale)
        while self.pending and self.pending[0][0].known_ns <= now_ns:
            hold, then = self.pending.pop(0)
            if (value := value_of(hold, self.steps)) is not None:
                self._add(now_ns, then, value, hold)
        while self.measured and now_ns - self.measured[0].at_ns > KEPT_NS:
            self.measured.popleft()

    def _known(self, now_ns: int, seen: Seen, scale: float) -> None:
        """Measure without a hold, where the time alone is known."""
        actual, alone = seen.actual_ns - self.actual_ns, seen.alone_ns - self.alone_ns
        if alone < 20 * MS or actual <= 0:
            return
        steps = max(1, seen.epochs - self.known_epochs)
        self.actual_ns, self.alone_ns, self.known_epochs = seen.actual_ns, seen.alone_ns, seen.epochs
        self._add(now_ns, scale, Value(log(actual / alone), steps, log(alone / steps)))

    def _add(self, now_ns: int, scale: float, value: Value, hold: Hold | None = None) -> None:
        self.measured.append(Measured(now_ns, scale, value, hold))
        self.count += 1
        self.even = self._is_even()

    def _is_even(self) -> bool:
        """Return whether holds agree: on how long steps take alone, or at a known pace on how much longer beside.

        In deep ones the GPU's clock is another one. And what is even does not cease to be by a hold or two.
        """
        late = [each.value for each in self.measured if each.value.settling is None][-_SHOWN_HOLDS:]
        if len(late) < _EVEN_HOLDS:
            return False
        spread = deviation([value.took for value in late])
        if self.paced:
            spread = min(spread, deviation([value.excess for value in late]))
        return spread < _EVEN * (3 if self.even else 1)

    def at_work(self, now_ns: int) -> bool:
        """Return whether it has ended a step lately."""
        return now_ns - self.worked_ns < _WORKED_NS

    @property
    def paced(self) -> bool:
        """Return whether the pace of its processor is known."""
        return bool(self.steps) and self.steps[-1].cpu_ns > 0

    @property
    def shallow(self) -> bool:
        """Return whether its last holds were too short to tell how the GPU's clock follows; seldom if it need not."""
        told = [each.value.settling for each in self.measured]
        known = [each for each in told if each is not None]
        few = _DEEP_EVERY * (4 if len(known) > 1 and max(known) < _MATTERS else 1)
        return all(each is None for each in told[1 - few :])

    @property
    def step_ns(self) -> int:
        """Return how long a step alone takes, as last seen; 0: unknown."""
        return round(exp(self.measured[-1].value.took)) if self.measured else 0

    def done(self, since_ns: int, since_epochs: int) -> int:
        """Return how many whole steps were done since then; of a client without steps by how often it waited."""
        if not self.steps:
            return max(0, self.epochs - since_epochs - 1)
        count = 0
        for step in reversed(self.steps):
            if step.end_ns < since_ns:
                break
            count += step.begin_ns >= since_ns
        return count

    def changed(self, now_ns: int) -> None:
        """Note that those below follow other rules from now on: steps before and after are not compared."""
        self.changed_ns = now_ns
        self.pending = [(hold._replace(until_ns=min(hold.until_ns, now_ns)), then) for hold, then in self.pending]

    def at(self, now_ns: int, scale: float, since_ns: int = -1, *, felt: bool = False) -> Estimate | None:
        """Return its slow-down at this boldness, by all holds since then that tell of it.

        A hold at another boldness counts as if the slow-down were in proportion to it, and less the further off it is.
        An old one counts less than one of now. The noise is that of all of them. ``felt``: of an even program by the
        mean of its steps where that is more than the median, so that it is not delayed often, and by much.
        """
        kept = [each for each in self.measured if each.at_ns > since_ns]
        processor = _by_processor(kept)
        if felt and self.even:
            kept = [_with(each, each.value.felt) for each in kept]
        kept = [_with(each, each.value.excess + processor) for each in _settled(kept)]
        values, weights = [], []
        for each in kept:
            grown = scale - each.scale
            if abs(grown) < _FAR:
                values.append(each.value._replace(excess=each.value.excess * exp(grown)))
                weights.append(exp(min(2 * grown, -6 * grown)) * 0.5 ** ((now_ns - each.at_ns) / SHOWN_NS))
        if len(values) < LEAST_HOLDS:
            return None
        middle = quantile([value.excess for value in values], weights, 0.5)
        missed = [each.value.excess - middle * exp(min(_FAR, each.scale - scale)) for each in kept]
        return estimate(values, weights, missed)


def _with(measured: Measured, excess: float) -> Measured:
    return replace(measured, value=measured.value._replace(excess=excess))


def _settled(kept: Sequence[Measured]) -> Sequence[Measured]:
    """Return what holds would have told if each had lasted until the GPU's clock had followed.

    Deep holds know by how much others are off, at their own boldness.
    """
    deep = [(each.scale, each.value.settling) for each in kept if each.value.settling is not None]
    if not deep or median(off for _, off in deep) < _MATTERS:
        return kept
    found = []
    for each in kept:
        missed = median(off * exp(max(-_FAR, min(_FAR, each.scale - scale))) for scale, off in deep)
        found.append(each if each.value.settling is not None else _with(each, each.value.excess + missed))
    return found


def _by_processor(kept: Sequence[Measured]) -> float:
    """Return by how much steps are longer because their processor is slower beside those below.

    Steps are compared at one pace of the processor, which changes by itself, and by far more; the median over all holds
    is what is due to those below. Of few holds little is believed.
    """
    parts = [each.value.plain - each.value.excess for each in kept if each.value.plain is not None]
    if len(parts) < LEAST_HOLDS:
        return 0.0
    noise = deviation(parts) / sqrt(len(parts))
    return median(parts) * _PROCESSOR**2 / (_PROCESSOR**2 + noise**2)


@dataclass(slots=True)
class Holds:
    """Decides who is held when. ``share_ppm``: at most this part of the time; ``steps``: whole steps a hold.

    ``seldom``: a third of that, because nothing would be done otherwise whatever a hold tells.
    """

    share_ppm: int = 50_000
    steps: int = 4
    first_ns: int = 500 * MS
    drain_ns: int = MS
    long_ns: int = 40 * MS
    """A hold goes on no longer than this once there are ``least`` steps in it, and never longer than ``most_ns``."""
    least: int = 2
    most_ns: int = 2 * SECOND
    short_ns: int = 8 * MS
    """Nor shorter than this: of short steps a few more."""
    even_ns: int = 60 * MS
    edge_ns: int = 40 * MS
    deep_ns: int = 120 * MS
    """After the edge: from then on a deep hold is measured. The GPU's clock has followed."""
    seldom: bool = False
    begin_ns: int = -1
    quiet_ns: int = -1
    next_ns: int = -1
    held_ns: int = 0
    """All time in which somebody was held."""
    _epochs: dict[int, int] = field(default_factory=dict)
    _long: bool = False
    _late_ns: int = 0
    """In a deep hold: when it begins to be measured."""
    _draw: int = 1

    @property
    def holding(self) -> bool:
        """Return whether somebody is held now."""
        return self.begin_ns >= 0

    @property
    def draw(self) -> int:
        """Return a drawn number, another one after each hold."""
        return self._draw >> 33

    def phase(
        self,
        now_ns: int,
        watches: dict[int, Watch],
        below: Sequence[Seen],
        scales: dict[int, float],
        precise: Callable[[], bool] = lambda: False,
    ) -> int:
        """Return the phase: 0: all run; 1: clients below are held; 2: held, and their work has ended: measure.

        ``precise`` returns whether holds of even programs are to be long.
        """
        if not below or not watches or not self.share_ppm:
            self.begin_ns, self.next_ns = -1, now_ns + self.first_ns
            return 0
        if self.next_ns < 0:
            self.next_ns = now_ns + self.first_ns
        working = {index: watch for index, watch in watches.items() if watch.at_work(now_ns)}
        if not self.holding:
            if now_ns < self.next_ns or not working:
                return 0
            self.begin_ns, self.quiet_ns = now_ns, -1
        if self.quiet_ns < 0:
            if now_ns - self.begin_ns > self.most_ns:
                return self._end(now_ns)
            if now_ns - self.begin_ns < self.drain_ns or any(each.filled_ns > now_ns for each in below):
                return 1
            self._long = precise() and all(watch.even for watch in watches.values())
            self.quiet_ns = now_ns + (self.edge_ns if self._long else 0)
            deep = self._long and all(watch.shallow for watch in watches.values())
            self._late_ns = self.quiet_ns + self.deep_ns if deep else 0
            self._epochs = {index: watch.epochs for index, watch in watches.items()}
        if self._goes_on(now_ns, working or watches):
            return 2
        for index, watch in watches.items():
            edge = 0 if not self._long else 2 * self.edge_ns if not self._late_ns else self.edge_ns + self.deep_ns
            hold = Hold(
                *(self.begin_ns, self.quiet_ns, now_ns, edge),
                far=watch.even or watch.paced,
                since_ns=watch.changed_ns,
                late_ns=self._late_ns,
            )
            watch.pending.append((hold, scales.get(index, 0.0)))
        return self._end(now_ns)

    def _goes_on(self, now_ns: int, watches: dict[int, Watch]) -> bool:
        first_ns = max(self.quiet_ns, self._late_ns)
        since = now_ns - first_ns
        if since >= self.most_ns:
            return False
        done = min(watch.done(first_ns, self._epochs.get(index, 0)) for index, watch in watches.items())
        if since < (self.even_ns if self._long else self.short_ns):
            return True
        return done < (self.steps if since < self.long_ns else self.least)

    def _end(self, now_ns: int) -> int:
        held = now_ns - self.begin_ns
        self.held_ns += held
        self.begin_ns = self.quiet_ns = -1
        # Drawn, so that a program that repeats itself is not always met at the same place.
        self._draw = (self._draw * 6364136223846793005 + 1442695040888963407) % 2**64
        share_ppm = self.share_ppm // (3 if self.seldom else 1)
        rest = held * (1_000_000 - share_ppm) // share_ppm
        self.next_ns = now_ns + rest + (rest // 4 * (self._draw >> 44) >> 20)
        return 0
