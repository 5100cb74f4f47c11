"""Where a task is best placed in a fleet of many workers: all of them at once, as arrays.

``Placing`` reckons the same worker by worker, which is faster for a few; the two agree to the last bit.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from math import inf

import numpy as np
import numpy.typing as npt

from headway.serving.fleet import Fleet
from headway.serving.policies.headway.order import FleetTables, Shares
from headway.serving.policies.headway.views import View, Views
from headway.serving.state import ServingState
from headway.serving.workerstate import Row

LEAST_WORKERS = 32
"""From so many workers on arrays are faster."""
MASK_BITS = 63
"""How many models, or functions, a set in an array may tell apart."""
CROWDING = 2.0
"""What pushing other models out costs those who need them again, in times of the fetch."""
INVESTED = 0.6
"""Which part of a fetch into free memory is not held against a worker: the next task will find the model there."""
_REMEMBERED = 4096
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def is_vectorised(tables: FleetTables) -> bool:
    """Return whether a fleet is so large, and its catalogue so small, that arrays serve it."""
    return len(tables.concurrency) >= LEAST_WORKERS and max(len(tables.sizes), len(tables.masks)) < MASK_BITS


class VectorisedScorer:
    """All workers at once."""

    def __init__(self, fleet: Fleet, tables: FleetTables, views: Views, *, ahead: bool) -> None:
        """``ahead``: weights are fetched while a task is still under way."""
        self._fleet = fleet
        self._tables = tables
        self._views = views
        self._ahead = ahead
        self._each = np.arange(len(tables.concurrency))
        self._takes = [self._takes_of(function) for function in range(len(tables.masks))]
        """By function: what a task takes by worker, or by worker and slices that are free."""
        self._weighty = any(tables.masks)
        """Whether anything needs weights at all."""
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
        found = np.array(rows, dtype=np.int64)
        return found if deepest > 1 else found[:, 0].copy()

    # --- when inputs are there ----------------------------------------------------------------------------------

    def copied(self, source: int, size_bytes: int) -> Ints:
        """Return by worker how long a copy from ``source`` takes; nothing to itself."""
        ones, places = self._ways(source)
        return np.array([self._fleet.copy_time(source, one, size_bytes) for one in ones], dtype=np.int64)[places]

    def _ways_from(self, source: int) -> tuple[list[int], npt.NDArray[np.intp]]:
        """Return one worker of each kind of way from ``source``, and by worker which of them is as far."""
        kinds = np.ones(len(self._each), dtype=np.int64)
        if source >= 0:
            kinds = np.where(self._racks == self._racks[source], 1, 2)
            kinds[self._hosts == self._hosts[source]] = 0
            kinds[source] = -1
        _, one_each, which = np.unique(kinds, return_index=True, return_inverse=True)
        return one_each.tolist(), which

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
        """Return the worker for a task and when it ends there; None: nobody is up, or all are worse than ``limit``.

        ``starts``: by worker, what a process takes to start where none is idle; None: the function needs none.
        ``near``: how much worse a worker may be than the best and count as good; the ``draw`` decides among those,
        unless the best is one of those ``used`` already.
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
        """A task that leaves ``viewer`` cannot end before this, wherever it goes: without what goes before it, inputs
        and weights. What all workers know alike is reckoned once an instant."""
        if now != self._soonest_at or self._soonest_of is not state.pushed:
            self._soonest_at, self._soonest_of = now, state.pushed
            self._soonest.clear()
        if (found := self._soonest.get(function)) is None:
            with self._views.as_pushed(state, viewer) as view:
                found = self._soonest[function] = self._two_soonest(now, function, view)
        who, least, next_best = found
        soonest = next_best if who == viewer else least
        if self._tables.cold_starts[function]:
            run_times = self._tables.run_times
            for worker, ready in self._views.started_by(now, viewer, function).items():
                soonest = min(soonest, ready + run_times[worker][function])
        return soonest

    def _two_soonest(self, now: int, function: int, view: View) -> tuple[int, float, float]:
        """Return the worker that could end a task first, when, and when the next one could."""
        begin = np.maximum(view.busy, now)
        if self._tables.cold_starts[function]:
            none_idle = np.asarray(view.idle) & 1 << function == 0
            begin = np.maximum(begin, np.where(none_idle, now + self._views.start_delays_for_all(now, function), 0))
        end = begin + self._takes_in(function, view) + self._barred(function, view.up)
        who = int(end.argmin())
        least = float(end[who])
        end[who] = inf
        return who, least, float(end[end.argmin()])

    def _takes_in(self, function: int, view: View) -> Ints:
        """Return by worker what a task takes in what is free there."""
        takes = self._takes[function]
        return takes if takes.ndim == 1 else takes.ravel().take(self._each * takes.shape[1] + view.slices)

    def _scores(
        self, now: int, function: int, view: View, at: Ints, share: Shares, starts: Ints | None
    ) -> tuple[Floats, Floats]:
        """Return by worker how bad it is, and when a task would end there."""
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
        """Return by worker when what goes before a task has run."""
        begin = np.maximum(view.busy, now)
        backlog = np.asarray(view.backlog)
        found: Floats
        if not self._weighty:
            found = begin + share[0] * backlog
            return found
        found = begin.astype(np.float64)
        loaded = backlog.nonzero()[0]
        if len(loaded):
            before = np.array([share[models] for models in np.asarray(view.wanted)[loaded].tolist()])
            found[loaded] += np.asarray(view.fetching)[loaded] + before * backlog[loaded]
        return found

    def _with_weights(self, now: int, mask: int, view: View, takes: Ints, ready: Floats) -> tuple[Floats, Floats]:
        """Return the same with what must be fetched first."""
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
