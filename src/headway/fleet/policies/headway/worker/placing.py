"""Placement: plan all tasks of a request at once, from the view of the worker that the request reached.

The view is the other workers' rows as of their last push, and what this worker has placed since. A row says what runs,
what is queued and what is on its way. Of the last two, only the share that goes before the task in queue order counts.
A fetch counts with its time, and with a penalty where it evicts other models. Among equally good workers a hash of
the request's number decides, so that planners with the same stale rows do not all choose the same one.

A task is placed again when it is about to be sent, and while it waits in a queue, if another worker is clearly better.
Its own reservation is not counted against its present worker.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from math import inf

import numpy as np

from headway.fleet.model.catalogue import models_in
from headway.fleet.policies.compass.hash import hash_of
from headway.fleet.policies.headway.worker.order import FleetTables, Mix
from headway.fleet.policies.headway.worker.vectorised import CROWDING, INVESTED, VectorisedScorer, is_vectorised
from headway.fleet.policies.headway.worker.views import Numbers, Plan, View, Views
from headway.fleet.state.requeststate import RequestState, Stage
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import TaskId

CLEARLY = 0.05
"""How much earlier a task must end elsewhere to be moved, as a share of its request's best time."""
NEAR = 0.01
"""With stale rows, workers whose scores differ by less than this share of the request's best time count as equal."""
_LOOKED_AT = 4
"""How many tasks of a queue are considered for another worker."""
_MOVES = 3
"""How often a task may be placed before it stays in its queue."""
_REMEMBERED = 4096
Score = tuple[float, float, int]
"""(score, less is better; when the task would end there; worker)."""


class Placer:
    """Plans whole requests, and places single tasks again."""

    def __init__(self, state: ServingState, tables: FleetTables, mixes: Sequence[Mix], *, ahead: bool) -> None:
        """Build the tables. ``ahead``: weights are fetched while a task's inputs are still on their way."""
        self._tables = tables
        self._mixes = mixes
        self._ahead = ahead
        self.views = Views(state, tables, arrays=is_vectorised(tables))
        self._vectorised = (
            VectorisedScorer(state.fleet, tables, self.views, ahead=ahead) if is_vectorised(tables) else None
        )
        self._fleet = state.fleet
        self._candidates = lru_cache(_REMEMBERED)(self._able)
        self._copied = cache(self._copy_times)
        zones: dict[tuple[int, int], int] = {}
        self._zones = [zones.setdefault((worker.host, worker.rack), len(zones)) for worker in state.fleet.workers]
        self._members: list[list[int]] = [[] for _ in zones]
        """Workers of one zone are equally far from all others."""
        for index, zone in enumerate(self._zones):
            self._members[zone].append(index)

    # --- a whole request --------------------------------------------------------------------------------------

    def plan(
        self, now: int, state: ServingState, rs: RequestState, viewer: int, plan: Plan, *, warm: bool = False
    ) -> tuple[int, ...]:
        """Return a worker for each task, by decreasing rank; placed tasks stay. -1: no worker that can run it is up.

        ``warm``: assume that every worker has an idle process of every function.
        """
        tables = self._tables
        view = self.views.view(now, state, viewer)
        graph = rs.request.graph
        workers = list(rs.worker)
        ends = [now] * len(workers)
        for task in tables.sequences[graph]:
            function = tables.functions[graph][task]
            stage = rs.stage[task]
            if stage == Stage.DONE:
                continue
            if stage == Stage.RUNNING:
                ends[task] = now + tables.mean[function]
                continue
            at = self._arrivals(now, state, rs, task, workers, ends)
            if workers[task] >= 0:
                worker = workers[task]
                ends[task] = int(max(at[worker], view.busy[worker])) + tables.run_times[worker][function]
                continue
            best = self._best(now, state, rs, task, view, viewer, at, inf, (viewer, *workers), warm=warm)
            if best is None:
                ends[task] = int(min(at)) + tables.mean[function]
                continue
            worker, end = best
            missing = tables.masks[function] & ~view.resident[worker]
            view.resident[worker] |= missing
            view.free[worker] -= tables.weights(missing)[0]
            view.busy[worker] = max(view.busy[worker], end)
            workers[task], ends[task], plan.arrivals[task] = worker, end, int(at[worker])
        plan.finish = max(ends)
        return tuple(workers)

    def _arrivals(
        self, now: int, state: ServingState, rs: RequestState, task: int, workers: Sequence[int], ends: Sequence[int]
    ) -> Numbers:
        """Return by worker when all inputs of a task would have arrived."""
        tasks = rs.graph.tasks
        sources = [
            (
                ends[other],
                rs.copies[other] or (1 << workers[other] if workers[other] >= 0 else 0),
                tasks[other].output_bytes,
            )
            for other in rs.graph.predecessors[task]
        ] or [(now, 1 << rs.request.ingress, tasks[task].input_bytes)]
        copy_time = state.fleet.copy_time
        at = self._from_others(now, [(end, _first(holders), size) for end, holders, size in sources])
        near = {worker for _, holders, _ in sources for worker in models_in(holders)}
        for worker in near:
            at[worker] = now
            for end, holders, size in sources:
                copied = end if holders >> worker & 1 else end + copy_time(_first(holders), worker, size)
                at[worker] = max(at[worker], copied)
        return at

    def _from_others(self, now: int, sources: Sequence[tuple[int, int, int]]) -> Numbers:
        """Return by worker when inputs would have arrived that the worker does not hold.

        ``sources``: for each input, when it can be sent, from which worker, its bytes.
        """
        if self._vectorised is not None:
            latest = self._vectorised.copied(sources[0][1], sources[0][2]) + sources[0][0]
            for end, source, size in sources[1:]:
                latest = np.maximum(latest, self._vectorised.copied(source, size) + end)
            return np.maximum(latest, now)
        zones = [now] * len(self._members)
        for end, source, size in sources:
            zones = [max(at, end + takes) for at, takes in zip(zones, self._copied(source, size), strict=True)]
        return [zones[zone] for zone in self._zones] if len(zones) > 1 else zones * len(self._zones)

    def _copy_times(self, source: int, size: int) -> list[int]:
        """Return by zone how long a copy takes there from ``source``."""
        others = [members[0] if members[0] != source else members[-1] for members in self._members]
        return [self._fleet.copy_time(source, other, size) for other in others]

    def _best(
        self,
        now: int,
        state: ServingState,
        rs: RequestState,
        task: int,
        view: View,
        viewer: int,
        at: Numbers,
        limit: float,
        used: Sequence[int],
        *,
        warm: bool = False,
    ) -> tuple[int, int] | None:
        """Return the best worker for a task and when the task ends there.

        None: no worker is up, or all score above ``limit``. A hash picks among equally good ones, unless the best is
        among those ``used`` already.
        """
        if self._vectorised is None:
            scores = self._scores(now, state, rs, task, view, viewer, at, limit, warm=warm)
            return self._choose(state, rs, task, scores, used) if scores else None
        graph = rs.request.graph
        function = self._tables.functions[graph][task]
        cold = self._tables.cold_starts[function] and not warm
        starts = self.views.start_delays(now, state, viewer, function) if cold else None
        share = self._mixes[viewer].ahead(graph, task)
        near = NEAR * self._tables.best_times[graph] if state.push_interval else 0.0
        draw = hash_of(rs.request.id, task, 0)
        return self._vectorised.best(now, function, view, np.asarray(at), share, starts, limit, near, used, draw)

    def _scores(
        self,
        now: int,
        state: ServingState,
        rs: RequestState,
        task: int,
        view: View,
        viewer: int,
        at: Numbers,
        limit: float = inf,
        only: int = -1,
        *,
        warm: bool = False,
    ) -> list[Score]:
        """Return the scores of the workers that can run a task, within ``limit`` and near the best."""
        tables = self._tables
        graph = rs.request.graph
        function = tables.functions[graph][task]
        mask = tables.masks[function]
        share = self._mixes[viewer].ahead(graph, task)
        wanted, idle, cold = view.wanted, view.idle, tables.cold_starts[function] and not warm
        near = NEAR * tables.best_times[graph] if state.push_interval else 0.0
        busy, fetching, backlog, resident, free = view.busy, view.fetching, view.backlog, view.resident, view.free
        run_times, within, slices, weights = tables.run_times, tables.within, view.slices, tables.weights
        scores = []
        for worker in self._candidates(function, view.up) if only < 0 else (only,) if view.up >> only & 1 else ():
            begin: float = busy[worker]
            if begin < now:
                begin = now
            if backlog[worker]:
                begin += fetching[worker] + share[wanted[worker]] * backlog[worker]
            if begin < at[worker]:
                begin = at[worker]
            takes = within[worker][function][slices[worker]] if within[worker] else run_times[worker][function]
            end = begin + takes
            if cold and not idle[worker] >> function & 1:
                started = now + self.views.start_delay(now, state, viewer, worker, function)
                end = max(begin, started) + takes
            missing = mask & ~resident[worker]
            score = end
            if missing:
                size, fetch = weights(missing)
                if size > free[worker]:
                    end += fetch * tables.write_back
                    score = end + CROWDING * fetch * tables.write_back
                else:
                    end = max(end, now + fetch + takes) if self._ahead else end + fetch
                    score = end - INVESTED * (end - score)
            if score <= limit:
                scores.append((score, end, worker))
                if score + near < limit:
                    limit = score + near
        return scores

    def _choose(
        self,
        state: ServingState,
        rs: RequestState,
        task: int,
        scores: Sequence[tuple[float, float, int]],
        used: Sequence[int],
    ) -> tuple[int, int]:
        """Return the best worker and when the task would end there; a hash picks among equally good ones."""
        best = min(scores)
        if best[2] not in used:
            limit = best[0] + (NEAR * self._tables.best_times[rs.request.graph] if state.push_interval else 0.0)
            near = [score for score in scores if score[0] <= limit]
            if len(near) > 1:
                best = near[hash_of(rs.request.id, task, 0) % len(near)]
        return best[2], int(best[1])

    def _able(self, function: int, up: int) -> list[int]:
        """Return the workers that can run a function and are up."""
        hosts = self._tables.hosts[function] & up
        return [index for index in range(len(self._zones)) if hosts >> index & 1]

    # --- one task again ---------------------------------------------------------------------------------------

    def find_better(
        self, now: int, state: ServingState, rs: RequestState, task: int, viewer: int, plan: Plan
    ) -> int | None:
        """Return a worker where a task that ``viewer`` is about to send ends clearly earlier; None: it stays."""
        tables = self._tables
        view = self.views.view(now, state, viewer)
        graph, here = rs.request.graph, rs.worker[task]
        function = tables.functions[graph][task]
        if self.views.counted(now, state, task, viewer, here, plan):
            view.backlog[here] = max(0, view.backlog[here] - tables.base[here][function] // tables.concurrency[here])
        at = self._arrivals(now, state, rs, task, rs.worker, [now] * len(rs.worker))
        at[here] = max(now, rs.due[task])
        stay = self._scores(now, state, rs, task, view, viewer, at, only=here)
        limit = stay[0][0] - CLEARLY * tables.best_times[graph] if stay else inf
        best = self._best(now, state, rs, task, view, viewer, at, limit, ())
        return None if best is None else best[0]

    def find_moves(
        self, now: int, state: ServingState, viewer: int, queue: Sequence[TaskId]
    ) -> list[tuple[TaskId, int]]:
        """Return the queued tasks of ``viewer`` that would end clearly earlier elsewhere, each with that worker."""
        tables = self._tables
        self.views.read(now, state, viewer)
        view: View | None = None
        here = state.workers[viewer]
        begin = max(now, here.busy_until)
        if tables.concurrency[viewer] > 1:  # the first that ends leaves room
            begin = max(now, min((batch.end for batch in here.running.values()), default=now))
        moves: list[tuple[TaskId, int]] = []
        for request, task in queue[:_LOOKED_AT]:
            rs = state.requests[request]
            graph = rs.request.graph
            function = tables.functions[graph][task]
            end = begin + tables.run_times[viewer][function]
            if tables.cold_starts[function] and not here.idle.get(function):
                end = max(
                    end, now + self.views.start_delay(now, state, viewer, viewer, function) + tables.mean[function]
                )
            if missing := tables.masks[function] & ~here.memory.resident:
                end += tables.weights(missing)[1] * tables.write_back
            wanted = end - CLEARLY * tables.best_times[graph]
            far = now + tables.mean[function] >= wanted or (
                self._vectorised is not None
                and state.pushed is not None
                and self._vectorised.soonest(now, state, viewer, function) > wanted
            )
            if rs.moves[task] <= _MOVES and not far:
                if view is None:  # mostly nobody has to go
                    view = self.views.as_read(viewer)
                    view.up &= ~(1 << viewer)
                sent = now + self._sending(state, rs, task, viewer)
                at = [sent] * len(view.busy) if self._vectorised is None else np.full(len(view.busy), sent)
                if (best := self._best(now, state, rs, task, view, viewer, at, wanted, ())) is not None:
                    worker, there = best
                    view.busy[worker] = max(view.busy[worker], there)
                    view.resident[worker] |= tables.masks[function]
                    moves.append(((request, task), worker))
                    continue
            begin = end
        return moves

    def _sending(self, state: ServingState, rs: RequestState, task: int, source: int) -> int:
        """Return how long the inputs of a task take from ``source`` to the worker farthest away."""
        graph = rs.graph
        others = self._members[0 if self._zones[source] == len(self._members) - 1 else -1]
        far = others[0] if others[0] != source else others[-1]
        sizes = [graph.tasks[other].output_bytes for other in graph.predecessors[task]]
        return max(state.fleet.copy_time(source, far, size) for size in sizes or [graph.tasks[task].input_bytes])


def _first(holders: int) -> int:
    """Return the first of some workers; -1: the client."""
    return (holders & -holders).bit_length() - 1
