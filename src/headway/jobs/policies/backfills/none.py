"""No backfill: strict. The first job of a partition that does not fit holds back all that come after it.

This is AnalySIM's strict queue: simple, free of starvation, and the reason why fragmentation is expensive.
"""

from collections.abc import Iterable

from headway.jobs.model.actions import Action
from headway.jobs.policies.backfills.walk import Blocked, walk
from headway.jobs.policies.parts import Admission, Backfill
from headway.jobs.state.state import TrainingState


class NoBackfill(Backfill):
    """The head of the queue blocks."""

    name = "none"
    strict = True

    def __init__(self) -> None:
        self._memory = Blocked()

    def decide(self, now: int, state: TrainingState, policy: Admission) -> Iterable[Action]:
        """In order, until one does not fit."""
        return walk(now, state, policy, self._memory, True)
