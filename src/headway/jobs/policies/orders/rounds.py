"""Orders whose keys move with time for every job, waiting or running: they are computed anew once a round.

Jobs are preempted at one instant a round only, the first at which one that waits does not fit: all running jobs are
put into order once, by the same key as the waiting ones, and those that come last and have run for a whole round are
open to preemption.
"""

from collections.abc import Iterable

from headway.jobs.policies.parts import Order
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.queue import own_key
from headway.jobs.state.state import TrainingState


class RoundOrder(Order):
    """Keys of one round; ``refresh`` is how long a round is."""

    key_moves_with_time = True
    moves = True
    one_instant = True

    def __init__(self) -> None:
        self._ranked: list[tuple[int, int]] = []
        """(key, job) of what ran at the instant of this round at which jobs may be preempted, in order."""
        self._round = -1
        self._instant = -1

    def key_due(self, now: int, since: int) -> bool:
        """Once a round."""
        return now - since >= self.refresh

    def next_turn(self, now: int, state: TrainingState) -> int:
        """Not before the next round, for which the policy is woken anyhow."""
        return 0

    def gives_way(self, waiting: tuple[int, int], running: tuple[int, int]) -> bool:
        """Return whether a running job makes room for a waiting one, both as (key, job); of equals the earlier one."""
        return running > waiting

    def victims(self, now: int, state: TrainingState, js: JobState) -> Iterable[JobState]:
        """Once a round: jobs that come after this one and have run for a round, last ones first."""
        if self._round != state.refreshed:
            self._round, self._instant = state.refreshed, now
            self._ranked = sorted((self.key(now, s), s.id) for s in state.running.values() if s.job.preemptible)
        elif now != self._instant:
            return
        latest_start = now - self.refresh
        for running in reversed(self._ranked):
            if not self.gives_way((own_key(js.key), js.id), running):
                return
            victim = state.running.get(running[1])
            if victim is not None and victim.since <= latest_start:
                yield victim
