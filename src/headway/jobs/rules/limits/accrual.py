"""Let the age of only so many waiting jobs count, where a limit says so; the others take their turns, by number.

A job that waits and whose age counts keeps its place until it starts or leaves. It is Slurm's MaxJobsAccrue. Orders
that look at ages ask ``JobState.accrues``.
"""

from collections.abc import Iterable
from heapq import heappop, heappush

from headway.jobs.rules.limits.counters import NEVER, Ageing
from headway.jobs.state.jobstate import JobState, Status


class Ages:
    """Who of the waiting jobs has an age that counts."""

    def __init__(self) -> None:
        self._counted: set[int] = set()
        """Jobs that stand in counters."""

    def enter(self, now: int, js: JobState) -> None:
        """Enter a job that waits from now on: its age counts if there is room for it."""
        if js.id in self._counted or self._count(now, js):
            return
        js.accrues = NEVER
        for counter, binds in _of(js):
            if binds and js.id not in counter.waiting:
                counter.waiting[js.id] = js
                heappush(counter.line, js.id)

    def leave(self, now: int, js: JobState) -> None:
        """Enter that a job does not wait any more; another takes its place."""
        if js.id not in self._counted:
            for counter, _ in _of(js):
                counter.waiting.pop(js.id, None)
            return
        self._counted.discard(js.id)
        for counter, _ in _of(js):
            counter.held -= 1
        for counter, _ in _of(js):
            self.refill(now, counter)

    def refill(self, now: int, counter: Ageing) -> None:
        """Let ages count for which there is room under a limit now."""
        passed = []
        while counter.line and counter.held < counter.most:
            job = heappop(counter.line)
            js = counter.waiting.get(job)
            if js is not None and not self._count(now, js):
                passed.append(job)  # another limit keeps it
        for job in passed:
            heappush(counter.line, job)

    def take_over(self, now: int, jobs: Iterable[JobState]) -> None:
        """Enter waiting jobs of a run that goes on under other limits: whose age counted goes on, whatever is full."""
        for js in jobs:
            ages = js.limits.ages if js.limits is not None else ()
            if not ages:
                js.accrues = now if js.accrues == NEVER else js.accrues
            elif js.accrues < NEVER and js.status is not Status.RUNNING:
                self._counted.add(js.id)
                for counter, _ in ages:
                    counter.held += 1

    def _count(self, now: int, js: JobState) -> bool:
        """Let the age of a job count if there is room under all limits; return whether there is."""
        if any(binds and counter.held >= counter.most for counter, binds in _of(js)):
            return False
        for counter, _ in _of(js):
            counter.held += 1
            counter.waiting.pop(js.id, None)
        self._counted.add(js.id)
        if js.accrues == NEVER:
            js.accrues = now
        return True


def _of(js: JobState) -> tuple[tuple[Ageing, bool], ...]:
    assert js.limits is not None
    return js.limits.ages
