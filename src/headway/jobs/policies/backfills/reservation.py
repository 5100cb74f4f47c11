"""Reservations of waiting jobs, computed from the expected ends of running jobs.

An end that is already past counts as just after now. As long as jobs end when expected, reservations stay valid:
``Future.holds`` tells, so that nothing is computed twice.
"""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy

from headway.jobs.model.resources import Placement
from headway.jobs.policies.backfills.conservative.availability import Parts
from headway.jobs.policies.parts import PlacementRule
from headway.jobs.policies.placements.pick import gpus_of
from headway.jobs.rules.reservations.engine import version_of
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.pool import Pool
from headway.jobs.state.queue import Key
from headway.jobs.state.state import TrainingState
from headway.units import REFERENCE_SPEED_PPM


class Future:
    """A snapshot of the expected ends of running jobs at a backfill's last decision."""

    __slots__ = ("_changes", "_ends", "_reserved", "_schedulable")

    def __init__(self) -> None:
        self._ends: list[tuple[Key, int]] = []
        self._schedulable = self._reserved = 0
        self._changes = -1

    def same(self, state: TrainingState) -> bool:
        """Return whether no job was started, stopped or moved since the snapshot."""
        return self._changes == state.changes

    def holds(self, now: int, state: TrainingState) -> bool:
        """Return whether all went as expected since the snapshot: jobs that ended were to end by now, none is late."""
        if self._schedulable != state.pool.schedulable or self._reserved != version_of(state):
            return False
        ends, before = state.ends.of_rate(0), self._ends
        if ends and ends[0][0] <= now:
            return False
        return before[bisect_right(before, now, key=lambda entry: entry[0]) :] == ends

    def note(self, state: TrainingState) -> None:
        """Take a new snapshot."""
        self._ends = state.ends.of_rate(0).copy()
        self._schedulable = state.pool.schedulable
        self._reserved = version_of(state)
        self._changes = state.changes


def run_time(state: TrainingState, js: JobState, placement: Placement) -> int:
    """Return how long a waiting job is expected to hold its GPUs if it starts here now."""
    speed = REFERENCE_SPEED_PPM
    if not state.speed.constant:
        speed = state.speed.of(js.job, placement, state.arrangement.expects(js, placement))
    return js.debt + js.time_left(speed)


def reserved(state: TrainingState, js: JobState, parts: Parts, rule: PlacementRule) -> Placement | None:
    """Return the placement of a reservation; None when its GPUs are not free."""
    pool = state.pool
    open_nodes = pool.schedulable & js.eligible
    for node, count in parts:
        if not open_nodes >> node & 1 or pool.free_count[node] < count or not pool.host_fits(js, node, count):
            return None
    placement = tuple((node, gpus_of(pool, node, count)) for node, count in parts)
    return placement if rule.allows(js, placement) else None


def copy_of(pool: Pool) -> Pool:
    """Return a copy of the free resources, on which expected ends and starts can be tried out."""
    other = copy(pool)
    other.free_mask = pool.free_mask.copy()
    other.free_count = pool.free_count.copy()
    other.cpu_free = pool.cpu_free.copy()
    other.memory_free = pool.memory_free.copy()
    other.storage_free = pool.storage_free.copy()
    other.shares = [shares.copy() for shares in pool.shares]
    other.buckets = pool.buckets.copy()
    return other


@contextmanager
def without(pool: Pool, nodes: int) -> Iterator[None]:
    """Exclude nodes from placement within the ``with`` block, in which nothing may be taken or given."""
    buckets, schedulable, free_gpus = pool.buckets, pool.schedulable, pool.free_gpus
    pool.buckets = [bucket & ~nodes for bucket in buckets]
    pool.schedulable &= ~nodes
    pool.free_gpus = sum(free * bucket.bit_count() for free, bucket in enumerate(pool.buckets))
    try:
        yield
    finally:
        pool.buckets, pool.schedulable, pool.free_gpus = buckets, schedulable, free_gpus


class Shadow:
    """The shadow time of EASY: when the first blocked job can start, and what is free then."""

    __slots__ = ("js", "nodes", "placement", "pool", "start")

    def __init__(self, js: JobState, start: int, pool: Pool, placement: Placement) -> None:
        self.js = js
        self.start = start
        self.pool = pool
        self._set(placement)

    def _set(self, placement: Placement) -> None:
        self.placement = placement
        self.nodes = sum([self.pool.bits[node] for node, _ in placement])
        """The nodes where the job is to start, as a bit set."""

    def spares(self, js: JobState, placement: Placement, rule: PlacementRule) -> Placement | None:
        """Return where the blocked job can still start if another one holds this placement then; None if nowhere."""
        self.pool.take(js, placement)
        found = rule.place(self.pool, self.js)
        self.pool.give(js, placement)
        return found

    def take(self, js: JobState, placement: Placement, elsewhere: Placement) -> None:
        """Record that another job will hold this placement then, and that the blocked job starts elsewhere."""
        self.pool.take(js, placement)
        self._set(elsewhere)


def shadow_of(now: int, state: TrainingState, js: JobState, rule: PlacementRule) -> Shadow | None:
    """Return when and where a blocked job can start as running jobs end; None if it cannot even when all have ended."""
    pool = copy_of(state.pool)
    single = js.gpu_milli < 1000 or rule.needs_one_node(pool, js)
    need = js.gpus if js.gpu_milli == 1000 else 0
    eligible, free_count, running = js.eligible, pool.free_count, state.running
    ends = state.ends.of_rate(0)
    index, count = 0, len(ends)
    while index < count:
        end = max(ends[index][0], now + 1)
        room = False
        while index < count and ends[index][0] <= end:
            ending = running[ends[index][1]]
            pool.give(ending, ending.placement)
            if single and not room:
                room = any(free_count[node] >= need and eligible >> node & 1 for node, _ in ending.placement)
            index += 1
        if not (room if single else pool.free_among(eligible) >= js.gpus):
            continue
        if (placement := rule.place(pool, js)) is not None:
            return Shadow(js, end, pool, placement)
    return None
