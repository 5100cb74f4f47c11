"""Track how much is used in each domain of a topology after each change: the input of all fragmentation measures.

A measure over domains is a sum of a function of what is free and used in each. A change touches one domain, so the sum
changes by that domain's value after minus before: with the changes of each domain in order of time, one
cumulative sum gives the whole series.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headway.jobs.metrics.ledger import Ledger, gpu_bits
from headway.statistics.series import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Domains after each of their changes: sorted by domain, then by time."""

    domain: IntArray
    tick: IntArray
    first: npt.NDArray[np.bool_]
    """Whether this is its domain's first change."""
    used: IntArray
    """Thousandths of a GPU (or GPUs) in use after it."""
    other: IntArray
    """What else was added up: -1 while the node is not up, or the change of what is free."""

    @property
    def up(self) -> IntArray:
        """Return 1 where the node takes jobs after the change, else 0."""
        return 1 + self.other

    def changes(
        self, after: IntArray | FloatArray, initial: IntArray | FloatArray | None = None
    ) -> IntArray | FloatArray:
        """Return by how much a value changes, given it after each change and at the beginning; else from 0."""
        before = np.roll(after, 1)
        before[self.first] = 0 if initial is None else initial[self.first]
        return after - before


class Domains:
    """Changes of use on a common scale of ticks: the distinct times at which anything changes, and 0."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.gpus = np.array([node.gpus for node in ledger.cluster.nodes], dtype=np.int64)
        times, self.change_node, self.change_up = ledger.node_changes
        closed = ledger.hold_closed
        stamps = np.concatenate((np.zeros(1, np.int64), ledger.hold_start, ledger.hold_end[closed], times))
        self.times, ticks = np.unique(stamps, return_inverse=True)
        starts, stops = len(ledger.hold_start), int(closed.sum())
        self.start_tick = ticks[1 : 1 + starts].astype(np.int64)
        self.stop_tick = np.zeros(starts, dtype=np.int64)
        self.stop_tick[closed] = ticks[1 + starts : 1 + starts + stops]
        self.change_tick = ticks[1 + starts + stops :].astype(np.int64)

    def cells(
        self, place: npt.NDArray[np.intp], domain: IntArray, used: IntArray, first: IntArray, count: IntArray
    ) -> Cells:
        """Return use (from the start of each place's hold to its end) and availability, domain by domain.

        ``first`` and ``count`` say which domains each node has.
        """
        domains, ticks, amounts = self.taken(place, domain, used)
        many = count[self.change_node]
        spread = np.repeat(np.arange(len(many)), many)
        nth = np.arange(len(spread)) - np.repeat(np.cumsum(many) - many, many)
        return self.run(
            np.concatenate((domains, first[self.change_node[spread]] + nth)),
            np.concatenate((ticks, self.change_tick[spread])),
            np.concatenate((amounts, np.zeros(len(spread), dtype=np.int64))),
            np.concatenate((np.zeros(len(domains), dtype=np.int64), self.change_up[spread])),
        )

    def taken(
        self, place: npt.NDArray[np.intp], domain: IntArray, used: IntArray
    ) -> tuple[IntArray, IntArray, IntArray]:
        """Return (domain, tick, amount) of what these places take and release."""
        hold = self.ledger.place_hold[place]
        closed = self.ledger.hold_closed[hold]
        return (
            np.concatenate((domain, domain[closed])),
            np.concatenate((self.start_tick[hold], self.stop_tick[hold[closed]])),
            np.concatenate((used, -used[closed])),
        )

    def run(self, domain: IntArray, tick: IntArray, used: IntArray, other: IntArray) -> Cells:
        """Add up changes: those of one domain and tick together, then over time."""
        key = domain * len(self.times) + tick
        order = np.argsort(key)
        key = key[order]
        begins = np.flatnonzero(np.append(True, key[1:] != key[:-1])[: len(key)])
        ends = np.append(begins[1:], len(order))[: len(begins)] - 1
        key = key[begins]
        domain, tick = key // len(self.times), key % len(self.times)
        first = np.append(True, domain[1:] != domain[:-1])[: len(key)]
        starts = np.flatnonzero(first)
        lengths = np.diff(np.append(starts, len(key)))

        def over_time(changes: IntArray) -> IntArray:
            after = np.cumsum(changes[order])[ends]
            base = np.append(0, after[:-1])[starts]
            running: IntArray = after - np.repeat(base, lengths)
            return running

        return Cells(domain, tick, first, over_time(used), over_time(other))

    def shared(self) -> Cells:
        """Return the use of devices that jobs with a share ran on. All other devices are free or wholly used."""
        ledger = self.ledger
        first = np.cumsum(self.gpus) - self.gpus
        place, gpu = gpu_bits(ledger, np.flatnonzero(ledger.place_shared))
        domain = first[ledger.place_node[place]] + gpu
        count = self.gpus if len(place) else np.zeros_like(self.gpus)
        return self.cells(place, domain, ledger.place_width[place], first, count)

    def accumulate(self, tick: IntArray, changes: IntArray | FloatArray) -> FloatArray:
        """Add up changes as a running sum over all ticks. Exact for integers: sums stay far below 2**53."""
        return np.cumsum(np.bincount(tick, weights=changes, minlength=len(self.times)))
