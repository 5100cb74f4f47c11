"""Failures and recoveries of workers, drawn from named streams of the run's seed.

Either each worker fails by itself (``mtbf``), or at every tick one of those that are up, drawn at random (``every``).
The failures do not depend on what happens in the run. The last worker that is up never fails.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from headway.errors import ExperimentError
from headway.fleet.model.events import WorkerFailed, WorkerRecovered
from headway.fleet.scenarios.tables.settings import ServingExperiment, check_failures
from headway.jobs.tables.settings import LEAST_MTBF, span
from headway.streams import small_stream

FaultEvent = WorkerFailed | WorkerRecovered
Fault = tuple[int, FaultEvent]


@dataclass(frozen=True, slots=True)
class ByWorker:
    """Mean time between failures of one worker and mean time to its recovery, both exponential."""

    mtbf: int
    repair: int


@dataclass(frozen=True, slots=True)
class ByTick:
    """A worker fails at every tick, and recovers after exactly ``repair``."""

    every: int
    repair: int


class DrawnFaults:
    """Worker failures and recoveries of one run, handed out one event at a time for each worker.

    No worker fails after ``until``, but those that are down by then come back.
    """

    def __init__(self, workers: int, seed: int, model: ByWorker | ByTick, until: int) -> None:
        history = _by_worker(workers, seed, model) if isinstance(model, ByWorker) else _by_tick(workers, seed, model)
        self._history = history
        self._until = until
        self._drawn: list[deque[Fault]] = [deque() for _ in range(workers)]
        """Events of each worker that are drawn and not handed out yet."""
        self._over = False

    def first(self) -> Sequence[Fault]:
        """Return the first failure of each worker that fails at all."""
        faults = (self._next(worker) for worker in range(len(self._drawn)))
        return [fault for fault in faults if fault is not None]

    def after(self, now: int, event: FaultEvent) -> Fault | None:
        """Return the next failure or recovery of the same worker; None if there is none."""
        return self._next(event.worker)

    def _next(self, worker: int) -> Fault | None:
        drawn = self._drawn[worker]
        while not drawn and not self._over:
            time, lasts, failed = next(self._history)
            if time > self._until:
                self._over = True
            else:
                self._drawn[failed] += ((time, WorkerFailed(failed)), (time + lasts, WorkerRecovered(failed)))
        return drawn.popleft() if drawn else None


_Failure = tuple[int, int, int]
"""(time, duration, worker)."""


def _by_worker(workers: int, seed: int, model: ByWorker) -> Iterator[_Failure]:
    draws = [small_stream(seed, f"worker-failures/{worker}") for worker in range(workers)]

    def drawn(worker: int, mean: int) -> int:
        return max(1, round(draws[worker].expovariate(1 / mean)))

    due = [(drawn(worker, model.mtbf), worker) for worker in range(workers)]
    heapify(due)
    back = [-1] * workers
    """The time at which each failed worker is up again."""
    while True:
        time, worker = heappop(due)
        soonest = min(returns for other, returns in enumerate(back) if other != worker)
        if soonest >= time:  # the last one that is up does not fail
            heappush(due, (soonest + drawn(worker, model.mtbf), worker))
            continue
        lasts = drawn(worker, model.repair)
        back[worker] = time + lasts
        heappush(due, (time + lasts + drawn(worker, model.mtbf), worker))
        yield time, lasts, worker


def _by_tick(workers: int, seed: int, model: ByTick) -> Iterator[_Failure]:
    draw = small_stream(seed, "worker-failures")
    back = [-1] * workers
    time = 0
    while True:
        time += model.every
        up = [worker for worker, returns in enumerate(back) if returns < time]
        if len(up) < 2:  # go on to the first tick at which another worker is up
            soonest = min(returns for worker, returns in enumerate(back) if worker not in up)
            time = soonest // model.every * model.every
            continue
        worker = up[draw.randrange(len(up))]
        back[worker] = time + model.repair
        yield time, model.repair, worker


def faults_of(experiment: ServingExperiment, workers: int, until: int) -> DrawnFaults | None:
    """Return the worker failures of an experiment, up to ``until``; None where its table sets none."""
    table = experiment.failures
    check_failures(table)
    if table.mtbf == "" and table.every == "":
        return None
    if workers < 2:
        raise ExperimentError("failures need at least 2 workers: the last one that is up never fails")
    repair = span(table.repair, "failures repair", least=1)
    model: ByWorker | ByTick
    if table.mtbf != "":
        model = ByWorker(span(table.mtbf, "failures mtbf", least=LEAST_MTBF), repair)
    else:
        model = ByTick(span(table.every, "failures every", least=LEAST_MTBF), repair)
    return DrawnFaults(workers, experiment.run.seed, model, until)
