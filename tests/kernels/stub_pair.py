"""A pair of programs on a virtual clock, for the dial: how much slower the one above is beside the other is known.

What slows it down is contention: no wait of it shows that, only its whole steps do. It grows with what the rules let
the other do. Steps come in several kinds, and their time drifts and is noisy.
"""

from dataclasses import dataclass, field, replace
from math import exp
from random import Random

from headway.kernels.dial import MILLION, MS, Dial, Rules
from headway.kernels.holds import Seen
from headway.kernels.slowdown import Step

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
