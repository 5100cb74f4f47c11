"""Advance reservations: nodes that are kept for some jobs from one time to another.

A job that names a reservation runs on its nodes, and while it lasts. Every other job keeps out: it may not start on a
reserved node before the reservation unless it is announced to end by its beginning. What runs there already runs on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from headway.errors import ExperimentError
from headway.jobs.model.job import Job


@dataclass(frozen=True, slots=True)
class AdvanceReservation:
    """Nodes that are kept from ``start`` to ``end``; one that is repeated is several of the same name."""

    name: str
    start: int
    end: int
    nodes: tuple[int, ...]
    users: tuple[str, ...] = ()
    """Who may name it; with ``tenants`` empty too: everybody."""
    tenants: tuple[str, ...] = ()
    """The accounts that may, with all below them."""
    flex: bool = False
    """Whether its jobs may also run before and after it, and on other nodes."""
    overlaps: bool = False
    """Whether it may lie over others: its jobs then run in spite of them."""

    def admits(self, job: Job, accounts: Sequence[str]) -> bool:
        """Return whether a job may name it; ``accounts`` are the job's and those above."""
        return not (self.users or self.tenants) or job.user in self.users or not set(accounts).isdisjoint(self.tenants)


def check_reservations(reservations: Sequence[AdvanceReservation], nodes: Sequence[str]) -> None:
    """Refuse reservations of no time or of nodes that do not exist, and such as lie over each other unmeant."""
    for each in reservations:
        if not each.name:
            raise ExperimentError("a reservation needs a name")
        if each.end <= each.start:
            raise ExperimentError(
                f"reservation {each.name} ends at {each.end} ns, not after it starts, {each.start} ns"
            )
        if not each.nodes or any(not 0 <= node < len(nodes) for node in each.nodes):
            raise ExperimentError(
                f"reservation {each.name}: names {'a node that does not exist' if each.nodes else 'no node'}"
            )
    by_start = sorted(reservations, key=lambda each: each.start)
    for one, other in combinations(by_start, 2):
        if other.start >= one.end or one.overlaps or other.overlaps:
            continue
        if shared := set(one.nodes) & set(other.nodes):
            raise ExperimentError(
                f"reservations {one.name} and {other.name} overlap on node {nodes[min(shared)]}: give one of them "
                "overlap = true, or other times"
            )
