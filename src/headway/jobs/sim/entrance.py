"""Keep simulated jobs back that are not eligible when they are submitted (``jobs.rules.eligibility.engine`` says when
they are).

It stands between the executor and the loop: arrivals of jobs that are not eligible are kept back, and come at the
instant at which they are. What a start makes eligible comes a nanosecond later, what an end does in the same instant.
"""

from collections.abc import Iterable, Sequence
from heapq import heappush
from operator import attrgetter
from typing import Any

from headway.jobs.model.events import Event, JobArrived, JobCancelled, JobFailed, JobFinished, JobWithdrawn
from headway.jobs.model.job import Job, Outcome
from headway.jobs.rules.eligibility.engine import ELIGIBLE, NEVER, WAITING, Gate
from headway.jobs.state.state import TrainingState

_ARRIVED = JobArrived.rank
_rank = attrgetter("rank")


class Entrance:
    """The gate of a simulated cluster, and the times at which it is to be looked at again."""

    def __init__(self, gate: Gate, heap: list[Any]) -> None:
        """``heap`` is that of the executor: what will happen."""
        self._gate = gate
        self._heap = heap
        self._now = -1

    @property
    def held(self) -> dict[int, Job]:
        """Return the jobs that were submitted and are not eligible yet."""
        return self._gate.held

    @property
    def shut_out(self) -> int:
        """Return how many of them wait for no time: if nothing else happens, for ever."""
        return len(self._gate.held) - len(self._gate.until)

    def sift(self, now: int, events: Sequence[Event], state: TrainingState) -> list[Event]:
        """Return the events of an instant with the arrivals of jobs that are eligible, and no others."""
        self._now = now
        gate, kept = self._gate, list[Event]()
        entering: dict[int, Job] = {}
        for event in events:
            if isinstance(event, JobArrived):
                entering[event.job.id] = event.job
                continue
            kept.append(event)
            if (outcome := _end(event, state)) is not None:
                assert isinstance(event, JobFinished | JobFailed | JobCancelled | JobWithdrawn)
                if isinstance(event, JobWithdrawn):
                    gate.forget(event.job)
                    entering.pop(event.job, None)
                entering.update((job, gate.held[job]) for job in gate.ended(now, event.job, outcome))
        arrived: list[Event] = []
        while entering:
            job = entering.pop(min(entering))
            verdict = gate.enter(now, job)
            if verdict == ELIGIBLE:
                arrived.append(JobArrived(job))
            elif verdict == NEVER:
                kept.append(JobWithdrawn(job.id))
                entering.update((each, gate.held[each]) for each in gate.ended(now, job.id, Outcome.CANCELLED))
            elif verdict != WAITING:
                heappush(self._heap, (verdict, _ARRIVED, job.id, -1, None))
        arrived.sort(key=_number)
        return sorted([*kept, *arrived], key=_rank)

    def look_again(self, now: int, job: int, events: list[Event]) -> None:
        """Let a job try to arrive whose time has come, unless it was told another one since."""
        if self._gate.until.get(job) == now:
            events.append(JobArrived(self._gate.held[job]))

    def on_start(self, now: int, job: int) -> None:
        """Look at those that wait for a start at the next instant."""
        self._look_at(now + 1, self._gate.started(now, job))

    def on_kill(self, now: int, job: int) -> None:
        """Look at those that wait for a job that was ended for another one at the next instant."""
        self._look_at(now + 1, self._gate.ended(now, job, Outcome.CANCELLED))

    def leave_out(self, now: int, jobs: Iterable[int]) -> None:
        """Take jobs away for good: who waits for them waits no longer."""
        self._look_at(now + 1, self._gate.leave_out(now, jobs))

    def _look_at(self, time: int, jobs: Iterable[int]) -> None:
        for job in jobs:
            self._gate.until[job] = time
            heappush(self._heap, (time, _ARRIVED, job, -1, None))

    def close(self, state: TrainingState) -> tuple[int, list[Event]] | None:
        """Withdraw the first that is still kept when nothing will happen any more; None where nobody is.

        Somebody may have waited for its end, so the others are kept until it is seen what that changes.
        """
        if not self._gate.held:
            return None
        now = self._now + 1
        return now, self.sift(now, [JobWithdrawn(min(self._gate.held))], state)


def _number(event: Event) -> int:
    assert isinstance(event, JobArrived)
    return event.job.id


def _end(event: Event, state: TrainingState) -> Outcome | None:
    """Return how a job leaves for good with an event; None where none does. The state has not seen the event yet."""
    if isinstance(event, JobFinished):
        return Outcome.FINISHES
    if isinstance(event, JobFailed):
        js = state.running[event.job]
        return Outcome.FAILS if js.attempt >= js.job.retries else None
    return Outcome.CANCELLED if isinstance(event, JobCancelled | JobWithdrawn) else None
