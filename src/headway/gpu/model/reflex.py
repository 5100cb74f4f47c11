"""The reflex: decide whether a kernel of a client of lower priority may be launched now.

This is native/decide.h line by line; the shim runs that at each launch, and tests show over recorded inputs that the
two agree. As in FIKIT a kernel is launched if it fits into the predicted gap. Beyond FIKIT it is launched if the
program above absorbs the delay before it next waits for the GPU, if the credit of the dial pays for the delay, or if
the floor owes it. Change both or neither.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

MILLION = 1_000_000
POLL_NS = 3_000
HEAVY_NS = 500_000
"""A kernel of at least this length is long."""
CLEAR_NS = 100_000
"""A long kernel keeps this distance from the end of the work above, which is not known better."""
LONGEST_NS = 100_000_000_000
LATEST_NS = 4_000_000_000_000_000_000
WIDEST_PPM = 4 * MILLION


class Reason(IntEnum):
    """Why a kernel is launched or waits. The numbers are those of the shim."""

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
    LONG = 12


class Look(NamedTuple):
    """Inputs of the decision: the clients above, the kernel, the account and the rules of the client."""

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
    longest_ns: int = 0
    contention_ppm: int = 0


class Verdict(NamedTuple):
    """The decision: launch or wait, why, when to check again, and the delay that is expected above."""

    go: int
    reason: int
    until_ns: int
    harm_ns: int


class Waiter(NamedTuple):
    """A client that waits at the gate; ``fill_ns`` 0: none."""

    priority: int
    fill_ns: int
    served_ns: int


def within(value: int, top: int) -> int:
    """Return the value clamped to 0 … ``top``."""
    return 0 if value < 0 else min(value, top)


def tame(look: Look) -> Look:
    """Return the inputs clamped to valid ranges."""
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
            "longest_ns",
        )
    }
    shares = {
        name: within(getattr(look, name), WIDEST_PPM)
        for name in ("width_ppm", "absorb_ppm", "overlap_ppm", "contention_ppm")
    }
    return look._replace(**times, **spans, **shares)


def harm(look: Look, start_ns: int, due_ns: int) -> int:
    """Return the delay that a kernel started at ``start_ns`` causes to the running kernels above and the next one.

    What no wait shows (caches, memory bandwidth, power) is the kernel's contention, by its time beside either.
    """
    beside = max(0, min(look.busy_ns, start_ns + look.fill_ns) - start_ns)
    total = beside * look.overlap_ppm // MILLION * look.width_ppm // MILLION
    late = start_ns + look.fill_ns - due_ns
    if late > 0:
        total += min(late, look.fill_ns if look.whole else look.wave_ns) * look.width_ppm // MILLION
    return total + min(look.fill_ns, beside + max(0, late)) * look.contention_ppm // MILLION


def depth_of(above: int, fill_ns: int, depth_ns: int, idle_depth_ns: int) -> int:
    """Return how much of a program's work may be in flight.

    With no client above, only short kernels are launched far ahead: a client that returns then waits for one of them at
    a time, and a long kernel keeps the GPU busy by itself.
    """
    if above:
        return depth_ns
    return idle_depth_ns // 4 if fill_ns > idle_depth_ns // 32 else idle_depth_ns


def decide(look: Look) -> Verdict:
    """Return whether the kernel may be launched now. Any numbers give a verdict: inputs are not trusted."""
    return settle(tame(look))


def settle(k: Look) -> Verdict:
    """Return ``decide`` for inputs that are within their ranges."""
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
    # An overdue launch is expected after half of the time that it is overdue: the longer the silence, the later.
    following = k.now_ns + (k.now_ns - k.next_ns) // 2 if k.now_ns > k.next_ns else k.next_ns
    due = max(following + k.latency_ns, k.busy_ns)
    cost = harm(k, start, due)
    if k.fill_ns >= HEAVY_NS and k.now_ns + k.latency_ns < k.busy_ns + CLEAR_NS:
        # A long kernel that starts slightly too early delays all the work above that is still to run. So it counts as
        # in the way near such work, even if it would start later, behind another fill.
        cost = max(cost, (k.fill_ns if k.whole else k.wave_ns) * k.width_ppm // MILLION)
    # What the floor owes comes before any turn: with a floor no client starves.
    if k.debt_ns >= k.fill_ns and queued == 0:
        return Verdict(1, Reason.FLOOR, 0, cost)
    if k.longest_ns and k.fill_ns > k.longest_ns:
        return Verdict(0, Reason.LONG, k.now_ns + POLL_NS, cost)
    if not k.turn:
        return Verdict(0, Reason.TURN, k.now_ns + POLL_NS, 0)
    if queued > k.depth_ns:
        return Verdict(0, Reason.DEPTH, k.filled_ns - k.depth_ns // 2, 0)
    return _price(k, start, due, cost)


def _price(k: Look, start: int, due: int, cost: int) -> Verdict:
    """Return the verdict on a kernel whose turn it is: it fits, is absorbed, is paid for, or waits."""
    # Where programs never overlap (no work may be in flight ahead) only gaps are filled.
    fits, narrow = cost == 0, due - max(start, k.busy_ns) < k.threshold_ns
    if narrow and k.depth_ns == 0:
        return Verdict(0, Reason.THRESHOLD, k.now_ns + POLL_NS, 0)
    if fits:
        if not narrow or k.busy_ns > start:
            return Verdict(1, Reason.FITS, 0, 0)
        cost = k.threshold_ns - max(0, due - start)  # a gap shorter than a switch: the rest of the switch
    # One long kernel at a time: four fifths of its delay must be absorbed before another one may cause delay.
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
    """Return whether the delay counts as lag above: if it is absorbed, or if a long kernel is paid for or owed."""
    costly = look.fill_ns >= HEAVY_NS and verdict.reason in (Reason.CREDIT, Reason.FLOOR)
    return costly or verdict.reason == Reason.ABSORBED


def choose(waiters: Sequence[Waiter], room_ns: int) -> int:
    """Return the index of the waiter by BestPrioFit; -1: none fits.

    That is the highest priority with a kernel that fits, within it the least recently served, then the longest kernel.
    """
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
