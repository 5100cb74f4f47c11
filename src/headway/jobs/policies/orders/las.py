"""Least attained service: the job that has held the least GPU time comes first, and takes the place of one that has
held more.

Foreground-background scheduling (Kleinrock 1976; Nuyens and Wierman 2008), with service counted in GPUs times time as
in Tiresias (Gu et al., NSDI 2019, "2D-LAS"). It needs no estimates. Departure: undiscretised LAS shares a GPU between
equal jobs in infinitely small slices; here a started job keeps its GPUs for a quantum, and it is started in the place
of another only if it will not have overtaken that one when the quantum is over, so that no two jobs swap back and
forth. A job that does not fit is skipped, as in the code of Tiresias and Gavel (Blox' blocks); of jobs that have held
the same the first submitted comes first.
"""

from collections.abc import Iterable, Iterator

from headway.jobs.policies.parts import Order
from headway.jobs.policies.preemption.failed_searches import FailedSearches
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.queue import Key, own_key
from headway.jobs.state.state import TrainingState
from headway.units import MINUTE, Duration

QUANTUM = Duration(30 * MINUTE)


class Las(Order):
    """By attained GPU time, with preemption."""

    name = "las"
    preempts = True
    backfill = "fit"
    starves = True
    moves = True

    def __init__(self, quantum: Duration = QUANTUM) -> None:
        self.quantum = quantum
        self._failed_searches = FailedSearches()

    def key(self, now: int, js: JobState) -> Key:
        """GPU time held so far."""
        return js.attained

    def rank(self, now: int, js: JobState) -> tuple[int, Key]:
        """It grows with the job's width."""
        return js.width, js.attained - js.width * js.since

    def next_turn(self, now: int, state: TrainingState) -> int:
        """A quantum from now: to look up each job's own quantum at every turn would cost more than it brings."""
        return now + self.quantum if self.quantum else 0

    def victims(self, now: int, state: TrainingState, js: JobState) -> Iterable[JobState]:
        """Jobs that had their quantum and will have held more even when this one has had its own."""
        enough = own_key(js.key) + self.quantum * js.width
        if self._failed_searches.would_fail(now, state, js):
            return ()
        most = state.ranked.largest(now)
        if most is None or most < enough:
            return ()
        return self._past_quantum(now, state, js, enough)

    def _past_quantum(self, now: int, state: TrainingState, js: JobState, enough: int) -> Iterator[JobState]:
        quantum = self.quantum
        again = now + quantum
        for held, job in state.ranked.above(now, enough):
            if (held, job) <= (enough, js.id):
                break
            victim = state.running[job]
            if victim.since + quantum <= now:
                yield victim
            else:
                again = min(again, victim.since + quantum)
        self._failed_searches.record(js, again)
