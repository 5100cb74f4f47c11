"""What each worker decides alone: which of its queued tasks runs next, what makes room, what is fetched ahead."""

from collections.abc import Iterator, Sequence

from headway.serving.actions import Action, FetchModel, RunBatch
from headway.serving.catalogue import Configuration, models_in
from headway.serving.state import ServingState
from headway.serving.workerstate import TaskId, WorkerState

FIFO, LOOKAHEAD = "fifo", "lookahead"


class LocalQueue:
    """Tasks in order of arrival, one at a time, each with the whole GPU."""

    def __init__(self, evict: str = LOOKAHEAD, prefetch: int = 3) -> None:
        """``prefetch``: how many queued tasks to look at for weights to fetch ahead; 0: none."""
        self.evict = evict
        self.prefetch = prefetch

    def bind(self, state: ServingState) -> None:
        """The one configuration of each function on each worker."""
        functions = range(len(state.catalogue.functions))
        self._whole: list[list[Configuration]] = [
            [
                max(state.latency.cells(worker.id, function), key=lambda c: (-c.batch, c.slices, c.cpus))
                for function in functions
            ]
            for worker in state.workers
        ]

    def decide(self, state: ServingState, worker: WorkerState) -> Iterator[Action]:
        """Start what can start."""
        if not worker.running and worker.queue:
            task = next(iter(worker.queue))
            yield self.run(state, worker, task)
        if self.prefetch and worker.queue and not worker.fetches:
            yield from self._ahead(state, worker)

    def run(self, state: ServingState, worker: WorkerState, task: TaskId) -> RunBatch:
        """One task with the whole GPU, and what must make room for it."""
        function = state.requests[task[0]].graph.tasks[task[1]].function
        kind = state.catalogue.functions[function]
        whole = self._whole[worker.id][function]
        missing = kind.mask & ~worker.memory.resident
        evict: tuple[int, ...] = ()
        if missing or kind.activation_bytes:
            need = state.catalogue.size_of(missing) + kind.activation_bytes - worker.memory.free_bytes
            if need > 0:
                evict = self.victims(state, worker, need, kind.mask, task)
        return RunBatch(worker.id, (task,), whole.cpus, whole.slices, evict)

    def victims(self, state: ServingState, worker: WorkerState, need: int, keep: int, task: TaskId) -> tuple[int, ...]:
        """Models that make room for ``need`` bytes: oldest first, or what the queue needs latest first."""
        memory = worker.memory
        models: Sequence[int] = [model for model in memory.order if not keep >> model & 1 and memory.evictable(model)]
        if self.evict == LOOKAHEAD:
            first = self._first_use(state, worker, task)
            never = len(worker.queue) + 1
            models = sorted(models, key=lambda model: -first.get(model, never))
        chosen = []
        for model in models:
            if need <= 0:
                break
            chosen.append(model)
            need -= memory.size_of((model,))
        return tuple(chosen)

    def _first_use(self, state: ServingState, worker: WorkerState, besides: TaskId) -> dict[int, int]:
        first: dict[int, int] = {}
        for position, (request, task) in enumerate(worker.queue):
            if (request, task) != besides:
                function = state.requests[request].graph.tasks[task].function
                for model in state.catalogue.functions[function].models:
                    first.setdefault(model, position)
        return first

    def _ahead(self, state: ServingState, worker: WorkerState) -> Iterator[Action]:
        """Fetch one missing model of the next tasks, into free memory only."""
        for position, (request, task) in enumerate(worker.queue):
            if position >= self.prefetch:
                return
            function = state.requests[request].graph.tasks[task].function
            missing = state.catalogue.functions[function].mask & ~worker.memory.resident
            for model in models_in(missing):
                if state.catalogue.models[model].size_bytes <= worker.memory.free_bytes:
                    yield FetchModel(worker.id, model)
                    return
