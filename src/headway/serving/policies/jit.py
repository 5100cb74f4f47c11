"""JIT: each task on the worker that could take it soonest, decided when it is sent. A baseline of the Compass paper.

In the authors' code the plan is that of ``hash``, and only tasks with one predecessor are placed again when they are
sent; ``start=hash`` does that. Else a task is placed nowhere until everything it waits for is done.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

from headway.errors import ExperimentError
from headway.serving.actions import NOWHERE, Action, MoveTask, PlaceRequest
from headway.serving.policies.compass import reached
from headway.serving.policies.hash import spread
from headway.serving.policies.local import FIFO, LOOKAHEAD, LocalQueue
from headway.serving.policies.parts import ServingPolicy
from headway.serving.policies.plan import QUEUED, RUNNING, Planner
from headway.serving.requeststate import RequestState, Stage
from headway.serving.state import ServingState

OPEN, HASHED = "open", "hash"


class Jit(ServingPolicy):
    """Least queued, plus fetching, plus sending, when a task is sent."""

    name = "jit"
    authors: ClassVar[dict[str, Any]] = {"evict": FIFO, "prefetch": 0, "estimate": QUEUED, "start": HASHED}

    def __init__(
        self, evict: str = LOOKAHEAD, prefetch: int = 3, estimate: str = RUNNING, start: str = OPEN, salt: int = 0
    ) -> None:
        if start not in (OPEN, HASHED):
            raise ExperimentError(f"policy jit: option start={start} is neither {OPEN} nor {HASHED}")
        self.evict = evict
        self.prefetch = prefetch
        self.estimate = estimate
        self.start = start
        self.salt = salt
        self.queue = LocalQueue(evict, prefetch)
        self.planner = Planner(estimate)
        self._open: dict[int, None] = {}
        """Requests with tasks that no worker was up for."""

    def bind(self, state: ServingState) -> None:
        """See ``Planner`` and ``LocalQueue``."""
        self.queue.bind(state)
        self.planner.bind(state, self.queue.hosts)
        self._open = {}

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        """Place what came, was displaced or is being sent; then let each worker go on."""
        if state.landed or state.displaced or self._open:
            for request in dict.fromkeys((*self._open, *state.landed, *state.displaced)):
                self._open.pop(request, None)
                if (rs := state.requests.get(request)) is not None:
                    yield from self._first(now, state, rs)
        for request, task in state.ended:
            if (rs := state.requests.get(request)) is not None:
                for after in rs.graph.successors[task]:
                    if self._is_sent(rs, after):
                        yield from self._send(now, state, rs, after, rs.worker[task])
        for index in list(state.touched):
            yield from self.queue.decide(state, state.workers[index])

    def _first(self, now: int, state: ServingState, rs: RequestState) -> Iterator[Action]:
        """A request came, or lost tasks."""
        viewer = reached(state, rs.request.ingress)
        if viewer < 0:
            self._open[rs.request.id] = None
        elif self.start == HASHED:
            plan = spread(state, rs, self.queue.hosts, self.salt)
            if NOWHERE in plan:
                self._open[rs.request.id] = None
            yield PlaceRequest(rs.request.id, plan)
        else:
            for task, stage in enumerate(rs.stage):
                if stage == Stage.READY:
                    yield from self._send(now, state, rs, task, viewer)

    def _is_sent(self, rs: RequestState, task: int) -> bool:
        """Whether a task is placed when it is sent, and that is now."""
        if self.start == HASHED:
            return len(rs.graph.predecessors[task]) == 1 and Stage.READY < rs.stage[task] < Stage.RUNNING
        return rs.stage[task] == Stage.READY

    def _send(self, now: int, state: ServingState, rs: RequestState, task: int, here: int) -> Iterator[Action]:
        """Place a task whose inputs are ``here``; the worker there decides."""
        function = rs.graph.tasks[task].function
        view = self.planner.view(now, state.rows(here, now))
        placed = rs.worker[task]
        if rs.stage[task] == Stage.QUEUED and placed == here:
            view.taken_until[here] -= self.planner.runs[function][here]  # it waits for itself no longer
        target = self.planner.at_once(view, rs, task, here, self.queue.hosts[function])
        if target < 0:
            self._open[rs.request.id] = None
        elif target != placed:
            yield MoveTask(rs.request.id, task, target)
