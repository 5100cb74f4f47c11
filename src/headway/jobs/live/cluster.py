"""Live executor of training jobs: turns actions into orders to an engine, and what became of programs into events.

The twin of ``jobs/sim/cluster.py``. An instant is whatever has happened since the last one. Actions are noted when they
are committed and carried out by ``carry_out``, once they are written down. A program that is to end holds its GPUs
until it is gone: a start that needs them waits here for that, and no job runs twice at once.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import heappop, heappush

from headway.errors import QueueError, SlurmError
from headway.jobs.live.engine import SAVED, Ended, Engine, Order
from headway.jobs.live.holdings import Holding, Holdings
from headway.jobs.live.remaining import Pace
from headway.jobs.model.actions import Action, MigrateJob, ReallocateJob, StartJob, Stop, WakeAt, WarnJob
from headway.jobs.model.events import (
    Event,
    JobArrived,
    JobCancelled,
    JobFailed,
    JobFinished,
    JobInterrupted,
    JobProgressed,
    NodeDrained,
    NodeRecovered,
    Woke,
)
from headway.jobs.model.job import Job
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.pool import members
from headway.jobs.state.speed_changes import Respeeded
from headway.jobs.state.state import TrainingState
from headway.units import SECOND

MOST_LATE = SECOND
"""A wake-up that comes later than this after its time happens when it comes."""


class LiveCluster:
    """The executor of a live run of training jobs, and its source of events."""

    def __init__(
        self,
        state: TrainingState,
        clock: Callable[[], int],
        engine: Engine,
        log: Callable[[str], None] = lambda line: None,
        *,
        last: int = -1,
    ) -> None:
        """``last``: the time of the last instant of the run that is taken up; instants to come are later."""
        self._state, self._clock, self._engine, self._log, self._last = state, clock, engine, log, last
        self._inbox: list[Event] = []
        self._missed: list[tuple[int, list[Event]]] = []
        """What happened while no queue was there, by its time, the last first."""
        self._wakes: list[int] = []
        self._wakes_at: set[int] = set()
        self._todo: list[Callable[[], None]] = []
        """What was decided and is not carried out yet."""
        self.holdings = Holdings(state.cluster)
        self._paces: dict[int, Pace] = {}
        """By lease: how fast its program says it gets on."""
        self.gone: list[tuple[Ended, Order]] = []
        """Leases whose ends are not written down yet."""
        self.ordered: list[Order] = []
        """Starts that are not written down yet."""
        self.actions: list[Action] = []
        """Decisions of this turn, for the log."""

    # --- what happens -----------------------------------------------------------------------------------------

    def arrive(self, job: Job) -> None:
        """Let a job arrive."""
        self._inbox.append(JobArrived(job))

    def arrives(self, job: int) -> bool:
        """Return whether a job was taken and the policy has not seen it yet."""
        return any(isinstance(event, JobArrived) and event.job.id == job for event in self._inbox)

    def cancel(self, job: int) -> bool:
        """End a job, whether it waits or runs; return whether there is one to end."""
        js = self._state.jobs.get(job)
        if js is None or any(isinstance(event, JobCancelled) and event.job == job for event in self._inbox):
            return False
        lease = js.lease if job in self._state.running else 0
        self._inbox.append(JobCancelled(job, lease))
        if lease:
            self._todo.append(lambda: self._leave(lease))
        return True

    def happen(self, event: Event) -> None:
        """Let something else happen."""
        self._inbox.append(event)

    def collect(self) -> None:
        """Turn what the engine says into events, and start what waited for somebody's end."""
        for _, events in self._ends():
            self._inbox += events
        self._launch()

    def _ends(self) -> Iterator[tuple[Ended, list[Event]]]:
        """Yield what the engine says has ended, with the events that this is."""
        for ended in self._engine.poll():
            if (holding := self.holdings.remove(ended.lease)) is None:
                continue
            self._paces.pop(ended.lease, None)
            self.gone.append((ended, holding.order))
            yield ended, self._events_of(holding, ended)

    def _events_of(self, holding: Holding, ended: Ended) -> list[Event]:
        job, lease = holding.order.job, ended.lease
        js = self._state.jobs.get(job)
        if js is None:
            return []
        current = js.lease if job in self._state.running else 0
        if ended.cancelled:
            return self._events_of_cancelled(js, current, lease)
        if current != lease:
            return self._events_of_stopped(js, current, ended)
        if ended.lost or (holding.asked and ended.status not in (0, SAVED)):
            return [JobInterrupted(job, lease)]
        if ended.status == SAVED:
            return [JobInterrupted(job, lease, saved=True)]
        return [JobFailed(job, lease) if ended.status else JobFinished(job, lease)]

    def _events_of_cancelled(self, js: JobState, current: int, lease: int) -> list[Event]:
        """Return what follows when a job was ended for good from outside; a lease that it got since ends too."""
        if current and current != lease:
            self.holdings.leave(current)
            self._engine.stop(current)
        return [JobCancelled(js.id, current)]

    def _events_of_stopped(self, js: JobState, current: int, ended: Ended) -> list[Event]:
        """Return what follows when a program is gone that was stopped; the job waits again, or has a new lease."""
        if not ended.lost and ended.status == 0:  # it had ended by itself
            if current:
                self.holdings.leave(current)
                self._engine.stop(current)
            return [JobFinished(js.id, current)]
        if ended.status == SAVED and not ended.lost:
            return []
        expected = js.done + (js.job.estimate or js.job.work)  # it saved nothing: all of it is to be done again
        return [JobProgressed(js.id, current, expected)] if js.job.open_end else []

    def measure(self) -> None:
        """Ask running programs how far they are; what is expected of them anew happens as events."""
        for lease, holding in self.holdings.running():
            js = self._state.running.get(holding.order.job)
            share = self._engine.progress(lease)
            if js is None or js.lease != lease or share is None:
                continue
            now = self._clock()
            if (pace := self._paces.get(lease)) is None:  # one that was started again does not begin with nothing
                pace = self._paces[lease] = Pace(now, share) if holding.order.again else Pace(js.since, 0.0)
            if (left := pace.left(now, share)) is not None:
                expected = max(1, js.done_at(now) + left)
                if pace.tells(now, expected, js.expected):
                    self._inbox.append(JobProgressed(js.id, lease, expected))

    def next(self) -> tuple[int, Sequence[Event]] | None:
        """Return what has happened since the last instant, in rank order; None: nothing.

        A wake-up that is a little late, as all are, is an instant of its own at the time that was asked for: policies
        with rounds decide at their ends and at no other time.
        """
        now = max(self._clock(), self._last + 1)
        if self._missed:
            time, missed = self._missed.pop()
            self._last = max(self._last + 1, min(time, now))
            return self._last, sorted(missed, key=_order)
        events, wakes = self._inbox, self._wakes
        if wakes and max(self._last, now - MOST_LATE) < wakes[0] < now:
            self._last = heappop(wakes)
            self._wakes_at.discard(self._last)
            return self._last, [Woke()]
        if wakes and wakes[0] <= now:
            while wakes and wakes[0] <= now:
                self._wakes_at.discard(heappop(wakes))
            events.append(Woke())
        if not events:
            return None
        self._inbox, self._last = [], now
        events.sort(key=_order)
        return now, events

    @property
    def untouched(self) -> bool:
        """Return whether nothing has happened yet."""
        return self._last < 0

    @property
    def has_news(self) -> bool:
        """Return whether something has happened that nobody decided about, or was decided and is not carried out."""
        return bool(self._inbox or self._missed or self._todo)

    @property
    def due(self) -> int | None:
        """Return when the policy wants to be asked again; None: it did not say."""
        return self._wakes[0] if self._wakes else None

    # --- what is done -----------------------------------------------------------------------------------------

    def execute(self, now: int, action: Action) -> None:
        """Note what an action means for the engine."""
        if isinstance(action, WakeAt):
            self.wake_at(max(action.time, now + 1))
            return
        self.actions.append(action)
        if isinstance(action, Stop):
            end = self._warn if isinstance(action, WarnJob) else self._leave
            self._todo.append(lambda: self._each(action.job, end))
            return
        js = self._state.jobs[action.job]
        if isinstance(action, StartJob):
            self._order(js)
        elif isinstance(action, MigrateJob):
            self._todo.append(lambda: self._each(js.id, self._leave))
            self._order(js)
        else:
            assert isinstance(action, ReallocateJob)
            self._todo.append(lambda: self._regrant(js))

    def follow(self, now: int, caused: Respeeded) -> None:
        """Do nothing: programs are faster or slower by themselves."""

    def refused(self, now: int, action: Action) -> None:
        """Do nothing: the policy is asked again at the next instant, and the refusal is on the tape."""

    def carry_out(self) -> None:
        """Do what was decided, which is written down by now."""
        todo, self._todo = self._todo, []
        for each in todo:
            each()
        self._launch()

    def _order(self, js: JobState) -> None:
        order = order_of(js)
        self.ordered.append(order)
        self._todo.append(lambda: self._enter(order))

    def _enter(self, order: Order) -> None:
        self.holdings.add(order)

    def _each(self, job: int, end: Callable[[int], None]) -> None:
        """End the leases of a job that are not to end yet."""
        for lease in self.holdings.of_job(job):
            end(lease)

    def _warn(self, lease: int) -> None:
        """Ask a program to end that holds what it holds until then."""
        if (holding := self.holdings.get(lease)) is not None:
            holding.asked = True
            self._engine.stop(lease)

    def _leave(self, lease: int) -> None:
        if self.holdings.leave(lease):
            self._engine.stop(lease)

    def _regrant(self, js: JobState) -> None:
        if (holding := self.holdings.get(js.lease)) is not None:
            holding.order = replace(holding.order, cpu_milli=js.cpu_milli, memory_bytes=js.memory_bytes)
            if holding.launched:
                self._engine.regrant(holding.order)

    def _launch(self) -> None:
        """Start what was ordered and has room."""
        for holding in self.holdings.ready():
            try:
                self._engine.launch(holding.order)
            except (OSError, QueueError, SlurmError) as problem:
                if not holding.problem:
                    self._log(f"job {holding.order.job} cannot be started yet, and is tried again: {problem}")
                holding.problem = str(problem)
            else:
                holding.launched, holding.problem = True, ""

    def stop_all(self, *, at_once: bool = False) -> None:
        """Ask every program to end; their jobs wait again."""
        for lease, holding in self.holdings.running():
            holding.asked = True
            self._engine.stop(lease, at_once=at_once)

    def wake_at(self, time: int) -> None:
        """Let the policy be asked at a time."""
        if time not in self._wakes_at:
            self._wakes_at.add(time)
            heappush(self._wakes, time)

    def resume(self, orders: Iterable[Order], now_s: float) -> None:
        """Take up the leases of an earlier queue that are not known to have ended. ``now_s``: seconds since 1970.

        What the state does not have running any more is to end; what did not begin is started when it has room.
        What ended meanwhile did so when its runner says.
        """
        for order in orders:
            js = self._state.running.get(order.job)
            current = js is not None and js.lease == order.lease
            holding = self.holdings.add(order_of(js) if js is not None and current else order)
            holding.launched = self._engine.adopt(order)
            if not current:
                self._leave(order.lease)
        self._catch_up(now_s)

    def _catch_up(self, now_s: float) -> None:
        """Let programs that ended while no queue was there do so at their time.

        Nothing could be started from the first of these ends until now: the nodes are drained meanwhile.
        """
        now, missed = self._clock(), defaultdict[int, list[Event]](list)
        for ended, events in self._ends():
            if not ended.ended_s or not events:
                self._inbox += events
                continue
            ago = round((now_s - ended.ended_s) * SECOND)
            missed[min(now, max(self._last + 1, now - ago))] += events
        if missed:
            away = list(members(self._state.pool.schedulable))
            missed[min(missed)] += [NodeDrained(node) for node in away]
            self._inbox += [NodeRecovered(node) for node in away]
            self._missed = sorted(missed.items(), reverse=True)


def order_of(js: JobState) -> Order:
    """Return the order of a job that was just started."""
    return Order(
        js.lease, js.id, js.placement, js.gpu_milli, js.cpu_milli, js.memory_bytes, again=js.since != js.first_start
    )


def _order(event: Event) -> tuple[int, int]:
    return event.rank, -1 if isinstance(event, JobArrived) else getattr(event, "job", -1)
