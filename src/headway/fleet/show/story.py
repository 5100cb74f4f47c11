"""Tell what happened to one request, from the tape: each task's queues and batches, and where the time went."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headway.core.tape import Tape, TapeRow
from headway.fleet.model.catalogue import Catalogue
from headway.fleet.model.fleet import Fleet
from headway.fleet.model.latency import LatencyModel
from headway.fleet.model.request import NO_GROUPS, Groups, Request
from headway.fleet.model.rows import UNANSWERED, Kind
from headway.fleet.show.history.attempts import Attempt, BatchRun
from headway.fleet.show.history.history import PARTS, TaskHistory
from headway.show.formatting import clipped, listed, milliseconds
from headway.units import format_size, to_seconds

_MOST_NEIGHBOURS = 3
_LEAVES = frozenset(map(int, (Kind.PLACE, Kind.MOVE, *UNANSWERED)))
"""Rows that take a task out of a queue."""


@dataclass(frozen=True, slots=True)
class Step:
    """A moment of the story."""

    time: int
    row: float
    """Of the tape: within an instant the story follows it."""
    text: str


@dataclass(frozen=True, slots=True)
class RequestStory:
    """The whole of it."""

    request: Request
    graph: str
    steps: tuple[Step, ...]
    arrived: bool
    answered: int
    """When; -1: never."""
    dropped: int
    horizon: int
    """When the tape ends."""
    left: tuple[str, ...]
    """Where its tasks are when the tape ends without an answer."""
    least: int
    """The critical path, had nothing been in the way."""
    spent: dict[str, int]
    """Nanoseconds of the chain of tasks that decided when it was answered, by what they were spent on."""
    whose: str = ""
    """Its class, priority and tenant, where they have names."""

    def lines(self) -> Iterator[str]:
        """Yield the story as lines for a terminal."""
        request = self.request
        name = f"request {request.id}: {clipped(self.graph)}{self.whose}"
        if not self.arrived:
            yield f"{name}, due at {to_seconds(request.arrival):.3f} s"
            yield f"not arrived: the run ended at {to_seconds(self.horizon):.3f} s"
            return
        deadline = (
            ""
            if not request.deadline
            else f", to be answered within {milliseconds(request.deadline - request.arrival)}"
        )
        yield f"{name}, arrived at {to_seconds(request.arrival):.3f} s{deadline}"
        width = max((len(milliseconds(step.time - request.arrival)) for step in self.steps), default=0) + 1
        for step in self.steps:
            yield f"  {'+' + milliseconds(step.time - request.arrival):>{width}}  {step.text}"
        yield from self._end()

    def _end(self) -> Iterator[str]:
        request = self.request
        if self.answered >= 0:
            latency = self.answered - request.arrival
            times = f"{latency / max(self.least, 1):.2f} times its critical path of {milliseconds(self.least)}"
            yield f"answered after {milliseconds(latency)}: {times}{self._margin(self.answered)}"
            where = listed([f"{milliseconds(time)} {PARTS[what]}" for what, time in self.spent.items() if time])
            yield f"the chain of tasks that decided it: {where}"
        elif self.dropped >= 0:
            yield f"given up after {milliseconds(self.dropped - request.arrival)}{self._margin(self.dropped)}"
        else:
            yield f"not answered: the run ended {milliseconds(self.horizon - request.arrival)} after it came in"
            yield from (f"  {line}" for line in self.left)

    def _margin(self, time: int) -> str:
        if not self.request.deadline:
            return ""
        over = time - self.request.deadline
        return f", {milliseconds(over)} late" if over > 0 else f", {milliseconds(-over)} before its deadline"

    def record(self) -> dict[str, Any]:
        """Return the story as JSON, for a program."""
        return {
            "request": self.request.id,
            "graph": self.graph,
            "arrival_s": to_seconds(self.request.arrival),
            "deadline_s": to_seconds(self.request.deadline) if self.request.deadline else None,
            "answered_s": to_seconds(self.answered) if self.answered >= 0 else None,
            "dropped_s": to_seconds(self.dropped) if self.dropped >= 0 else None,
            "critical_path_s": to_seconds(self.least),
            "spent_s": {what: to_seconds(time) for what, time in self.spent.items()},
            "steps": [{"time_s": to_seconds(step.time), "text": step.text} for step in self.steps],
        }


def story(
    catalogue: Catalogue,
    fleet: Fleet,
    requests: Sequence[Request],
    tape: Tape,
    number: int,
    groups: Groups = NO_GROUPS,
) -> RequestStory:
    """Return the story of the request with this number."""
    request = next(each for each in requests if each.id == number)
    told = _Teller(catalogue, fleet, requests, request, tape).tell()
    return replace(told, whose=_whose(request, groups))


def _whose(request: Request, groups: Groups) -> str:
    named = f", class {clipped(groups.classes[request.class_id])}" if groups.classes else ""
    ranked = f", priority {request.priority}" if request.priority else ""
    return f"{named}{ranked}{f', tenant {clipped(groups.tenants[request.tenant])}' if groups.tenants else ''}"


def drop_reason(catalogue: Catalogue, fleet: Fleet, requests: Sequence[Request], tape: Tape, number: int) -> str:
    """Return why a request was given up, as far as the tape and the profiles show it."""
    request = next(each for each in requests if each.id == number)
    teller = _Teller(catalogue, fleet, requests, request, tape)
    return teller.why_dropped(teller.history.dropped[number])


class _Teller:
    def __init__(
        self, catalogue: Catalogue, fleet: Fleet, requests: Sequence[Request], request: Request, tape: Tape
    ) -> None:
        self.catalogue, self.fleet, self.request = catalogue, fleet, request
        self.graph = catalogue.graphs[request.graph]
        self.names = [clipped(task.name) for task in self.graph.tasks]
        self.workers = [clipped(worker.name) for worker in fleet.workers]
        self.steps: list[Step] = []
        self.history = TaskHistory(catalogue, fleet, requests, tape)
        self.latency = LatencyModel(catalogue, fleet)
        own = np.flatnonzero(tape.column("subject") == request.id).tolist()
        self.rows = [(index, TapeRow(*tape.rows[index].tolist())) for index in own]
        self.last: dict[int, int] = {}
        """By task, the row of the tape up to which it is told."""
        self.batches: dict[tuple[int, int], int] = {}
        """By kind and lease, the row of the tape on which a batch began to compute, had its first token or ended."""
        told = (Kind.LOADED, Kind.FIRST_TOKEN, Kind.FINISHED)
        for index in np.flatnonzero(np.isin(tape.column("kind"), told)).tolist():
            self.batches[int(tape.column("kind")[index]), int(tape.column("lease")[index])] = index

    def tell(self) -> RequestStory:
        history, number = self.history, self.request.id
        placed: dict[int, list[tuple[int, TapeRow]]] = {}
        for index, row in self.rows:
            self._read(index, row)
            if row.kind == Kind.PLACE:
                placed.setdefault(row.time, []).append((index, row))
        for time, rows in placed.items():
            self._place(time, rows)
        for attempt in (each for attempts in history.tasks.get(number, ()) for each in attempts):
            self._pass(attempt)
        self.steps.sort(key=lambda step: (step.time, step.row))
        least = self.latency.critical_path(self.graph)
        return RequestStory(
            self.request,
            self.graph.name,
            tuple(self.steps),
            number in history.arrived,
            history.answered.get(number, (-1, 0))[0],
            history.dropped.get(number, -1),
            history.horizon,
            tuple(self._left()),
            least,
            history.spent(number),
        )

    # --- what was decided about it ---

    def _place(self, time: int, rows: list[tuple[int, TapeRow]]) -> None:
        """Tell all that is placed at once in one line, worker by worker."""
        by_worker: dict[int, list[str]] = {}
        for _, row in rows:
            by_worker.setdefault(row.place, []).append(self.names[row.detail])
        placed = "; ".join(f"{listed(tasks)} on {self.workers[worker]}" for worker, tasks in by_worker.items())
        self._say(time, rows[0][0], f"placed{self._decided_after(time)}: {placed}")

    def _decided_after(self, time: int) -> str:
        """Return how long its tasks had waited for the decision that came at a time, if they did."""
        attempts = (attempt for tasks in self.history.tasks[self.request.id] for attempt in tasks if attempt.ready >= 0)
        waits = (wait for attempt in attempts for wait in self.history.waits(attempt, self._end_of(attempt)))
        longest = max(
            (each.until - each.since for each in waits if each.what == "controller" and each.until == time), default=0
        )
        return f" after {milliseconds(longest)} of waiting for a decision" if longest else ""

    def _end_of(self, attempt: Attempt) -> int:
        """Return when an attempt ended that led into no batch."""
        if attempt.lost >= 0:
            return attempt.lost
        return self.history.dropped.get(attempt.request, self.history.horizon)

    def _read(self, index: int, row: TapeRow) -> None:
        if row.kind == Kind.ARRIVED:
            self._say(row.time, index, f"came in at {self.workers[row.place]}")
        elif row.kind == Kind.MOVE:
            came = "" if row.value < 0 else f" instead of {self.workers[row.value]}"
            after = self._decided_after(row.time)
            self._say(row.time, index, f"{self.names[row.detail]} goes to {self.workers[row.place]}{came}{after}")
        elif row.kind == Kind.DROP:
            done = f"{row.value} of {len(self.names)} tasks done"
            after = self._decided_after(row.time)
            self._say(row.time, index, f"given up{after}, with {done}: {self.why_dropped(row.time)}")
        elif row.kind == Kind.REQUEST_FAILED:
            why = f"{self.names[row.detail]} failed" if row.detail >= 0 else "it was late, or nobody waited for it"
            done = f"{row.value} of {len(self.names)} tasks done"
            self._say(row.time, index, f"ended without an answer, with {done}: {why}")

    def why_dropped(self, now: int) -> str:
        """Return why it was given up, as far as the tape and the profiles show it."""
        left = self.request.deadline - now
        if not self.request.deadline or left < 0:
            return "its deadline has passed" if self.request.deadline else "the policy gave no reason"
        functions = self.catalogue.functions
        starts = [
            self.history.process_in(task.function, functions[task.function].cold_start, now)
            for task in self.graph.tasks
        ]
        needs = [
            0 if attempts[-1].batch_run is not None else starts[task] + self._fastest(self.graph.functions[task])
            for task, attempts in enumerate(self.history.tasks[self.request.id])
        ]
        least = self.graph.critical_path(needs)
        if least <= left:
            return "the policy gave no reason"
        cold = [(starts[task], task) for task, time in enumerate(needs) if time and starts[task]]
        who = ""
        if cold:
            time, task = max(cold)
            function = self.catalogue.functions[self.graph.functions[task]]
            who = f", for a process of {clipped(function.name)} is there in {milliseconds(time)}"
        return f"it takes {milliseconds(least)} more at least{who}, and its deadline is in {milliseconds(left)}"

    def _fastest(self, function: int) -> int:
        """Return what one task of a function takes at least, on any GPU of the fleet."""
        first = {worker.gpu: index for index, worker in enumerate(self.fleet.workers)}
        return min(min(self.latency.cells(index, function).values()) for index in first.values())

    # --- what became of each task ---

    def _pass(self, attempt: Attempt) -> None:
        """Add the steps of one attempt at a task: where it waited, what it got, how it ended."""
        name, batch_run = self.names[attempt.task], attempt.batch_run
        begin = batch_run.begin if batch_run is not None else -1
        for index, (worker, since, until) in enumerate(attempt.queues):
            if since != begin:
                sent = max(attempt.ready, attempt.placed)
                came = "" if index or since <= sent else f", its inputs {milliseconds(since - sent)} on their way"
                row = self._row(attempt.task, since, Kind.TASK_ARRIVED, Kind.QUEUED)
                self._say(since, row, f"{name} is queued at {self.workers[worker]}{came}")
            if until >= 0 and until not in (begin, attempt.lost):
                row = self._row(attempt.task, until, *_LEAVES)
                text = f"{name} leaves the queue of {self.workers[worker]} after {milliseconds(until - since)}"
                self._say(until, row + 0.5, text)  # that row is why
        if batch_run is not None:
            self._ran(attempt, batch_run, name)
        if attempt.lost >= 0:
            row = self._row(attempt.task, attempt.lost, Kind.LOST)
            self._say(attempt.lost, row, self._lost(attempt, name))

    def _row(self, task: int, time: int, *kinds: int) -> int:
        """Return the next row of the tape on which something of these kinds befell a task at a time."""
        found = next(
            index
            for index, row in self.rows
            if index > self.last.get(task, -1)
            and row.time == time
            and row.kind in kinds
            and (row.detail == task or row.kind in UNANSWERED)
        )
        self.last[task] = found
        return found

    def _ran(self, attempt: Attempt, batch_run: BatchRun, name: str) -> None:
        waited = self._waited(attempt, batch_run)
        row = self._row(attempt.task, batch_run.begin, Kind.TASK)
        self._say(
            batch_run.begin,
            row,
            f"{name} is taken up by {self.workers[batch_run.worker]}{waited}: {self._given(batch_run)}",
        )
        if batch_run.start > batch_run.begin and (before := self._before_start(batch_run)):
            self._say(batch_run.start, self.batches[Kind.LOADED, batch_run.lease], f"{name} has {before}")
        if batch_run.first_token >= 0:
            took = f"{milliseconds(batch_run.first_token - batch_run.start)} after the engine began"
            text = f"{name} has its first token, {took} with its {self.request.prompt_tokens:,} prompt tokens"
            self._say(batch_run.first_token, self.batches[Kind.FIRST_TOKEN, batch_run.lease], text)
        if batch_run.end >= 0:
            self._say(
                batch_run.end,
                self.batches[Kind.FINISHED, batch_run.lease],
                f"{name} is done, in {milliseconds(batch_run.end - batch_run.start)}",
            )

    def _waited(self, attempt: Attempt, batch_run: BatchRun) -> str:
        """Return how long a task waited in the queue before its batch, for what, and behind whom."""
        since = attempt.queues[-1][1] if attempt.queues else attempt.ready
        whole = batch_run.begin - since
        if whole <= 0:
            return ""
        waits = self.history.waits(attempt, batch_run.begin)
        undecided = sum(each.until - each.since for each in waits if each.what == "controller" and each.since >= since)
        if undecided >= whole:
            return f" after {milliseconds(whole)} of waiting for a decision"
        share = f", {milliseconds(undecided)} of it for a decision," if undecided else ""
        behind = self._behind(batch_run, since, batch_run.begin - undecided)
        return f" after {milliseconds(whole)} of waiting{share}{behind}".removesuffix(",")

    def _lost(self, attempt: Attempt, name: str) -> str:
        batch_run = attempt.batch_run
        if batch_run is None:
            where = f"{self.workers[attempt.queues[-1][0]]} fails" if attempt.queues else "its worker fails"
            return f"{where}: {name} must go elsewhere"
        which = self.workers[batch_run.worker]
        if batch_run.lost >= 0:
            after = milliseconds(batch_run.lost - batch_run.begin)
            return f"{which} fails: {name} is lost after {after}, and must run again"
        return f"{which} fails: the result of {name} is lost, and {name} must run again"

    def _given(self, batch_run: BatchRun) -> str:
        batch = "alone" if batch_run.tasks == 1 else f"in a batch of {batch_run.tasks}"
        cpus = "1 CPU" if batch_run.cpus == 1 else f"{batch_run.cpus} CPUs"
        whole = self.fleet.workers[batch_run.worker].gpu.slices
        if not batch_run.slices:
            return f"{batch}, {cpus}, no GPU"
        share = "the whole GPU" if batch_run.slices == whole else f"{batch_run.slices} of {whole} slices"
        return f"{batch}, {cpus}, {share}"

    def _before_start(self, batch_run: BatchRun) -> str:
        parts = []
        if batch_run.cold:
            parts.append(f"its process after {milliseconds(batch_run.cold)}")
        for model, time in batch_run.loads:
            weights = self.catalogue.models[model]
            size = format_size(weights.weights_bytes)
            parts.append(f"the weights of {clipped(weights.name)} ({size}) after {milliseconds(time)}")
        if batch_run.evicted:
            gone = [clipped(self.catalogue.models[model].name) for model in batch_run.evicted]
            parts.append(f"room where {listed(gone)} {'was' if len(gone) == 1 else 'were'}")
        if not batch_run.cold and not batch_run.loads:
            what = "its inputs" if batch_run.inputs >= batch_run.start else "weights that were on their way"
            if self.catalogue.functions[batch_run.function].generate is not None:
                what = "its place in the engine"
            parts.append(f"{what} after {milliseconds(batch_run.start - batch_run.begin)}")
        return ", ".join(parts)

    def _behind(self, batch_run: BatchRun, since: int, until: int) -> str:
        """Return what its worker did between two times before it took it up."""
        horizon = self.history.horizon
        others = [
            other
            for other in self.history.batch_runs.values()
            if other.worker == batch_run.worker
            and other.lease != batch_run.lease
            and other.begin < until
            and other.until(horizon) > since
        ]
        if not others:
            return ""
        names = [clipped(self.catalogue.functions[other.function].name) for other in others[:_MOST_NEIGHBOURS]]
        rest = len(others) - len(names)
        return f" behind {listed([*names, f'{rest} more'] if rest else names)}"

    def _left(self) -> Iterator[str]:
        """Yield where its tasks are when the tape ends."""
        for attempts in self.history.tasks.get(self.request.id, ()):
            attempt = attempts[-1]
            name, batch_run = self.names[attempt.task], attempt.batch_run
            if batch_run is not None:
                if batch_run.end < 0:
                    yield f"{name} runs on {self.workers[batch_run.worker]}"
            elif attempt.queues and attempt.queues[-1][2] < 0:
                yield f"{name} waits at {self.workers[attempt.queues[-1][0]]}"
            elif attempt.ready >= 0:
                yield f"{name} is ready, and waits for a worker"
            else:
                before = self.graph.predecessors[attempt.task]
                yield f"{name} waits for {listed([self.names[task] for task in before])}"

    def _say(self, time: int, row: float, text: str) -> None:
        self.steps.append(Step(time, row, text))
