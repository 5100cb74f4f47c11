"""Reconstruct every attempt at every task of a serving run from the tape, for stories, pages, traces and tables.

An ``Attempt`` at a task begins when its predecessors are done, and leads through the queues of one or several workers
into a batch. A task that is lost with its worker has several attempts. A ``BatchRun`` is a batch on its worker.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from headway.core.collector import no_collection
from headway.core.tape import Tape, TapeRow
from headway.fleet.model.catalogue import Catalogue
from headway.fleet.model.fleet import Fleet
from headway.fleet.model.graph import Graph
from headway.fleet.model.request import Request
from headway.fleet.model.rows import UNANSWERED, Kind, unpack
from headway.fleet.show.history.attempts import Attempt, BatchRun, Prefetch
from headway.fleet.show.history.presence import Presence
from headway.fleet.show.history.waits import Decisions, Wait

PARTS = {
    "run": "computing",
    "load": "loading",
    "wait": "in queues",
    "controller": "waiting for a decision",
    "transfer": "inputs on their way",
    "lost": "lost with workers",
}
"""Parts of a request's latency, and their names. Loading is that of a process or of weights; decisions take time where
there is a controller."""


class TaskHistory:
    """The attempts, batches, ends of requests, decisions and states of workers of a tape, read once."""

    def __init__(self, catalogue: Catalogue, fleet: Fleet, requests: Sequence[Request], tape: Tape) -> None:
        self.graphs: dict[int, Graph] = {request.id: catalogue.graphs[request.graph] for request in requests}
        self.horizon = int(tape.column("time")[-1]) if len(tape) else 0
        self.batch_runs: dict[int, BatchRun] = {}
        """By lease."""
        self.tasks: dict[int, list[list[Attempt]]] = {}
        """By request and task; requests that arrived."""
        self.arrived: dict[int, int] = {}
        self.answered: dict[int, tuple[int, int]] = {}
        """When, and by which task."""
        self.dropped: dict[int, int] = {}
        self.presence = Presence(fleet, tape)
        """When each worker was on, off, starting, draining and failed."""
        self.decisions = Decisions(tape)
        self._ingress: dict[int, int] = {}
        self.prefetches: dict[int, Prefetch] = {}
        """Fetches and processes, by lease."""
        self._open: dict[int, dict[int, BatchRun]] = {}
        self._coming: dict[int, dict[int, Prefetch]] = {}
        self._done: dict[int, set[int]] = {}
        self._processes: dict[int, tuple[list[int], list[int]]] = {}
        """By function: when batches and processes of it began, and the earliest start of one up to there."""
        readers: dict[int, Callable[[TapeRow], None]] = {
            Kind.ARRIVED: self._on_request_arrived,
            Kind.TASK_ARRIVED: self._on_queued,
            Kind.QUEUED: self._on_queued,
            Kind.PLACE: self._on_moved,
            Kind.MOVE: self._on_moved,
            Kind.RUN: self._on_batch_started,
            Kind.TASK: self._on_task_in_batch,
            Kind.LOAD: lambda row: self.batch_runs[row.lease].loads.append((row.detail, row.value)),
            Kind.COLD: self._on_cold_start,
            Kind.EVICTED: self._on_evicted,
            Kind.LOADED: self._on_loaded,
            Kind.FIRST_TOKEN: self._on_first_token,
            Kind.FINISHED: self._on_batch_finished,
            Kind.LOST: self._on_task_lost,
            **dict.fromkeys(UNANSWERED, self._on_dropped),
            Kind.DONE: self._on_answered,
            Kind.WORKER_FAILED: self._on_worker_failed,
            Kind.STOP_WORKER: self._on_worker_stopped,
            Kind.FETCH: self._on_fetch_asked,
            Kind.START_INSTANCE: self._on_fetch_asked,
            Kind.FETCHED: self._on_fetched,
            Kind.INSTANCE_STARTED: self._on_fetched,
        }
        with no_collection():
            for values in tape.of(*readers).tolist():
                row = TapeRow(*values)
                readers[row.kind](row)

    def __iter__(self) -> Iterator[Attempt]:
        for tasks in self.tasks.values():
            for attempts in tasks:
                yield from attempts

    # --- batches ---

    def _on_batch_started(self, row: TapeRow) -> None:
        cpus, slices, _ = unpack(row.value)
        running = self._open.setdefault(row.place, {})
        batch_run = BatchRun(row.lease, row.place, row.detail, row.time, cpus, slices)
        batch_run.beside = tuple([other.function for other in running.values()])
        self.batch_runs[row.lease] = running[row.lease] = batch_run

    def _on_task_in_batch(self, row: TapeRow) -> None:
        batch_run = self.batch_runs[row.lease]
        batch_run.members.append((row.subject, row.detail))
        batch_run.inputs = max(batch_run.inputs, row.value)
        attempt = self.tasks[row.subject][row.detail][-1]
        attempt.batch_run = batch_run
        _leave(attempt, row.time)

    def _on_cold_start(self, row: TapeRow) -> None:
        self.batch_runs[row.lease].cold = row.value

    def _on_evicted(self, row: TapeRow) -> None:
        if row.lease in self.batch_runs:  # else it made room for a fetch
            self.batch_runs[row.lease].evicted.append(row.detail)

    def _on_first_token(self, row: TapeRow) -> None:
        self.batch_runs[row.lease].first_token = row.time

    def _on_loaded(self, row: TapeRow) -> None:
        self.batch_runs[row.lease].start = row.time

    def _on_batch_finished(self, row: TapeRow) -> None:
        batch_run = self._open[row.place].pop(row.lease)
        batch_run.end = row.time
        if batch_run.start < 0:
            batch_run.start = batch_run.begin
        for request, task in batch_run.members:
            if request in self.answered or request in self.dropped:
                continue
            done = self._done[request]
            done.add(task)
            graph = self.graphs[request]
            for after in graph.successors[task]:
                attempt = self.tasks[request][after][-1]
                if attempt.batch_run is None and attempt.ready < 0 and done.issuperset(graph.predecessors[after]):
                    attempt.ready = row.time

    # --- requests ---

    def _on_request_arrived(self, row: TapeRow) -> None:
        self.arrived[row.subject] = row.time
        self._ingress[row.subject] = row.place
        self._done[row.subject] = set()
        tasks = self.tasks[row.subject] = [
            [Attempt(row.subject, t)] for t in range(len(self.graphs[row.subject].tasks))
        ]
        for task in self.graphs[row.subject].entries:
            tasks[task][0].ready = row.time

    def _on_queued(self, row: TapeRow) -> None:
        self.tasks[row.subject][row.detail][-1].queues.append((row.place, row.time, -1))

    def _on_moved(self, row: TapeRow) -> None:
        attempt = self.tasks[row.subject][row.detail][-1]
        _leave(attempt, row.time)
        if attempt.placed < 0:
            attempt.placed = row.time

    def _on_task_lost(self, row: TapeRow) -> None:
        """Start a new attempt at a lost task; successors that have not begun wait for it again."""
        graph, tasks = self.graphs[row.subject], self.tasks[row.subject]
        done = self._done[row.subject]
        done.discard(row.detail)
        attempts = tasks[row.detail]
        attempts[-1].lost = row.time
        _leave(attempts[-1], row.time)
        there = done.issuperset(graph.predecessors[row.detail])
        attempts.append(Attempt(row.subject, row.detail, row.time if there else -1))
        for after in graph.successors[row.detail]:
            if tasks[after][-1].batch_run is None:
                tasks[after][-1].ready = -1

    def _on_dropped(self, row: TapeRow) -> None:
        self.dropped[row.subject] = row.time
        del self._done[row.subject]
        for attempts in self.tasks[row.subject]:
            _leave(attempts[-1], row.time)

    def _on_answered(self, row: TapeRow) -> None:
        self.answered[row.subject] = (row.time, row.detail)
        del self._done[row.subject]

    # --- workers ---

    def _on_worker_failed(self, row: TapeRow) -> None:
        for batch_run in self._open.pop(row.place, {}).values():
            batch_run.lost = row.time
        for ahead in self._coming.pop(row.place, {}).values():
            ahead.end = row.time

    def _on_worker_stopped(self, row: TapeRow) -> None:
        for ahead in self._coming.pop(row.place, {}).values():
            ahead.end = row.time

    def _on_fetch_asked(self, row: TapeRow) -> None:
        what = {"model" if row.kind == Kind.FETCH else "function": row.detail}
        fetch = Prefetch(row.place, row.time, self.horizon, **what)
        self.prefetches[row.lease] = self._coming.setdefault(row.place, {})[row.lease] = fetch

    def _on_fetched(self, row: TapeRow) -> None:
        self._coming[row.place].pop(row.lease).end = row.time

    def process_in(self, function: int, cold_start: int, now: int) -> int:
        """Return how long it is at least until a process of a function can compute; 0: one was there."""
        if function not in self._processes:
            batch_runs = ((run.begin, run.start) for run in self.batch_runs.values() if run.function == function)
            asked = ((each.begin, each.end) for each in self.prefetches.values() if each.function == function)
            known = sorted(each for each in (*batch_runs, *asked) if each[1] >= 0)
            earliest = accumulate((start for _, start in known), min)
            self._processes[function] = ([begin for begin, _ in known], list(earliest))
        begins, earliest_start = self._processes[function]
        index = bisect_right(begins, now) - 1
        start = min(now + cold_start, earliest_start[index]) if index >= 0 else now + cold_start
        return max(0, start - now)

    # --- where the time went ---

    def spent(self, request: int) -> dict[str, int]:
        """Return the time from arrival to answer by what it was spent on, along the chain of tasks that decided it.

        Each task of the chain waits for the one before it; the parts add up to the latency. All 0 without an answer.
        """
        spent = dict.fromkeys(PARTS, 0)
        if request not in self.answered:
            return spent
        for attempt, lost in self.chain(request):
            batch_run = attempt.batch_run
            assert batch_run is not None
            spent["run"] += batch_run.end - batch_run.start
            spent["transfer" if batch_run.inputs >= batch_run.start else "load"] += batch_run.start - batch_run.begin
            for wait in self.waits(attempt, batch_run.begin):
                spent[wait.what] += wait.until - wait.since
            spent["lost"] += lost
        return spent

    def waits(self, attempt: Attempt, end: int) -> Iterator[Wait]:
        """Yield what a task that was ready waited for, until a batch took it up or until ``end``; without a gap."""
        return self.decisions.waits(attempt, end, self._ingress[attempt.request])

    def chain(self, request: int, last: Attempt | None = None) -> Iterator[tuple[Attempt, int]]:
        """Yield the tasks that decided when a request was answered, last first, each with the time lost before it.

        Each one began to wait when the next one ended. ``last`` is where the chain ends if there is no answer.
        """
        if last is None and request in self.answered:
            time, task = self.answered[request]
            last = self._ended(request, task, time)
        attempt = last
        while attempt is not None:
            since, lost = attempt.ready, 0
            before = self._awaited(attempt, since)
            if before is None and since > self.arrived[request]:  # not a predecessor but a loss made it ready then
                first = next(attempt for attempt in self.tasks[request][attempt.task] if attempt.ready >= 0)
                lost = since - first.ready
                before = self._awaited(attempt, first.ready)
            yield attempt, lost
            attempt = before

    def _awaited(self, attempt: Attempt, time: int) -> Attempt | None:
        """Return the predecessor of a task that ended at a time."""
        before = self.graphs[attempt.request].predecessors[attempt.task]
        candidates = (self._ended(attempt.request, task, time) for task in before)
        return next((attempt for attempt in candidates if attempt is not None), None)

    def _ended(self, request: int, task: int, time: int) -> Attempt | None:
        attempts = self.tasks[request][task]
        return next(
            (attempt for attempt in attempts if attempt.batch_run is not None and attempt.batch_run.end == time), None
        )


def _leave(attempt: Attempt, time: int) -> None:
    """Note that an attempt has left the queue that it is in."""
    if attempt.queues and attempt.queues[-1][2] < 0:
        worker, since, _ = attempt.queues[-1]
        attempt.queues[-1] = (worker, since, time)
