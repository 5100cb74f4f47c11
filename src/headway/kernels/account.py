"""The account of a gated client: what it may delay those above, what it has delayed them, what its floor owes it.

Also here: whose turn it is. The same as native/account.h, line by line; the shim runs that one at each look and each
launch, and tests play drawn, recorded and simulated sequences through both. Integers, no clock. Change both or neither.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headway.kernels.reflex import (
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
"""So far at most a client that had more than its floor is ahead of it; and so much more than one kernel it is owed."""
AWAY_NS = 100_000_000
"""A client that did not look for longer earns no more."""
ANY_NS = (1 << 63) - 1


class Terms(NamedTuple):
    """Of the rules those that an account goes by."""

    credit_ppm: int
    credit_cap_ns: int
    floor_ppm: int


def tame(terms: Terms) -> Terms:
    """Return terms that can be reckoned with, whatever the numbers."""
    credit_ppm, credit_cap_ns, floor_ppm = terms
    return Terms(within(credit_ppm, WIDEST_PPM), within(credit_cap_ns, LONGEST_NS), within(floor_ppm, MILLION))


class Account:
    """What the shim of one gated client keeps count of."""

    __slots__ = ("accrued", "credit", "debt", "epoch", "lag", "lag_slack", "served")

    def __init__(self) -> None:
        self.accrued = 0
        """Until when it was reckoned."""
        self.credit = 0
        """Delay that may be caused."""
        self.debt = 0
        """GPU time owed by the floor; negative: had more."""
        self.lag = self.lag_slack = 0
        """Delay caused and not yet absorbed, and the idle time that those above had left when it was."""
        self.served = 0
        """When a kernel last went."""
        self.epoch = 0
        """Requests above, as of the lag."""

    def accrue(self, terms: Terms, above: bool, fill: int, now: int) -> None:
        """Count the time that has passed; the terms are tame, times and spans are none below zero."""
        if not above:
            self.debt = 0
        elif self.accrued:
            credit_ppm, credit_cap, floor_ppm = terms
            passed = now - self.accrued
            if not 0 <= passed <= AWAY_NS:
                passed = within(passed, AWAY_NS)
            earned = passed * credit_ppm // MILLION
            self.credit = min(credit_cap, self.credit + earned)
            # Those above may never wait, and never be seen to make it up: as fast as they may be delayed, it is
            # forgotten.
            self.lag = max(0, self.lag - earned)
            # Owed at most what this kernel needs and a bit: a program that slept does not come back with a flood.
            self.debt = min(self.debt + passed * floor_ppm // MILLION, min(fill, LONGEST_NS) + SURPLUS_NS)
        self.accrued = now

    def lag_in(self, epoch: int, now: int, filled: int, following: int, slack: int) -> int:
        """Return the lag that counts now.

        Of what the last request above absorbed there remains, when the next one begins, the part still in flight; of
        any lag that part which the idle time since then has not made up.
        """
        if self.epoch != epoch:
            self.lag = min(self.lag, max(0, filled - max(now, following)))
            self.lag_slack, self.epoch = slack, epoch
        return max(0, self.lag - max(0, self.lag_slack - slack))

    def pay(self, look: Look, verdict: Verdict) -> None:
        """Count a kernel that goes."""
        self.served = look.now_ns
        if not look.above:
            return
        self.debt = max(-SURPLUS_NS, self.debt - look.fill_ns)
        if verdict.reason == Reason.CREDIT:
            self.credit -= verdict.harm_ns
        if lags(look, verdict):
            owed = verdict.reason == Reason.FLOOR  # is not held up by what came before, and does not add up
            self.lag = max(look.lag_ns, verdict.harm_ns) if owed else look.lag_ns + verdict.harm_ns
            self.lag_slack = look.slack_ns


def comes_first(waiters: Sequence[Waiter], now: int, latency: int, filled: int, following: int, busy: int) -> int:
    """Return 1 if the first of those who wait comes first, of those that fit into the gap; of all, where none does."""
    chosen = choose(waiters, max(following + latency, busy) - max(now + latency, filled))
    return int((choose(waiters, ANY_NS) if chosen < 0 else chosen) == 0)
