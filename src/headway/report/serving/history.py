"""Reconstruct every attempt at every task of a serving run from the tape, for stories, pages, traces and tables.

A *passage* is one attempt at a task: from the moment when all that it waits for is done, through queues and perhaps
from one worker to another, into a batch. A task that is lost with its worker has several. A *stay* is a batch on its
worker.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from headway.core.tape import Tape, TapeRow
from headway.serving.catalogue import Catalogue
from headway.serving.graph import Graph
from headway.serving.request import Request
from headway.serving.rows import Kind, unpack

PARTS = ("run", "load", "wait", "transfer", "lost")
"""What the time of a request is made of: computing; process, weights and room for them; in a queue; inputs on their
way; and what was done, or waited for, in vain."""


@dataclass(slots=True)
class Stay:
    """A batch on its worker."""

    lease: int
    worker: int
    function: int
    begin: int
    cpus: int
    slices: int
    members: list[tuple[int, int]] = field(default_factory=list)
    """(request, task)."""
    start: int = -1
    """When it began to compute; -1: it never did."""
    end: int = -1
    """When it was done; -1: never."""
    lost: int = -1
    """When its worker failed under it."""
    inputs: int = -1
    """When the last of the inputs was there that it pulled."""
    loads: list[tuple[int, int]] = field(default_factory=list)
    """(model, how long it took)."""
    cold: int = 0
    """How long its process took to start; 0: there was one."""
    evicted: list[int] = field(default_factory=list)

    @property
    def tasks(self) -> int:
        """Return how many it holds."""
        return len(self.members)

    def until(self, horizon: int) -> int:
        """Return until when it held its worker; ``horizon`` where the tape ends first."""
        return self.end if self.end >= 0 else self.lost if self.lost >= 0 else max(self.begin, horizon)


@dataclass(slots=True)
class Passage:
    """One attempt at a task."""

    request: int
    task: int
    ready: int = -1
    """When all that it waits for was done; -1: that has not come, or its inputs were lost again."""
    stops: list[tuple[int, int, int]] = field(default_factory=list)
    """Queues that it stood in: (worker, since, until); until is -1 while it does."""
    stay: Stay | None = None
    lost: int = -1
    """When it, or its result, went with a worker."""


@dataclass(slots=True)
class Ahead:
    """Weights or a process that somebody asked for before any task did."""

    worker: int
    begin: int
    end: int
    """When it was there, or its worker failed, or the tape ended."""
    model: int = -1
    function: int = -1


class Passages:
    """The attempts, batches, ends of requests and worker failures of a tape, read once."""

    def __init__(self, catalogue: Catalogue, requests: Sequence[Request], tape: Tape) -> None:
        self.graphs: dict[int, Graph] = {each.id: catalogue.graphs[each.graph] for each in requests}
        self.horizon = int(tape.column("time")[-1]) if len(tape) else 0
        self.stays: dict[int, Stay] = {}
        """By lease."""
        self.tasks: dict[int, list[list[Passage]]] = {}
        """By request and task; requests that arrived."""
        self.arrived: dict[int, int] = {}
        self.answered: dict[int, tuple[int, int]] = {}
        """When, and by which task."""
        self.dropped: dict[int, int] = {}
        self.down: list[tuple[int, int, int]] = []
        """Workers out of service: (worker, since, until); until is the tape's end where they are still."""
        self.ahead: dict[int, Ahead] = {}
        """Fetches and processes, by lease."""
        self._open: dict[int, dict[int, Stay]] = {}
        self._coming: dict[int, dict[int, Ahead]] = {}
        self._done: dict[int, set[int]] = {}
        self._failed: dict[int, int] = {}
        readers: dict[int, Callable[[TapeRow], None]] = {
            Kind.ARRIVED: self._arrive,
            Kind.TASK_ARRIVED: self._queue,
            Kind.QUEUED: self._queue,
            Kind.PLACE: self._move,
            Kind.MOVE: self._move,
            Kind.RUN: self._run,
            Kind.TASK: self._take,
            Kind.LOAD: lambda row: self.stays[row.lease].loads.append((row.detail, row.value)),
            Kind.COLD: self._cold,
            Kind.EVICTED: self._evict,
            Kind.LOADED: self._loaded,
            Kind.FINISHED: self._finish,
            Kind.LOST: self._lose,
            Kind.DROP: self._drop,
            Kind.DONE: self._answer,
            Kind.WORKER_FAILED: self._fail,
            Kind.WORKER_RECOVERED: self._recover,
            Kind.FETCH: self._ask,
            Kind.START_INSTANCE: self._ask,
            Kind.FETCHED: self._there,
            Kind.INSTANCE_STARTED: self._there,
        }
        for values in tape.of(*readers).tolist():
            row = TapeRow(*values)
            readers[row.kind](row)
        self.down += [(worker, since, self.horizon) for worker, since in self._failed.items()]

    def __iter__(self) -> Iterator[Passage]:
        for tasks in self.tasks.values():
            for attempts in tasks:
                yield from attempts

    # --- batches ---

    def _run(self, row: TapeRow) -> None:
        cpus, slices, _ = unpack(row.value)
        stay = Stay(row.lease, row.place, row.detail, row.time, cpus, slices)
        self.stays[row.lease] = self._open.setdefault(row.place, {})[row.lease] = stay

    def _take(self, row: TapeRow) -> None:
        stay = self.stays[row.lease]
        stay.members.append((row.subject, row.detail))
        stay.inputs = max(stay.inputs, row.value)
        passage = self.tasks[row.subject][row.detail][-1]
        passage.stay = stay
        _leave(passage, row.time)

    def _cold(self, row: TapeRow) -> None:
        self.stays[row.lease].cold = row.value

    def _evict(self, row: TapeRow) -> None:
        if row.lease in self.stays:  # else it made room for a fetch
            self.stays[row.lease].evicted.append(row.detail)

    def _loaded(self, row: TapeRow) -> None:
        self.stays[row.lease].start = row.time

    def _finish(self, row: TapeRow) -> None:
        stay = self._open[row.place].pop(row.lease)
        stay.end = row.time
        if stay.start < 0:
            stay.start = stay.begin
        for request, task in stay.members:
            if request in self.answered or request in self.dropped:
                continue
            done = self._done[request]
            done.add(task)
            graph = self.graphs[request]
            for after in graph.successors[task]:
                passage = self.tasks[request][after][-1]
                if passage.stay is None and passage.ready < 0 and done.issuperset(graph.predecessors[after]):
                    passage.ready = row.time

    # --- requests ---

    def _arrive(self, row: TapeRow) -> None:
        self.arrived[row.subject] = row.time
        self._done[row.subject] = set()
        tasks = self.tasks[row.subject] = [
            [Passage(row.subject, t)] for t in range(len(self.graphs[row.subject].tasks))
        ]
        for task in self.graphs[row.subject].entries:
            tasks[task][0].ready = row.time

    def _queue(self, row: TapeRow) -> None:
        self.tasks[row.subject][row.detail][-1].stops.append((row.place, row.time, -1))

    def _move(self, row: TapeRow) -> None:
        _leave(self.tasks[row.subject][row.detail][-1], row.time)

    def _lose(self, row: TapeRow) -> None:
        """Start a new attempt at a lost task; successors that have not begun wait for it again."""
        graph, tasks = self.graphs[row.subject], self.tasks[row.subject]
        done = self._done[row.subject]
        done.discard(row.detail)
        attempts = tasks[row.detail]
        attempts[-1].lost = row.time
        _leave(attempts[-1], row.time)
        there = done.issuperset(graph.predecessors[row.detail])
        attempts.append(Passage(row.subject, row.detail, row.time if there else -1))
        for after in graph.successors[row.detail]:
            if tasks[after][-1].stay is None:
                tasks[after][-1].ready = -1

    def _drop(self, row: TapeRow) -> None:
        self.dropped[row.subject] = row.time
        del self._done[row.subject]
        for attempts in self.tasks[row.subject]:
            _leave(attempts[-1], row.time)

    def _answer(self, row: TapeRow) -> None:
        self.answered[row.subject] = (row.time, row.detail)
        del self._done[row.subject]

    # --- workers ---

    def _fail(self, row: TapeRow) -> None:
        self._failed[row.place] = row.time
        for stay in self._open.pop(row.place, {}).values():
            stay.lost = row.time
        for ahead in self._coming.pop(row.place, {}).values():
            ahead.end = row.time

    def _recover(self, row: TapeRow) -> None:
        self.down.append((row.place, self._failed.pop(row.place), row.time))

    def _ask(self, row: TapeRow) -> None:
        what = {"model" if row.kind == Kind.FETCH else "function": row.detail}
        fetch = Ahead(row.place, row.time, self.horizon, **what)
        self.ahead[row.lease] = self._coming.setdefault(row.place, {})[row.lease] = fetch

    def _there(self, row: TapeRow) -> None:
        self._coming[row.place].pop(row.lease).end = row.time

    # --- where the time went ---

    def spent(self, request: int) -> dict[str, int]:
        """Return the time from arrival to answer by what it was spent on, along the chain of tasks that decided it.

        Each task of the chain waits for the one before it; the parts add up to the latency. All 0 without an answer.
        """
        spent = dict.fromkeys(PARTS, 0)
        if request not in self.answered:
            return spent
        time, task = self.answered[request]
        passage = self._ended(request, task, time)
        while passage is not None and passage.stay is not None:
            stay = passage.stay
            spent["run"] += stay.end - stay.start
            spent["transfer" if stay.inputs >= stay.start else "load"] += stay.start - stay.begin
            queued = max(passage.ready, passage.stops[0][1]) if passage.stops else passage.ready
            spent["transfer"] += queued - passage.ready
            spent["wait"] += stay.begin - queued
            since = passage.ready
            before = self._awaited(passage, since)
            if before is None and since > self.arrived[request]:  # not a predecessor but a loss made it ready then
                first = next(attempt for attempt in self.tasks[request][passage.task] if attempt.ready >= 0)
                spent["lost"] += since - first.ready
                before = self._awaited(passage, first.ready)
            passage = before
        return spent

    def _awaited(self, passage: Passage, time: int) -> Passage | None:
        """Return the predecessor of a task that ended at a time."""
        before = self.graphs[passage.request].predecessors[passage.task]
        candidates = (self._ended(passage.request, task, time) for task in before)
        return next((attempt for attempt in candidates if attempt is not None), None)

    def _ended(self, request: int, task: int, time: int) -> Passage | None:
        attempts = self.tasks[request][task]
        return next((attempt for attempt in attempts if attempt.stay is not None and attempt.stay.end == time), None)


def _leave(passage: Passage, time: int) -> None:
    """End the last stay of an attempt in a queue."""
    if passage.stops and passage.stops[-1][2] < 0:
        worker, since, _ = passage.stops[-1]
        passage.stops[-1] = (worker, since, time)
