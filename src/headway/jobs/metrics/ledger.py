"""Read a tape once into arrays that all metrics share: every hold of GPUs, and how each job ended.

A *hold* is one stretch under one lease: from a start or a move to whatever came next for that job (its end, a
preemption, an eviction, the next move), or to the last row of a tape that ends early. Nothing here loops over rows.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from headway.core.tape import Tape
from headway.errors import TapeError
from headway.jobs.metrics.checkpoints import Written, written
from headway.jobs.model.cluster import Cluster
from headway.jobs.model.job import Job
from headway.jobs.model.rows import ENDS, REJOINS, WORD_BITS, Kind
from headway.statistics.series import IntArray

FIRST_ACTION = int(Kind.START)
"""Kinds below this are events."""
_OPENS = (Kind.START, Kind.MIGRATE)
_CLOSES = (*ENDS, *REJOINS)
_OF_JOBS = (
    *(*_OPENS, *_CLOSES, Kind.ARRIVED, Kind.WITHDRAWN, Kind.PLACE, Kind.COST, Kind.RESPEED, Kind.QUEUED_AGAIN),
    *(Kind.REALLOCATE, Kind.GRANT, Kind.STORAGE, Kind.PAUSE, Kind.WARN),
)
_KINDS = 64


class Ledger:
    """A tape, its workload and its cluster, taken apart into columns."""

    def __init__(self, tape: Tape, jobs: Sequence[Job], cluster: Cluster) -> None:
        self.jobs = jobs
        self.cluster = cluster
        columns = np.ascontiguousarray(tape.rows.T)
        self.time, self.kind, self.subject, self.lease, self.place, self.detail, self.value = columns
        self.horizon = int(self.time[-1]) if len(tape) else 0
        """The time of the last row."""
        self._check()
        self._jobs()
        self._holds()
        self._placements()

    def _check(self) -> None:
        about_jobs = self.subject[self.rows(*_OF_JOBS)]
        if about_jobs.size and (about_jobs.max() >= len(self.jobs) or about_jobs.min() < 0):
            wrong = int(about_jobs.max() if about_jobs.max() >= len(self.jobs) else about_jobs.min())
            raise TapeError(f"the tape names job {wrong}, the workload has {len(self.jobs)}: not its workload")
        nodes = len(self.cluster.nodes)
        if self.place.size and self.place.max() >= nodes:
            raise TapeError(f"the tape names node {int(self.place.max())}, the cluster has {nodes}: not its cluster")

    def rows(self, *kinds: Kind) -> npt.NDArray[np.intp]:
        """Return the positions of all rows of some kinds, in tape order."""
        return np.flatnonzero(_among(kinds)[self.kind])

    def of_jobs(self, field: str) -> IntArray:
        """Return one integer field of all jobs of the workload."""
        return np.fromiter(map(attrgetter(field), self.jobs), np.int64, len(self.jobs))

    def codes(self, *fields: str) -> tuple[list[Any], IntArray]:
        """Return the distinct values (tuples of several fields) in order of appearance, and each job's position."""
        values = list(map(attrgetter(*fields), self.jobs))
        position = {name: index for index, name in enumerate(dict.fromkeys(values))}
        return list(position), np.fromiter(map(position.__getitem__, values), np.int64, len(values))

    # --- jobs -------------------------------------------------------------------------------------------------

    def _jobs(self) -> None:
        count = len(self.jobs)
        self.gpus = self.of_jobs("gpus")
        self.gpu_milli = self.of_jobs("gpu_milli")
        self.width = self.gpus * self.gpu_milli
        """Thousandths of a GPU."""
        self.submit = np.full(count, -1, dtype=np.int64)
        """When it arrived; -1 when it has not."""
        arrivals = self.rows(Kind.ARRIVED)
        self.submit[self.subject[arrivals]] = self.time[arrivals]
        self.arrived = self.submit >= 0
        self.withdrawn = np.full(count, -1, dtype=np.int64)
        """When it left before it was eligible, and so never arrived; -1 when it did not."""
        leaves = self.rows(Kind.WITHDRAWN)
        self.withdrawn[self.subject[leaves]] = self.time[leaves]
        self.end = np.full(count, -1, dtype=np.int64)
        """When it left for good; -1 when it has not."""
        self.ended_by = np.zeros(count, dtype=np.int64)
        """FINISHED, FAILED, CANCELLED or KILL; 0 for a job that has not ended."""
        ends = self.rows(*ENDS)
        self.end[self.subject[ends]] = self.time[ends]
        self.ended_by[self.subject[ends]] = self.kind[ends]
        again = self.rows(Kind.QUEUED_AGAIN)
        failures = self.counted(Kind.FAILED)
        retried = (self.ended_by == Kind.FAILED) & (np.bincount(self.subject[again], minlength=count) >= failures)
        self.end[retried] = -1
        self.ended_by[retried] = 0
        self.ended = self.end >= 0
        self.ideal = np.zeros(count, dtype=np.int64)
        """Work delivered by its last attempt and by those that failed: how long it takes alone at reference speed."""
        np.add.at(self.ideal, self.subject[ends], self.value[ends])

    def counted(self, *kinds: Kind) -> IntArray:
        """Count the rows of some kinds, for each job."""
        return np.bincount(self.subject[self.rows(*kinds)], minlength=len(self.jobs)).astype(np.int64)

    def summed(self, subjects: IntArray, values: IntArray) -> IntArray:
        """Return the sum of values for each job."""
        total = np.zeros(len(self.jobs), dtype=np.int64)
        np.add.at(total, subjects, values)
        return total

    @cached_property
    def span(self) -> tuple[int, int]:
        """Return first arrival and last completion; the last row instead when jobs are unfinished."""
        if not self.arrived.any():
            return 0, 0
        start = int(self.submit[self.arrived].min())
        return start, int(self.end.max()) if bool(self.gone.all()) else self.horizon

    @cached_property
    def gone(self) -> npt.NDArray[np.bool_]:
        """Return whether nothing more will happen to each job: it ended, or left before it was eligible."""
        return self.ended | (self.withdrawn >= 0)

    @cached_property
    def left(self) -> IntArray:
        """Return when each job stopped living: its end, or the end of the tape."""
        return np.where(self.ended, self.end, self.horizon)

    @cached_property
    def held(self) -> IntArray:
        """Return nanoseconds that each job held what it asked for."""
        return self.summed(self.hold_job, self.hold_end - self.hold_start)

    @cached_property
    def jct(self) -> IntArray:
        """Return nanoseconds from arrival to end; meaningless for a job that has not ended."""
        return self.end - self.submit

    @cached_property
    def wait(self) -> IntArray:
        """Return nanoseconds that each job lived and held nothing; 0 for a job that has not arrived."""
        return np.where(self.arrived, self.left - self.submit - self.held, 0)

    @cached_property
    def first_start(self) -> IntArray:
        """Return when each job first started; -1 when it never did."""
        first = np.full(len(self.jobs), -1, dtype=np.int64)
        first[self.hold_job[::-1]] = self.hold_start[::-1]
        return first

    @cached_property
    def completed(self) -> npt.NDArray[np.bool_]:
        """Return whether each job ran and left for good, in whatever way: JCT, wait and slow-down are about these."""
        return self.ended & (self.first_start >= 0)

    # --- holds ------------------------------------------------------------------------------------------------

    def _holds(self) -> None:
        """Fill the arrays of holds, sorted by job, then by time."""
        rows = self.rows(*_OPENS, *_CLOSES)
        rows = rows[np.argsort(self.subject[rows], kind="stable")]
        opens = _among(_OPENS)[self.kind[rows]]
        followed = np.append(self.subject[rows[1:]] == self.subject[rows[:-1]], False)[: len(rows)]
        following = np.append(rows[1:], 0)[: len(rows)]
        self.hold_row = rows[opens]
        """The row that opened it."""
        self.hold_closed = followed[opens]
        """False for what still runs when the tape ends."""
        self.hold_closed_by = np.where(self.hold_closed, self.kind[following[opens]], 0)
        """The kind of the row that closed it (MIGRATE: a move); 0 for what still runs."""
        self.hold_job = self.subject[self.hold_row]
        self.hold_start = self.time[self.hold_row]
        self.hold_end = np.where(self.hold_closed, self.time[following[opens]], self.horizon)
        self.hold_lease = self.lease[self.hold_row]
        self._by_lease = np.argsort(self.hold_lease, kind="stable")
        costs = self.rows(Kind.COST)
        self.hold_cost = np.zeros(len(self.hold_row), dtype=np.int64)
        """Nanoseconds that the job was to stand still first."""
        self.hold_cost[self.holds_of(costs)] = self.value[costs]

    @cached_property
    def paces(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], IntArray]:
        """Return (hold, row, base) of each row that set a speed: a start, a move, a change; by hold, in order.

        From ``base`` on the job makes progress at that speed; until then it stands still.
        """
        hold, rows, base, _ = self._paces
        return hold, rows, base if self.written is None else self.written.base

    @cached_property
    def written(self) -> Written | None:
        """Return what writing periodic checkpoints took; None where no job stands still for them."""
        if not any(job.checkpoint and job.checkpoint_every for job in self.jobs):
            return None
        return written(self, *self._paces)

    @cached_property
    def _paces(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], IntArray, IntArray]:
        """Return paces as if no checkpoints were written, and how long the job is to stand still at each."""
        changes = self.rows(Kind.RESPEED, Kind.REALLOCATE)
        hold = np.concatenate((np.arange(len(self.hold_row)), self.holds_of(changes)))
        rows = np.concatenate((self.hold_row, changes))
        pauses = self.added(changes, Kind.PAUSE, "a pause of a job for which nothing was changed")
        still = np.concatenate((self.hold_cost, pauses))
        order = np.lexsort((rows, hold))
        hold, rows, still = hold[order], rows[order], still[order]
        if not len(self.rows(Kind.PAUSE)):
            return hold, rows, self.hold_start[hold] + self.hold_cost[hold], still
        # base is max(base before, time) + still, from row to row: with sums from the beginning of the hold, a maximum
        total = np.cumsum(still)
        first = np.searchsorted(hold, hold)
        total -= total[first] - still[first]
        return hold, rows, total + _running_maximum(self.time[rows] - (total - still), hold), still

    def added(self, rows: npt.NDArray[np.intp], kind: Kind, problem: str) -> IntArray:
        """Return what a row of this kind, after each of these rows and of the same lease, adds to it; 0 without one."""
        sums = np.zeros(len(rows), dtype=np.int64)
        more = self.rows(kind)
        if len(more):
            before = np.searchsorted(rows, more) - 1
            if before.min() < 0 or bool((self.lease[rows[before]] != self.lease[more]).any()):
                raise TapeError(f"the tape has {problem}")
            sums[before] = self.value[more]
        return sums

    @cached_property
    def standstill(self) -> IntArray:
        """Return the nanoseconds of each hold without progress.

        That is at its start, when its resources changed, and while it wrote periodic checkpoints.
        """
        return self.stood_first + self.paused + self.writing

    @cached_property
    def stood_first(self) -> IntArray:
        """Return nanoseconds of each hold before the job made any progress."""
        still: IntArray = np.minimum(self.hold_cost, self.hold_end - self.hold_start)
        return still

    @cached_property
    def writing(self) -> IntArray:
        """Return nanoseconds of each hold in which the job wrote periodic checkpoints."""
        return np.zeros_like(self.hold_cost) if self.written is None else self.written.held

    @cached_property
    def paused(self) -> IntArray:
        """Return nanoseconds of each hold in which the job stood still because what it holds changed."""
        still = np.zeros_like(self.hold_cost)
        if not len(self.rows(Kind.PAUSE)):
            return still
        hold, rows, base = self.paces
        fresh = np.append(True, hold[1:] != hold[:-1])[: len(hold)]
        begins = np.where(fresh, self.time[rows], np.maximum(self.time[rows], np.append(0, base[:-1])[: len(hold)]))
        np.add.at(still, hold, np.maximum(np.minimum(base, self.hold_end[hold]) - begins, 0))
        return still - self.stood_first - (0 if self.written is None else self.written.rest)

    def holds_of(self, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Return the hold that each of these rows belongs to, by its lease."""
        if not len(rows):
            return np.empty(0, dtype=np.intp)
        leases = self.hold_lease[self._by_lease]
        positions = np.searchsorted(leases, self.lease[rows])
        if positions.max(initial=-1) >= len(leases) or bool((leases[positions] != self.lease[rows]).any()):
            raise TapeError("the tape has a row under a lease that no start or move took")
        holds: npt.NDArray[np.intp] = self._by_lease[positions]
        return holds

    def _placements(self) -> None:
        """Fill the arrays of places.

        A *place* is one word of GPUs of one node under one hold: a start's own row, then its PLACE rows.
        """
        more = self.rows(Kind.PLACE)
        own = np.arange(len(self.hold_row), dtype=np.intp)
        self.place_hold = np.concatenate((own, self.holds_of(more)))
        rows = np.concatenate((self.hold_row, more))
        self.place_node = self.place[rows]
        self.place_mask = self.detail[rows]
        self.place_word = np.concatenate((np.zeros(len(own), dtype=np.int64), self.value[more]))
        self.place_gpus = bit_count(self.place_mask)
        jobs = self.hold_job[self.place_hold]
        self.place_width = self.place_gpus * self.gpu_milli[jobs]
        """Thousandths of a GPU."""
        self.place_shared = self.gpu_milli[jobs] < 1000

    # --- nodes ------------------------------------------------------------------------------------------------

    @cached_property
    def node_changes(self) -> tuple[IntArray, IntArray, IntArray]:
        """Return (time, node, +1 or -1) whenever a node comes up or stops taking jobs (failed or drained)."""
        rows = self.rows(Kind.NODE_FAILED, Kind.NODE_RECOVERED, Kind.NODE_DRAINED)
        rows = rows[np.argsort(self.subject[rows], kind="stable")]
        node = self.subject[rows]
        up = (self.kind[rows] == Kind.NODE_RECOVERED).astype(np.int64)
        fresh = np.append(True, node[1:] != node[:-1])[: len(rows)]
        before = np.where(fresh, 1, np.append(1, up[:-1])[: len(rows)])
        changed = up != before
        return self.time[rows][changed], node[changed], (up - before)[changed]


def _among(kinds: Iterable[Kind]) -> npt.NDArray[np.bool_]:
    """Return a table that says of each kind whether it is one of these."""
    table = np.zeros(_KINDS, dtype=np.bool_)
    table[list(kinds)] = True
    return table


def _running_maximum(values: IntArray, group: npt.NDArray[np.intp]) -> IntArray:
    """Return the largest value so far within each group; groups follow one another, numbered upwards."""
    order = np.argsort(values, kind="stable")
    rank = np.empty(len(values), dtype=np.int64)
    rank[order] = np.arange(len(values))
    top = np.maximum.accumulate(rank + group * len(values)) - group * len(values)
    return values[order[top]]


def bit_count(words: IntArray) -> IntArray:
    """Count the set bits of each word below 2**62."""
    count = words - ((words >> 1) & 0x5555555555555555)
    count = (count & 0x3333333333333333) + ((count >> 2) & 0x3333333333333333)
    count = (count + (count >> 4)) & 0x0F0F0F0F0F0F0F0F
    count += count >> 8
    count += count >> 16
    count += count >> 32
    result: IntArray = count & 0x7F
    return result


def gpu_bits(ledger: Ledger, places: npt.NDArray[np.intp]) -> tuple[npt.NDArray[np.intp], IntArray]:
    """Return every GPU of these places, as (place, number of the GPU in its node); in the order of the places."""
    masks = np.ascontiguousarray(ledger.place_mask[places]).astype("<i8")
    bits = np.unpackbits(masks.view(np.uint8).reshape(len(masks), 8), axis=1, bitorder="little")
    which, bit = np.nonzero(bits)
    return places[which], bit + WORD_BITS * ledger.place_word[places[which]]
