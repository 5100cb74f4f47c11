"""Compass: tasks go where their models are, unless that worker is busy; a request carries its plan.

The worker that receives a request plans all of it by decreasing rank. When a task ends, its worker reconsiders each
successor with no other predecessor, and sends it elsewhere if too much is queued on its planned worker.
"""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from headway.errors import ExperimentError
from headway.fleet.model.actions import Action, MoveTask, PlaceRequest, RunBatch
from headway.fleet.policies.compass.planner import QUEUED, RESERVED, RUNNING, Planner
from headway.fleet.policies.compass.worker import FIFO, LOOKAHEAD, LocalQueue
from headway.fleet.policies.parts import ServingPolicy
from headway.fleet.state.requeststate import RequestState, Stage
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import Row, WorkerState

START, END = "start", "end"


class Compass(ServingPolicy):
    """Plans at arrival, adjusts when a task is sent, evicts by looking ahead in the queue, fetches ahead."""

    name = "compass"
    authors: ClassVar[dict[str, Any]] = {
        "evict": FIFO,
        "prefetch": 0,
        "estimate": QUEUED,
        "adjust_at": START,
        "ingress": False,
    }

    def __init__(
        self,
        adjust: bool = True,
        load: bool = True,
        cache: bool = True,
        evict: str = LOOKAHEAD,
        prefetch: int = 3,
        estimate: str = RUNNING,
        patience: float = 1.5,
        adjust_at: str = END,
        ingress: bool = True,
    ) -> None:
        """Store the options.

        ``patience``: a task is adjusted if it would wait longer than this multiple of its run time. ``adjust_at``:
        whether that is decided when its predecessor ends or, as in the authors' program, starts. ``ingress``: whether
        a plan counts the time to send a request's input on from the worker that received it.
        """
        if not patience >= 0:
            raise ExperimentError(f"policy {self.name}: option patience={patience} is negative")
        if adjust_at not in (START, END):
            raise ExperimentError(f"policy {self.name}: option adjust_at={adjust_at} is neither {END} nor {START}")
        self.adjust = adjust
        self.load = load
        self.cache = cache
        self.evict = evict
        self.prefetch = prefetch
        self.estimate = estimate
        self.patience = patience
        self.adjust_at = adjust_at
        self.ingress = ingress
        self.queue = LocalQueue(evict, prefetch)
        self.planner = Planner(estimate, load=load, cache=cache, ingress=ingress)

    def bind(self, state: ServingState) -> None:
        """Compute the ranks of all graphs; see ``Planner`` and ``LocalQueue``."""
        self.queue.bind(state)
        self.planner.bind(state, self.queue.hosts)
        self._open: dict[int, None] = {}
        """Requests with tasks that no worker that is up can run."""

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        """Yield the plans of new and displaced requests, adjustments of successors, and each worker's own actions."""
        if state.landed or state.displaced or self._open:
            for request in dict.fromkeys((*self._open, *state.landed, *state.displaced)):
                self._open.pop(request, None)
                if (rs := state.requests.get(request)) is not None:
                    yield from self._place(now, state, rs)
        if self.adjust and self.adjust_at == END:
            for request, task in state.ended:
                if (rs := state.requests.get(request)) is not None:
                    yield from self._adjust_successors(now, state, rs, task)
        for index in list(state.touched):
            if state.workers[index].queue:
                yield from self._serve_worker(now, state, state.workers[index])

    def _serve_worker(self, now: int, state: ServingState, worker: WorkerState) -> Iterator[Action]:
        """Yield the actions that a worker decides alone."""
        if not (self.adjust and self.adjust_at == START):
            yield from self.queue.decide(state, worker)
            return
        for action in self.queue.decide(state, worker):
            yield action
            if isinstance(action, RunBatch):
                for request, task in action.tasks:
                    yield from self._adjust_successors(now, state, state.requests[request], task)

    # --- plan -------------------------------------------------------------------------------------------------

    def _place(self, now: int, state: ServingState, rs: RequestState) -> Iterator[Action]:
        """Yield the placement of a request that arrived or lost tasks, planned by the worker that received it."""
        if (viewer := state.entry_worker(rs.request.ingress)) < 0:
            self._open[rs.request.id] = None
            return
        plan = self.plan(now, state, rs, viewer)
        if rs.unplaced(plan):
            self._open[rs.request.id] = None
        yield PlaceRequest(rs.request.id, plan)

    def plan(self, now: int, state: ServingState, rs: RequestState, viewer: int) -> tuple[int, ...]:
        """Return a worker for each task, by the rows that ``viewer`` sees."""
        return self.planner.plan(now, self.planner.view(now, state.rows(viewer, now)), rs, viewer)

    # --- adjust -----------------------------------------------------------------------------------------------

    def _adjust_successors(self, now: int, state: ServingState, rs: RequestState, task: int) -> Iterator[Action]:
        """Move the successors of a task that would wait too long on their planned worker."""
        if (here := rs.worker[task]) < 0:
            return  # it went down with its worker
        rows: Sequence[Row] | None = None
        for after in rs.graph.successors[task]:
            planned = rs.worker[after]
            if planned >= 0 and len(rs.graph.predecessors[after]) == 1 and rs.stage[after] < Stage.RUNNING:
                rows = rows or state.rows(here, now)
                if (target := self.adjusted(now, rows, rs, after, here)) >= 0 and target != planned:
                    rows = None
                    yield MoveTask(rs.request.id, after, target)

    def adjusted(self, now: int, rows: Sequence[Row], rs: RequestState, task: int, here: int) -> int:
        """Return the worker for a task whose input is on ``here``: as planned, unless it would wait too long there."""
        planner = self.planner
        function = rs.graph.tasks[task].function
        planned = rs.worker[task]
        run = planner.runs[function][planned]
        # Its own time may be in the row of where it was planned: queued, if that is here; else reserved.
        counted = run if (rs.stage[task] == Stage.QUEUED and planned == here) or self.estimate == RESERVED else 0
        extra = 0
        if self.adjust_at == START and self.estimate == QUEUED:
            # The authors decide before they take the task that starts off the queue.
            extra = planner.runs[rs.graph.tasks[rs.graph.predecessors[task][0]].function][here]
        wait = planner.taken_until(now, rows[planned]) - now - counted + (extra if planned == here else 0)
        if wait <= self.patience * run:
            return planned
        view = planner.view(now, rows)
        view.taken_until[planned] -= counted
        view.taken_until[here] += extra
        return planner.place_one(view, rs, task, here, self.queue.hosts[function])
