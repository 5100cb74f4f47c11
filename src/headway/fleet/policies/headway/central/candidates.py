"""Candidate workers for a batch: the best fit for an offer, and when a worker will have room for it."""

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from headway.fleet.model.fleet import FREE, find_slices
from headway.fleet.policies.headway.central.batching import SOON
from headway.fleet.policies.headway.central.offers import Menu
from headway.fleet.policies.headway.central.warming import NEVER
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import Batch, WorkerState


class Candidate(NamedTuple):
    """A worker that may take a batch, and what it needs before it can start there."""

    delay: int
    """Until inputs and weights have arrived; whole milliseconds."""
    worker: WorkerState
    evict: tuple[int, ...]


def best_fit(candidates: Sequence[Candidate], menu: Menu, offer: int, worker_types: Sequence[int]) -> Candidate | None:
    """Return the candidate with the least waste: free CPUs and slices stay in the worker's proportion, then few slices.

    None: the offer fits on none.
    """
    cpus, slices, worker_type = menu.cpus[offer], menu.slices[offer], menu.worker_types[offer]
    best, chosen = (1 << 62, 0), None
    for candidate in candidates:
        worker = candidate.worker
        cpus_left, slices_left = worker.cpus_free - cpus, worker.slices_free - slices
        if cpus_left < 0 or slices_left < 0 or worker_types[worker.id] != worker_type:
            continue
        gpu = worker.worker.gpu
        rank = (abs(slices_left * worker.worker.cpus - cpus_left * gpu.slices), slices_left)
        if rank < best and (gpu.geometry == FREE or find_slices(gpu, slices, worker.taken) is not None):
            best, chosen = rank, candidate
    return chosen


class Releases:
    """When the batches of each worker end and free their CPUs and slices, in order."""

    def __init__(self, workers: int) -> None:
        self._marks = [(0, 0)] * workers
        self._known: list[tuple[int, list[Batch]]] = [(0, [])] * workers
        """By worker: the functions that run there, as bits, and its batches by when they end."""
        self._order: list[int] = []
        """Workers where something runs, by when the first of it ends."""
        self._stale: Sequence[int] | None = None
        """Workers to read again; None: all."""

    def invalidate(self, workers: Sequence[int] | None = None) -> None:
        """Read these workers, or all, again before the next answer: batches may have started or ended there."""
        self._stale = None if workers is None or self._stale is None else (*self._stale, *workers)

    def _read(self, state: ServingState) -> None:
        changed = False
        for index in range(len(self._marks)) if self._stale is None else self._stale:
            running = state.workers[index].running
            # leases rise: with as many batches and the same last one, all are the same
            mark = len(running), next(reversed(running), 0)
            if mark != self._marks[index]:
                changed, self._marks[index] = True, mark
                batches = sorted(running.values(), key=attrgetter("end"))
                functions = {batch.function for batch in batches}
                self._known[index] = sum(1 << function for function in functions), batches
        self._stale = ()
        if changed:
            busy = [(batches[0].end, index) for index, (_, batches) in enumerate(self._known) if batches]
            self._order = [index for _, index in sorted(busy)]

    def room_at(
        self, now: int, state: ServingState, function: int, menu: Menu, offer: int, worker_types: Sequence[int]
    ) -> int:
        """Return when the first worker with a process can take an offer, if no other batch takes its place."""
        if self._stale is None or self._stale:
            self._read(state)
        cpus, slices, worker_type = menu.cpus[offer], menu.slices[offer], menu.worker_types[offer]
        mask = state.catalogue.functions[function].mask
        needed, bit = state.catalogue.functions[function].cold_start, 1 << function
        best, workers = NEVER, state.workers
        for index in self._order:
            functions, batches = self._known[index]
            if batches[0].end >= best:
                break
            worker = workers[index]
            warm = not needed or bool(worker.warm & bit)
            if not (warm or functions & bit) or worker_types[index] != worker_type or mask & ~worker.memory.resident:
                continue
            cpus_free, taken, gpu = worker.cpus_free, worker.taken, worker.worker.gpu
            for batch in batches:
                if batch.end >= best:
                    break
                cpus_free += batch.cpus
                taken &= ~batch.mask
                warm = warm or batch.function == function
                if warm and cpus_free >= cpus and find_slices(gpu, slices, taken) is not None:
                    best = max(batch.end, now + SOON)
                    break
        return best
