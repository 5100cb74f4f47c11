"""Times at which nodes are out of service, as a site's log or an experiment tells them."""

from collections.abc import Sequence
from dataclasses import dataclass

from headway.errors import ExperimentError


@dataclass(frozen=True, slots=True)
class Outage:
    """Nodes that are down or drained from ``start`` to ``end``."""

    nodes: tuple[int, ...]
    start: int
    end: int
    down: bool = True
    """Jobs that run there are stopped and queued again; else they run to their end, and no new one starts."""
    reason: str = ""


def check_outages(outages: Sequence[Outage], nodes: Sequence[str]) -> None:
    """Refuse outages of no time, or of nodes that do not exist."""
    for each in outages:
        if not each.nodes or any(not 0 <= node < len(nodes) for node in each.nodes):
            raise ExperimentError(f"outages: one names {'a node that does not exist' if each.nodes else 'no node'}")
        if each.end <= each.start:
            raise ExperimentError(
                f"outages: node {nodes[each.nodes[0]]} is back at {each.end} ns, not after it goes, {each.start} ns"
            )
