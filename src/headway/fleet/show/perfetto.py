"""Write a run of a fleet as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open.

A process is a worker. Its threads hold batches, as many threads as ran at once, each batch with what it loaded and what
it computed below it; weights and processes that nobody waited for yet have threads of their own. So have the decisions
of a controller, and, where workers are started and stopped, what each one was: a worker that is off has no slice there.
Tasks that wait, for a worker or for a decision, and inputs under way are asynchronous slices, at the worker or, while a
task may go anywhere, at the process ``fleet``. Failures and requests that are given up are instants. Counters say how
many tasks wait at each worker, how many requests live and how many workers are up. Lines are made one at a time.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import chain, count

from headway.core.tape import Tape
from headway.fleet.model.catalogue import Catalogue
from headway.fleet.model.fleet import Fleet
from headway.fleet.model.request import Request
from headway.fleet.show.history.attempts import Attempt, BatchRun
from headway.fleet.show.history.history import TaskHistory
from headway.fleet.show.history.presence import DRAINING, FAILED, OFF, ON, STARTING
from headway.fleet.state.state import CENTRAL
from headway.show.trace_events import Lanes, counter, instant, microseconds, named, ordered, span, whole_file

FLEET_PID = 1
FIRST_PID = 2
Change = tuple[int, int]
"""(time, by how much)."""


def trace_events(
    catalogue: Catalogue, fleet: Fleet, requests: Sequence[Request], tape: Tape, title: str = ""
) -> Iterator[str]:
    """Return the file, piece by piece."""
    drawn = _Drawn(catalogue, fleet, TaskHistory(catalogue, fleet, requests, tape))
    parts = (drawn.names(), drawn.presence(), drawn.decisions(), drawn.batches(), drawn.fetches(), drawn.waits())
    return whole_file(chain.from_iterable((*parts, drawn.moments(), drawn.counters())), title)


class _Drawn:
    def __init__(self, catalogue: Catalogue, fleet: Fleet, history: TaskHistory) -> None:
        self.catalogue, self.fleet, self.history = catalogue, fleet, history
        gpu, ahead = ([Lanes() for _ in fleet.workers] for _ in range(2))
        batch_runs = sorted(history.batch_runs.values(), key=lambda batch_run: (batch_run.begin, batch_run.lease))
        held = [(batch_run, batch_run.until(history.horizon)) for batch_run in batch_runs]
        self.batch_runs = [(s, until, gpu[s.worker].place(s.begin, until)) for s, until in held if until > s.begin]
        asked = [each for each in history.prefetches.values() if each.end > each.begin]
        self.prefetches = [(each, ahead[each.worker].place(each.begin, each.end)) for each in asked]
        # no thread has the number of a process: viewers take such a one for its main thread and put it first
        numbers = count(FIRST_PID + len(fleet.workers))
        desks = {decision.desk for decision in history.decisions.made}
        rented = int(history.presence.changes)
        self.threads = [
            {
                (kind, lane): next(numbers)
                for kind, lanes in (
                    ("rented", rented),
                    ("controller", int(worker in desks)),
                    ("GPU", max(1, len(gpu[worker].ends))),
                    ("ahead", len(ahead[worker].ends)),
                )
                for lane in range(lanes)
            }
            for worker in range(len(fleet.workers))
        ]
        self.central = next(numbers) if CENTRAL in desks else 0
        """The thread of the controller of the whole fleet; 0: there is none."""

    def names(self) -> Iterator[str]:
        """Yield the names of processes and threads."""
        yield named("process_name", FLEET_PID, 0, "fleet")
        yield ordered("process", FLEET_PID)
        if self.central:
            yield named("thread_name", FLEET_PID, self.central, "controller")
            yield ordered("thread", FLEET_PID, self.central)
        for index, worker in enumerate(self.fleet.workers):
            pid = FIRST_PID + index
            yield named("process_name", pid, 0, f"{worker.name} ({worker.gpu.type or 'GPU'})")
            yield ordered("process", pid)
            for (kind, lane), tid in self.threads[index].items():
                yield named("thread_name", pid, tid, f"{kind}, {lane + 1}" if lane else kind)
                yield ordered("thread", pid, tid)

    def presence(self) -> Iterator[str]:
        """Yield what each worker was while it was rented; nothing where none was ever off."""
        if self.history.presence.changes:
            for worker, what, since, until in self.history.presence.of(STARTING, ON, DRAINING, FAILED):
                yield span(what, "rented", since, until, FIRST_PID + worker, self.threads[worker]["rented", 0], {})

    def decisions(self) -> Iterator[str]:
        """Yield when each controller was busy."""
        for desk, begin, until, waited in self.history.decisions.made:
            where = (
                (FLEET_PID, self.central)
                if desk == CENTRAL
                else (FIRST_PID + desk, self.threads[desk]["controller", 0])
            )
            yield span("decision", "decision", begin, until, *where, {"waited_ms": waited / 1e6})

    def batches(self) -> Iterator[str]:
        """Yield what held the GPU, and within it: loading, then computing."""
        for batch_run, until, lane in self.batch_runs:
            where = FIRST_PID + batch_run.worker, self.threads[batch_run.worker]["GPU", lane]
            ended = "done" if batch_run.end >= 0 else "lost" if batch_run.lost >= 0 else "running"
            args = {
                "batch": batch_run.tasks,
                "cpus": batch_run.cpus,
                "slices": batch_run.slices,
                "requests": [request for request, _ in batch_run.members],
                "ended": ended,
            }
            yield span(self.catalogue.functions[batch_run.function].name, "batch", batch_run.begin, until, *where, args)
            computing = self._computes_from(batch_run, until)
            if computing > batch_run.begin:
                models = [self.catalogue.models[model].name for model, _ in batch_run.loads]
                told = {"models": models, "process_ms": batch_run.cold / 1e6}
                yield span("load", "load", batch_run.begin, computing, *where, told)
            if until > computing:
                yield span("run", "run", computing, until, *where, {})
            if 0 <= batch_run.first_token < until:
                yield instant("first token", "t", batch_run.first_token, *where)

    def _computes_from(self, batch_run: BatchRun, until: int) -> int:
        """Return when a batch began to compute.

        A batch cut off before all inputs were there computed nothing; one that needed nothing computed at once.
        """
        if batch_run.start >= 0:
            return min(batch_run.start, until)
        return until if batch_run.loads or batch_run.cold or batch_run.inputs > batch_run.begin else batch_run.begin

    def fetches(self) -> Iterator[str]:
        """Yield weights and processes that came before anybody waited for them."""
        for fetch, lane in self.prefetches:
            models, functions = self.catalogue.models, self.catalogue.functions
            name = (
                f"fetch {models[fetch.model].name}" if fetch.model >= 0 else f"start {functions[fetch.function].name}"
            )
            where = FIRST_PID + fetch.worker, self.threads[fetch.worker]["ahead", lane]
            yield span(name, "ahead", fetch.begin, fetch.end, *where, {})

    def waits(self) -> Iterator[str]:
        """Yield inputs in transfer to a worker, tasks in its queue and tasks that wait for a decision.

        Tasks without a worker wait at the fleet.
        """
        numbers = count(1)
        for attempt in self.history:
            for what, since, until, pid in self._waits(attempt):
                if until > since:
                    task = self.history.graphs[attempt.request].tasks[attempt.task].name
                    name = json.dumps(f"{what}: {task} of request {attempt.request}")
                    same = f'"cat":"{what}","id":{next(numbers)},"name":{name},"pid":{pid},"tid":{pid}'
                    yield f'{{"ph":"b",{same},"ts":{microseconds(since)}}}'
                    yield f'{{"ph":"e",{same},"ts":{microseconds(until)}}}'

    def _waits(self, attempt: Attempt) -> Iterator[tuple[str, int, int, int]]:
        """Yield (kind of wait, since, until, process)."""
        if attempt.ready < 0:
            return
        batch_run = attempt.batch_run
        end = self.history.dropped.get(attempt.request, self.history.horizon) if attempt.lost < 0 else attempt.lost
        queued = bool(attempt.queues)
        for what, worker, since, until in self.history.waits(attempt, end):
            named = "decision" if what == "controller" else what
            yield named, since, until, FIRST_PID + worker if queued and worker >= 0 else FLEET_PID
        if batch_run is not None and batch_run.start > batch_run.begin and batch_run.inputs >= batch_run.start:
            yield "transfer", batch_run.begin, batch_run.start, FIRST_PID + batch_run.worker

    def moments(self) -> Iterator[str]:
        """Yield failures and recoveries of workers, and dropped requests."""
        for worker, _, since, until in sorted(self.history.presence.of(FAILED), key=lambda each: (each[2], each[0])):
            pid = FIRST_PID + worker
            yield instant("worker failed", "p", since, pid, pid)
            if until < self.history.horizon:
                yield instant("worker back", "p", until, pid, pid)
        for request, time in self.history.dropped.items():
            yield instant(f"request {request} given up", "p", time, FLEET_PID, FLEET_PID)

    def counters(self) -> Iterator[str]:
        """Yield requests that live, workers that are up, tasks in each queue."""
        history = self.history
        ended = {**{request: time for request, (time, _) in history.answered.items()}, **history.dropped}
        alive = [(time, 1) for time in history.arrived.values()] + [(time, -1) for time in ended.values()]
        yield from _counter("requests", "alive", FLEET_PID, alive)
        if any(history.presence.of(OFF, STARTING, DRAINING, FAILED)):
            there = list(history.presence.of(ON))
            up = [(each.since, 1) for each in there]
            up += [(each.until, -1) for each in there if each.until < history.horizon]
            yield from _counter("workers", "up", FLEET_PID, up)
        queues: list[list[Change]] = [[] for _ in self.fleet.workers]
        for attempt in history:
            for worker, since, until in attempt.queues:
                queues[worker] += [(since, 1)] + ([(until, -1)] if until >= 0 else [])
        for worker, changes in enumerate(queues):
            yield from _counter("queue", "tasks", FIRST_PID + worker, changes)


def _counter(name: str, what: str, pid: int, changes: Sequence[Change]) -> Iterator[str]:
    """Yield how many there are after each instant at which that changes."""
    value = 0
    ordered = sorted(changes)
    for index, (time, change) in enumerate(ordered):
        value += change
        if index + 1 == len(ordered) or ordered[index + 1][0] > time:
            yield counter(name, what, pid, time, value)
