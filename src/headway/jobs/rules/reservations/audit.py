"""Plain accounting of advance reservations for the audit: no job starts where and when others have reserved.

It shares no code with ``engine.py``, which only looks at what changes.
"""

from collections.abc import Iterator

from headway.jobs.model.accounting import Life
from headway.jobs.model.cluster import Cluster
from headway.jobs.model.resources import Placement
from headway.jobs.rules.reservations.reservation import AdvanceReservation


class ReservationBooks:
    """All reservations of a cluster, and until when each job was announced to run when it started last."""

    def __init__(self, cluster: Cluster) -> None:
        self._reservations = cluster.reservations
        self._announced: dict[int, int] = {}

    def start(self, now: int, life: Life, owed: int, placement: Placement, *, moved: bool) -> Iterator[str]:
        """Enter a start or a move; yield each reservation that it breaks into, or that it should be in and is not."""
        if not moved:
            self._announced[life.job.id] = now + owed + _left(life)
        until = self._announced[life.job.id]
        own = [each for each in self._reservations if each.name == life.job.reservation and each.end > now]
        if own and not moved and not any(each.flex for each in own):
            yield from self._outside(now, own, placement)
        free = any(each.overlaps and each.start <= now for each in own)
        for each in self._reservations:
            if each in own or free or each.end <= now or each.start >= until:
                continue
            for node, _ in placement:
                if node in each.nodes:
                    yield f"node {node} is reserved by {each.name} from {each.start} ns, it would run until {until} ns"

    @staticmethod
    def _outside(now: int, own: list[AdvanceReservation], placement: Placement) -> Iterator[str]:
        for node, _ in placement:
            if not any(each.start <= now and node in each.nodes for each in own):
                yield f"node {node} is not in its reservation {own[0].name} now"


def _left(life: Life) -> int:
    """Return how long a job is believed to take at reference speed from here on, with the checkpoints it writes."""
    left = max(1, (life.job.estimate or life.job.work) - life.done)
    writes = (life.done + left - 1) // life.every - life.done // life.every if life.every else 0
    return left + writes * life.job.checkpoint
