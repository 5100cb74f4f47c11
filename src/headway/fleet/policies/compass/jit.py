"""JIT: each task on the worker that can start it first, decided when it is sent. A baseline of the Compass paper.

A task is placed nowhere until its predecessors are done. In the authors' program (``start=hash``) the plan is that of
``hash``, and tasks with one predecessor are placed again when they are sent, as ``compass`` adjusts its plans.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

from headway.errors import ExperimentError
from headway.fleet.model.actions import NOWHERE, Action, MoveTask
from headway.fleet.policies.compass.hash import random_plan
from headway.fleet.policies.compass.planner import QUEUED, RUNNING
from headway.fleet.policies.compass.policy import END, START, Compass
from headway.fleet.policies.compass.worker import FIFO, LOOKAHEAD
from headway.fleet.state.requeststate import RequestState, Stage
from headway.fleet.state.state import ServingState

OPEN, HASH = "open", "hash"


class Jit(Compass):
    """Chooses the least sum of queue, fetch and transfer time when a task is sent."""

    name = "jit"
    authors: ClassVar[dict[str, Any]] = {
        "evict": FIFO,
        "prefetch": 0,
        "estimate": QUEUED,
        "start": HASH,
        "adjust_at": START,
    }

    def __init__(
        self,
        evict: str = LOOKAHEAD,
        prefetch: int = 3,
        estimate: str = RUNNING,
        start: str = OPEN,
        patience: float = 0.0,
        adjust_at: str = END,
        salt: int = 0,
    ) -> None:
        """Store the options; ``patience``, ``adjust_at`` and ``salt`` count with ``start=hash`` only."""
        super().__init__(
            evict=evict, prefetch=prefetch, estimate=estimate, patience=patience, adjust_at=adjust_at, adjust=True
        )
        if start not in (OPEN, HASH):
            raise ExperimentError(f"policy {self.name}: option start={start} is neither {OPEN} nor {HASH}")
        self.start = start
        self.salt = salt
        if start == OPEN:
            self.adjust_at = END  # an unplaced task is placed when its inputs are there

    def plan(self, now: int, state: ServingState, rs: RequestState, viewer: int) -> tuple[int, ...]:
        """Return the plan of ``hash``."""
        return random_plan(state, rs, self.queue.hosts, self.salt)

    def _place(self, now: int, state: ServingState, rs: RequestState) -> Iterator[Action]:
        if self.start == HASH:
            yield from super()._place(now, state, rs)
            return
        viewer = state.entry_worker(rs.request.ingress)
        for task, stage in enumerate(rs.stage):
            if stage == Stage.READY:
                yield from self._send(now, state, rs, task, viewer)

    def _adjust_successors(self, now: int, state: ServingState, rs: RequestState, task: int) -> Iterator[Action]:
        if self.start == HASH:
            yield from super()._adjust_successors(now, state, rs, task)
            return
        for after in rs.graph.successors[task]:
            if rs.stage[after] == Stage.READY:
                yield from self._send(now, state, rs, after, rs.worker[task])

    def _send(self, now: int, state: ServingState, rs: RequestState, task: int, here: int) -> Iterator[Action]:
        """Place a task; the worker ``here``, where its last input is, decides."""
        target = NOWHERE
        if here >= 0:
            view = self.planner.view(now, state.rows(here, now))
            target = self.planner.place_one(view, rs, task, here, self.queue.hosts[rs.graph.tasks[task].function])
        if target >= 0:
            yield MoveTask(rs.request.id, task, target)
        else:
            self._open[rs.request.id] = None
