"""Events, actions, the state, the executor and two policies of a server with a queue of tasks."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from headway.core.audit import Finding, order_findings
from headway.core.scheduler import Scheduler
from headway.core.tape import Row, Tape, TapeWriter
from headway.errors import StalledRunError, TapeError


class Kind(IntEnum):
    """What a row of the tape says: events below 20, then actions."""

    FINISHED = 1
    ARRIVED = 2
    START = 20
    REFUSED = 21


@dataclass(frozen=True, slots=True)
class Task:
    """Something that takes the server for a while."""

    id: int
    arrival: int
    length: int


@dataclass(frozen=True, slots=True)
class TaskArrived:
    """A task came."""

    task: Task


@dataclass(frozen=True, slots=True)
class TaskFinished:
    """The server is free again."""

    task: Task


@dataclass(frozen=True, slots=True)
class StartTask:
    """Let the server begin a task that waits."""

    task: int


Event = TaskArrived | TaskFinished


@dataclass(slots=True)
class ServerState:
    """Who waits, who is served, how many are still to come."""

    to_come: int
    journal: Callable[[Row], None] = lambda row: None
    waiting: dict[int, Task] = field(default_factory=dict)
    running: Task | None = None

    def apply(self, now: int, event: Event) -> None:
        """Note what happened."""
        if isinstance(event, TaskArrived):
            self.to_come -= 1
            self.waiting[event.task.id] = event.task
        else:
            self.running = None
        kind = Kind.ARRIVED if isinstance(event, TaskArrived) else Kind.FINISHED
        self.journal((now, kind, event.task.id, 0, 0, 0, 0))

    def check(self, action: StartTask) -> str | None:
        """Return why a task cannot begin."""
        if action.task not in self.waiting:
            return f"StartTask(task={action.task}): it does not wait"
        return f"StartTask(task={action.task}): the server is busy" if self.running else None

    def commit(self, now: int, action: StartTask) -> None:
        """Begin a task."""
        self.running = self.waiting.pop(action.task)
        self.journal((now, Kind.START, action.task, 0, 0, 0, 0))

    def refused(self, now: int, action: StartTask) -> Row:
        """Return the row of a refusal."""
        return now, Kind.REFUSED, action.task, 0, 0, 0, 0

    def over(self) -> bool:
        """Return whether all tasks came and were served."""
        return not (self.to_come or self.waiting or self.running)


class Server:
    """A simulated server: tasks come when they come, and end when they have taken their time."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._ahead = {(task.arrival, task.id): TaskArrived(task) for task in tasks}
        self._tasks = tasks
        self._end: tuple[int, Task] | None = None

    def next(self) -> tuple[int, Sequence[Event]] | None:
        """Return the next instant: an end comes before arrivals."""
        times = [time for time, _ in self._ahead][:1] + ([self._end[0]] if self._end else [])
        if not times:
            return None
        now, events = min(times), list[Event]()
        if self._end and self._end[0] == now:
            events.append(TaskFinished(self._end[1]))
            self._end = None
        for key in [key for key in self._ahead if key[0] == now]:
            events.append(self._ahead.pop(key))
        return now, events

    def execute(self, now: int, action: StartTask) -> None:
        """Know when a task will end."""
        task = self._tasks[action.task]
        self._end = (now + task.length, task)

    def follow(self, now: int, caused: None) -> None:
        """Do nothing: a change of this state causes nothing else."""

    def refused(self, now: int, action: StartTask) -> None:
        """Do nothing: none is."""


class Recorded:
    """The events of a tape."""

    def __init__(self, tasks: Sequence[Task], tape: Tape) -> None:
        steps: dict[int, list[Event]] = {}
        for row in tape:
            events = steps.setdefault(row.time, [])
            if row.kind < Kind.START:
                made = TaskArrived if row.kind == Kind.ARRIVED else TaskFinished
                events.append(made(tasks[row.subject]))
        self._steps = iter(steps.items())

    def next(self) -> tuple[int, Sequence[Event]] | None:
        """Return the next recorded instant."""
        return next(self._steps, None)

    def execute(self, now: int, action: StartTask) -> None:
        """Do nothing: what followed is recorded."""

    def follow(self, now: int, caused: None) -> None:
        """Do nothing, likewise."""

    def refused(self, now: int, action: StartTask) -> None:
        """Do nothing, likewise."""


class InOrder:
    """First come, first served."""

    name = "in-order"

    def decide(self, now: int, state: ServerState) -> Iterator[StartTask]:
        """Begin the task that waits the longest."""
        if state.running is None and state.waiting:
            yield StartTask(next(iter(state.waiting)))


class Shortest:
    """The shortest task first."""

    name = "shortest"

    def decide(self, now: int, state: ServerState) -> Iterator[StartTask]:
        """Begin the shortest task that waits."""
        if state.running is None and state.waiting:
            yield StartTask(min(state.waiting.values(), key=lambda task: (task.length, task.id)).id)


POLICIES = {policy.name: policy for policy in (InOrder, Shortest)}
Policy = InOrder | Shortest


def replay(tasks: Sequence[Task], tape: Tape, policy: Policy, *, complete: bool) -> Tape:
    """Return the tape that a fresh policy writes when shown the recorded events."""
    state, writer = ServerState(len(tasks)), TapeWriter()
    try:
        Scheduler(state, policy, Recorded(tasks, tape), writer, exact=False).run()
    except StalledRunError as problem:
        if complete:
            raise TapeError("the tape ends before the run did") from problem
    return writer.close()


def audit(tasks: Sequence[Task], tape: Tape) -> list[Finding]:
    """Check with a second set of books that one task is served at a time, each for as long as it takes."""
    found = order_findings(tape, np.where(tape.column("kind") < Kind.START, tape.column("kind"), Kind.START))
    began: dict[int, int] = {}
    at_work: int | None = None
    for number, row in enumerate(tape):
        if row.kind == Kind.START:
            if at_work is not None:
                found.append(Finding(number, row.time, "one at a time", f"task {at_work} is being served"))
            at_work, began[row.subject] = row.subject, row.time
        if row.kind == Kind.FINISHED:
            at_work = None
            if row.time - began.get(row.subject, -1) != tasks[row.subject].length:
                found.append(
                    Finding(number, row.time, "work", f"task {row.subject} was not served as long as it takes")
                )
    return found
