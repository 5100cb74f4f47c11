"""Vectorised scoring: score all workers of a large fleet for a task at once, with numpy.

``Placer`` computes the same scores in a loop over workers, which is faster in small fleets. Both give the same bits.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from math import inf

import numpy as np
import numpy.typing as npt

from headway.fleet.model.fleet import Fleet
from headway.fleet.policies.headway.worker.order import FleetTables, Shares
from headway.fleet.policies.headway.worker.views import View, Views
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import Row

LEAST_WORKERS = 32
"""Fleets of at least this many workers are scored with arrays: there they are faster."""
MASK_BITS = 63
"""A bit mask in an array holds fewer models, or functions, than this."""
CROWDING = 2.0
"""Penalty for a fetch that evicts other models, as a multiple of the fetch time."""
INVESTED = 0.6
"""Part of the time of a fetch into free memory that is not counted: the next task finds the model there."""
_REMEMBERED = 4096
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def is_vectorised(tables: FleetTables) -> bool:
    """Return whether a fleet is large enough, and its catalogue small enough, for vectorised scoring."""
    return len(tables.concurrency) >= LEAST_WORKERS and max(len(tables.sizes), len(tables.masks)) < MASK_BITS


class VectorisedScorer:
    """Scores all workers at once."""

    def __init__(self, fleet: Fleet, tables: FleetTables, views: Views, *, ahead: bool) -> None:
        """Build the arrays. ``ahead``: weights are fetched while a task's inputs are still on their way."""
        self._fleet = fleet
        self._tables = tables
        self._views = views
        self._ahead = ahead
        self._each = np.arange(len(tables.concurrency))
        self._takes = [self._takes_of(function) for function in range(len(tables.masks))]
        """By function: the run time of a task by worker, or by worker and number of free slices."""
        self._weighty = any(tables.masks)
        """Whether any function needs weights."""
        self._barred = lru_cache(_REMEMBERED)(self._bars)
        self._soonest: dict[int, tuple[int, float, float]] = {}
        self._soonest_at = -1
        self._soonest_of: list[Row] | None = None
        """By function: see ``_two_soonest``; for which instant and which rows."""
        self._hosts = np.array([worker.host for worker in fleet.workers])
        self._racks = np.array([worker.rack for worker in fleet.workers])
        self._ways = cache(self._ways_from)

    def _takes_of(self, function: int) -> Ints:
        tables = self._tables
        deepest = max((len(within[function]) for within in tables.within if within), default=1)
        rows = []
        for run_times, within in zip(tables.run_times, tables.within, strict=True):
            known = within[function] if within else [run_times[function]]
            rows.append([*known, *[known[-1]] * (deepest - len(known))])
        takes = np.array(rows, dtype=np.int64)
        return takes if deepest > 1 else takes[:, 0].copy()

    # --- when inputs are there ----------------------------------------------------------------------------------

    def copied(self, source: int, size_bytes: int) -> Ints:
        """Return by worker how long a copy from ``source`` takes; 0 for ``source`` itself."""
        examples, positions = self._ways(source)
        times = [self._fleet.copy_time(source, example, size_bytes) for example in examples]
        return np.array(times, dtype=np.int64)[positions]

    def _ways_from(self, source: int) -> tuple[list[int], npt.NDArray[np.intp]]:
        """Return one worker for each distance from ``source``, and by worker the position of its distance."""
        kinds = np.ones(len(self._each), dtype=np.int64)
        if source >= 0:
            kinds = np.where(self._racks == self._racks[source], 1, 2)
            kinds[self._hosts == self._hosts[source]] = 0
            kinds[source] = -1
        _, examples, which = np.unique(kinds, return_index=True, return_inverse=True)
        return examples.tolist(), which

    # --- where it ends first ------------------------------------------------------------------------------------

    def best(
        self,
        now: int,
        function: int,
        view: View,
        at: Ints,
        share: Shares,
        starts: Ints | None,
        limit: float,
        near: float,
        used: Sequence[int],
        draw: int,
    ) -> tuple[int, int] | None:
        """Return the best worker for a task and when the task ends there.

        None: no worker is up, or all score above ``limit``. ``starts``: by worker, how long a process takes to start
        where none is idle; None: the function needs no process. Workers within ``near`` of the best score count as
        equally good; ``draw`` picks one of them, unless the best is among those ``used`` already.
        """
        score, end = self._scores(now, function, view, at, share, starts)
        score = score + self._barred(function, view.up)
        if (least := float(score[score.argmin()])) == inf or least > limit:
            return None
        first = (score == least).nonzero()[0]
        worker = int(first[end[first].argmin()])
        if worker not in used:
            good = (score <= min(least + near, limit)).nonzero()[0]
            if len(good) > 1:
                worker = int(good[draw % len(good)])
        return worker, int(end[worker])

    def soonest(self, now: int, state: ServingState, viewer: int, function: int) -> float:
        """Return a lower bound of when a task that leaves ``viewer`` can end on any other worker.

        Queues, inputs and weights are not counted. What all workers know is computed once an instant.
        """
        if now != self._soonest_at or self._soonest_of is not state.pushed:
            self._soonest_at, self._soonest_of = now, state.pushed
            self._soonest.clear()
        if (bounds := self._soonest.get(function)) is None:
            with self._views.as_pushed(state, viewer) as view:
                bounds = self._soonest[function] = self._two_soonest(now, function, view)
        first, least, next_best = bounds
        soonest = next_best if first == viewer else least
        if self._tables.cold_starts[function]:
            run_times = self._tables.run_times
            for worker, ready in self._views.started_by(now, viewer, function).items():
                soonest = min(soonest, ready + run_times[worker][function])
        return soonest

    def _two_soonest(self, now: int, function: int, view: View) -> tuple[int, float, float]:
        """Return the worker that could end a task first, when, and when the second best could."""
        begin = np.maximum(view.busy, now)
        if self._tables.cold_starts[function]:
            none_idle = np.asarray(view.idle) & 1 << function == 0
            begin = np.maximum(begin, np.where(none_idle, now + self._views.start_delays_for_all(now, function), 0))
        end = begin + self._takes_in(function, view) + self._barred(function, view.up)
        first = int(end.argmin())
        least = float(end[first])
        end[first] = inf
        return first, least, float(end[end.argmin()])

    def _takes_in(self, function: int, view: View) -> Ints:
        """Return by worker the run time of a task in the slices that are free."""
        takes = self._takes[function]
        return takes if takes.ndim == 1 else takes.ravel().take(self._each * takes.shape[1] + view.slices)

    def _scores(
        self, now: int, function: int, view: View, at: Ints, share: Shares, starts: Ints | None
    ) -> tuple[Floats, Floats]:
        """Return by worker its score for a task (less is better), and when the task would end there."""
        tables = self._tables
        begin: Floats = self._begin(now, view, share)
        begin = np.maximum(begin, at)
        takes = self._takes_in(function, view)
        if starts is not None:
            none_idle = np.asarray(view.idle) & 1 << function == 0
            begin = np.maximum(begin, np.where(none_idle, now + starts, 0))
        end: Floats = begin + takes
        if not tables.masks[function]:
            return end, end
        return self._with_weights(now, tables.masks[function], view, takes, end)

    def _begin(self, now: int, view: View, share: Shares) -> Floats:
        """Return by worker when the work ahead of a task has run."""
        begin = np.maximum(view.busy, now)
        backlog = np.asarray(view.backlog)
        begins: Floats
        if not self._weighty:
            begins = begin + share[0] * backlog
            return begins
        begins = begin.astype(np.float64)
        loaded = backlog.nonzero()[0]
        if len(loaded):
            before = np.array([share[models] for models in np.asarray(view.wanted)[loaded].tolist()])
            begins[loaded] += np.asarray(view.fetching)[loaded] + before * backlog[loaded]
        return begins

    def _with_weights(self, now: int, mask: int, view: View, takes: Ints, ready: Floats) -> tuple[Floats, Floats]:
        """Return scores and ends with the time to fetch missing weights added."""
        tables = self._tables
        score = end = ready
        missing = mask & ~np.asarray(view.resident)
        for models in {mask} if mask.bit_count() == 1 else set(missing.tolist()) - {0}:
            size, fetch = tables.weights(models)
            there = missing == models
            crowded = there & (np.asarray(view.free) < size)
            slow = fetch * tables.write_back
            fetched = np.maximum(ready, now + fetch + takes) if self._ahead else ready + fetch
            end = np.where(crowded, ready + slow, np.where(there, fetched, end))
            held = np.where(crowded, ready + slow + CROWDING * fetch * tables.write_back, score)
            score = np.where(there & ~crowded, fetched - INVESTED * (fetched - ready), held)
        return score, end

    def _bars(self, function: int, up: int) -> Floats:
        """Return by worker 0 where it can run a function and is up, else infinity."""
        hosts = self._tables.hosts[function] & up
        count = len(self._each)
        packed = np.frombuffer(hosts.to_bytes(count // 8 + 1, "little"), dtype=np.uint8)
        return np.where(np.unpackbits(packed, count=count, bitorder="little"), 0.0, inf)
