"""Tiresias' discretised 2D-LAS (Gu et al., NSDI 2019): queues by attained GPU time, nearly first in first out in each.

The rules are those of the authors' code ("dlas-gpu"). A job begins in the first queue and is demoted to the tail of the
next one, behind those that wait there, the moment it has held a threshold of GPU time. Jobs are taken queue by queue;
one that does not fit is skipped. Within a queue running jobs stand before waiting ones, in the order of their starts,
so equals never preempt each other; only a job that was just demoted may lose its GPUs to those that wait in its new
queue. Of those that wait, jobs that have run in this queue come first, the latest stopped before the others; then the
rest in the order in which they came into it. ``promote`` is the PROMOTEKNOB: a job whose waits, since it first ran or
was last promoted, add up to so many times what it has run begins again at the tail of the first queue.

Departures: a threshold is crossed when it is reached, where the authors' code notices it late; a job that has waited
long enough already when it is stopped is promoted a second later, theirs at the next event; no placement by model
profile (placement is a part of its own); no Gittins index.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from math import ceil
from typing import NamedTuple

from headway.errors import ExperimentError
from headway.jobs.policies.parts import RESTART, Order
from headway.jobs.policies.preemption.failed_searches import FailedSearches
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.queue import Key, own_key
from headway.jobs.state.state import TrainingState
from headway.units import SECOND, WHOLE_GPU_MILLI, Duration

THRESHOLDS = (Duration(3250 * SECOND), Duration(7200 * SECOND))
"""As in the authors' code."""


class _Wait(NamedTuple):
    """A wait of a job that has run before."""

    since: int
    attained: int
    """GPU time that it had held when it began."""
    before: int
    """How long the job had waited before it, since it first ran or was promoted."""
    promoted_at: int
    """The time at which it is promoted; 0 for never."""


class Tiresias(Order):
    """Orders jobs by queues of attained GPU time, with preemption between queues."""

    name = "tiresias"
    preempts = True
    backfill = "fit"
    starves = True
    moves = True
    watches_ends = True

    def __init__(self, thresholds: tuple[Duration, ...] = THRESHOLDS, promote: float = 0.0) -> None:
        if not thresholds or any(low >= high for low, high in zip((0, *thresholds), thresholds, strict=False)):
            raise ExperimentError(f"tiresias(thresholds=...): {thresholds} must be above 0 and grow")
        if not promote >= 0:
            raise ExperimentError(f"tiresias(promote=...): {promote} must not be negative")
        self.thresholds = thresholds
        self.promote = promote
        self._bounds = [threshold * WHOLE_GPU_MILLI for threshold in thresholds]
        self._uncounted: dict[int, int] = {}
        """GPU time that no longer counts, of jobs that were promoted."""
        self._promoted: dict[int, tuple[int, Key]] = {}
        """The time of the last promotion of jobs, and the key that they had waited with."""
        self._waits: dict[int, _Wait] = {}
        self._promotions: list[tuple[int, int]] = []
        """(time, job) of the promotions of waiting jobs, unless they start before."""
        self._started: dict[int, int] = {}
        """The time at which each job last started."""
        self._failed_searches = FailedSearches()
        self._demotions: list[tuple[int, int, int]] = []
        """(time, job, lease): when running jobs reach their next threshold, unless they stop before."""
        self._seen = 0
        """The last lease whose demotion is scheduled."""
        self._demoted: tuple[int, set[int]] = (-1, set())
        """An instant, and the jobs that were demoted since the last instant at which this was updated."""

    # --- waiting jobs -----------------------------------------------------------------------------------------

    def key(self, now: int, js: JobState) -> Key:
        """Return (queue, 0, minus when it was stopped, place) if it has run in it, else (queue, 1, when it came, …)."""
        if self.promote and js.attained and js.width:
            self._wait(now, js)
        counted = self._counted(js)
        queue = bisect_right(self._bounds, counted)
        entered = self._bounds[queue - 1] if queue else 0
        if counted - entered >= max(1, js.width):  # it held GPUs for a nanosecond there
            return queue, 0, -js.since, self._place(js, queue)
        if not queue and js.id in self._promoted:
            return queue, 1, *self._promoted[js.id]
        place = self._place(js, queue) if queue else (js.id,)
        return queue, 1, js.since, (len(self._bounds) + 1, *place)

    def rekeys(self) -> bool:
        """Return whether jobs are promoted, which changes the keys of waiting jobs."""
        return self.promote > 0

    def key_due(self, now: int, since: int) -> bool:
        """Return whether the promotion of a waiting job has come, so that keys have to be computed anew."""
        due = False
        while self._promotions and self._promotions[0][0] <= now:
            time, job = heappop(self._promotions)
            due = due or self._waits_until(job, time)
        return due

    def ended(self, now: int, js: JobState) -> None:
        """Forget a job that has ended."""
        for memory in (self._uncounted, self._promoted, self._waits, self._started):
            memory.pop(js.id, None)

    def _counted(self, js: JobState) -> int:
        """Return the GPU time held up to ``since`` and after the last promotion."""
        return js.attained - self._uncounted.get(js.id, 0) if self._uncounted else js.attained

    def _wait(self, now: int, js: JobState) -> None:
        """Record a new wait, or promote the job at the end of one."""
        wait = self._waits.get(js.id)
        if wait is None or wait.since != js.since:
            waited = 0
            if wait is not None:
                started = js.since - (js.attained - wait.attained) // js.width
                waited = wait.before + started - wait.since
            counted = self._counted(js)
            promoted_at = 0
            if counted >= self._bounds[0]:
                promoted_at = js.since - waited + ceil(self.promote * counted / js.width)
                promoted_at = promoted_at if promoted_at > js.since else js.since + RESTART
                heappush(self._promotions, (promoted_at, js.id))
            self._waits[js.id] = wait = _Wait(js.since, js.attained, waited, promoted_at)
        if wait.promoted_at and now >= wait.promoted_at:
            self._uncounted[js.id] = js.attained
            self._promoted[js.id] = now, own_key(js.key)
            self._waits[js.id] = wait._replace(before=js.since - now, promoted_at=0)

    def _waits_until(self, job: int, time: int) -> bool:
        wait = self._waits.get(job)
        return wait is not None and wait.promoted_at == time

    # --- running jobs -----------------------------------------------------------------------------------------

    def rank(self, now: int, js: JobState) -> tuple[int, Key]:
        """Return rate and offset of the GPU time that counts: it grows with the job's width."""
        self._started[js.id] = js.since
        return js.width, self._counted(js) - js.width * js.since

    def victims(self, now: int, state: TrainingState, js: JobState) -> Iterable[JobState]:
        """Yield jobs of later queues, the last queue and in it the last job first; then those that were just
        demoted to the queue of the waiting job."""
        bounds, mine = self._bounds, own_key(js.key)[0]
        self._update_demotions(now, state)
        most = state.ranked.largest(now)
        later = most is not None and mine < len(bounds) and most >= bounds[mine]
        if not (later or (mine and self._demoted[1])) or self._failed_searches.would_fail(now, state, js):
            return
        queue: list[int] = []
        below = len(bounds) - 1
        for counted, job in state.ranked.descending(now):
            while below >= mine and counted < bounds[below]:
                yield from self._last_first(state, queue, below + 1)
                below -= 1
            if below < mine:
                break
            queue.append(job)
        yield from self._last_first(state, queue, below + 1)
        if mine:
            demoted = (state.running.get(job) for job in self._demoted[1])
            here = [s.id for s in demoted if s is not None and self._queue(now, s) == mine]
            yield from self._last_first(state, here, mine)
        self._failed_searches.record(js, self.next_turn(now, state) or now)

    def _queue(self, now: int, js: JobState) -> int:
        rate, offset = js.rank
        return bisect_right(self._bounds, offset + rate * now)

    def _last_first(self, state: TrainingState, queue: list[int], number: int) -> Iterator[JobState]:
        """Yield the running jobs of one queue, those that came into it or started in it last first."""
        yield from sorted((state.running[job] for job in queue), key=lambda js: self._place(js, number), reverse=True)
        queue.clear()

    def _place(self, js: JobState, queue: int) -> tuple[int, ...]:
        """Return the sort key of a job among the running ones of a queue: when it started in it or was demoted to it.

        At equal times a job that started comes first. Jobs demoted together keep the order of the queue before.
        """
        rate, offset = js.rank
        started = self._started.get(js.id, 0)
        place: list[int] = []
        for bound in reversed(self._bounds[:queue] if rate else ()):
            demoted_at = -((offset - bound) // rate)
            if demoted_at <= started:
                break
            place += (demoted_at, 1)
        return *place, started, 0, js.turn

    # --- changes with time ------------------------------------------------------------------------------------

    def next_turn(self, now: int, state: TrainingState) -> int:
        """Return when the next running job is demoted or a waiting one promoted; 0 if none waits."""
        first = state.queue.head()
        if first is None:
            return 0
        self._update_demotions(now, state)
        while self._promotions and not self._waits_until(self._promotions[0][1], self._promotions[0][0]):
            heappop(self._promotions)
        times = [heap[0][0] for heap in (self._demotions, self._promotions) if heap]
        if self.quantum:
            times.append(now + self.quantum)
        return min(times, default=0)

    def _update_demotions(self, now: int, state: TrainingState) -> None:
        """Schedule the demotions of jobs that started since the last call, and record those that have happened."""
        if self._demoted[0] != now:
            self._demoted = now, set()
        for js in reversed(state.running.values()):
            if js.lease <= self._seen:
                break
            self._schedule_demotion(now, js)
        self._seen = state.lease
        demotions = self._demotions
        while demotions:
            time, job, lease = demotions[0]
            js_or_none = state.running.get(job)
            runs = js_or_none is not None and js_or_none.lease == lease
            if runs and time > now:
                return
            heappop(demotions)
            if runs and js_or_none is not None:
                self._demoted[1].add(job)
                self._schedule_demotion(now, js_or_none)

    def _schedule_demotion(self, now: int, js: JobState) -> None:
        if js.job.preemptible and js.width:
            rate, offset = js.rank
            queue = bisect_right(self._bounds, offset + rate * now)
            if queue < len(self._bounds):
                heappush(self._demotions, (-(-(self._bounds[queue] - offset) // rate), js.id, js.lease))
