"""The dial: a closed control loop that sets the rules of each client's gate; the reflex applies them to each launch.

The operator sets the slow-down that the program of highest priority may suffer (``slo``) and the share that the others
keep in any case (``floor``). About a hundred times a second the dial reads what each program did and sets its rules.
``boldness`` says how much of the idle time fills may use. Every so often the clients of lower priority are held for a
moment, and the program above is measured alone. Its time beside them over its time alone is its slow-down: below the
target the boldness grows, above it the boldness shrinks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

MILLION = 1_000_000
MS = 1_000_000
LEAST_PPM = 50_000
MOST_PPM = 4_000_000
DEEPEST_NS = 2 * MS
"""The most work in flight while a client of higher priority is there, at any boldness."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the dial reads of one client. Counters run since the client joined."""

    index: int
    priority: int
    actual_ns: int
    alone_ns: int
    since_ns: int
    epochs: int = 0


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one client's gate: the fields of the shared block."""

    gate: int = 1
    hold: int = 0
    watched: int = 0
    threshold_ns: int = 4_000
    latency_ns: int = 6_000
    depth_ns: int = 120_000
    idle_depth_ns: int = 8_000_000
    silence_ns: int = 100_000_000
    absorb_ppm: int = 500_000
    overlap_ppm: int = 500_000
    credit_ppm: int = 10_000
    credit_cap_ns: int = 2_000_000
    floor_ppm: int = 0
    whole: int = 0
    sample_every: int = 256
    raised: int = 0
    scale_ppm: int = MILLION


@dataclass(slots=True)
class _Above:
    """Control loop of one client that has clients of lower priority beside it."""

    actual_ns: int = 0
    alone_ns: int = 0
    epochs: int = 0
    boldness_ppm: int = MILLION
    slowdown_ppm: int = MILLION
    stretch_ns: int = 2 * MS
    measured: bool = False
    seen_epochs: int = 0


@dataclass(slots=True)
class Dial:
    """Computes the rules of every client from the counters of all. ``rules`` is called every few milliseconds.

    ``mps``: kernels of several programs overlap; without it only long gaps are worth a switch. ``priorities``: programs
    below run at MPS's lower priority, so that a fill holds the GPU for one wave and not to its end. ``switch_ns``: the
    measured cost of a switch, the shortest gap that is filled.
    """

    slo_ppm: int = 1_050_000
    floor_ppm: int = 10_000
    mps: bool = True
    priorities: bool = True
    switch_ns: int = 4_000
    drain_ns: int = 12 * MS
    watch_ns: int = 30 * MS
    watch_every_ns: int = 1_500 * MS
    first_watch_ns: int = 300 * MS
    first_every_ns: int = 5_000 * MS
    sample_every: int = 256
    _above: dict[int, _Above] = field(default_factory=dict)
    _cycle_ns: int = 0
    _newest_ns: int = -1

    def rules(self, now_ns: int, seen: Sequence[Seen]) -> dict[int, Rules]:
        """Return the rules of each client, by its index."""
        if not seen:
            self._above.clear()
            return {}
        highest = min(client.priority for client in seen)
        phase = self._phase(now_ns, [client for client in seen if client.priority == highest])
        self._update_loops(seen, phase)
        base = self._base_rules(highest)
        return {client.index: self._rules_of(client, seen, phase, base) for client in seen}

    def slowdown_ppm(self, index: int) -> int:
        """Return the slow-down of a client as last measured; a million: none."""
        above = self._above.get(index)
        return above.slowdown_ppm if above else MILLION

    def boldness_ppm(self, index: int) -> int:
        """Return how much of a client's idle time fills may use now."""
        above = self._above.get(index)
        return above.boldness_ppm if above else 0

    def _base_rules(self, highest: int) -> Rules:
        # MPS has two priorities, and only clients of priority 0 are normal: without one, whole kernels are waited for.
        whole = 0 if self.mps and self.priorities and highest == 0 else 1
        base = Rules(threshold_ns=self.switch_ns, floor_ppm=self.floor_ppm, whole=whole)
        if not self.mps:
            # Without MPS two programs never overlap: a fill costs two switches of the driver's slices.
            base = replace(base, threshold_ns=max(self.switch_ns, 500_000), latency_ns=20_000, depth_ns=0)
        return replace(base, sample_every=self.sample_every)

    def _phase(self, now_ns: int, top: Sequence[Seen]) -> int:
        """Return the phase: 0: all run; 1: clients below are held; 2: held, and their work has drained: measure.

        They are held for longer when a client of the highest priority is new, then for a moment at intervals.
        """
        newest = max(client.since_ns for client in top)
        if newest > self._newest_ns and (self._newest_ns < 0 or now_ns - self._cycle_ns > self.first_every_ns):
            self._cycle_ns = max(now_ns, newest)
        self._newest_ns = max(newest, self._newest_ns)
        into = now_ns - self._cycle_ns
        if into < self.first_watch_ns:
            return 2 if into > 4 * self.drain_ns else 1
        into = (into - self.first_watch_ns) % self.watch_every_ns
        left = self.watch_every_ns - into
        if left <= self.watch_ns + self.drain_ns:
            return 2 if left <= self.watch_ns else 1
        return 0

    def _update_loops(self, seen: Sequence[Seen], phase: int) -> None:
        """Update the loops: compare the time of each client above with its time alone."""
        lowest = max(client.priority for client in seen)
        for client in seen:
            if client.priority == lowest and len(seen) > 1 and client.priority != min(c.priority for c in seen):
                continue
            above = self._above.setdefault(client.index, _Above())
            if phase:  # requests while those below are held are in neither sum
                above.epochs += client.epochs - above.seen_epochs
            above.seen_epochs = client.epochs
            actual, alone = client.actual_ns - above.actual_ns, client.alone_ns - above.alone_ns
            if actual < 0 or alone < 0:
                fresh = _Above(client.actual_ns, client.alone_ns, client.epochs, seen_epochs=client.epochs)
                self._above[client.index] = fresh
                continue
            if phase or alone < 20 * MS:
                continue
            if client.epochs > above.epochs:
                above.stretch_ns = alone // (client.epochs - above.epochs)
            above.actual_ns, above.alone_ns, above.epochs = client.actual_ns, client.alone_ns, client.epochs
            ratio = actual * MILLION // alone
            above.slowdown_ppm = ratio if not above.measured else (3 * above.slowdown_ppm + ratio) // 4
            above.measured = True
            above.boldness_ppm = self._next_boldness(above.boldness_ppm, above.slowdown_ppm)

    def _next_boldness(self, boldness_ppm: int, slowdown_ppm: int) -> int:
        aim, came = self.slo_ppm - MILLION, max(0, slowdown_ppm - MILLION)
        if came > aim:
            return max(LEAST_PPM, boldness_ppm * max(700_000, MILLION - (came - aim) * 2) // MILLION)
        # A loop that was cut back and causes little delay now returns to its first boldness quickly.
        step = 200_000 if boldness_ppm < MILLION and 2 * came < aim else min(100_000, aim - came)
        return min(MOST_PPM, boldness_ppm + 10_000 + boldness_ppm * step // MILLION)

    def _rules_of(self, client: Seen, seen: Sequence[Seen], phase: int, base: Rules) -> Rules:
        above = [other for other in seen if other.priority < client.priority]
        beside = sum(1 for other in seen if other.priority >= client.priority and other.priority > 0)
        below = any(other.priority > client.priority for other in seen)
        if not above:
            return replace(base, gate=0, watched=1 if phase == 2 or not below else 0, raised=1)
        # Only clients with none above them are ever measured alone; the others use those that were measured.
        loops = [self._above.get(other.index, _Above()) for other in above]
        loops = [loop for loop in loops if loop.measured] or loops
        boldness = min(loop.boldness_ppm for loop in loops)
        allowed = (self.slo_ppm - MILLION) // max(1, beside)
        whole = base.whole or any(other.priority for other in above)
        idle = (DEEPEST_NS if whole else base.idle_depth_ns) // max(1, beside)
        return replace(
            base,
            hold=1 if phase else 0,
            whole=1 if whole else 0,
            # Held clients have little in flight even while those above are silent: they may launch at any time.
            idle_depth_ns=min(idle, base.depth_ns) if phase else idle,
            absorb_ppm=min(MILLION, boldness // 2) // max(1, beside),
            # A bold client launches further ahead, so that an interrupted thread leaves the GPU no gap. Not where
            # clients above have no GPU priority: all that is in flight would run before them.
            depth_ns=base.depth_ns if whole else _ahead(base, boldness),
            scale_ppm=MILLION * MILLION // boldness,
            # No request is delayed by much more than its share of the target slow-down: that keeps the tail short.
            credit_ppm=allowed,
            credit_cap_ns=allowed
            * min(loop.stretch_ns for loop in loops)
            // MILLION
            * max(MILLION, boldness)
            // MILLION,
        )


def _ahead(base: Rules, boldness_ppm: int) -> int:
    """Return how much work may be in flight: it grows with the square of the boldness."""
    bold = max(MILLION, boldness_ppm)
    return min(DEEPEST_NS, base.depth_ns * bold // MILLION * bold // MILLION)
