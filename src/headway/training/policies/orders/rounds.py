"""Orders whose keys move with time for every job, waiting or running: they are computed anew once a round.

Jobs are preempted at one instant a round only, the first at which one that waits does not fit: all running jobs are
put into order once, by the same key as the waiting ones, and those that come last and have run for a whole round are
open to preemption.
"""

from collections.abc import Iterable
from typing import ClassVar

from headway.training.jobstate import JobState
from headway.training.policies.parts import Order
from headway.training.state import TrainingState


class RoundOrder(Order):
    """Keys of one round; ``refresh`` is how long a round is."""

    moves: ClassVar[bool] = True
    one_instant: ClassVar[bool] = True

    def __init__(self) -> None:
        self._standing: list[tuple[int, int]] = []
        """(key, job) of what ran at the instant of this round at which jobs may be preempted, in order."""
        self._round = -1
        self._instant = -1

    def next_turn(self, now: int, state: TrainingState) -> int:
        """Not before the next round, for which the policy is woken anyhow."""
        return 0

    def gives_way(self, key: int, running_key: int) -> bool:
        """Whether a running job with the one key makes room for a waiting one with the other."""
        return running_key > key

    def victims(self, now: int, state: TrainingState, js: JobState) -> Iterable[JobState]:
        """Once a round: jobs that come after this one and have run for a round, last ones first."""
        if self._round != state.refreshed:
            self._round, self._instant = state.refreshed, now
            self._standing = sorted((self.key(now, s), s.id) for s in state.running.values() if s.job.preemptible)
        elif now != self._instant:
            return
        latest_start = now - self.refresh
        for key, job in reversed(self._standing):
            if not self.gives_way(js.key, key):
                return
            victim = state.running.get(job)
            if victim is not None and victim.since <= latest_start:
                yield victim
