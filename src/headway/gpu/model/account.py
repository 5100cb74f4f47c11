"""Accounting of a gated client: the delay it may cause above, the GPU time its floor owes it; and the lag above.

"Above" are the clients of higher priority. The lag of each is one book for all clients below it. Also here: whose turn
it is. This is native/account.h line by line; the shim
runs that at each check of the gate and each launch, and tests play random, recorded and simulated sequences through
both. Integers, no clock. Change both or neither.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headway.gpu.model.reflex import (
    LATEST_NS,
    LONGEST_NS,
    MILLION,
    WIDEST_PPM,
    Look,
    Reason,
    Verdict,
    Waiter,
    choose,
    lags,
    within,
)

SURPLUS_NS = 5_000_000
"""The most that a client counts as ahead of its floor, and the most that it is owed beyond one kernel."""
AWAY_NS = 100_000_000
"""A client that did not check its gate for longer than this earns no more credit for that time."""
ANY_NS = (1 << 63) - 1


class Terms(NamedTuple):
    """The rules of a client that its account uses."""

    credit_ppm: int
    credit_cap_ns: int
    floor_ppm: int


def tame(terms: Terms) -> Terms:
    """Return terms clamped to valid ranges."""
    credit_ppm, credit_cap_ns, floor_ppm = terms
    return Terms(within(credit_ppm, WIDEST_PPM), within(credit_cap_ns, LONGEST_NS), within(floor_ppm, MILLION))


class Account:
    """Credit and debt of one gated client, as its shim counts them."""

    __slots__ = ("accrued", "credit", "debt", "served")

    def __init__(self) -> None:
        self.accrued = 0
        """The time of the last ``accrue``."""
        self.credit = 0
        """Delay that may be caused."""
        self.debt = 0
        """GPU time owed by the floor; negative: it had more than its floor."""
        self.served = 0
        """When its last kernel was launched."""

    def accrue(self, terms: Terms, above: bool, fill: int, now: int) -> int:
        """Add credit and debt for the time that has passed, and return the credit that was earned.

        Terms are clamped, times are not negative.
        """
        earned = 0
        if not above:
            self.debt = 0
        elif self.accrued:
            credit_ppm, credit_cap, floor_ppm = terms
            passed = now - self.accrued
            if not 0 <= passed <= AWAY_NS:
                passed = within(passed, AWAY_NS)
            earned = passed * credit_ppm // MILLION
            self.credit = min(credit_cap, self.credit + earned)
            # Capped at what this kernel needs and a bit, so that a program that slept does not launch a burst.
            self.debt = min(self.debt + passed * floor_ppm // MILLION, min(fill, LONGEST_NS) + SURPLUS_NS)
        self.accrued = now
        return earned

    def pay(self, look: Look, verdict: Verdict) -> None:
        """Charge a kernel that is launched."""
        self.served = look.now_ns
        if not look.above:
            return
        self.debt = max(-SURPLUS_NS, self.debt - look.fill_ns)
        if verdict.reason == Reason.CREDIT:
            self.credit -= verdict.harm_ns


class Book:
    """Lag of one client above: the delay that all clients below it have caused and that it has not absorbed."""

    __slots__ = ("epoch", "lag", "slack")

    def __init__(self) -> None:
        self.lag = self.slack = 0
        """The delay, and the slack of the client when it was caused."""
        self.epoch = 0
        """The number of its requests when the lag was counted."""

    def forget(self, earned: int) -> None:
        """Reduce the lag as fast as credit is earned: clients above may never wait, and then never show an absorption.

        Each client below has a part of the credit, and forgets as much.
        """
        self.lag = max(0, self.lag - earned)

    def lag_in(self, epoch: int, now: int, filled: int, following: int, slack: int) -> int:
        """Return the lag that counts now.

        When a new request begins above, of the old lag only the part that is still in flight remains. Idle time since
        the lag was caused reduces it.
        """
        if self.epoch != epoch:
            self.lag = min(self.lag, max(0, filled - max(now, following)))
            self.slack, self.epoch = slack, epoch
        return max(0, self.lag - max(0, self.slack - slack))

    def delay(self, lag: int, slack: int, look: Look, verdict: Verdict) -> None:
        """Count the delay by a kernel that is launched, where the lag is ``lag`` now."""
        if look.above and lags(look, verdict):
            owed = verdict.reason == Reason.FLOOR  # launched in spite of earlier lag: the two do not add up
            self.lag = min(max(lag, verdict.harm_ns) if owed else lag + verdict.harm_ns, LATEST_NS)
            self.slack = slack


def comes_first(waiters: Sequence[Waiter], now: int, latency: int, filled: int, following: int, busy: int) -> int:
    """Return 1 if the first waiter is chosen among those that fit into the gap, or among all if none fits; else 0."""
    chosen = choose(waiters, max(following + latency, busy) - max(now + latency, filled))
    return int((choose(waiters, ANY_NS) if chosen < 0 else chosen) == 0)
