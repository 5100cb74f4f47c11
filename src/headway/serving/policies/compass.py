"""Compass: tasks go where their models are, unless that worker is busy; the plan travels with the request.

The worker that receives a request plans all of it by decreasing rank. When a task ends, its worker looks again at each
successor that waits for nobody else, and sends it elsewhere if too much is queued where the plan has it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

from headway.errors import ExperimentError
from headway.serving.actions import Action, MoveTask, PlaceRequest
from headway.serving.policies.local import FIFO, LOOKAHEAD, LocalQueue
from headway.serving.policies.parts import ServingPolicy
from headway.serving.policies.plan import QUEUED, RESERVED, RUNNING, Planner
from headway.serving.requeststate import RequestState, Stage
from headway.serving.state import ServingState
from headway.serving.workerstate import Row


class Compass(ServingPolicy):
    """Plan at arrival, adjust when sent, evict by looking ahead in the queue, fetch ahead."""

    name = "compass"
    authors: ClassVar[dict[str, Any]] = {"evict": FIFO, "prefetch": 0, "estimate": QUEUED}

    def __init__(
        self,
        adjust: bool = True,
        load: bool = True,
        cache: bool = True,
        evict: str = LOOKAHEAD,
        prefetch: int = 3,
        estimate: str = RUNNING,
        patience: float = 1.5,
    ) -> None:
        """``patience``: how often its own run time a task may wait where it was planned before another is sought."""
        if patience < 0:
            raise ExperimentError(f"policy compass: option patience={patience} is negative")
        self.adjust = adjust
        self.load = load
        self.cache = cache
        self.evict = evict
        self.prefetch = prefetch
        self.estimate = estimate
        self.patience = patience
        self.queue = LocalQueue(evict, prefetch)
        self.planner = Planner(estimate, load=load, cache=cache)
        self._open: dict[int, None] = {}
        """Requests with tasks that no worker was up for."""

    def bind(self, state: ServingState) -> None:
        """Ranks of all graphs; see ``Planner`` and ``LocalQueue``."""
        self.queue.bind(state)
        self.planner.bind(state, self.queue.hosts)
        self._open = {}

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        """Plan what came or was displaced, look again at what is being sent, and let each worker go on."""
        if state.landed or state.displaced or self._open:
            yield from self._place(now, state, dict.fromkeys((*self._open, *state.landed, *state.displaced)))
        if self.adjust and state.ended:
            yield from self._adjust(now, state)
        for index in list(state.touched):
            yield from self.queue.decide(state, state.workers[index])

    # --- plan -------------------------------------------------------------------------------------------------

    def _place(self, now: int, state: ServingState, requests: Iterable[int]) -> Iterator[Action]:
        for request in requests:
            self._open.pop(request, None)
            rs = state.requests.get(request)
            if rs is None:
                continue
            viewer = reached(state, rs.request.ingress)
            if viewer < 0:
                self._open[request] = None
                continue
            view = self.planner.view(now, state.rows(viewer, now))
            plan = self.planner.plan(now, view, rs, viewer)
            if -1 in plan:
                self._open[request] = None
            yield PlaceRequest(request, plan)

    # --- adjust -----------------------------------------------------------------------------------------------

    def _adjust(self, now: int, state: ServingState) -> Iterator[Action]:
        for request, task in state.ended:
            rs = state.requests.get(request)
            if rs is None:
                continue
            here = rs.worker[task]
            rows: Sequence[Row] | None = None
            for after in rs.graph.successors[task]:
                if len(rs.graph.predecessors[after]) == 1 and Stage.READY < rs.stage[after] < Stage.RUNNING:
                    rows = rows or state.rows(here, now)
                    target = self.place_again(now, rows, rs, after, here)
                    if target >= 0 and target != rs.worker[after]:
                        rows = None
                        yield MoveTask(request, after, target)

    def place_again(self, now: int, rows: Sequence[Row], rs: RequestState, task: int, here: int) -> int:
        """Where a task goes whose input lies ``here``: where it was planned, unless it would wait too long there."""
        planner = self.planner
        function = rs.graph.tasks[task].function
        planned = rs.worker[task]
        run = planner.runs[function][planned]
        # It is in the row of where it was planned already: queued, if that is here; else reserved.
        counted = run if (rs.stage[task] == Stage.QUEUED and planned == here) or self.estimate == RESERVED else 0
        if planner.taken_until(now, rows[planned]) - counted - now <= self.patience * run:
            return planned
        view = planner.view(now, rows)
        view.taken_until[planned] -= counted
        return planner.at_once(view, rs, task, here, self.queue.hosts[function])


def reached(state: ServingState, ingress: int) -> int:
    """The worker that a request gets to: where it was sent, or the next one that is up; -1: none is."""
    count = len(state.workers)
    for step in range(count):
        index = (ingress + step) % count
        if state.workers[index].up:
            return index
    return -1
