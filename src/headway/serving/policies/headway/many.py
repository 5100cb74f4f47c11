"""Where a task is best placed in a fleet of many workers: all of them at once, as arrays.

``Placing`` reckons the same worker by worker, which is faster for a few; the two agree to the last bit.
"""

from collections.abc import Sequence
from math import inf

import numpy as np
import numpy.typing as npt

from headway.serving.fleet import Fleet
from headway.serving.policies.headway.order import Outline, Shares
from headway.serving.policies.headway.views import View, Views

MANY = 32
"""From so many workers on arrays are faster."""
BITS = 63
"""How many models, or functions, a set in an array may tell apart."""
CROWDING = 2.0
"""What pushing other models out costs those who need them again, in times of the fetch."""
INVESTED = 0.6
"""Which part of a fetch into free memory is not held against a worker: the next task will find the model there."""
_REMEMBERED = 4096
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def many(outline: Outline) -> bool:
    """Whether a fleet is so large, and its catalogue so small, that arrays serve it."""
    return len(outline.lanes) >= MANY and max(len(outline.sizes), len(outline.masks)) < BITS


class Many:
    """All workers at once."""

    def __init__(self, fleet: Fleet, outline: Outline, views: Views, *, ahead: bool) -> None:
        """``ahead``: weights are fetched while a task is still under way."""
        self._fleet = fleet
        self._outline = outline
        self._views = views
        self._ahead = ahead
        self._each = np.arange(len(outline.lanes))
        self._takes = [self._takes_of(function) for function in range(len(outline.masks))]
        """By function: what a task takes by worker, or by worker and slices that are free."""
        self._able: dict[tuple[int, int], npt.NDArray[np.bool_]] = {}
        self._hosts = np.array([worker.host for worker in fleet.workers])
        self._racks = np.array([worker.rack for worker in fleet.workers])
        self._ways: dict[int, tuple[list[int], npt.NDArray[np.intp]]] = {}

    def _takes_of(self, function: int) -> Ints:
        outline = self._outline
        deepest = max((len(within[function]) for within in outline.within if within), default=1)
        rows = []
        for pace, within in zip(outline.pace, outline.within, strict=True):
            known = within[function] if within else [pace[function]]
            rows.append([*known, *[known[-1]] * (deepest - len(known))])
        found = np.array(rows, dtype=np.int64)
        return found if deepest > 1 else found[:, 0].copy()

    # --- when inputs are there ----------------------------------------------------------------------------------

    def copied(self, source: int, size_bytes: int) -> Ints:
        """By worker: how long a copy from ``source`` takes; nothing to itself."""
        found = self._ways.get(source)
        if found is None:
            kinds = np.ones(len(self._each), dtype=np.int64)
            if source >= 0:
                kinds = np.where(self._racks == self._racks[source], 1, 2)
                kinds[self._hosts == self._hosts[source]] = 0
                kinds[source] = -1
            _, one_each, which = np.unique(kinds, return_index=True, return_inverse=True)
            found = self._ways[source] = one_each.tolist(), which
        ones, places = found
        return np.array([self._fleet.copy_time(source, one, size_bytes) for one in ones], dtype=np.int64)[places]

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
        """The worker for a task and when it ends there; None: nobody is up, or all are worse than ``limit``.

        ``starts``: by worker, what a process takes to start where none is idle; None: the function needs none.
        ``near``: how much worse a worker may be than the best and count as good; the ``draw`` decides among those,
        unless the best is one of those ``used`` already.
        """
        score, end = self._scores(now, function, view, at, share, starts)
        score = np.where(self._candidates(function, view.up), score, inf)
        least = float(score.min())
        if least == inf or least > limit:
            return None
        first = np.flatnonzero(score == least)
        worker = int(first[end[first].argmin()])
        if worker not in used:
            good = np.flatnonzero(score <= min(least + near, limit))
            if len(good) > 1:
                worker = int(good[draw % len(good)])
        return worker, int(end[worker])

    def _scores(
        self, now: int, function: int, view: View, at: Ints, share: Shares, starts: Ints | None
    ) -> tuple[Floats, Floats]:
        """By worker: how bad it is, and when a task would end there."""
        outline = self._outline
        begin: Floats = np.maximum(view.busy, now).astype(np.float64)
        backlog, wanted, fetching = (np.asarray(each) for each in (view.backlog, view.wanted, view.fetching))
        loaded = np.flatnonzero(backlog)
        if len(loaded):
            models = wanted[loaded].tolist()
            before = np.array([share[each] for each in models] if any(models) else share[0])
            begin[loaded] += fetching[loaded] + before * backlog[loaded]
        begin = np.maximum(begin, at)
        takes = self._takes[function]
        if takes.ndim > 1:
            takes = takes[self._each, view.slices]
        end: Floats = begin + takes
        if starts is not None:
            cold = np.asarray(view.idle) >> function & 1 == 0
            end = np.where(cold, np.maximum(begin, now + starts) + takes, end)
        if not outline.masks[function]:
            return end, end
        return self._with_weights(now, outline.masks[function], view, takes, end)

    def _with_weights(self, now: int, mask: int, view: View, takes: Ints, ready: Floats) -> tuple[Floats, Floats]:
        """The same with what must be fetched first."""
        outline = self._outline
        score = end = ready
        missing = mask & ~np.asarray(view.resident)
        for models in {mask} if mask.bit_count() == 1 else set(missing.tolist()) - {0}:
            size, fetch = outline.weights(models)
            there = missing == models
            crowded = there & (np.asarray(view.free) < size)
            slow = fetch * outline.write_back
            fetched = np.maximum(ready, now + fetch + takes) if self._ahead else ready + fetch
            end = np.where(crowded, ready + slow, np.where(there, fetched, end))
            held = np.where(crowded, ready + slow + CROWDING * fetch * outline.write_back, score)
            score = np.where(there & ~crowded, fetched - INVESTED * (fetched - ready), held)
        return score, end

    def _candidates(self, function: int, up: int) -> npt.NDArray[np.bool_]:
        """Whether a worker can run a function and is up."""
        found = self._able.get((function, up))
        if found is None:
            if len(self._able) > _REMEMBERED:
                self._able.clear()
            hosts = self._outline.hosts[function] & up
            found = self._able[function, up] = np.array(
                [hosts >> index & 1 for index in self._each.tolist()], dtype=bool
            )
        return found
