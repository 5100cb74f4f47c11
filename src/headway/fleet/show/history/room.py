"""Say when workers had no room for a batch, from the batches on the tape."""

from collections.abc import Sequence

import numpy as np

from headway.fleet.model.fleet import Fleet
from headway.fleet.model.latency import LatencyModel
from headway.fleet.show.history.history import TaskHistory
from headway.fleet.show.history.presence import DRAINING, FAILED, OFF, STARTING
from headway.statistics.series import IntArray

Stretches = tuple[IntArray, IntArray]
"""Times at which something changes, and the nanoseconds before each at which there was no room."""


class Room:
    """The CPUs and slices of workers over time. A worker that is not on has no room."""

    def __init__(self, fleet: Fleet, latency: LatencyModel, history: TaskHistory) -> None:
        self._fleet, self._latency, self._horizon = fleet, latency, history.horizon
        self._changes: list[list[tuple[int, int, int]]] = [[] for _ in fleet.workers]
        """By worker: (time, CPUs taken, slices taken)."""
        for run in history.batch_runs.values():
            taken = (run.begin, run.cpus, run.slices), (run.until(self._horizon), -run.cpus, -run.slices)
            self._changes[run.worker] += taken
        for worker, _, since, until in history.presence.of(OFF, STARTING, DRAINING, FAILED):
            cpus, slices = fleet.workers[worker].cpus, fleet.workers[worker].gpu.slices
            self._changes[worker] += [(since, cpus, slices), (until, -cpus, -slices)]
        self._of_worker: dict[tuple[int, int, int], Stretches] = {}
        self._anywhere: dict[int, Stretches] = {}

    def missing(self, worker: int, cpus: int, slices: int, since: int, until: int) -> int:
        """Return how long, between two times, so many CPUs and slices were not free on a worker."""
        key = (worker, cpus, slices)
        if key not in self._of_worker:
            self._of_worker[key] = _cumulated(*self._full(*key))
        return _within(self._of_worker[key], since, until)

    def missing_anywhere(self, function: int, since: int, until: int) -> int:
        """Return how long, between two times, no worker had room for one task of a function."""
        if function not in self._anywhere:
            self._anywhere[function] = _cumulated(*self._full_everywhere(function))
        return _within(self._anywhere[function], since, until)

    def _full(self, worker: int, cpus: int, slices: int) -> tuple[IntArray, IntArray]:
        """Return when a worker's room changes, and whether from then on it is too small."""
        changes = np.array(sorted(self._changes[worker]), dtype=np.int64).reshape(-1, 3)
        kind = self._fleet.workers[worker]
        taken = np.cumsum(changes[:, 1:], axis=0)
        full = (kind.cpus - taken[:, 0] < cpus) | (kind.gpu.slices - taken[:, 1] < slices)
        last = np.append(changes[1:, 0] != changes[:-1, 0], True)[: len(changes)]  # the last of each moment counts
        return changes[last, 0], full[last].astype(np.int64)

    def _full_everywhere(self, function: int) -> tuple[IntArray, IntArray]:
        """Return when the number of workers without room changes, and whether from then on it is all of them."""
        times, steps = [], []
        for worker in range(len(self._fleet.workers)):
            least = self._latency.least(worker, function)
            at, full = self._full(worker, least.cpus, least.slices)
            times.append(at)
            steps.append(np.diff(full, prepend=0))
        at, step = np.concatenate(times), np.concatenate(steps)
        order = np.argsort(at, kind="stable")
        return at[order], (np.cumsum(step[order]) == len(times)).astype(np.int64)


def _cumulated(times: IntArray, full: IntArray) -> Stretches:
    lengths = np.diff(times) * full[:-1]
    return times, np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))[: len(times)]


def _within(stretches: Stretches, since: int, until: int) -> int:
    times, before = stretches
    if not len(times):
        return 0
    # after the last change nothing runs any more, and before the first nothing did
    low, high = (_at(times, before, time) for time in (since, until))
    return high - low


def _at(times: IntArray, before: IntArray, time: int) -> int:
    index = int(np.searchsorted(times, time, side="right")) - 1
    if index < 0:
        return 0
    if index + 1 == len(times):
        return int(before[index])
    step = int(before[index + 1] - before[index])
    return int(before[index]) + (time - int(times[index]) if step else 0)


def overlapping(history: TaskHistory, worker: int, since: int, until: int) -> Sequence[tuple[int, int]]:
    """Return the functions whose batches held a worker between two times, and for how long; the longest first."""
    held: dict[int, int] = {}
    for run in history.batch_runs.values():
        if run.worker == worker:
            both = min(until, run.until(history.horizon)) - max(since, run.begin)
            if both > 0:
                held[run.function] = held.get(run.function, 0) + both
    return sorted(held.items(), key=lambda each: -each[1])
