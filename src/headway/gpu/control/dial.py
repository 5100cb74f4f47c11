"""The dial: a closed control loop that sets the rules of each client's gate; the reflex applies them to each launch.

The operator sets the slow-down that the program of highest priority may suffer (``slo``) and the share that the others
keep in any case (``floor``). About a hundred times a second the dial reads what each program did and sets its rules.
Every so often the clients of lower priority are held for a moment, and whole steps of the program above are measured
alone: ``gpu/control/holds.py`` and ``gpu/control/slowdown.py``.

``boldness`` says how much of the idle time a pair of programs may use, by what was seen of it. A pair that was never
seen begins at the floor: 0. It grows where the upper end of the interval of the slow-down is below the aim, and shrinks
where that is above it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import log

from headway.gpu.control.gate_rules import Rules
from headway.gpu.control.holds import Holds, Measured, Seen, Watch
from headway.gpu.control.slowdown import (
    FEW_HOLDS,
    LEAST_HOLDS,
    MILLION,
    MS,
    Estimate,
    Value,
    deviation,
    widened,
    with_prior,
)
from headway.gpu.control.tails import Tail, tail

LEAST_PPM = 20_000
MOST_PPM = 4_000_000
DEEPEST_NS = 2 * MS
"""The most work in flight while a client of higher priority is there, at any boldness."""
NEVER_NS = 100_000 * MS
"""A gap this long does not come: at the floor nothing goes because it fits."""
MANY_HOLDS = 40
FIRST_PPM = 50_000
"""The boldness that comes after the floor."""
_FLOOR_STEP = 1.0
"""How far the floor is from that, as a logarithm."""
FIRST_NS = 10_000 * MS
_FIRST_AIM_PPM = 80_000
"""In the first ten seconds of a pair more than this is not aimed at."""
_TAIL = 3
"""Without an aim for p99, a step may be delayed by so many times what the aim allows on average."""
_SLACK_PPM = 10_000
"""The upper end may be above the aim by this, or a fifth of what is allowed: so that the value comes near the aim."""
_USUAL_AIM_PPM = 50_000
"""What a pair was learnt at, where that is not known."""
_ALARM = 0.1
"""Two holds in a row this far above the aim, and above what holds before them spread, are enough to act."""


@dataclass(slots=True)
class _Above:
    """Control loop of one client that has clients of lower priority beside it."""

    since_ns: int
    watch: Watch = field(default_factory=Watch)
    boldness: dict[int, int] = field(default_factory=dict)
    """Of each client below, by its index."""
    below: dict[int, tuple[int, str]] = field(default_factory=dict)
    """Who that client is: when it joined, and its program."""
    scale: float = 0.0
    """Logarithm of all changes of the boldness so far."""
    met_ns: int = 0
    """When the last of those below came: holds before that say nothing of it."""
    looked: int = 0
    """Measurements when it was last looked at."""
    stretch_ns: int = 2 * MS
    at_most: bool = False
    """Whether those below may do all they can, by several holds that agree on it."""
    tail: Tail = field(default_factory=Tail)

    def tailed(self) -> list[Value]:
        """Return what holds tell of the present limit on the length of kernels."""
        since_ns = max(self.met_ns, self.tail.since_ns)
        return [each.value for each in self.watch.measured if each.at_ns > since_ns]

    def lowest(self) -> int:
        """Return the boldness of the most careful pair."""
        return min(self.boldness.values(), default=0)


@dataclass(slots=True)
class Dial:
    """Computes the rules of every client from the counters of all. ``rules`` is called every few milliseconds.

    ``slo99_ppm``: the same for the p99 of its steps; 0: no aim. ``mps``: kernels of several programs overlap; without
    it only long gaps are worth a switch. ``priorities``: programs below run at MPS's lower priority, so that a fill
    holds the GPU for one wave and not to its end. ``switch_ns``: the measured cost of a switch, the shortest gap that
    is filled. ``begin_ppm``: the boldness of a pair never seen. ``learnt``: the boldness at which pairs of programs
    kept to the aim last, ``learnt_aims`` what that aim allowed; a pair begins with it.
    """

    slo_ppm: int = 1_050_000
    slo99_ppm: int = 0
    floor_ppm: int = 10_000
    mps: bool = True
    priorities: bool = True
    switch_ns: int = 4_000
    sample_every: int = 256
    begin_ppm: int = 0
    holds: Holds = field(default_factory=Holds)
    learnt: dict[tuple[str, str], int] = field(default_factory=dict)
    learnt_aims: dict[tuple[str, str], int] = field(default_factory=dict)
    _above: dict[int, _Above] = field(default_factory=dict)
    _now_ns: int = 0
    _aim_ppm: int = 0  # what the aim allowed at the last call
    _level: int = 0  # the priority below which all are held, in a hold

    def rules(self, now_ns: int, seen: Sequence[Seen]) -> dict[int, Rules]:
        """Return the rules of each client, by its index."""
        self._now_ns = now_ns
        if not seen:
            self._above.clear()
            self.holds.phase(now_ns, {}, (), {})
            return {}
        highest = min(client.priority for client in seen)
        self._follow_aim(now_ns)
        self._meet(now_ns, seen, highest)
        for client in seen:
            if (above := self._above.get(client.index)) is not None:
                known = client if client.priority == highest else replace(client, actual_ns=0, alone_ns=0)
                above.watch.read(now_ns, known, above.scale)
                self._move(now_ns, above, client.program)
        phase = self._phase(now_ns, seen, highest)
        base = self._base_rules(highest)
        return {client.index: self._rules_of(client, seen, phase, base) for client in seen}

    def _phase(self, now_ns: int, seen: Sequence[Seen], highest: int) -> int:
        """Return the phase of the hold of now: of everybody below one priority, each that is watched in its turn."""
        if not self.holds.holding:
            watched = {client.priority for client in seen if self._counts(client, highest)}
            levels = sorted({highest} | watched)
            self._level = levels[self.holds.draw % len(levels)]
        # A client whose last one below has left in a hold is watched no longer; without watches the hold ends.
        level = [client.index for client in seen if client.priority == self._level]
        mine = {index: self._above[index] for index in level if index in self._above}
        below = [client for client in seen if client.priority > self._level]
        watches = {index: above.watch for index, above in mine.items()}
        scales = {index: above.scale for index, above in mine.items()}
        self.holds.seldom = all(above.at_most for above in self._above.values())
        return self.holds.phase(now_ns, watches, below, scales, self._near_aim)

    def _counts(self, client: Seen, highest: int) -> bool:
        """Return whether those below obey a client: one with others above it only while its steps are seen."""
        above = self._above.get(client.index)
        if above is None or client.priority == highest:
            return above is not None
        return bool(above.below) and bool(above.watch.steps) and above.watch.at_work(self._now_ns)

    def _near_aim(self) -> bool:
        """Return whether a slow-down may be more than half of what is allowed: then it must be known well."""
        found = [self.slowdown(index) for index in self._above]
        return any(each is not None and 2 * (each.high_ppm - MILLION) > self.slo_ppm - MILLION for each in found)

    def slowdown(self, index: int) -> Estimate | None:
        """Return the slow-down of a client at the present boldness; None where it is not known."""
        above = self._above.get(index)
        found = above.watch.at(self._now_ns, above.scale, above.met_ns) if above else None
        return widened(found) if found else None

    def boldness_ppm(self, index: int) -> int:
        """Return how much of a client's idle time fills may use now: of the most careful of its pairs."""
        above = self._above.get(index)
        return above.lowest() if above else 0

    def watch(self, index: int) -> Watch | None:
        """Return the steps and measurements of a client that has clients below it."""
        above = self._above.get(index)
        return above.watch if above and above.below else None

    def repriced(self, index: int, factor: float) -> None:
        """Note that fills below a client cost more or less now: its slow-down is about ``factor`` times what it was."""
        if (above := self._above.get(index)) is not None and factor > 0:
            above.scale += max(-1.0, min(1.0, log(factor)))
            above.watch.changed(self._now_ns)

    def settled(self, index: int) -> bool:
        """Return whether the boldness below a client is where it stays: at its most, or held there by several holds."""
        if (above := self._above.get(index)) is None or not above.boldness:
            return False
        told = [each.scale for each in above.watch.measured if each.at_ns > above.met_ns]
        return (len(told) if above.lowest() >= MOST_PPM else told.count(above.scale)) >= FEW_HOLDS // 2

    def told(self, index: int) -> tuple[Estimate | None, int, Estimate | None]:
        """Return what is known of a client: its slow-down, its boldness, and with an aim for it the one at p99."""
        above = self._above.get(index)
        at_p99 = tail(above.tailed()) if above and self.slo99_ppm else None
        return self.slowdown(index), self.boldness_ppm(index), at_p99

    def _base_rules(self, highest: int) -> Rules:
        # MPS has two priorities, and only clients of priority 0 are normal: without one, whole kernels are waited for.
        whole = 0 if self.mps and self.priorities and highest == 0 else 1
        base = Rules(threshold_ns=self.switch_ns, floor_ppm=self.floor_ppm, whole=whole)
        if not self.mps:
            # Without MPS two programs never overlap: a fill costs two switches of the driver's slices.
            base = replace(base, threshold_ns=max(self.switch_ns, 500_000), latency_ns=20_000, depth_ns=0)
        return replace(base, sample_every=self.sample_every)

    def _follow_aim(self, now_ns: int) -> None:
        """Let no more through under another aim than under the one before: what more it allows has to be measured."""
        if (aim := self.slo_ppm - MILLION) <= 0:
            return
        before, self._aim_ppm = self._aim_ppm, aim
        if before in (0, aim):
            return
        for above in self._above.values():
            lowest = above.lowest()
            above.boldness = {index: _at_aim(boldness, before, aim) for index, boldness in above.boldness.items()}
            if lowest:
                above.scale += log(above.lowest() * aim / (lowest * before))
            above.watch.changed(now_ns)

    def _recalled(self, pair: tuple[str, str]) -> int:
        """Return the boldness that a pair begins with: what was learnt of it, or less under a looser aim."""
        if pair not in self.learnt:
            return self.begin_ppm
        return _at_aim(self.learnt[pair], self.learnt_aims.get(pair, _USUAL_AIM_PPM), self.slo_ppm - MILLION)

    # --- who meets whom ---------------------------------------------------------------------------------------------

    def _meet(self, now_ns: int, seen: Sequence[Seen], highest: int) -> None:
        """Begin with clients that have joined, and forget those that have left."""
        kept: dict[int, _Above] = {}
        for client in seen:
            below = [other for other in seen if other.priority > client.priority]
            if not below and client.priority != highest:
                continue
            above = self._above.get(client.index)
            if above is None or above.since_ns != client.since_ns or client.epochs < above.watch.epochs:
                above = _Above(client.since_ns)
                above.watch.actual_ns, above.watch.alone_ns = client.actual_ns, client.alone_ns
            kept[client.index] = above
            here = {other.index: (other.since_ns, other.program) for other in below}
            if here == above.below:
                continue
            for index, who in here.items():
                if above.below.get(index) != who:
                    above.boldness[index] = self._recalled((client.program, who[1]))
                    above.met_ns, above.at_most = now_ns, False
                    above.watch.pending.clear()
                    above.watch.changed(now_ns)
            above.boldness = {index: above.boldness[index] for index in here}
            above.below = here
        self._above = kept

    # --- the loop ---------------------------------------------------------------------------------------------------

    def _move(self, now_ns: int, above: _Above, program: str) -> None:
        """Change the boldness of all pairs of a client, where a hold tells of the present one."""
        watch = above.watch
        if not above.boldness or watch.count == above.looked:
            return
        above.looked = watch.count
        found = watch.at(now_ns, above.scale, above.met_ns) if above.lowest() == MOST_PPM else None
        sure = found is not None and found.holds >= FEW_HOLDS and widened(found).high_ppm < self.slo_ppm
        above.at_most = sure and not self.slo99_ppm
        if watch.step_ns:
            above.stretch_ns = watch.step_ns
        if self.slo99_ppm:
            above.tail.move(now_ns, above.tailed(), self.slo99_ppm)
        if not any(each.scale == above.scale and each.at_ns > above.met_ns for each in watch.measured):
            return
        factor = self._factor(now_ns, above)
        self._learn(above, program, factor)
        changed = {index: _times(boldness, factor) for index, boldness in above.boldness.items()}
        if changed == above.boldness:
            return
        lowest = above.lowest()
        above.boldness = changed
        above.scale += log(factor) if lowest and above.lowest() else _FLOOR_STEP * (1 if factor > 1 else -1)
        watch.changed(now_ns)

    def _learn(self, above: _Above, program: str, factor: float) -> None:
        """Keep for the next start what is known to be right: the present boldness, or what it is reduced to."""
        if self.slo_ppm <= MILLION:
            return
        here = sum(each.scale == above.scale for each in above.watch.measured)
        for index, (_, other) in above.below.items():
            if program and other and (factor < 1 or here >= FEW_HOLDS // 2):
                self.learnt[program, other] = _times(above.boldness[index], min(1.0, factor))
                self.learnt_aims[program, other] = self.slo_ppm - MILLION

    def _factor(self, now_ns: int, above: _Above) -> float:
        """Return by how much the boldness changes now."""
        aim = self.slo_ppm - MILLION
        if now_ns - above.met_ns < FIRST_NS:
            aim = min(aim, _FIRST_AIM_PPM)
        told = [each for each in above.watch.measured if each.at_ns > above.met_ns]
        if _alarm([each.value.excess for each in told if each.scale == above.scale], told, log(self.slo_ppm / MILLION)):
            return 0.3
        found = above.watch.at(now_ns, above.scale, above.met_ns, felt=True)
        if found is None:
            # One hold that shows nothing is enough to leave the floor: little is at stake, and more is learnt there.
            return 3.0 if not above.lowest() and told[-1].value.excess * MILLION < aim else 1.0
        # The reflex reckons with a part of the aim that is its boldness: so much is usual, and twice that possible.
        reckoned = aim * max(LEAST_PPM, above.lowest()) / MILLION**2
        factor = next_factor(with_prior(found, reckoned / 2, 2 * reckoned), aim)
        # However little was expected: by no more than what was measured allows.
        return max(1.0, min(factor, aim / max(found.value_ppm - MILLION, 1))) if factor > 1 else factor

    def _rules_of(self, client: Seen, seen: Sequence[Seen], phase: int, base: Rules) -> Rules:
        above = [other for other in seen if other.priority < client.priority]
        beside = sum(1 for other in seen if other.priority >= client.priority and other.priority > 0)
        below = any(other.priority > client.priority for other in seen)
        if not above:
            alone = not below or (phase == 2 and client.priority == self._level)
            return replace(base, gate=0, watched=1 if alone else 0, raised=1)
        phase = phase if client.priority > self._level else 0
        highest = min(other.priority for other in above)
        loops = [self._above[other.index] for other in above if self._counts(other, highest)]
        boldness = min(loop.boldness.get(client.index, 0) for loop in loops)
        whole = base.whole or any(other.priority for other in above)
        idle = (DEEPEST_NS if whole else base.idle_depth_ns) // max(1, beside)
        rules = replace(
            base,
            hold=1 if phase else 0,
            whole=1 if whole else 0,
            # Held clients have little in flight even while those above are silent: they may launch at any time.
            idle_depth_ns=min(idle, base.depth_ns) if phase else idle,
        )
        if not boldness:
            return replace(rules, absorb_ppm=0, credit_ppm=0, credit_cap_ns=0, threshold_ns=NEVER_NS)
        careful, bold = min(MILLION, boldness), max(MILLION, boldness)
        allowed = (self.slo_ppm - MILLION) // max(1, beside)
        return replace(
            rules,
            # The less is known of a pair, the longer a gap must be to be filled for nothing.
            threshold_ns=base.threshold_ns * MILLION // careful,
            absorb_ppm=min(MILLION, boldness // 2) // max(1, beside),
            # A bold client launches further ahead, so that an interrupted thread leaves the GPU no gap. Not where
            # clients above have no GPU priority: all that is in flight would run before them.
            depth_ns=base.depth_ns if whole else _ahead(base, boldness),
            scale_ppm=MILLION * MILLION // bold,
            credit_ppm=allowed * careful // MILLION,
            credit_cap_ns=min(self._credit_cap(allowed, bold, loop) for loop in loops),
            longest_ns=min(loop.tail.longest_ns(self.slo99_ppm, loop.stretch_ns) for loop in loops)
            if self.slo99_ppm
            else 0,
        )

    def _credit_cap(self, allowed: int, bold: int, loop: _Above) -> int:
        """Return how much delay is saved up: that of a step on average, or of a long kernel now and then.

        No step is delayed by much more, which keeps the tail short.
        """
        usual = allowed * loop.stretch_ns // MILLION * bold // MILLION
        if self.slo99_ppm:
            longest_ns = loop.tail.longest_ns(self.slo99_ppm, loop.stretch_ns)
            return min(max(usual, longest_ns), (self.slo99_ppm - MILLION) * loop.stretch_ns // MILLION)
        return max(usual, _TAIL * (self.slo_ppm - MILLION) * loop.stretch_ns // bold)


def _alarm(excess: Sequence[float], told: Sequence[Measured], aim: float) -> bool:
    """Return whether the last two holds show a slow-down far above the aim, of which the ones before said nothing."""
    before = [each.value.excess for each in told[:-2]]
    spread = deviation(before) if len(before) >= LEAST_HOLDS else 0.0
    return len(excess) >= 2 and min(excess[-2:]) > aim + max(_ALARM, 4 * spread)


def next_factor(found: Estimate, aim_ppm: int) -> float:
    """Return by how much the boldness changes: it grows only where the upper end of the interval is below the aim."""
    low, value, high = (ppm - MILLION for ppm in (found.low_ppm, found.value_ppm, found.high_ppm))
    most = aim_ppm + min(_SLACK_PPM, aim_ppm // 5)
    if low > aim_ppm:
        return max(0.3, aim_ppm / value)
    if high > most:
        if value > aim_ppm:
            return max(0.5, aim_ppm / value) if found.holds >= FEW_HOLDS // 2 else 1.0
        return max(0.9, most / high) if found.holds >= MANY_HOLDS else 1.0
    factor = min(3.0, most / max(high, most // 3), aim_ppm / max(value, aim_ppm // 3))
    return factor if factor > 1.02 else 1.0


def _times(boldness_ppm: int, factor: float) -> int:
    """Return a changed boldness; below the least of them comes the floor, which is 0."""
    if factor == 1.0:
        return boldness_ppm
    if not boldness_ppm:
        return FIRST_PPM if factor > 1 else 0
    if boldness_ppm <= LEAST_PPM and factor < 1:
        return 0
    return max(LEAST_PPM, min(MOST_PPM, round(boldness_ppm * factor)))


def _at_aim(boldness_ppm: int, before_ppm: int, aim_ppm: int) -> int:
    """Return the boldness at another aim: what is let through goes by both, so that a looser one needs less of it."""
    if not boldness_ppm or aim_ppm <= before_ppm:
        return boldness_ppm
    return max(LEAST_PPM, boldness_ppm * before_ppm // aim_ppm)


def _ahead(base: Rules, boldness_ppm: int) -> int:
    """Return how much work may be in flight: it grows with the square of the boldness."""
    bold = max(MILLION, boldness_ppm)
    return min(DEEPEST_NS, base.depth_ns * bold // MILLION * bold // MILLION)
