"""Warm pool of Aquatope: every second each function keeps as many processes as a forecast says.

The authors' forecast is a recurrent network, trained beforehand on 48 past counts of containers. Ours is a Bayesian
linear regression of the next count on the last 48, learned as the run goes; before it has learned anything it expects
the last count again. The pool is the mean plus some standard deviations of the forecast.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from math import ceil, sqrt

import numpy as np

from headway.fleet.model.actions import Action, StartInstance, StopInstance, WakeAt
from headway.fleet.policies.aquatope.space import Floats
from headway.fleet.policies.central.fronts import most_processes
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import WorkerState
from headway.units import SECOND

STEP = SECOND
PAST = 48
_RECENT = 12


class Forecast:
    """Forecasts the next of a series of counts, with its uncertainty."""

    def __init__(self) -> None:
        self.past: deque[int] = deque(maxlen=PAST)
        self._precision = np.diag([1.0, 4.0, 4.0, 4.0])
        self._moment = self._precision @ np.array([0.0, 1.0, 0.0, 0.0])
        self._squares, self._count = 1.0, 1

    def observe(self, count: int) -> None:
        """Learn the next count."""
        if self.past:
            features = self._features()
            error = count - float(features @ np.linalg.solve(self._precision, self._moment))
            self._precision = self._precision + np.outer(features, features)
            self._moment = self._moment + features * count
            self._squares, self._count = self._squares + error * error, self._count + 1
        self.past.append(count)

    def wanted(self, deviations: float) -> int:
        """Return the pool for the next step; 0 where none was used in all 48 steps."""
        if not any(self.past):
            return 0
        features = self._features()
        mean = float(features @ np.linalg.solve(self._precision, self._moment))
        doubt = 1.0 + float(features @ np.linalg.solve(self._precision, features))
        return max(0, ceil(mean + deviations * sqrt(self._squares / self._count * doubt) - 1e-6))

    def _features(self) -> Floats:
        past = list(self.past)
        recent = past[-_RECENT:]
        return np.array([1.0, past[-1], sum(recent) / len(recent), sum(past) / len(past)])


class WarmPool:
    """Starts and stops processes so that each function has as many as its forecast says."""

    def __init__(
        self, state: ServingState, orders: Sequence[Sequence[int]], deviations: float, *, shrink: bool
    ) -> None:
        """``orders``: by function, the workers from its home on."""
        cold = [index for index, kind in enumerate(state.catalogue.functions) if kind.cold_start]
        self._forecasts = {function: Forecast() for function in cold}
        self._peaks = dict.fromkeys(cold, 0)
        """By function: most processes in use at once in this step."""
        self._orders, self._deviations, self._shrink = orders, deviations, shrink
        self._due = -1
        """When this step ends; -1: asleep, nothing is in use and nothing is kept."""

    def use(self, state: ServingState, function: int) -> None:
        """Note that a batch of a function was started."""
        if function in self._peaks:
            self._peaks[function] = max(self._peaks[function], _busy(state, function))

    def on_step(self, now: int, state: ServingState) -> Iterator[Action]:
        """At the end of a step: learn what was used, forecast the next step, and adjust the pool."""
        if self._due < 0 and state.requests and self._forecasts:
            self._due = (now // STEP + 1) * STEP
            yield WakeAt(self._due)
        if self._due < 0 or now < self._due:
            return
        for function, forecast in self._forecasts.items():
            forecast.observe(self._peaks[function])
            self._peaks[function] = _busy(state, function)
            yield from self._adjust(state, function, forecast.wanted(self._deviations))
        if state.requests or any(any(forecast.past) for forecast in self._forecasts.values()):
            self._due = (now // STEP + 1) * STEP
            yield WakeAt(self._due)
        else:
            self._due = -1

    def _adjust(self, state: ServingState, function: int, wanted: int) -> Iterator[Action]:
        """Start missing processes, each on the worker with the fewest, from home on; stop idle ones that are extra."""
        workers = [state.workers[index] for index in self._orders[function] if state.workers[index].up]
        have = {worker.id: worker.processes(function) for worker in workers}
        missing, kind = wanted - sum(have.values()), state.catalogue.functions[function]
        for _ in range(missing):
            room = [worker for worker in workers if have[worker.id] < most_processes(worker.worker, kind)]
            if not room:
                return
            fewest = min(room, key=lambda worker: have[worker.id])
            have[fewest.id] += 1
            yield StartInstance(fewest.id, function)
        if self._shrink:
            yield from _stop(workers, function, -missing)


def _stop(workers: Sequence[WorkerState], function: int, extra: int) -> Iterator[Action]:
    for worker in reversed(workers):
        for _ in range(min(extra, len(worker.idle.get(function, ())))):
            extra -= 1
            yield StopInstance(worker.id, function)


def _busy(state: ServingState, function: int) -> int:
    """Return how many processes of a function run a batch, or start for one."""
    return sum(batch.function == function for worker in state.workers for batch in worker.running.values())
