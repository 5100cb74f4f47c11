"""Fit: skip what does not fit and start what does, in order.

AnalySIM's fit-first queue and what Synergy's code calls FIFO. Large jobs can starve under a steady stream of small
ones; ``easy`` and ``conservative`` are the published remedies.
"""

from collections.abc import Iterable

from headway.jobs.model.actions import Action
from headway.jobs.policies.backfills.walk import Blocked, walk
from headway.jobs.policies.parts import Admission, Backfill
from headway.jobs.state.state import TrainingState


class Fit(Backfill):
    """Whoever fits may start."""

    name = "fit"
    by_shape = True
    starves = True

    def __init__(self) -> None:
        self._memory = Blocked(any_head=True)
        self._by_head = Blocked()

    def decide(self, now: int, state: TrainingState, policy: Admission) -> Iterable[Action]:
        """In order, past everything that does not fit."""
        memory = self._by_head if policy.preempts else self._memory
        return walk(now, state, policy, memory, False)
