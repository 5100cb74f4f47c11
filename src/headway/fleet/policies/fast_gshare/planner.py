"""Plan of FaST-GShare: which shares of a GPU a function needs for a rate of requests, as pure functions.

A ``Share`` is a configuration and a time quota. Its throughput is its batch over its time, its resource slices × quota.
The paper's functions all use a GPU. Here one may run on CPUs alone: its resource is a twentieth of a slice a CPU.
Numbers are fractions, so that ties are exact: the rules say ``>``, and not ``≥``.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from headway.fleet.model.catalogue import Configuration
from headway.units import SECOND

WHOLE = 100
"""The quota of a pod that may use its slices all the time, in percent."""
CPUS_A_SLICE = 20
"""CPUs that count as much as a slice, in a pod without slices; at list prices a slice costs as much."""


class Share(NamedTuple):
    """What a pod is given: a configuration, and the part of the time in which it may use its slices."""

    configuration: Configuration
    time: int
    """Of a batch, at this quota."""
    quota_percent: int = WHOLE

    @property
    def throughput(self) -> Fraction:
        """Return how many requests a second it serves with full batches."""
        return Fraction(self.configuration.batch * SECOND, self.time)

    @property
    def resource(self) -> Fraction:
        """Return slices × quota; without slices its CPUs, in slices."""
        _, cpus, slices = self.configuration
        return Fraction(slices * self.quota_percent, WHOLE) if slices else Fraction(cpus, CPUS_A_SLICE)

    @property
    def efficiency(self) -> Fraction:
        """Return requests a second for each unit of resource."""
        return self.throughput / self.resource


def shares_of(cells: Mapping[Configuration, int], quotas: Sequence[int] = (WHOLE,)) -> tuple[Share, ...]:
    """Return all shares of a profile. With a quota below 100 % a batch takes the longer, in proportion."""
    return tuple(Share(cell, -(-time * WHOLE // quota), quota) for cell, time in cells.items() for quota in quotas)


def with_cpus_by_slice(cells: Mapping[Configuration, int], cpus_per_slice: Fraction) -> dict[Configuration, int]:
    """Return for each batch and number of slices the cell with the CPUs that go with the slices, or the next fewer.

    Where all have more, that with the fewest.
    """
    chosen: dict[tuple[int, int], Configuration] = {}
    for cell in sorted(cells, key=lambda cell: cell.cpus):
        key = (cell.batch, cell.slices)
        if key not in chosen or cell.cpus <= cell.slices * cpus_per_slice:
            chosen[key] = cell
    return {cell: cells[cell] for cell in chosen.values()}


def in_time(shares: Iterable[Share], budget: int) -> list[Share]:
    """Return the shares whose batch ends within a budget; where none does, the fastest one."""
    known = list(shares)
    return [share for share in known if share.time <= budget] or [min(known, key=lambda s: (s.time, s.resource, s))]


def most_efficient(shares: Sequence[Share]) -> Share:
    """Return the share with the most requests for its resource; of equal ones the smallest."""
    return min(shares, key=lambda share: (-share.efficiency, share.resource, share))


def just_above(shares: Sequence[Share], rate: Fraction) -> Share | None:
    """Return the share whose throughput exceeds a rate by least; of equal ones the smallest. None: none exceeds it."""
    above = [share for share in shares if share.throughput > rate]
    return min(above, key=lambda share: (share.throughput, share.resource, share), default=None)


def scale_up(shares: Sequence[Share], missing: Fraction, *, residual: bool = True) -> list[tuple[Share, int]]:
    """Return the shares to add for a rate that is missing, and how many of each.

    As many of the most efficient share as are filled, then one for the rest: that just above it, or, not ``residual``,
    one more of the most efficient.
    """
    best = most_efficient(shares)
    count, rest = divmod(missing, best.throughput)
    planned = [(best, count)] if count else []
    if rest:
        last = just_above(shares, rest) if residual else best
        assert last is not None  # the most efficient one serves more than the rest
        planned.append((last, 1))
    return planned


def scale_down(held: Mapping[Share, int], surplus: Fraction, least: int = 0) -> dict[Share, int]:
    """Return the shares to remove for a surplus of throughput: least efficient first, ``least`` of all stay."""
    removable = sum(held.values()) - least
    removed: dict[Share, int] = {}
    for share in sorted(held, key=lambda share: (share.efficiency, share.resource, share)):
        count = min(held[share], int(surplus // share.throughput), removable)
        if count > 0:
            removed[share] = count
            removable -= count
            surplus -= count * share.throughput
    return removed
