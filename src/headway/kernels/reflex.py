"""The reflex: may this kernel of a lower-priority program go to the GPU now?

The same function as native/decide.h, line by line; the shim runs that one at each launch, and tests prove over
recorded looks that the two agree. It is FIKIT's question (does the kernel fit into the predicted gap?) with three
answers FIKIT does not have: a delay that the program above absorbs before it next waits for the GPU, a delay that the
dial pays for, and a floor. Change both or neither.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

MILLION = 1_000_000
POLL_NS = 3_000
HEAVY_NS = 500_000
"""A kernel of half a millisecond is long."""
CLEAR_NS = 100_000
"""And keeps this far from the end of what runs above, which is known no better."""
LONGEST_NS = 100_000_000_000
LATEST_NS = 4_000_000_000_000_000_000
WIDEST_PPM = 4 * MILLION


class Reason(IntEnum):
    """Why a kernel goes or waits. The numbers are those of the shim."""

    OFF = 0
    ALONE = 1
    FITS = 2
    ABSORBED = 3
    CREDIT = 4
    FLOOR = 5
    HOLD = 6
    DEPTH = 7
    BUSY = 8
    GAP = 9
    TURN = 10
    THRESHOLD = 11


class Look(NamedTuple):
    """What a program sees when it wants to launch: those above it, its kernel, its account, its rules."""

    now_ns: int
    above: int
    busy_ns: int
    next_ns: int
    slack_ns: int
    filled_ns: int
    fill_ns: int
    wave_ns: int
    width_ppm: int
    lag_ns: int
    credit_ns: int
    debt_ns: int
    turn: int
    gate: int
    hold: int
    threshold_ns: int
    latency_ns: int
    depth_ns: int
    idle_depth_ns: int
    absorb_ppm: int
    overlap_ppm: int
    whole: int


class Verdict(NamedTuple):
    """Go or wait, why, when to look again, and the delay it is expected to cause above."""

    go: int
    reason: int
    until_ns: int
    harm_ns: int


class Waiter(NamedTuple):
    """One who waits for its turn; ``fill_ns`` 0 is nobody."""

    priority: int
    fill_ns: int
    served_ns: int


def within(value: int, top: int) -> int:
    """Return the value, made one from 0 to ``top``."""
    return 0 if value < 0 else min(value, top)


def tame(look: Look) -> Look:
    """Any numbers at all, made ones that can be reckoned with."""
    times = {name: within(getattr(look, name), LATEST_NS) for name in ("now_ns", "busy_ns", "next_ns", "filled_ns")}
    spans = {
        name: within(getattr(look, name), LONGEST_NS)
        for name in (
            "slack_ns",
            "fill_ns",
            "wave_ns",
            "lag_ns",
            "credit_ns",
            "debt_ns",
            "threshold_ns",
            "latency_ns",
            "depth_ns",
            "idle_depth_ns",
        )
    }
    shares = {name: within(getattr(look, name), WIDEST_PPM) for name in ("width_ppm", "absorb_ppm", "overlap_ppm")}
    return look._replace(**times, **spans, **shares)


def harm(look: Look, start_ns: int, due_ns: int) -> int:
    """Return the delay that a kernel started then causes to the kernels above that still run, and to the next one."""
    beside = max(0, min(look.busy_ns, start_ns + look.fill_ns) - start_ns)
    total = beside * look.overlap_ppm // MILLION * look.width_ppm // MILLION
    late = start_ns + look.fill_ns - due_ns
    if late > 0:
        total += min(late, look.fill_ns if look.whole else look.wave_ns) * look.width_ppm // MILLION
    return total


def depth_of(above: int, fill_ns: int, depth_ns: int, idle_depth_ns: int) -> int:
    """Return how much of a program's work may be in flight.

    With nobody above it goes far ahead with short kernels only: whoever comes then waits for one of them at a time, and
    a long one keeps the GPU busy by itself.
    """
    if above:
        return depth_ns
    return idle_depth_ns // 4 if fill_ns > idle_depth_ns // 32 else idle_depth_ns


def decide(look: Look) -> Verdict:
    """Return whether the kernel may go now. Trusts nothing: any numbers give a verdict."""
    return settle(tame(look))


def settle(k: Look) -> Verdict:
    """``decide`` for a look whose numbers are sound."""
    if not k.gate:
        return Verdict(1, Reason.OFF, 0, 0)
    queued = max(0, k.filled_ns - k.now_ns)
    if k.above == 0:
        depth = depth_of(0, k.fill_ns, k.depth_ns, k.idle_depth_ns)
        if queued > depth:
            return Verdict(0, Reason.DEPTH, k.filled_ns - depth // 2, 0)
        return Verdict(1, Reason.ALONE, 0, 0)
    if k.hold:
        return Verdict(0, Reason.HOLD, k.now_ns + 100 * POLL_NS, 0)
    start = max(k.now_ns + k.latency_ns, k.filled_ns)
    # A launch that is overdue is expected after half of the time it is overdue: the longer the silence, the longer.
    following = k.now_ns + (k.now_ns - k.next_ns) // 2 if k.now_ns > k.next_ns else k.next_ns
    due = max(following + k.latency_ns, k.busy_ns)
    cost = harm(k, start, due)
    if k.fill_ns >= HEAVY_NS and k.now_ns + k.latency_ns < k.busy_ns + CLEAR_NS:
        # One that comes a moment too soon holds up all that is still to run: near work above it is in its way, though
        # it would start later, behind another one that holds that work up already.
        cost = max(cost, (k.fill_ns if k.whole else k.wave_ns) * k.width_ppm // MILLION)
    # What the floor owes comes before anybody's turn: with a floor nobody starves.
    if k.debt_ns >= k.fill_ns and queued == 0:
        return Verdict(1, Reason.FLOOR, 0, cost)
    if not k.turn:
        return Verdict(0, Reason.TURN, k.now_ns + POLL_NS, 0)
    if queued > k.depth_ns:
        return Verdict(0, Reason.DEPTH, k.filled_ns - k.depth_ns // 2, 0)
    return _price(k, start, due, cost)


def _price(k: Look, start: int, due: int, cost: int) -> Verdict:
    """The verdict on a kernel whose turn it is, with room in flight: fits, is absorbed, is paid for, or waits."""
    # Where programs never overlap (nothing may be in flight ahead) there is no filling without a gap.
    fits, narrow = cost == 0, due - max(start, k.busy_ns) < k.threshold_ns
    if narrow and k.depth_ns == 0:
        return Verdict(0, Reason.THRESHOLD, k.now_ns + POLL_NS, 0)
    if fits:
        if not narrow or k.busy_ns > start:
            return Verdict(1, Reason.FITS, 0, 0)
        cost = k.threshold_ns - max(0, due - start)  # in a gap shorter than a switch: what the switch takes beyond it
    # Of long ones one at a time: what one delays is to be made up, but for a fifth, before another one may delay.
    on_top = k.fill_ns >= HEAVY_NS and k.lag_ns > k.fill_ns // 5
    if not on_top and k.lag_ns + cost <= k.slack_ns * k.absorb_ppm // MILLION:
        return Verdict(1, Reason.ABSORBED, 0, cost)
    if not on_top and cost <= k.credit_ns:
        return Verdict(1, Reason.CREDIT, 0, cost)
    if fits:
        return Verdict(0, Reason.THRESHOLD, k.now_ns + POLL_NS, 0)
    clear, since = k.busy_ns, start
    if k.fill_ns >= HEAVY_NS:
        clear, since = k.busy_ns + CLEAR_NS, k.now_ns + k.latency_ns
    if since < clear:
        return Verdict(0, Reason.BUSY, max(k.now_ns + POLL_NS, clear - k.latency_ns), cost)
    return Verdict(0, Reason.GAP, k.now_ns + POLL_NS, cost)


def lags(look: Look, verdict: Verdict) -> bool:
    """Return whether what it delays those above is still to be made up by them: absorbed.

    Of a long one paid for or owed.
    """
    costly = look.fill_ns >= HEAVY_NS and verdict.reason in (Reason.CREDIT, Reason.FLOOR)
    return costly or verdict.reason == Reason.ABSORBED


def choose(waiters: Sequence[Waiter], room_ns: int) -> int:
    """BestPrioFit: the highest priority with one that fits; within it who was served longest ago, then the longest."""
    best = -1
    for index, waiter in enumerate(waiters):
        if not 0 < waiter.fill_ns <= room_ns:
            continue
        if best < 0 or (waiter.priority, waiter.served_ns, -waiter.fill_ns) < (
            waiters[best].priority,
            waiters[best].served_ns,
            -waiters[best].fill_ns,
        ):
            best = index
    return best
