"""Tiresias' own loop ("dlas-gpu" of the authors' simulator), written down once more: a slow reference for ``tiresias``.

One pool of GPUs, times in seconds as fractions. ``as_coded`` notices crossings when the authors' code does: it
computes the next one as (limit - executed seconds) / GPUs, in whole seconds, so in GPU time it comes late.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

Time = Fraction | int
Asked = tuple[int, int, int]
"""Arrival, GPUs, duration."""


@dataclass
class _Job:
    number: int
    gpus: int
    left: Time
    executed: Time = 0
    waited: Time = 0
    due: Time = 0
    """When it is promoted if it waits on; a second after its stop if it has waited long enough already."""
    queue: int = 0
    runs: bool = False
    ever_ran: bool = False
    spans: list[tuple[Time, Time]] = field(default_factory=list)


class Loop:
    """The simulator's event loop."""

    def __init__(self, gpus: int, limits: Sequence[int], knob: int, *, as_coded: bool) -> None:
        self.gpus, self.limits, self.knob, self.as_coded = gpus, limits, knob, as_coded
        self.queues: list[list[_Job]] = [[] for _ in (*limits, 0)]
        self.now: Time = 0

    def run(self, asked: Sequence[Asked]) -> list[list[tuple[Time, Time]]]:
        """When each job runs."""
        jobs = [_Job(number, gpus, duration) for number, (_, gpus, duration) in enumerate(asked)]
        coming = [(arrival, job) for (arrival, *_), job in zip(asked, jobs, strict=True)]
        while coming or any(self.queues):
            self.now = min([arrival for arrival, _ in coming[:1]] + [self._next(job) for q in self.queues for job in q])
            self._settle()
            while coming and coming[0][0] == self.now:
                self.queues[0].append(coming.pop(0)[1])
            self._select()
            self._last = self.now
        return [job.spans for job in jobs]

    _last: Time = 0

    def _next(self, job: _Job) -> Time:
        """When a job next ends, crosses a limit or is promoted; for ever away if never."""
        last = self._last
        times: list[Time] = [10**9]
        if job.runs:
            times.append(last + job.left)
            if job.queue < len(self.limits):
                limit = self.limits[job.queue]
                away: Time = Fraction(limit, job.gpus) - job.executed
                if self.as_coded:
                    away = max(1, (limit - job.executed) // job.gpus)
                times.append(last + away)
        elif self.knob and job.queue and job.ever_ran:
            times.append(max(last, job.due))
        return min(times)

    def _settle(self) -> None:
        """What the time since the last event has done to everybody."""
        passed = self.now - self._last
        for job in [job for queue in self.queues for job in queue]:
            queue = self.queues[job.queue]
            if job.runs:
                job.executed += passed
                job.left -= passed
                job.spans[-1] = (job.spans[-1][0], self.now)
                if not job.left:
                    queue.remove(job)
                elif job.queue < len(self.limits) and job.executed * job.gpus >= self.limits[job.queue]:
                    queue.remove(job)
                    job.queue += 1
                    self.queues[job.queue].append(job)
            elif job.ever_ran:
                job.waited += passed
                if self.knob and job.queue and self.now >= job.due:
                    queue.remove(job)
                    job.executed = job.waited = job.queue = 0
                    self.queues[0].append(job)

    def _select(self) -> None:
        """Take jobs queue by queue, skip what does not fit, and put those that run before those that wait."""
        free = self.gpus
        for queue in self.queues:
            for job in queue:
                chosen = job.gpus <= free
                free -= job.gpus * chosen
                if chosen and not job.runs:
                    job.spans.append((self.now, self.now))
                if job.runs and not chosen:
                    away = self.knob * job.executed - job.waited
                    job.due = self.now + (away if away > 0 else 1)
                job.runs = chosen
                job.ever_ran = job.ever_ran or chosen
            queue.sort(key=lambda job: not job.runs)
