"""A serving tape as arrays: intervals and resources of batches, and the end of each request.

A *run* is one task in one batch; a task that was lost with its worker has several. A batch *holds* its CPUs, slices
and activations from its RUN row to its end, *computes* from its LOADED row on (at once where it has none), and ends
when it finishes, when its worker fails, or with the tape. No code here loops over rows.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from headway.core.tape import Tape
from headway.errors import TapeError
from headway.fleet.model.catalogue import Catalogue
from headway.fleet.model.fleet import Fleet
from headway.fleet.model.request import NUMBERS, Request
from headway.fleet.model.rows import UNANSWERED, Kind
from headway.statistics.series import IntArray

_KINDS = 64
_OF_REQUESTS = (
    *(Kind.ARRIVED, Kind.DONE, *UNANSWERED, Kind.TASK, Kind.TASK_ARRIVED, Kind.PLACE, Kind.MOVE),
    *(Kind.LOST, Kind.READY, Kind.QUEUED, Kind.RUN, Kind.FIRST_TOKEN),
)
BoolArray = npt.NDArray[np.bool_]


class Ledger:
    """A tape, its workload and its fleet as columns."""

    def __init__(self, catalogue: Catalogue, fleet: Fleet, requests: Sequence[Request], tape: Tape) -> None:
        self.catalogue = catalogue
        self.fleet = fleet
        self.requests = requests
        columns = np.ascontiguousarray(tape.rows.T)
        self.time, self.kind, self.subject, self.lease, self.place, self.detail, self.value = columns
        self.horizon = int(self.time[-1]) if len(tape) else 0
        """The time of the last row."""
        self._requests()
        self._batches()
        self._runs()

    def rows(self, *kinds: Kind) -> npt.NDArray[np.intp]:
        """Return the positions of all rows of some kinds, in tape order."""
        table = np.zeros(_KINDS, dtype=np.bool_)
        table[list(kinds)] = True
        return np.flatnonzero(table[self.kind])

    def count(self, *kinds: Kind) -> int:
        """Return how many rows of some kinds there are."""
        return len(self.rows(*kinds))

    def positions(self, rows: npt.NDArray[np.intp]) -> IntArray:
        """Return which requests, by their place in the workload, some rows are about."""
        ids: IntArray = self.subject[rows]
        return ids if self._plain else self._order[np.searchsorted(self._ids[self._order], ids)]

    # --- requests ---------------------------------------------------------------------------------------------

    def _requests(self) -> None:
        rows = [request[: len(NUMBERS)] for request in self.requests]
        table = np.array(rows, dtype=np.int64).reshape(-1, len(NUMBERS))
        columns = dict(zip(NUMBERS, table.T, strict=True))
        self._ids, self.graph, self.deadline = columns["id"], columns["graph"], columns["deadline"]
        self.tenant, self.class_id = columns["tenant"], columns["class_id"]
        self.prompt_tokens, self.output_tokens = columns["prompt_tokens"], columns["output_tokens"]
        self._order = np.argsort(self._ids, kind="stable")
        self._plain = bool((self._ids == np.arange(len(table))).all())
        named = self.subject[self.rows(*_OF_REQUESTS)]
        if (strange := named[~np.isin(named, self._ids)]).size:
            raise TapeError(f"the tape names request {int(strange[0])}, which the workload does not have")
        if self.place.size and self.place.max() >= len(self.fleet.workers):
            wrong, there = int(self.place.max()), len(self.fleet.workers)
            raise TapeError(f"the tape names worker {wrong}, the fleet has {there}: not its fleet")
        self.arrival = np.full(len(table), -1, dtype=np.int64)
        """When it arrived; -1 when it has not."""
        self.end = np.full(len(table), -1, dtype=np.int64)
        """When it was answered or dropped; -1 when it was neither."""
        self.ended_by = np.zeros(len(table), dtype=np.int64)
        """DONE or DROP; 0 for a request that has not ended."""
        arrivals, ends = self.rows(Kind.ARRIVED), self.rows(Kind.DONE, *UNANSWERED)
        self.arrival[self.positions(arrivals)] = self.time[arrivals]
        self.end[self.positions(ends)] = self.time[ends]
        self.ended_by[self.positions(ends)] = self.kind[ends]

    @property
    def arrived(self) -> BoolArray:
        """Return whether each request arrived."""
        return self.arrival >= 0

    @property
    def answered(self) -> BoolArray:
        """Return whether each request was answered."""
        return np.equal(self.ended_by, Kind.DONE)

    @property
    def dropped(self) -> BoolArray:
        """Return whether each request was given up."""
        return np.isin(self.ended_by, UNANSWERED)

    @property
    def latency(self) -> IntArray:
        """Return the time from arrival to answer; meaningless where there is no answer."""
        return self.end - self.arrival

    @property
    def start(self) -> int:
        """Return when the first request arrived."""
        return int(self.arrival[self.arrived].min()) if self.arrived.any() else self.horizon

    @property
    def span(self) -> int:
        """Return the time from the first arrival to the last row."""
        return self.horizon - self.start

    # --- batches ----------------------------------------------------------------------------------------------

    def _batches(self) -> None:
        begun = self.rows(Kind.RUN)
        self.batch_row = begun
        self.began = self.time[begun]
        self.worker = self.place[begun]
        self.function = self.detail[begun]
        packed = self.value[begun]
        self.cpus, self.slices = packed & 0xFFFF, packed >> 16 & 0xFFFF
        self._of_lease = np.full(int(self.lease.max(initial=0)) + 1, -1, dtype=np.int64)
        self._of_lease[self.lease[begun]] = np.arange(len(begun))
        self.batch_size = self._per_batch(Kind.TASK)
        self.cold = self._per_batch(Kind.COLD) > 0
        self.cold_start = np.zeros(len(begun), dtype=np.int64)
        """Start time of the process of a batch that has none."""
        cold = self.rows(Kind.COLD)
        self.cold_start[self._of_lease[self.lease[cold]]] = self.value[cold]
        self.loads = self._per_batch(Kind.LOAD)
        """Models that it had to fetch first."""
        self.batch_end = np.full(len(begun), -1, dtype=np.int64)
        finished = self.rows(Kind.FINISHED)
        self.batch_end[self._of_lease[self.lease[finished]]] = self.time[finished]
        self.finished = self.batch_end >= 0
        died = self.next_failure(self.worker, begun)
        self.lost = ~self.finished & (died < len(self.time))
        """Batches that ended because their worker failed."""
        self.batch_end[self.lost] = self.time[died[self.lost]]
        self.batch_end[self.batch_end < 0] = self.horizon
        self.computed_from = np.where(self.finished, self.began, self.batch_end)
        loaded = self.rows(Kind.LOADED)
        self.computed_from[self._of_lease[self.lease[loaded]]] = self.time[loaded]

    def _per_batch(self, kind: Kind) -> IntArray:
        """Count the rows of a kind, for each batch."""
        batches = self._of_lease[self.lease[self.rows(kind)]]
        return np.bincount(batches[batches >= 0], minlength=len(self.began)).astype(np.int64)

    def batch_at(self, rows: npt.NDArray[np.intp]) -> IntArray:
        """Return which batches, by their order, some rows are about."""
        batches: IntArray = self._of_lease[self.lease[rows]]
        return batches

    def next_failure(self, workers: IntArray, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Return for each (worker, row) the row where that worker next fails or stops; past the last row without."""
        failures = self.rows(Kind.WORKER_FAILED, Kind.STOP_WORKER)
        return self.next_row(workers, rows, self.place[failures], failures)

    def next_row(
        self, keys: IntArray, rows: npt.NDArray[np.intp], among: IntArray, at: npt.NDArray[np.intp]
    ) -> npt.NDArray[np.intp]:
        """Return for each (key, row) the first later row of ``at`` whose key, in ``among``, is the same."""
        width = len(self.time) + 1
        sought = np.sort(among * width + at)
        index = np.searchsorted(sought, keys * width + rows, side="right")
        next_keys = np.append(sought, np.int64(1) << 62)[index]
        return np.where(next_keys // width == keys, next_keys % width, len(self.time)).astype(np.intp)

    def measured_span(self, measured: BoolArray) -> int:
        """Return how long it took from the first arrival of the measured requests until all of them had ended."""
        if not measured.any():
            return 0
        ends = self.end[measured]
        last = self.horizon if (ends < 0).any() else int(ends.max())
        return last - int(self.arrival[measured].min())

    # --- runs of tasks ----------------------------------------------------------------------------------------

    def _runs(self) -> None:
        rows = self.rows(Kind.TASK)
        self.run_request = self.positions(rows)
        self.run_task = self.detail[rows]
        self.run_batch = self._of_lease[self.lease[rows]]
        if (self.run_batch < 0).any():
            raise TapeError("the tape has a task of a batch that never began")

    @cached_property
    def first_task(self) -> IntArray:
        """Return by request the position of its first task in an array of all tasks of all requests."""
        counts = np.array([len(graph.tasks) for graph in self.catalogue.graphs], dtype=np.int64)
        return np.concatenate(([0], np.cumsum(counts[self.graph])))

    @cached_property
    def ran_at(self) -> IntArray:
        """Return by task, in the order of ``first_task``, the worker of its last run; -1 for none."""
        where = np.full(int(self.first_task[-1]), -1, dtype=np.int64)
        where[self.first_task[self.run_request] + self.run_task] = self.worker[self.run_batch]
        return where
