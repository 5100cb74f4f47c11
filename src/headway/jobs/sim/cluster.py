"""A training cluster in virtual time: a start becomes the end it will have, by the job's true work and its speed.

The queue of events holds ends, faults and wake-ups; arrivals are read from the workload as time passes. An end that was
overtaken (its job was preempted, moved or slowed down) is recognised by its lease and dropped before anybody sees it.
"""

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from headway.errors import ExperimentError
from headway.jobs.model.actions import Action, KillJob, MigrateJob, ReallocateJob, StartJob, Stop, WakeAt
from headway.jobs.model.events import (
    Event,
    JobArrived,
    JobCancelled,
    JobFailed,
    JobFinished,
    JobWithdrawn,
    NodeDrained,
    NodeFailed,
    NodeRecovered,
    Woke,
)
from headway.jobs.model.job import Job, Outcome
from headway.jobs.model.periodic_checkpoints import duration
from headway.jobs.rules.eligibility.engine import gate_of
from headway.jobs.sim.entrance import Entrance
from headway.jobs.sim.faults import Faults
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.speed_changes import Respeeded
from headway.jobs.state.state import TrainingState
from headway.units import REFERENCE_SPEED_PPM

_FINISHED, _FAILED, _CANCELLED = JobFinished.rank, JobFailed.rank, JobCancelled.rank
_WOKE, _ARRIVED = Woke.rank, JobArrived.rank
_END_RANK = {Outcome.FINISHES: _FINISHED, Outcome.FAILS: _FAILED, Outcome.CANCELLED: _CANCELLED}
NodeEvent: TypeAlias = NodeFailed | NodeRecovered | NodeDrained
_Entry: TypeAlias = tuple[int, int, int, int, NodeEvent | None]
_IDLE_STEPS = 10_000
MOST_FAILURES = 100_000
"""Of nodes, without a job that arrives, ends or keeps work; more where nodes are many."""
MOST_FAILURES_A_NODE = 100
_NEVER = 1 << 63


class SimulatedCluster:
    """The executor of a simulated training run, and its source of events."""

    def __init__(
        self, jobs: Sequence[Job], state: TrainingState, faults: Faults | None = None, *, completions: int = 0
    ) -> None:
        """Ends are noticed at multiples of ``completions`` nanoseconds; 0: at once."""
        self.jobs = jobs
        self._state = state
        self.faults = faults
        self.completions = completions
        self._cursor = 0
        self._count = len(jobs)
        self._arrival = jobs[0].submit if jobs else _NEVER
        """When the next job arrives."""
        self._heap: list[_Entry] = []
        """(time, rank, subject, lease, node event): what will happen unless something comes between."""
        self._moved: dict[int, int] = {}
        """Ends that were moved because a neighbour came or went, by job."""
        self._wakes: set[int] = set()
        self._idle = 0
        self._failures = 0
        """Of nodes, since a job last arrived or ended, or work was last seen to grow."""
        self._kept = 0
        """Work of all jobs that are there, as it was seen last."""
        self._gone = 0
        """Nodes that will never come back."""
        self.until = _NEVER
        """Instants from this time on do not come yet."""
        gate = gate_of(jobs)
        self._entrance = None if gate is None else Entrance(gate, self._heap)
        """Where jobs wait that are not eligible when they are submitted; None where all are."""
        for time, event in faults.first() if faults is not None else ():
            heappush(self._heap, (time, event.rank, event.node, -1, event))

    def next(self) -> tuple[int, Sequence[Event]] | None:
        """Return the next instant and its events in rank order."""
        entrance = self._entrance
        if entrance is None:
            return self._next()
        while (step := self._next()) is not None:
            if events := entrance.sift(*step, self._state):
                return step[0], events
        return entrance.close(self._state) if self.until == _NEVER else None

    def _next(self) -> tuple[int, list[Event]] | None:
        """Return the same as if every job were eligible when it is submitted."""
        heap, arrival, until = self._heap, self._arrival, self.until
        while heap and (now := heap[0][0]) <= arrival and now < until:
            running, moved = self._state.running, self._moved
            events: list[Event] = []
            wakes = 0
            while True:
                entry = heappop(heap)
                _, rank, subject, lease, _ = entry
                if rank == _FINISHED and not moved:
                    js = running.get(subject)
                    if js is not None and js.lease == lease:
                        events.append(JobFinished(subject, lease))
                elif rank == _WOKE:
                    wakes += 1
                else:
                    self._take(entry, events)
                if not heap or heap[0][0] != now:
                    break
            if arrival == now:
                events += self._arrivals(now)
            if wakes:
                self._wakes.discard(now)
                events += [Woke()] * wakes
            if events:
                endless = self.faults is not None or wakes == len(events)
                return None if endless and self._hopeless(events) else (now, events)
        return None if arrival >= until else (arrival, self._arrivals(arrival))

    def execute(self, now: int, action: Action) -> None:
        """Schedule what an action will cause."""
        if isinstance(action, StartJob) or isinstance(action, MigrateJob):  # noqa: SIM101 - quicker than a tuple
            js = self._state.running[action.job]
            job = js.job
            if self._entrance is not None:
                self._entrance.on_start(now, action.job)
            if self._moved:
                self._moved.pop(js.id, None)  # of an earlier lease
            if job.outcome or self.completions or js.every or job.open_end:
                heappush(self._heap, (self._end(js), _END_RANK[job.outcome], js.id, js.lease, None))
            else:
                left = job.work - js.done
                if js.speed != REFERENCE_SPEED_PPM:
                    left = -(-left * REFERENCE_SPEED_PPM // js.speed)
                heappush(self._heap, (js.base + left, _FINISHED, js.id, js.lease, None))
        elif isinstance(action, WakeAt):
            time = max(action.time, now + 1)
            if time not in self._wakes:
                self._wakes.add(time)
                heappush(self._heap, (time, _WOKE, -1, -1, None))
        else:
            assert isinstance(action, Stop | ReallocateJob)  # jobs that end later or sooner come to ``follow``
            if self._entrance is not None and isinstance(action, KillJob):
                self._entrance.on_kill(now, action.job)

    def follow(self, now: int, caused: Respeeded) -> None:
        """Move the ends of running jobs; none comes before the next instant."""
        for js in caused:
            if js.id in self._state.running:
                self._moved[js.id] = end = max(now + 1, self._end(js))
                heappush(self._heap, (end, _END_RANK[js.job.outcome], js.id, js.lease, None))

    def refused(self, now: int, action: Action) -> None:
        """Do nothing: the policy is asked again at the next instant anyway."""

    def _end(self, js: JobState) -> int:
        left = max(1, js.job.ends_after - js.done)  # evicted when it was done, before the round in which that shows
        if js.every:
            end = js.base + duration(left, js.done, js.speed, js.every, js.job.checkpoint)
        else:
            end = js.base + -(-left * REFERENCE_SPEED_PPM // js.speed)
        return -(-end // self.completions) * self.completions if self.completions else end

    def _arrivals(self, now: int) -> list[Event]:
        """Return the events of the jobs that arrive now, which is when the next one does."""
        jobs, cursor, count = self.jobs, self._cursor, self._count
        events: list[Event] = []
        while True:
            job = jobs[cursor]
            events.append(JobArrived(job))
            if job.patience:
                heappush(self._heap, (now + job.patience, _CANCELLED, job.id, 0, None))
            cursor += 1
            following = jobs[cursor].submit if cursor < count else _NEVER
            if following != now:
                break
        self._cursor, self._arrival = cursor, following
        return events

    def _take(self, entry: _Entry, events: list[Event]) -> None:
        """Turn an entry that still holds into its event."""
        time, rank, subject, lease, node_event = entry
        if node_event is not None:
            events.append(node_event)
            if self.faults is not None and (following := self.faults.after(time, node_event)) is not None:
                heappush(self._heap, (following[0], following[1].rank, following[1].node, -1, following[1]))
            return
        if lease == 0:
            js = self._state.jobs.get(subject)
            if js is not None and js.first_start < 0:
                events.append(JobCancelled(subject, 0))
            elif js is None and self._entrance is not None and subject in self._entrance.held:
                events.append(JobWithdrawn(subject))
            return
        if rank == _ARRIVED:
            assert self._entrance is not None
            self._entrance.look_again(time, subject, events)
            return
        js = self._state.running.get(subject)
        if js is None or js.lease != lease:
            return
        if self._moved and subject in self._moved:
            # Of two entries for one end, that of an outcome that was only thought of is not taken.
            if self._moved[subject] != time or rank != _END_RANK[js.job.outcome]:
                return
            self._moved[subject] = -1  # this lease ends once, even if its end was moved to and fro
        if rank == _FINISHED:
            events.append(JobFinished(subject, lease))
        else:
            events.append(JobFailed(subject, lease) if rank == _FAILED else JobCancelled(subject, lease))

    def _hopeless(self, events: list[Event]) -> bool:
        """Nodes fail and policies wake for ever: stop when the run is over or nothing else happened for too long."""
        state = self._state
        shut_out = 0 if self._entrance is None else self._entrance.shut_out
        if state.over(shut_out):
            return True
        if self.faults is not None:
            self._count_failures(events)
        if (
            state.running
            or state.to_come > shut_out
            or any(not isinstance(e, NodeFailed | NodeRecovered | Woke) for e in events)
        ):
            self._idle = 0
        elif not self._away() or not all(isinstance(e, Woke) for e in events):
            self._idle += 1  # while a node is away, waking up is no sign that nothing will change
        return self._idle > _IDLE_STEPS

    def _count_failures(self, events: list[Event]) -> None:
        """Refuse to go on where nodes fail so often that no job will ever end."""
        if not all(isinstance(e, NodeFailed | NodeRecovered | NodeDrained | Woke) for e in events):
            self._failures = self._kept = 0
            return
        self._failures += sum(isinstance(e, NodeFailed) for e in events)
        if self._failures >= max(MOST_FAILURES, MOST_FAILURES_A_NODE * len(self._state.on_node)):
            kept = sum(js.done for js in self._state.jobs.values())
            if kept <= self._kept:
                raise ExperimentError(
                    f"failures: nodes failed {self._failures:,} times since a job last arrived or ended, and no work "
                    "was kept: no job can end; give a longer mtbf, or jobs that save their work more often"
                )
            self._failures, self._kept = 0, kept

    def _away(self) -> int:
        """Nodes that take no jobs now and will come back."""
        pool = self._state.pool
        return pool.everywhere & ~pool.schedulable & ~self._gone

    # --- a run that was taken up in the middle and goes on under changes --------------------------------------------

    def replace(self, job: Job) -> None:
        """Let this job arrive instead of the one with its number."""
        self.jobs = [job if each.id == job.id else each for each in self.jobs]
        if self._entrance is not None and job.id in self._entrance.held:
            self._entrance.held[job.id] = job

    def expect(self, jobs: Sequence[Job]) -> None:
        """Let these jobs arrive, in order of submission, and not those that were to come."""
        self.jobs = [*self.jobs[: self._cursor], *jobs]
        self._count = len(self.jobs)
        self._arrival = jobs[0].submit if jobs else _NEVER

    @property
    def to_come(self) -> Sequence[Job]:
        """Return the jobs that have not arrived yet."""
        return self.jobs[self._cursor :]

    def catch_up(self, at: int) -> None:
        """Keep jobs back that were submitted by a time and are not eligible: no step of a tape tells of them.

        All steps up to that time have been taken: what else was due by then is stale.
        """
        entrance, heap = self._entrance, self._heap
        while entrance is not None and min(self._arrival, heap[0][0] if heap else _NEVER) <= at:
            now, events = self._arrival, list[Event]()
            if now <= at:
                events = self._arrivals(now)
            else:
                now, rank, job, _, _ = heappop(heap)
                if rank == _ARRIVED:
                    entrance.look_again(now, job, events)
            assert not entrance.sift(now, events, self._state), f"a job is eligible at {now} ns, and no step has it"

    @property
    def held(self) -> int:
        """Return how many jobs were submitted and are not eligible yet."""
        return 0 if self._entrance is None else len(self._entrance.held)

    def leave_out(self, now: int, jobs: Iterable[int]) -> None:
        """Take jobs away for good: who waits for them waits no longer."""
        if self._entrance is not None:
            self._entrance.leave_out(now, jobs)

    def move_to(self, state: TrainingState) -> None:
        """Go on with another state of the same jobs."""
        self._state = state

    def replace_faults(
        self,
        faults: Faults | None,
        coming: Iterable[tuple[int, NodeEvent]],
        *,
        cancel: Callable[[NodeEvent], bool],
    ) -> None:
        """Replace the source of node failures; drop pending node events that ``cancel`` selects, and add ``coming``."""
        self.faults = faults
        self._heap[:] = [entry for entry in self._heap if entry[4] is None or not cancel(entry[4])]
        heapify(self._heap)
        for time, event in coming:
            heappush(self._heap, (time, event.rank, event.node, -1, event))

    def give_up(self, nodes: Iterable[int]) -> None:
        """Nodes that will never come back."""
        self._gone = sum(1 << node for node in nodes)

    def forget_wakes(self) -> None:
        """Whoever asked to be woken is gone."""
        self._heap[:] = [entry for entry in self._heap if entry[1] != _WOKE]
        heapify(self._heap)
        self._wakes.clear()
