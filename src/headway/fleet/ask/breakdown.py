"""Break the latency of a request down by cause, from the tape: exact, in nanoseconds, and what would have saved it.

The chain of tasks that decided the answer goes from the arrival to the answer without a gap: each task of it became
ready when the one before ended. So the parts of all its tasks add up to the latency. Of a request that was dropped, or
that is open at the end of the tape, the parts add up to the time until then.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from headway.core.tape import Tape
from headway.fleet.model.catalogue import Catalogue
from headway.fleet.model.fleet import Fleet
from headway.fleet.model.latency import LatencyModel
from headway.fleet.model.request import Request
from headway.fleet.show.history.attempts import Attempt, BatchRun
from headway.fleet.show.history.history import TaskHistory
from headway.fleet.show.history.room import Room
from headway.units import REFERENCE_SPEED_PPM

CAUSES = {
    "queue": "no room on the worker",
    "decision": "not taken up yet",
    "controller": "waited for a decision",
    "inputs": "inputs sent",
    "process": "process start",
    "weights": "weights fetched",
    "engine": "in the engine's line",
    "run": "run alone",
    "neighbours": "slowed by neighbours",
    "lost": "lost with workers",
}
"""What the time of a request goes into, and its name in tables."""
CHANGES = {
    "queue": "a free worker",
    "decision": "taking it up at once",
    "controller": "decisions in no time",
    "inputs": "inputs in place",
    "process": "no process start",
    "weights": "weights resident",
    "engine": "room in the engine",
    "neighbours": "no neighbours",
    "lost": "no worker failure",
}
"""What would take each cause away."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of time of one task with one cause."""

    cause: str
    since: int
    until: int
    worker: int
    """-1: none was chosen yet."""

    @property
    def length(self) -> int:
        """Return how long it is."""
        return self.until - self.since


@dataclass(frozen=True, slots=True)
class TaskParts:
    """One task of the chain."""

    attempt: Attempt
    pieces: tuple[Piece, ...]
    lost: int
    """Time before it that was lost with failed workers."""

    @property
    def worker(self) -> int:
        """Return the last worker it was at; -1 for none."""
        return self.pieces[-1].worker if self.pieces else -1

    def sums(self) -> dict[str, int]:
        """Return its nanoseconds by cause."""
        sums = dict.fromkeys(CAUSES, 0)
        for piece in self.pieces:
            sums[piece.cause] += piece.length
        sums["lost"] += self.lost
        return sums


@dataclass(frozen=True, slots=True)
class Parts:
    """A request and where its time went."""

    request: Request
    end: int
    """When it was answered, dropped, or the tape ended."""
    outcome: str
    """answered, dropped or open."""
    chain: tuple[TaskParts, ...]
    """The tasks that decided it, first to last."""
    needed: int = 0
    """How long it took; of one without an answer, how long it needed in all at least."""
    without: dict[str, int] = field(default_factory=dict)
    """By cause: how long the request would have taken without it, all else equal; at least, without an answer."""

    @property
    def time(self) -> int:
        """Return how long it took, until ``end``."""
        return self.end - self.request.arrival

    def sums(self) -> dict[str, int]:
        """Return nanoseconds by cause; they add up to ``time``."""
        each = [task.sums() for task in self.chain]
        return {cause: sum(sums[cause] for sums in each) for cause in CAUSES}

    @property
    def late(self) -> bool:
        """Return whether it missed its deadline."""
        return _is_late(self.request, self.end, self.outcome)

    @property
    def hopeless(self) -> bool:
        """Return whether it is late and nothing that came after ``end`` could have changed that."""
        return self.late and self.needed > self.request.deadline - self.request.arrival

    @property
    def saviours(self) -> list[str]:
        """Return the causes of which each alone, taken away, would have let it be in time; the best first."""
        allowed = self.request.deadline - self.request.arrival
        found = [cause for cause, time in self.without.items() if time <= allowed] if self.hopeless else []
        return sorted(found, key=lambda cause: self.without[cause])

    @property
    def main(self) -> str:
        """Return the cause besides running alone that took most of its time; what would save it if none took any."""
        sums = self.sums()
        most = max((cause for cause in CAUSES if cause != "run"), key=lambda cause: sums[cause])
        return most if sums[most] else next(iter(self.saviours), "run")


class Breakdown:
    """The parts of all requests of a run."""

    def __init__(
        self, catalogue: Catalogue, fleet: Fleet, requests: Sequence[Request], tape: Tape, latency: LatencyModel
    ) -> None:
        self.catalogue, self.fleet, self.latency = catalogue, fleet, latency
        self.requests = {request.id: request for request in requests}
        self.history = TaskHistory(catalogue, fleet, requests, tape)
        self.room = Room(fleet, latency, self.history)

    def of(self, number: int) -> Parts:
        """Return the parts of a request that has arrived."""
        history, request = self.history, self.requests[number]
        end, outcome = self._outcome(number)
        last = None if outcome == "answered" else self._deciding(number, end)
        if last is None and outcome != "answered":
            return Parts(request, end, outcome, ())
        chain = [
            TaskParts(attempt, tuple(self._pieces(attempt, end)), lost) for attempt, lost in history.chain(number, last)
        ]
        parts = Parts(request, end, outcome, tuple(reversed(chain)))
        tasks = self._tasks(number, end)
        without = {cause: self._without(parts, tasks, cause) for cause in CHANGES}
        return replace(parts, needed=self._without(parts, tasks, ""), without=without)

    def is_late(self, number: int) -> bool:
        """Return whether a request that has arrived missed its deadline."""
        return _is_late(self.requests[number], *self._outcome(number))

    def _outcome(self, number: int) -> tuple[int, str]:
        """Return when a request ended, and how: answered, dropped, or open when the tape ends."""
        history = self.history
        if number in history.answered:
            return history.answered[number][0], "answered"
        if number in history.dropped:
            return history.dropped[number], "dropped"
        return history.horizon, "open"

    def _deciding(self, number: int, end: int) -> Attempt | None:
        """Return the task without which a request could not go on: ready, not done, the longest way still to go."""
        graph = self.history.graphs[number]
        far = graph.lengths_from([self._fastest[function] for function in graph.functions])
        ready = [
            attempts[-1]
            for attempts in self.history.tasks[number]
            if attempts[-1].ready >= 0 and not _has_ended(attempts[-1].batch_run, end)
        ]
        return max(ready, key=lambda attempt: (far[attempt.task], -attempt.task), default=None)

    # --- one task ---

    def _pieces(self, attempt: Attempt, end: int) -> Iterator[Piece]:
        """Yield the stretches of a task from when it was ready to its end, or until ``end``; without a gap."""
        run = attempt.batch_run if attempt.batch_run is not None and attempt.batch_run.begin <= end else None
        begin = end if run is None else run.begin
        yield from self._waits(attempt, run, begin)
        if run is not None:
            start = min(end, _started(run))
            if start > begin:
                yield Piece(self._held_up_by(run, start), begin, start, run.worker)
            until = run.end if _has_ended(run, end) else end
            alone = start + self._alone(attempt.request, run, until - start)
            yield Piece("run", start, alone, run.worker)
            if until > alone:
                yield Piece("neighbours", alone, until, run.worker)

    def _alone(self, request: int, run: BatchRun, took: int) -> int:
        """Return how long a batch that took so long would have taken alone: on its GPU, or in its engine."""
        if (kind := self.catalogue.functions[run.function].generate) is not None:
            asked = self.requests[request]
            return min(took, kind.alone(asked.prompt_tokens, asked.output_tokens))
        slower = max(REFERENCE_SPEED_PPM, self.latency.beside(run.function, run.beside, run.worker, run.slices))
        return took * REFERENCE_SPEED_PPM // slower

    def _waits(self, attempt: Attempt, run: BatchRun | None, begin: int) -> Iterator[Piece]:
        """Yield the stretches before a batch took a task up: unplaced, undecided, inputs on their way, in queues."""
        for what, worker, since, until in self.history.waits(attempt, begin):
            if what == "wait":
                yield from self._wait(attempt, run, since, until, worker)
            else:
                yield Piece("inputs" if what == "transfer" else what, since, until, worker)

    def _wait(self, attempt: Attempt, run: BatchRun | None, since: int, until: int, worker: int) -> Iterator[Piece]:
        """Yield a wait in two: while there was no room, and while there was."""
        function = self.history.graphs[attempt.request].functions[attempt.task]
        if worker < 0:
            full = self.room.missing_anywhere(function, since, until)
        else:
            least = self.latency.least(worker, function)
            need = (least.cpus, least.slices) if run is None or run.worker != worker else (run.cpus, run.slices)
            full = self.room.missing(worker, *need, since, until)
        if full:
            yield Piece("queue", since, since + full, worker)
        if since + full < until:
            yield Piece("decision", since + full, until, worker)

    # --- what would have been ---

    def _tasks(self, number: int, end: int) -> list[TaskParts]:
        """Return all tasks of a request, those of the chain and others; none where tasks were lost."""
        attempts = self.history.tasks[number]
        if any(len(each) > 1 for each in attempts):
            return []
        return [TaskParts(each, tuple(self._pieces(each, end)) if each.ready >= 0 else (), 0) for (each,) in attempts]

    def _without(self, parts: Parts, tasks: Sequence[TaskParts], cause: str) -> int:
        """Return how long a request would have taken without a cause (any text: none), all else being as it was.

        All its tasks are looked at: another branch may decide then. Where tasks were lost, the chain alone.
        """
        end, cut = parts.end, parts.outcome != "answered"
        if not tasks:
            return sum(self._kept(task, cause, end) for task in parts.chain) + self._left(parts)
        lengths = [
            self._kept(task, cause, end) + (self._ahead(task.attempt, cause, end) if cut else 0) for task in tasks
        ]
        return self.history.graphs[parts.request.id].critical_path(lengths)

    def _kept(self, task: TaskParts, cause: str, end: int) -> int:
        """Return how long a task would have taken without a cause, from when it was ready."""
        kept = sum(length for name, length in task.sums().items() if name != cause)
        run = task.attempt.batch_run
        if run is not None and run.begin <= end and cause in ("inputs", "process", "weights", "engine"):
            start = min(end, _started(run))
            if start > run.begin and self._held_up_by(run, start) == cause:  # all else took its time too
                kept += max(0, min(start, _ready_without(run, cause)) - run.begin)
        return kept

    def _left(self, parts: Parts) -> int:
        """Return what a chain that was cut short needs at least to its end."""
        if parts.outcome == "answered":
            return 0
        graph = self.history.graphs[parts.request.id]
        far = graph.lengths_from([self._fastest[function] for function in graph.functions])
        return far[parts.chain[-1].attempt.task]

    def _ahead(self, attempt: Attempt, cause: str, end: int) -> int:
        """Return what a task needs at least after ``end``: the start of a process where none is there, and its run."""
        run = attempt.batch_run
        if run is not None and run.begin <= end:
            took = max(0, min(end, run.end if run.end >= 0 else end) - min(end, _started(run)))
            return 0 if _has_ended(run, end) else max(0, self._fastest[run.function] - took)
        function = self.history.graphs[attempt.request].functions[attempt.task]
        cold_start = self.catalogue.functions[function].cold_start
        process = 0 if cause == "process" else self.history.process_in(function, cold_start, end)
        return self._fastest[function] + process

    def _held_up_by(self, run: BatchRun, start: int) -> str:
        """Return which of inputs, process, weights and a place in the engine was there last."""
        if run.inputs >= start:
            return "inputs"
        if run.cold and run.begin + run.cold >= start:
            return "process"
        generates = self.catalogue.functions[run.function].generate is not None
        return "engine" if generates and _ends(run)["weights"] < start else "weights"

    @cached_property
    def _fastest(self) -> tuple[int, ...]:
        """Return by function what one task takes at least, on any GPU of the fleet."""
        first = {worker.gpu: index for index, worker in enumerate(self.fleet.workers)}
        return tuple(
            min(min(self.latency.cells(index, function).values()) for index in first.values())
            for function in range(len(self.catalogue.functions))
        )


def _is_late(request: Request, end: int, outcome: str) -> bool:
    """Return whether a request was answered after its deadline, dropped, or open when its deadline passed."""
    return bool(request.deadline) and (outcome == "dropped" or end > request.deadline)


def _has_ended(run: BatchRun | None, end: int) -> bool:
    return run is not None and 0 <= run.end <= end


def _started(run: BatchRun) -> int:
    """Return when a batch began to compute, or would: a batch that waits for nothing has no row for it."""
    if run.start >= 0:
        return run.start
    return max(run.begin, *_ends(run).values())


def _ends(run: BatchRun) -> dict[str, int]:
    """Return when inputs, process and weights of a batch were there; of weights at the earliest."""
    weights = run.begin + sum(time for _, time in run.loads)
    return {"inputs": run.inputs, "process": run.begin + run.cold if run.cold else run.begin, "weights": weights}


def _ready_without(run: BatchRun, cause: str) -> int:
    """Return when a batch could have begun to compute without one of inputs, process and weights."""
    return max(run.begin, *(end for name, end in _ends(run).items() if name != cause))
