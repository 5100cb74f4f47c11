"""Tiresias' discretised 2D-LAS (Gu et al., NSDI 2019): queues by attained GPU time, first in first out in each.

A job begins in the first queue and falls into the next one the moment it has held a threshold of GPU time; only jobs
of a later queue are preempted for one of an earlier queue, the last queue's latest submission first. So long jobs do
not keep swapping as they do under plain LAS. ``promote`` is the paper's PROMOTEKNOB: a job that has waited so many
times what it had run begins again in the first queue.

Departures: within a queue jobs go by submission, not by first start, so that jobs of one queue never wait behind
later ones; no profile-based placement (placement is a part of its own); and no Gittins index variant.
"""

from bisect import bisect_right
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import ClassVar

from headway.errors import ExperimentError
from headway.training.jobstate import JobState
from headway.training.policies.orders.fruitless import Fruitless
from headway.training.policies.parts import Order
from headway.training.queue import Key
from headway.training.state import TrainingState
from headway.units import HOUR, MINUTE, WHOLE_GPU_MILLI, Duration

THRESHOLDS = (Duration(10 * HOUR),)
PROMOTE_EVERY = 10 * MINUTE


class Tiresias(Order):
    """By queues of attained GPU time, with preemption between queues."""

    name: ClassVar[str] = "tiresias"
    preempts: ClassVar[bool] = True
    starves: ClassVar[bool] = True
    moves: ClassVar[bool] = True
    watches_ends: ClassVar[bool] = True

    def __init__(self, thresholds: tuple[Duration, ...] = THRESHOLDS, promote: float = 0.0) -> None:
        if not thresholds or any(low >= high for low, high in zip((0, *thresholds), thresholds, strict=False)):
            raise ExperimentError(f"tiresias(thresholds=...): {thresholds} must be above 0 and grow")
        if not promote >= 0:
            raise ExperimentError(f"tiresias(promote=...): {promote} must not be negative")
        self.thresholds = thresholds
        self.promote = promote
        self.refresh = PROMOTE_EVERY if promote else 0
        self._bounds = [threshold * WHOLE_GPU_MILLI for threshold in thresholds]
        self._forgiven: dict[int, int] = {}
        """GPU time that no longer counts, of jobs that were promoted."""
        self._fruitless = Fruitless()
        self._falls: list[tuple[int, int, int]] = []
        """(time, job, lease): when running jobs reach their next threshold, unless they stop before."""
        self._seen = 0
        """The last lease whose fall is known."""

    def key(self, now: int, js: JobState) -> Key:
        """The queue; ids tell the jobs of one queue apart, in order of their submission."""
        counted = self._counted(js)
        if self.promote and counted and (now - js.since) * js.width >= self.promote * counted:
            self._forgiven[js.id] = js.attained
            return 0
        return bisect_right(self._bounds, counted)

    def rank(self, now: int, js: JobState) -> tuple[int, Key]:
        """GPU time that counts grows with the job's width."""
        return js.width, self._counted(js) - js.width * js.since

    def ended(self, now: int, js: JobState) -> None:
        """Nothing has to be remembered of it."""
        self._forgiven.pop(js.id, None)

    def _counted(self, js: JobState) -> int:
        """GPU time held up to ``since`` and after the last promotion."""
        return js.attained - self._forgiven.get(js.id, 0) if self._forgiven else js.attained

    def victims(self, now: int, state: TrainingState, js: JobState) -> Iterable[JobState]:
        """Jobs of later queues: the last queue first, in a queue the latest submission first."""
        most = state.ranked.largest(now)
        if most is None or js.key >= len(self._bounds) or most < self._bounds[js.key]:
            return
        if self._fruitless.still(now, state, js):
            return
        queue: list[int] = []
        below = len(self._bounds) - 1
        for counted, job in state.ranked.descending(now):
            while below >= js.key and counted < self._bounds[below]:
                yield from self._latest(state, queue)
                below -= 1
            if below < js.key:
                break
            queue.append(job)
        yield from self._latest(state, queue)
        self._fruitless.note(js, self.next_turn(now, state) or now)

    def _latest(self, state: TrainingState, queue: list[int]) -> Iterable[JobState]:
        queue.sort(reverse=True)
        for job in queue:
            yield state.running[job]
        queue.clear()

    def next_turn(self, now: int, state: TrainingState) -> int:
        """When the next running job falls into a later queue, if one that waits could use that."""
        first = state.queue.head()
        if first is None or first[0] >= len(self._bounds):
            return 0
        for js in reversed(state.running.values()):
            if js.lease <= self._seen:
                break
            self._expect_fall(now, js)
        self._seen = state.lease
        falls = self._falls
        while falls:
            time, job, lease = falls[0]
            js_or_none = state.running.get(job)
            if js_or_none is not None and js_or_none.lease == lease:
                if time > now:
                    return min(time, now + self.quantum) if self.quantum else time
                heappop(falls)
                self._expect_fall(now, js_or_none)
            else:
                heappop(falls)
        return now + self.quantum if self.quantum else 0

    def _expect_fall(self, now: int, js: JobState) -> None:
        if js.job.preemptible and js.width:
            rate, offset = js.rank
            queue = bisect_right(self._bounds, offset + rate * now)
            if queue < len(self._bounds):
                heappush(self._falls, (-(-(self._bounds[queue] - offset) // rate), js.id, js.lease))
