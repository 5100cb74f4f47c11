"""Local decisions of a worker: which queued task runs next, which models are evicted, which are fetched ahead."""

from collections.abc import Iterator, Sequence
from itertools import islice

from headway.errors import ExperimentError
from headway.fleet.model.actions import Action, FetchModel, RunBatch
from headway.fleet.model.catalogue import Configuration, models_in
from headway.fleet.model.fleet import Worker, find_slices
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import TaskId, WorkerState

FIFO, LOOKAHEAD = "fifo", "lookahead"


class LocalQueue:
    """Runs tasks in order of arrival, one at a time, each with the whole GPU."""

    def __init__(self, evict: str = LOOKAHEAD, prefetch: int = 3) -> None:
        """Store the options. ``prefetch``: how many queued tasks to consider for weights to fetch ahead; 0: none."""
        if evict not in (FIFO, LOOKAHEAD):
            raise ExperimentError(f"option evict={evict} is neither {LOOKAHEAD} nor {FIFO}")
        if prefetch < 0:
            raise ExperimentError(f"option prefetch={prefetch} is negative: it counts tasks to look at")
        self.evict = evict
        self.prefetch = prefetch

    def bind(self, state: ServingState) -> None:
        """Compute the one configuration of each function on each worker, and where each function can run at all."""
        catalogue = state.catalogue
        self._largest: list[list[Configuration | None]] = [
            [_largest(state, worker.id, worker.worker, function) for function in range(len(catalogue.functions))]
            for worker in state.workers
        ]
        self.hosts: list[tuple[int, ...]] = []
        """By function: the workers that can run it when they are empty."""
        for index, function in enumerate(catalogue.functions):
            need = catalogue.size_of(function.mask) + function.activation_bytes
            hosts = tuple(
                worker.id
                for worker in state.workers
                if self._largest[worker.id][index] is not None and need <= worker.memory.capacity_bytes
            )
            if not hosts:
                raise ExperimentError(f"function {function.name}: no worker can run it, it needs {need} bytes on a GPU")
            self.hosts.append(hosts)
        self._masks = [function.mask for function in catalogue.functions]
        self.generating = sum(1 << at for at, each in enumerate(catalogue.functions) if each.generate is not None)
        """Functions that generate, as bits."""
        self._activations = [function.activation_bytes for function in catalogue.functions]
        self._sizes = [model.size_bytes for model in catalogue.models]

    def decide(self, state: ServingState, worker: WorkerState) -> Iterator[Action]:
        """Yield a batch of the first queued task, if the worker is idle, and one fetch ahead."""
        queue = worker.queue
        if not queue:
            return
        if self.generating:
            yield from self.start_in_order(state, worker)
        elif not worker.running and (batch := self.run(state, worker, next(iter(queue)))) is not None:
            yield batch
        if (fetch := self.next_fetch(state, worker)) is not None:
            yield fetch

    def start_in_order(self, state: ServingState, worker: WorkerState) -> Iterator[RunBatch]:
        """Yield batches from the front of a queue where some tasks generate, up to one that has to wait.

        Tasks that generate join the engine of their function, which forms batches itself; of the others one runs at a
        time, beside the engines.
        """
        busy = any(not self.generating >> batch.function & 1 for batch in worker.running.values())
        last: TaskId | None = None
        while worker.queue and (task := next(iter(worker.queue))) != last:
            function = state.requests[task[0]].graph.functions[task[1]]
            alone, cell = not self.generating >> function & 1, self._largest[worker.id][function]
            assert cell is not None
            if (alone and busy) or cell.cpus > worker.cpus_free or cell.slices > worker.slices_free:
                return
            if (batch := self.run(state, worker, task)) is None:
                return
            busy |= alone
            last = task
            yield batch

    def run(self, state: ServingState, worker: WorkerState, task: TaskId) -> RunBatch | None:
        """Return a batch of one task with the whole GPU, and its evictions; None: it must wait for a fetch to end."""
        function = state.requests[task[0]].graph.functions[task[1]]
        whole, memory = self._largest[worker.id][function], worker.memory
        assert whole is not None
        mask = self._masks[function]
        missing = mask & ~memory.resident
        need = self._activations[function]
        if missing:
            need += state.catalogue.size_of(missing)
        evict: tuple[int, ...] | None = ()
        if need > memory.free_bytes:
            evict = self.victims(state, worker, need - memory.free_bytes, mask, task)
        if evict is None:
            return None  # a model that is being fetched cannot be evicted
        return RunBatch(worker.id, (task,), whole.cpus, whole.slices, evict)

    def victims(
        self, state: ServingState, worker: WorkerState, need: int, keep: int, task: TaskId
    ) -> tuple[int, ...] | None:
        """Return models to evict for ``need`` bytes: oldest first, or those first that the queue needs last."""
        pinned = worker.memory.pins
        models = [model for model in worker.memory.order if not keep >> model & 1 and model not in pinned]
        if self.evict == LOOKAHEAD and len(models) > 1:
            models.sort(key=self._first_use(state, worker, task, models).__getitem__, reverse=True)
        return worker.memory.enough(models, need)

    def _first_use(
        self, state: ServingState, worker: WorkerState, besides: TaskId, models: Sequence[int]
    ) -> dict[int, int]:
        """Return by model the first position in the queue that needs it; the length of the queue where none does."""
        first = dict.fromkeys(models, len(worker.queue))
        requests, masks, among = state.requests, self._masks, sum(1 << model for model in models)
        for position, key in enumerate(worker.queue):
            needed = masks[requests[key[0]].graph.functions[key[1]]] & among
            if needed and key != besides:
                for model in models_in(needed):
                    first[model] = position
                among &= ~needed
                if not among:
                    break
        return first

    def next_fetch(self, state: ServingState, worker: WorkerState) -> FetchModel | None:
        """Return a fetch of a missing model of the next tasks, into free memory only, and one at a time; else None."""
        if not self.prefetch or worker.fetches or not worker.queue:
            return None
        memory = worker.memory
        absent = ~memory.resident
        for request, task in islice(worker.queue, self.prefetch):
            missing = self._masks[state.requests[request].graph.functions[task]] & absent
            if missing:
                for model in models_in(missing):
                    if self._sizes[model] <= memory.free_bytes:
                        return FetchModel(worker.id, model)
        return None


def _largest(state: ServingState, index: int, worker: Worker, function: int) -> Configuration | None:
    """Return the largest configuration for one task that an empty worker can hold; None: there is none."""
    possible = [
        cell
        for cell in state.latency.cells(index, function)
        if cell.cpus <= worker.cpus and cell.slices <= worker.gpu.slices and find_slices(worker.gpu, cell.slices, 0)
    ]
    return max(possible, key=lambda cell: (-cell.batch, cell.slices, cell.cpus), default=None)
