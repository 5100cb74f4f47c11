"""A policy that does everything that can be done, at random, and finishes nevertheless: it leaves no row kind unused.

It asks ``check`` before each action, so that it never breaks a rule, and ends up in corners that a sensible policy
avoids: batches of tasks pulled from the pool beside queued ones, moves of what is under way, processes stopped early.
"""

from collections.abc import Iterator
from random import Random

from headway.fleet.model.actions import (
    Action,
    DropRequest,
    EvictModel,
    FetchModel,
    MoveTask,
    PlaceRequest,
    RunBatch,
    StartInstance,
    StopInstance,
    WakeAt,
)
from headway.fleet.policies.parts import ServingPolicy
from headway.fleet.state.requeststate import Stage
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import TaskId, WorkerState
from headway.streams import small_stream
from headway.units import MILLISECOND


class Restless(ServingPolicy):
    """Draws what it does from a seed and the time."""

    name = "restless"
    central = True

    def __init__(self, seed: int = 0, drops: bool = True) -> None:
        self.seed = seed
        self.drops = drops
        self._wakes = 0

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        """A little of everything; then whatever can run runs, so that it ends."""
        draw = small_stream(self.seed, str(now))
        yield from self._requests(draw, state)
        for worker in state.workers:
            if worker.up:
                for action in self._ahead(draw, state, worker):
                    if state.check(action) is None:
                        yield action
        for worker in state.workers:
            if worker.up:
                yield from self._runs(draw, state, worker)
        if state.requests and now >= self._wakes:
            self._wakes = now + draw.randrange(1, 200) * MILLISECOND
            yield WakeAt(self._wakes)

    def _requests(self, draw: Random, state: ServingState) -> Iterator[Action]:
        up = [worker.id for worker in state.workers if worker.up]
        if not up:
            return
        for request in dict.fromkeys((*state.landed, *state.displaced)):
            rs = state.requests[request]
            if draw.random() < 0.7:
                yield PlaceRequest(request, tuple(draw.choice([-1, *up]) for _ in rs.stage))
        for request, rs in list(state.requests.items()):
            if self.drops and rs.request.deadline and draw.random() < 0.05:
                yield DropRequest(request)
            elif draw.random() < 0.2:
                move = MoveTask(request, draw.randrange(len(rs.stage)), draw.choice(up))
                if state.check(move) is None:
                    yield move

    def _ahead(self, draw: Random, state: ServingState, worker: WorkerState) -> Iterator[Action]:
        models, functions = len(state.catalogue.models), len(state.catalogue.functions)
        if draw.random() < 0.3:
            unused = [model for model in worker.memory.order if worker.memory.evictable(model)]
            evict = tuple(unused[:1]) if draw.random() < 0.5 else ()
            yield FetchModel(worker.id, draw.randrange(models), evict)
        if draw.random() < 0.1:
            yield EvictModel(worker.id, draw.randrange(models))
        if draw.random() < 0.1:
            yield StartInstance(worker.id, draw.randrange(functions))
        if draw.random() < 0.1:
            yield StopInstance(worker.id, draw.randrange(functions))

    def _runs(self, draw: Random, state: ServingState, worker: WorkerState) -> Iterator[Action]:
        """Batches of what is queued here and what is ready anywhere, each in some configuration that fits."""
        waiting: dict[int, list[TaskId]] = {}
        for request, task in worker.queue:
            waiting.setdefault(state.requests[request].graph.tasks[task].function, []).append((request, task))
        if draw.random() < 0.6 or not worker.queue:
            for (graph, task), requests in state.ready.items():
                function = state.catalogue.graphs[graph].tasks[task].function
                if requests:
                    waiting.setdefault(function, []).extend((request, task) for request in requests)
        for function, tasks in waiting.items():
            cells = list(state.latency.cells(worker.id, function))
            draw.shuffle(cells)
            for cell in cells:
                run = self._fitting(state, worker, tasks[: cell.batch], cell.cpus, cell.slices)
                if run is not None:
                    yield run
                    break

    def _fitting(
        self, state: ServingState, worker: WorkerState, tasks: list[TaskId], cpus: int, slices: int
    ) -> RunBatch | None:
        for request, task in tasks:
            assert state.requests[request].stage[task] in (Stage.QUEUED, Stage.READY)
        needed = state.catalogue.functions[state.requests[tasks[0][0]].graph.tasks[tasks[0][1]].function].models
        unused = [m for m in worker.memory.order if worker.memory.evictable(m) and m not in needed]
        for count in range(len(unused) + 1):
            run = RunBatch(worker.id, tuple(tasks), cpus, slices, tuple(unused[:count]))
            if state.check(run) is None:
                return run
        return None
