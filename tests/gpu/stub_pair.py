"""A pair of programs on a virtual clock, for the dial: how much slower the one above is beside the other is known.

What slows it down is contention: no wait of it shows that, only its whole steps do. It grows with what the rules let
the other do. Steps come in several kinds, and their time drifts and is noisy.
"""

from dataclasses import dataclass, field, replace
from math import exp
from random import Random

from headway.gpu.control.contention import Contention, Sample, Samples
from headway.gpu.control.dial import MILLION, MS, Dial
from headway.gpu.control.gate_rules import Rules
from headway.gpu.control.holds import Seen
from headway.gpu.control.slowdown import Step

HIGH, LOW = 0, 1


@dataclass
class StubPair:
    """The pair: ``contention`` is the slow-down's excess at a boldness of 1, ``least`` what it is at the floor."""

    dial: Dial
    step_ns: int = 4 * MS
    kinds: tuple[float, ...] = (1.0,)
    contention: float = 0.1
    power: float = 1.0
    least: float = 0.0
    noise: float = 0.01
    drift: float = 0.0
    drain_ns: int = 2 * MS
    pause_ns: int = 0
    seed: int = 1
    program: str = "low"
    now_ns: int = 0
    rules: dict[int, Rules] = field(default_factory=dict)
    slow: list[tuple[int, float]] = field(default_factory=list)
    """When each step ended, and how slow it was in truth."""
    held_ns: int = 0

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self._free_ns = self._begun_ns = self._count = 0
        self._filled_ns = 0
        self._drifted = 0.0
        self._end_ns = -1
        self._truth = 1.0

    def excess(self) -> float:
        """Return by how much the program above is slower now: by what the rules of the other let it do."""
        rules = self.rules.get(LOW)
        if rules is None or (rules.hold and self.now_ns >= self._filled_ns):
            return 0.0
        let_through = rules.credit_ppm / (self.dial.slo_ppm - MILLION) * MILLION / rules.scale_ppm
        return self.least + self.contention * let_through**self.power

    def run(self, seconds: float) -> None:
        """Play so many seconds."""
        end = self.now_ns + round(seconds * 1e9)
        while self.now_ns < end:
            held = self.dial.holds.holding
            turn = MS if held else 8 * MS
            self.held_ns += turn if held else 0
            steps = self._until(self.now_ns + turn)
            self.now_ns += turn
            before = self.rules.get(LOW)
            self.rules = self.dial.rules(self.now_ns, self.seen(steps))
            if self.rules[LOW].hold and not (before and before.hold):
                self._filled_ns = self.now_ns + self.drain_ns

    def seen(self, steps: list[Step]) -> list[Seen]:
        """Return what the dial sees."""
        return [
            Seen(HIGH, 0, epochs=self._count, program="high", steps=steps),
            Seen(LOW, 5, program=self.program, filled_ns=self._filled_ns),
        ]

    def _until(self, end_ns: int) -> list[Step]:
        steps = []
        while True:
            if self._end_ns < 0:
                kind = self._count % len(self.kinds)
                self._truth = 1 + self.excess()
                self._drifted = 0.98 * self._drifted + self.random.gauss(0, self.drift)
                took = self.step_ns * self.kinds[kind] * self._truth
                took *= exp(self._drifted + self.random.gauss(0, self.noise))
                self._begun_ns, self._end_ns = self._free_ns, self._free_ns + round(took)
            if self._end_ns > end_ns:
                return steps
            kind = self._count % len(self.kinds)
            steps.append(Step(self._begun_ns, self._end_ns, 80 + kind, kind))
            self.slow.append((self._end_ns, self._truth))
            self._count += 1
            self._free_ns = self._end_ns + self.random.randrange(2 * self.pause_ns + 1)
            self._end_ns = -1

    def felt(self, seconds: float) -> float:
        """Return the median slow-down in truth of the last while, holds among it."""
        late = sorted(slow for end, slow in self.slow if end > self.now_ns - seconds * 1e9)
        return late[len(late) // 2]


@dataclass
class StubOtherAim(StubPair):
    """The same pair, whose slow-down goes by what is let through and not by the part of the aim that this is."""

    def excess(self) -> float:
        """Return by how much the program above is slower now."""
        rules = self.rules.get(LOW)
        if rules is None or (rules.hold and self.now_ns >= self._filled_ns):
            return 0.0
        return self.contention * rules.credit_ppm / 50_000 * MILLION / rules.scale_ppm


@dataclass
class StubMachine(StubPair):
    """The same pair on a machine as they are: its processor is slow by turns, the GPU's clock follows the load late.

    ``cpu``: time of the processor in a step, in parts of that of the GPU, while the processor is fast. A step takes
    what the longer of both takes. ``slower``: by what factor the processor is slower in every other second or so.
    ``beside``: and by what part beside the other program. ``lag_ns``: how long the clock takes to follow, to which
    two thirds of the slow-down are due.
    """

    cpu: float = 0.9
    slower: float = 1.6
    beside: float = 0.0
    lag_ns: int = 0
    _fast: bool = True
    _turn_ns: int = 0
    _lagging: float = 0.0
    _lagged_ns: int = 0

    def _until(self, end_ns: int) -> list[Step]:
        steps = []
        while True:
            if self._end_ns < 0:
                begin_ns = self._free_ns
                if begin_ns >= self._turn_ns:
                    self._fast = not self._fast
                    self._turn_ns = begin_ns + round(self.random.uniform(0.3, 2.0) * 1e9)
                excess = self.excess()
                passed = begin_ns - self._lagged_ns
                late = exp(-passed / self.lag_ns) if self.lag_ns else 0.0
                self._lagging, self._lagged_ns = excess + (self._lagging - excess) * late, begin_ns
                cpu = self.step_ns * self.cpu * (1.0 if self._fast else self.slower)
                cpu *= exp(self.random.gauss(0, 0.03))
                noise = exp(self.random.gauss(0, self.noise))
                alone = max(self.step_ns * noise, cpu)
                cpu *= 1 + self.beside * bool(excess)
                took = max(self.step_ns * noise * (1 + (excess + 2 * self._lagging) / 3), cpu)
                self._truth, self._cpu_ns = max(self.step_ns * noise * (1 + excess), cpu) / alone, round(cpu)
                self._begun_ns, self._end_ns = begin_ns, begin_ns + round(took)
            if self._end_ns > end_ns:
                return steps
            steps.append(
                Step(self._begun_ns, self._end_ns, 80, 0, cpu_ns=min(self._cpu_ns, self._end_ns - self._begun_ns))
            )
            self.slow.append((self._end_ns, self._truth))
            self._count += 1
            self._free_ns, self._end_ns = self._end_ns + 1, -1


TOP = 2


@dataclass
class StubMiddle(StubPair):
    """The same pair below a third program, which nobody slows down."""

    top_ns: int = 3 * MS
    both_held: int = 0
    lowest_held: int = 0

    def seen(self, steps: list[Step]) -> list[Seen]:
        """Return what the dial sees; count whom it holds."""
        if self.rules:
            self.both_held += self.rules[LOW].hold and self.rules[HIGH].hold
            self.lowest_held += self.rules[LOW].hold and not self.rules[HIGH].hold
        first, last = (at // self.top_ns for at in (self._told_ns, self.now_ns))
        self._told_ns = self.now_ns
        above = [Step(at * self.top_ns, (at + 1) * self.top_ns, 9) for at in range(first, last)]
        high, low = super().seen(steps)
        return [Seen(TOP, 0, epochs=last, program="top", steps=above), replace(high, priority=3), low]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._told_ns = 0


OTHER = 3
CHANGES_NS = 300 * MS
"""So often what a program below has to launch becomes more or less."""


@dataclass
class StubKernels(StubPair):
    """Two programs of one kernel each below: a unit of their time beside delays the one above by ``truth``.

    The reflex reckons with ``reckoned`` for both, and with what is learnt of contention on top of it. What is let
    through is paid from the credit.
    """

    truth: tuple[float, float] = (0.05, 0.9)
    reckoned: float = 0.3
    learns: bool = True
    spread: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        self.learnt, self.samples = Contention(), Samples()
        self.beside_ns, self.harm_ns = [0.0, 0.0], 0.0
        self._counted_ns = self._learnt_ns = self._measured = 0
        self._demand, self._demand_ns = [1.0, 1.0], 0

    def shares(self) -> tuple[float, ...]:
        """Return the share of the time that each runs beside now."""
        if self.now_ns - self._demand_ns > CHANGES_NS:
            self._demand_ns = self.now_ns
            self._demand = [exp(self.random.gauss(-(self.spread**2) / 2, self.spread)) for _ in self.truth]
        found = []
        for index, kernel, demand in zip((LOW, OTHER), KERNELS_BELOW, self._demand, strict=True):
            rules = self.rules.get(index)
            if rules is None or rules.hold:
                found.append(0.0)
                continue
            charged = self.learnt.charged_ppm.get(kernel, 0) / MILLION if self.learns else 0.0
            price = self.reckoned * rules.scale_ppm / MILLION + charged
            found.append(min(1.0, demand * rules.credit_ppm / MILLION / price))
        return tuple(found)

    def excess(self) -> float:
        """Return by how much the program above is slower now."""
        return sum(truth * share for truth, share in zip(self.truth, self.shares(), strict=True))

    def seen(self, steps: list[Step]) -> list[Seen]:
        """Return what the dial sees; count what was let through, and learn from it."""
        passed = self.now_ns - self._counted_ns
        self._counted_ns = self.now_ns
        for at, share in enumerate(self.shares()):
            self.beside_ns[at] += share * passed
            self.harm_ns += self.reckoned * share * passed
        counters = {(index, 7): round(ns) for index, ns in zip((LOW, OTHER), self.beside_ns, strict=True)}
        programs = {LOW: KERNELS_BELOW[0][0], OTHER: KERNELS_BELOW[1][0]}
        self.samples.add(Sample(self.now_ns, counters, round(self.harm_ns), programs))
        watch = self.dial.watch(HIGH)
        if watch is not None:
            for measured in list(watch.measured)[-(watch.count - self._measured) or len(watch.measured) :]:
                if (row := self.samples.row(measured, watch.steps)) is not None:
                    self.learnt.add(row)
            self._measured = watch.count
        if self.now_ns - self._learnt_ns > 1_000 * MS:
            self._learnt_ns = self.now_ns
            before = dict(self.learnt.charged_ppm)
            self.learnt.learn()
            if self.learns and before != self.learnt.charged_ppm:
                self.dial.repriced(HIGH, self.learnt.eased(before, self.rules[LOW].scale_ppm / MILLION))
        high, low = super().seen(steps)
        low = replace(low, program=programs[LOW])
        return [high, low, replace(low, index=OTHER, program=programs[OTHER])]


KERNELS_BELOW = (("mild", 7), ("harsh", 7))
"""The kernels of the two."""
