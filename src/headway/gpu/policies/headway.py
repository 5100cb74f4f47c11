"""Headway's own policy for kernels: gap filling by predicted delay, with a control loop for the slow-down.

Every eight milliseconds the dial (``gpu/control/dial.py``) sets the rules of each client. At each check of the gate the
reflex (``gpu/model/reflex.py``) decides whether a waiting kernel is launched. Both also run live, and so does the
``Account`` of each gated client (the credit that the dial allows, the debt of the floor) and the ``Book`` of lag of
each client above. A kernel that waits is checked again when the shim's polling could find a change.
"""

from collections import deque
from collections.abc import Iterator
from math import exp, log
from statistics import median

from headway.errors import ExperimentError
from headway.gpu.control.dial import Dial
from headway.gpu.control.gate_rules import Rules
from headway.gpu.control.holds import Holds, Seen
from headway.gpu.control.slowdown import Step, Value, deviation
from headway.gpu.model.account import Account, Book, Terms, comes_first, tame
from headway.gpu.model.actions import Action, LetGo, WakeAt
from headway.gpu.model.flight import Flight, mark
from headway.gpu.model.reflex import (
    HEAVY_NS,
    LONGEST_NS,
    MILLION,
    POLL_NS,
    WIDEST_PPM,
    Look,
    Reason,
    Verdict,
    Waiter,
    depth_of,
    settle,
)
from headway.gpu.model.state import ClientState, KernelsState, WholeStep
from headway.gpu.policies.parts import KernelsPolicy, in_turn

BEAT_NS = 8_000_000
"""Interval of the dial, as in the broker."""
WHILE_NS = 100_000_000
"""The dial is told of steps of so much time together: about what it compares with one hold."""
LEAST_STEPS = 4
EVEN, EVEN_OF = 0.01, 5
"""Steps alone are even where the last whiles spread by less than this, as a logarithm; live it is of ten holds."""
NEVER = 1 << 62
NAP_NS = 1_000_000
BELIEVED_NS = 1_000_000_000
"""A client that waits for longer may wait for something else than the GPU."""
AWAKE_NS = 80_000
"""A wait shorter than this is spent polling, without sleep; longer ones sleep at most ``NAP_NS`` at a time."""
GLANCE_NS = 50_000
"""A client that waits for its own work checks this often, or eight times in the work that may be in flight."""
PATIENCE = 4_000
"""The interval between two checks grows by this fraction (1 / PATIENCE) of the time already waited."""


class _Gate(Account):
    """The gate of one client, as its shim has it: its account, its work in flight, and when it is checked next."""

    __slots__ = ("above", "asleep", "flight", "look_at", "seen", "told")

    def __init__(self) -> None:
        super().__init__()
        self.flight = Flight()
        self.look_at = self.seen = self.asleep = -1
        """Time of the next check if nothing happens; the last change seen; until when the thread sleeps."""
        self.told = 0
        self.above: list[ClientState] = []
        """Clients above at work, at the last check."""


class _Felt:
    """The slow-down of one client as the dial is told it: by the steps of a while.

    Live, steps in a hold are compared with those around it. Here the time alone of every step is known, and no hold is
    needed to learn it: the dial settles in seconds, not in minutes. As live it is the median, and of a client whose
    steps alone are even the mean where that is more.
    """

    __slots__ = ("actual", "alone", "read", "steps", "took")

    def __init__(self) -> None:
        self.actual = self.alone = self.read = 0
        self.steps: list[WholeStep] = []
        """Those that have not been counted yet."""
        self.took: deque[float] = deque(maxlen=EVEN_OF)
        """Median logarithm of the times alone, of the last whiles."""

    def fresh(self, client: ClientState) -> list[WholeStep]:
        """Return the steps since the last call."""
        count, self.read = client.epoch - self.read, client.epoch
        return client.whole[-count:] if count else []

    def count(self, client: ClientState) -> None:
        """Count the steps since the last time, where there are enough of them."""
        self.steps += self.fresh(client)
        alone_took = client.expected.took
        fresh = [(step.ended - step.began, alone_took[step.request]) for step in self.steps]
        alone = sum(took for _, took in fresh)
        if alone < WHILE_NS or len(fresh) < LEAST_STEPS:
            return
        self.steps.clear()
        each = tuple(log(actual / took) for actual, took in fresh)
        self.took.append(median(log(took) for _, took in fresh))
        value = Value(median(each), len(each), self.took[-1], (0.0,), each)
        even = len(self.took) == EVEN_OF and deviation(self.took) < EVEN
        self.alone += alone
        self.actual += round(alone * exp(value.felt if even else value.excess))


class Headway(KernelsPolicy):
    """Launches kernels that fit, are absorbed, are paid for or are owed.

    ``slo`` is the target slow-down above, ``floor`` the share of the GPU that clients below keep. ``met``: the pair is
    known, and the dial is told the slow-down of all steps; else it begins at the floor and learns by holds, as live.
    """

    name = "headway"
    raised = True

    def __init__(self, slo: float = 1.05, floor: float = 0.01, watch: bool = True, met: bool = True) -> None:
        if not 1 <= slo <= 100:
            raise ExperimentError(f"policy headway: slo={slo} is not a slow-down: it must lie between 1 and 100")
        if not 0 <= floor < 1:
            raise ExperimentError(f"policy headway: floor={floor} is not a share: it must be at least 0 and below 1")
        self.slo = slo
        self.floor = floor
        self.watch = watch
        self.met = met

    def bind(self, state: KernelsState) -> None:
        """Make a dial for these options. Programs are known from the start."""
        self.dial = Dial(
            slo_ppm=round(self.slo * MILLION),
            floor_ppm=round(self.floor * MILLION),
            begin_ppm=MILLION if self.met else 0,
            holds=Holds() if self.watch else Holds(share_ppm=0),
        )
        self._gates = [_Gate() for _ in state.clients]
        self._books = [Book() for _ in state.clients]
        self._felt = [_Felt() for _ in state.clients]
        self._rules: dict[int, Rules] = {}
        self._terms: dict[int, Terms] = {}
        self._beat = self._wake = -1

    def decide(self, now: int, state: KernelsState) -> Iterator[Action]:
        """Call the dial when it is time; then check the gate of each waiting client that is due."""
        if now >= self._beat:
            self._beat = now + BEAT_NS
            self._rules = self.dial.rules(now, [self._seen(client) for client in state.clients if not client.left])
            self._terms = {client: _terms(rules) for client, rules in self._rules.items()}
            for gate in self._gates:
                gate.look_at = now
            yield WakeAt(self._beat)
        if not state.waiting:
            return
        earliest = 0
        for client in in_turn(state):
            gate = self._gates[client.id]
            if gate.asleep > now and client.reached_at != now:
                if gate.seen != state.changes or gate.look_at < gate.asleep:
                    gate.look_at = gate.asleep
            elif gate.look_at <= now or gate.seen != state.changes:
                gate.seen = state.changes
                look = self._look(now, state, client, gate)
                verdict = settle(look)
                if verdict.go:
                    self._go(state, gate, client, look, verdict)
                    yield LetGo(client.id, client.reached, verdict.reason, verdict.harm_ns)
                    continue
                waited = now - client.reached_at
                gate.look_at = again(look, verdict, waited, self._rules.get(client.id) or Rules())
                gate.asleep = asleep(look, verdict, waited)
            if gate.look_at < self._beat:
                earliest = min(earliest or gate.look_at, gate.look_at)
        if earliest and (earliest < self._wake or self._wake <= now):
            self._wake = earliest
            yield WakeAt(earliest)

    def _seen(self, client: ClientState) -> Seen:
        """Return what the dial reads of a client: its steps of a while, and what the same ones take alone."""
        felt = self._felt[client.id]
        filled = self._gates[client.id].told
        if not self.met:
            kinds = client.expected.kinds
            steps = [Step(each.began, each.ended, *kinds[each.request], cpu_ns=each.cpu) for each in felt.fresh(client)]
            return Seen(client.id, client.priority, epochs=client.epoch, filled_ns=filled, steps=steps)
        felt.count(client)
        return Seen(client.id, client.priority, felt.actual, felt.alone, epochs=client.epoch, filled_ns=filled)

    def _look(self, now: int, state: KernelsState, client: ClientState, gate: _Gate) -> Look:
        rules = self._rules.get(client.id) or Rules()
        above = busy = following = slack = 0
        gate.above = []
        for other in state.clients:
            if other.priority >= client.priority or other.left or not other.launched:
                continue
            waits = other.waits and now - other.launched_at < BELIEVED_NS
            if now - other.launched_at > rules.silence_ns and other.busy < now and not waits:
                continue
            ends = other.busy
            if waits and ends < now:  # the later it is the longer it is expected to last
                ends = now + min((now - ends) // 2, NAP_NS)
            busy = max(busy, ends)
            following = min(following, other.next) if above else other.next
            slack = min(slack, other.slack) if above else other.slack
            gate.above.append(other)
            above += 1
        fill, kernel = client.fill, client.wants
        earned = gate.accrue(self._terms.get(client.id) or _terms(rules), above > 0, fill, now)
        filled = self._filled(now, state, client, rules.latency_ns)
        depth = depth_of(above, fill, rules.depth_ns, rules.idle_depth_ns)
        waits = now > client.reached_at or self._crowd(state)
        if waits or gate.flight.overdue(now, rules.latency_ns) or filled - now > depth // 2:
            gate.flight.collect(now, client.finished)
            filled = self._filled(now, state, client, rules.latency_ns)
        lag = self._lag(now, gate, earned, filled)
        turn = 1
        if len(state.waiting) > 1:
            turn = comes_first(self._waiters(state, client), now, rules.latency_ns, filled, following, busy)
        scale = min(rules.scale_ppm or MILLION, WIDEST_PPM)
        if fill >= HEAVY_NS:
            scale = max(scale, MILLION)  # a long one is never milder
        return Look(  # by position, in the order of the fields: this is made at every look
            *(now, above, busy, following, slack, filled, fill),
            fill // client.expected.waves[kernel],
            client.expected.widths_ppm[kernel] * scale // MILLION,
            lag,
            gate.credit,
            max(0, gate.debt),
            turn,
            *(rules.gate, rules.hold, rules.threshold_ns, rules.latency_ns, rules.depth_ns, rules.idle_depth_ns),
            *(rules.absorb_ppm, rules.overlap_ppm, rules.whole, rules.longest_ns),
        )

    def _lag(self, now: int, gate: _Gate, earned: int, filled: int) -> int:
        """Return the most that one of the clients above lags, by whomever it was delayed."""
        worst = 0
        for other in gate.above:
            book = self._books[other.id]
            book.forget(earned)
            worst = max(worst, book.lag_in(other.epoch, now, filled, other.next, other.slack))
        return worst

    def _filled(self, now: int, state: KernelsState, client: ClientState, latency: int) -> int:
        """Return when all fills in flight end: the client's own as of now, of others as last published."""
        gate = self._gates[client.id]
        gate.told = own_end = gate.flight.end(now, latency)
        if len(state.clients) == 2:
            return own_end
        others = (self._gates[other.id].told for other in state.clients if other.gated and not other.left)
        return max(own_end, *others)

    def _crowd(self, state: KernelsState) -> bool:
        """Return whether more than one client is gated: they depend on each other's published work."""
        return len(state.clients) > 2 and sum(1 for client in state.clients if client.gated and not client.left) > 1

    def _go(self, state: KernelsState, gate: _Gate, client: ClientState, look: Look, verdict: Verdict) -> None:
        gate.asleep = -1
        after = mark(look.depth_ns, not look.above, self._crowd(state))
        gate.flight.launch(client.reached, look.now_ns, look.fill_ns, after)
        gate.told = gate.flight.end(look.now_ns, look.latency_ns)
        gate.pay(look, verdict)
        for other in gate.above:
            book = self._books[other.id]
            lag = book.lag_in(other.epoch, look.now_ns, look.filled_ns, other.next, other.slack)
            book.delay(lag, other.slack, look, verdict)

    def _waiters(self, state: KernelsState, client: ClientState) -> list[Waiter]:
        """Return all waiting clients, the given one first, without others whose kernel is too long to go at all."""
        others = [
            state.clients[index] for index in state.waiting if index != client.id and not self._too_long(state, index)
        ]
        return [Waiter(waiter.priority, waiter.fill, self._gates[waiter.id].served) for waiter in (client, *others)]

    def _too_long(self, state: KernelsState, index: int) -> bool:
        rules = self._rules.get(index)
        return rules is not None and 0 < rules.longest_ns < state.clients[index].fill


def glance(look: Look) -> int:
    """Return the interval between two checks of a client that waits for its own work."""
    depth = depth_of(look.above, look.fill_ns, look.depth_ns, look.idle_depth_ns)
    return max(GLANCE_NS, min(depth, 8 * NAP_NS) // 8)


def asleep(look: Look, verdict: Verdict, waited: int) -> int:
    """Return until when a waiting thread notices nothing: until it wakes where it sleeps, else until its next poll.

    It checks again when the verdict says, and sleeps until shortly before that where it is long.
    """
    now = look.now_ns
    until = verdict.until_ns - now
    if verdict.reason == Reason.DEPTH:
        until = min(until, glance(look))  # what was reckoned too long is over sooner
    wait = min(max(until, POLL_NS + min(waited, 20_000_000) // PATIENCE), NAP_NS)
    return now + (wait - AWAKE_NS // 2 if wait > AWAKE_NS else wait)


def again(look: Look, verdict: Verdict, waited: int, rules: Rules) -> int:
    """Return when a waiting thread must check next, unless something happens before.

    A live thread polls. As long as nothing happens, the result of a poll changes only with time: work in flight ends,
    credit or debt has grown, or the launch above is overdue and expected later and later.
    """
    now, reason = look.now_ns, verdict.reason
    if reason == Reason.HOLD:
        return NEVER  # until the rules change
    pause = POLL_NS + min(waited, 20_000_000) // PATIENCE
    owed = NEVER
    if look.filled_ns <= now:
        owed = now + _grown(look.fill_ns - look.debt_ns, rules.floor_ppm, look.fill_ns <= LONGEST_NS)
    until = max(verdict.until_ns, now + pause)
    if reason == Reason.DEPTH:
        until = min(until, now + max(glance(look), pause))
    elif reason == Reason.LONG:
        until = NEVER  # until the floor owes it, or the next call of the dial
    elif reason == Reason.TURN:
        until = now + 10 * pause  # whoever goes instead is a change
    elif reason == Reason.THRESHOLD:
        # Sooner than the launch above only if the switch can be paid for, and never where programs do not overlap.
        room = max(0, max(look.next_ns + look.latency_ns, look.busy_ns) - max(now + look.latency_ns, look.filled_ns))
        cost = look.threshold_ns - room
        paid = now + _grown(cost - look.credit_ns, rules.credit_ppm, look.depth_ns > 0 and cost <= rules.credit_cap_ns)
        until = min(max(until, look.next_ns), max(now + pause, paid))
    elif reason in (Reason.GAP, Reason.BUSY):
        until = max(until, _cheaper(look, rules))
        if look.fill_ns >= HEAVY_NS and verdict.harm_ns <= rules.credit_cap_ns:  # near work above: the same all along
            until = min(until, now + max(pause, _grown(verdict.harm_ns - look.credit_ns, rules.credit_ppm, True)))
    return max(now + pause, min(until, owed))


def _cheaper(look: Look, rules: Rules) -> int:
    """Return the earliest time at which a kernel that fits into no gap could be paid for, or absorbed."""
    now = look.now_ns
    overdue = max(now, look.next_ns)
    following = now + (now - look.next_ns) // 2 if now > look.next_ns else look.next_ns
    start = max(now + look.latency_ns, look.filled_ns)
    late = max(0, start + look.fill_ns - max(following + look.latency_ns, look.busy_ns))
    if (excess := look.lag_ns - look.fill_ns // 5) > 0 and look.fill_ns >= HEAVY_NS:
        # Another long one is not made up for: until it is, or is forgotten, only what fits goes.
        return min(now + _grown(excess, rules.credit_ppm, True), overdue + 2 * late)
    harm = min(late, look.fill_ns if look.whole else look.wave_ns) * look.width_ppm // MILLION
    lacks = harm - look.credit_ns
    paid = now + _grown(lacks, rules.credit_ppm, harm <= rules.credit_cap_ns)
    # Once the launch above is overdue the delay gets less, by half of the time that passes.
    lacks -= (overdue - now) * rules.credit_ppm // MILLION
    lacks = min(lacks, look.lag_ns + harm - look.slack_ns * look.absorb_ppm // MILLION)
    return min(paid, overdue + _grown(lacks, rules.credit_ppm + look.width_ppm // 2 + 1, True))


def _grown(lacks: int, rate_ppm: int, possible: bool) -> int:
    """Return how long it takes until the lacking amount has grown at this rate; ``NEVER`` where it cannot."""
    return max(0, lacks) * MILLION // rate_ppm if rate_ppm > 0 and possible else NEVER


def _terms(rules: Rules) -> Terms:
    return tame(Terms(rules.credit_ppm, rules.credit_cap_ns, rules.floor_ppm))
