"""The fleet as one worker sees it: the others' rows as of their last push, plus what it has placed since."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headway.fleet.policies.headway.worker.order import FleetTables
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import Row

Numbers = list[int] | npt.NDArray[np.int64]
"""One number for each worker; an array in large fleets."""


class Plan:
    """What a request carries besides the workers of its tasks."""

    __slots__ = ("arrivals", "by", "finish", "placed")

    def __init__(self, tasks: int) -> None:
        self.placed = [-1] * tasks
        """When each task was placed last."""
        self.by = [-1] * tasks
        """The worker that placed each task last."""
        self.arrivals = [0] * tasks
        """When the inputs of each task are expected at its worker."""
        self.finish = 0
        """When the last task is expected to end."""


@dataclass(slots=True)
class View:
    """The fleet as one worker sees it. Planning changes a copy as if its tasks were placed."""

    up: int
    """Workers that can be used, as bits."""
    busy: Numbers
    """When the running tasks, and those just planned, will have ended."""
    fetching: Numbers
    """Time to fetch the models that tasks placed there need."""
    backlog: Numbers
    """Run time of the tasks that are queued or on their way."""
    resident: Numbers
    """Models that are resident, or will be fetched for tasks placed there, as bits."""
    free: Numbers
    wanted: Numbers
    """Models that tasks placed there need."""
    slices: Numbers
    """Slices that are free."""
    idle: Numbers
    """Functions with an idle process."""

    def copy(self) -> "View":
        """Return a copy to plan in; planning does not change ``slices`` and ``idle``."""
        return View(
            self.up,
            self.busy.copy(),
            self.fetching.copy(),
            self.backlog.copy(),
            self.resident.copy(),
            self.free.copy(),
            self.wanted.copy(),
            self.slices,
            self.idle,
        )


class Views:
    """Makes views; remembers what each worker placed since the others' last push."""

    def __init__(self, state: ServingState, tables: FleetTables, *, arrays: bool = False) -> None:
        self._tables = tables
        self._epoch = -1
        self._placed_since: dict[int, dict[int, tuple[int, int]]] = {}
        """By planner and worker: run time and models of what was placed in this interval."""
        self._rows: list[Row | None] = [None] * len(state.workers)
        self._pushed: list[Row] | None = None
        self._viewer = 0
        """The rows that were read last, and the worker that read them."""
        count = len(state.workers)
        self._seen = View(0, *(zeros(count, arrays=arrays) for _ in range(8)))
        """The view computed from these rows; a row that is the same object is not read again."""
        self._keep_alive = state.fleet.keep_alive
        self._until = {function: zeros(count, arrays=arrays) for function in tables.cold_functions}
        """By function and worker: until when a process that was idle in a pushed row is sure to exist."""
        self._started: defaultdict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        """By planner and function: workers where the planner knows a process was started, and when it is ready."""
        self._halves = {
            function: np.array([run_times[function] // 2 for run_times in tables.run_times], dtype=np.int64)
            for function in tables.cold_functions
        }

    def view(self, now: int, state: ServingState, viewer: int) -> View:
        """Return all rows as ``viewer`` sees them, with what it placed since."""
        self.read(now, state, viewer)
        return self.as_read(viewer)

    def read(self, now: int, state: ServingState, viewer: int) -> None:
        """Read the rows that ``viewer`` sees."""
        self._renew(now, state)
        rows = state.rows(viewer, now)
        known = self._rows
        same = self._pushed is not None and state.pushed is self._pushed
        # within an interval a worker sees of the others what all see of them
        for index in (self._viewer, viewer) if same else range(len(rows)):
            row = rows[index]
            if row is not known[index]:
                self._read(index, row)
                if index != viewer:  # what a worker knows of itself is not pushed yet
                    self._remember(now, index, row)
        self._pushed, self._viewer = state.pushed, viewer

    @contextmanager
    def as_pushed(self, state: ServingState, viewer: int) -> Iterator[View]:
        """Give the view of all other workers, for a moment and read-only; ``viewer`` was the last to read."""
        row = self._rows[viewer]
        assert row is not None
        assert state.pushed is not None
        self._read(viewer, state.pushed[viewer])
        yield self._seen
        self._read(viewer, row)

    def as_read(self, viewer: int) -> View:
        """Return a copy of what ``viewer`` has just read, to plan in."""
        view = self._seen.copy()
        for index, (work, models) in self._placed_since.get(viewer, {}).items():
            view.backlog[index] += work // self._tables.concurrency[index]
            view.wanted[index] |= models
            self._add_fetch(view, index, models & ~view.resident[index])
        return view

    def _read(self, index: int, row: Row) -> None:
        """Compute the view of one worker from a new row."""
        self._rows[index] = row
        seen, concurrency = self._seen, self._tables.concurrency[index]
        seen.up = seen.up | 1 << index if row.up else seen.up & ~(1 << index)
        seen.busy[index] = 0 if concurrency > 1 and row.slices_free and row.cpus_free else row.busy_until
        seen.backlog[index] = (row.queued + row.reserved) // concurrency + row.line  # an engine's line is one
        seen.fetching[index] = 0
        seen.resident[index] = row.resident
        seen.free[index] = row.free_bytes
        seen.wanted[index] = row.wanted
        seen.idle[index] = row.warm
        seen.slices[index] = row.slices_free
        self._add_fetch(seen, index, row.wanted & ~row.resident)

    def _remember(self, now: int, index: int, row: Row) -> None:
        """Note until when the idle processes of a row exist, idle or busy: until their keep-alive ends."""
        for function, until in self._until.items():
            if row.warm >> function & 1:
                until[index] = now + self._keep_alive
            elif not row.up:
                until[index] = 0

    def note_started(self, viewer: int, worker: int, function: int, ready: int) -> None:
        """Note that ``viewer`` knows of a process that is being started."""
        self._started[viewer, function][worker] = ready

    def start_delay(self, now: int, state: ServingState, viewer: int, worker: int, function: int) -> int:
        """Return how long a task waits for a process where a row shows no idle one, as far as ``viewer`` knows."""
        busy = self._tables.run_times[worker][function] // 2
        if worker == viewer:
            if any(batch.function == function for batch in state.workers[viewer].running.values()):
                return busy
        elif self._until[function][worker] > now:
            return busy
        cold = self._tables.cold_starts[function]
        ready = self._started[viewer, function].get(worker, -cold)
        # a process that was ready long ago and was never seen is lost
        return max(ready - now, busy) if ready + cold > now else cold

    def started_by(self, now: int, viewer: int, function: int) -> dict[int, int]:
        """Return the workers where ``viewer`` knows that a process was started, and when it is ready.

        Processes that should have been seen by now are forgotten.
        """
        started, cold = self._started[viewer, function], self._tables.cold_starts[function]
        for worker in [worker for worker, ready in started.items() if ready + cold <= now]:
            del started[worker]
        return started

    def start_delays_for_all(self, now: int, function: int) -> npt.NDArray[np.int64]:
        """Return ``start_delay`` by worker as far as all workers know, where views are arrays."""
        until = np.asarray(self._until[function])
        return np.where(until > now, self._halves[function], self._tables.cold_starts[function])

    def start_delays(self, now: int, state: ServingState, viewer: int, function: int) -> npt.NDArray[np.int64]:
        """Return ``start_delay`` by worker as far as ``viewer`` knows."""
        delays, busy, until = self.start_delays_for_all(now, function), self._halves[function], self._until[function]
        for worker, ready in self.started_by(now, viewer, function).items():
            if until[worker] <= now:
                delays[worker] = max(ready - now, busy[worker])
        delays[viewer] = self.start_delay(now, state, viewer, viewer, function)
        return delays

    def _add_fetch(self, view: View, index: int, missing: int) -> None:
        """Add models that must be fetched on a worker."""
        if missing:
            size, fetch = self._tables.weights(missing)
            view.fetching[index] += fetch * self._tables.write_back if size > view.free[index] else fetch
            view.resident[index] |= missing
            view.free[index] -= size

    def note(
        self, now: int, state: ServingState, plan: Plan, viewer: int, placed: Iterable[tuple[int, int, int]]
    ) -> None:
        """Note the tasks that ``viewer`` placed: (task, function, worker)."""
        self._renew(now, state)
        for task, function, worker in placed:
            plan.placed[task], plan.by[task] = now, viewer
            if worker != viewer and state.push_interval:
                tables = self._tables
                recent = self._placed_since.setdefault(viewer, {})
                work, models = recent.get(worker, (0, 0))
                recent[worker] = work + tables.base[worker][function], models | tables.masks[function]

    def _renew(self, now: int, state: ServingState) -> None:
        if state.push_interval and now // state.push_interval != self._epoch:
            self._epoch = now // state.push_interval
            self._placed_since.clear()

    def counted(self, now: int, state: ServingState, task: int, viewer: int, here: int, plan: Plan) -> bool:
        """Return whether the row of worker ``here``, as ``viewer`` has it, includes the task itself."""
        known = here == viewer or not state.push_interval or plan.by[task] == viewer
        return known or plan.placed[task] // state.push_interval < now // state.push_interval


def zeros(count: int, *, arrays: bool) -> Numbers:
    """Return a zero for each worker, as an array or a list."""
    return np.zeros(count, dtype=np.int64) if arrays else [0] * count
