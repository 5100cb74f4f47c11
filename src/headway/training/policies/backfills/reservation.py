"""What a backfill promises to a waiting job, and the future it is computed from.

The future is what the running jobs' expected ends say. An end that is already past counts as just after now. As long
as jobs end when they were expected to, the future stays what it was: ``Future.holds`` tells, so that nothing is
computed twice.
"""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy

from headway.training.actions import Placement
from headway.training.jobstate import JobState
from headway.training.policies.parts import PlacementRule
from headway.training.pool import Pool
from headway.training.queue import Key
from headway.training.state import TrainingState
from headway.units import REFERENCE_SPEED_PPM


class Future:
    """The expected ends of running jobs as they were when a backfill last looked."""

    __slots__ = ("_changes", "_ends", "_schedulable")

    def __init__(self) -> None:
        self._ends: list[tuple[Key, int]] = []
        self._schedulable = 0
        self._changes = -1

    def same(self, state: TrainingState) -> bool:
        """Return whether nothing at all was started, stopped or moved since."""
        return self._changes == state.changes

    def holds(self, now: int, state: TrainingState) -> bool:
        """Return whether all went as expected since: every job that is gone was to end by now, and none is overdue."""
        if self._schedulable != state.pool.schedulable:
            return False
        ends, before = state.ends.of_rate(0), self._ends
        if ends and ends[0][0] <= now:
            return False
        return before[bisect_right(before, now, key=lambda entry: entry[0]) :] == ends

    def note(self, state: TrainingState) -> None:
        """Look now."""
        self._ends = state.ends.of_rate(0).copy()
        self._schedulable = state.pool.schedulable
        self._changes = state.changes


def run_time(state: TrainingState, js: JobState, placement: Placement) -> int:
    """Return how long a waiting job is believed to hold its GPUs if it starts here now."""
    speed = REFERENCE_SPEED_PPM
    if not state.speed.constant:
        speed = state.speed.of(js.job, placement, state.arrangement.expects(js, placement))
    return js.debt + js.time_left(speed)


def copy_of(pool: Pool) -> Pool:
    """Free resources to play a future on."""
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
    """As if these nodes took no jobs; undone when the ``with`` block, in which nothing may be taken or given, ends."""
    buckets, schedulable, free_gpus = pool.buckets, pool.schedulable, pool.free_gpus
    pool.buckets = [bucket & ~nodes for bucket in buckets]
    pool.schedulable &= ~nodes
    pool.free_gpus = sum(free * bucket.bit_count() for free, bucket in enumerate(pool.buckets))
    try:
        yield
    finally:
        pool.buckets, pool.schedulable, pool.free_gpus = buckets, schedulable, free_gpus


class Shadow:
    """The time at which the first blocked job can start, and what is free then."""

    __slots__ = ("js", "nodes", "placement", "pool", "start")

    def __init__(self, js: JobState, start: int, pool: Pool, placement: Placement) -> None:
        self.js = js
        self.start = start
        self.pool = pool
        self._set(placement)

    def _set(self, placement: Placement) -> None:
        self.placement = placement
        self.nodes = sum([self.pool.bits[node] for node, _ in placement])
        """Where the job is to start, as a set."""

    def spares(self, js: JobState, placement: Placement, rule: PlacementRule) -> Placement | None:
        """Return where the job can still start if another one holds this placement then; None when nowhere."""
        self.pool.take(js, placement)
        found = rule.place(self.pool, self.js)
        self.pool.give(js, placement)
        return found

    def take(self, js: JobState, placement: Placement, elsewhere: Placement) -> None:
        """Another job will hold this placement then; this one starts elsewhere."""
        self.pool.take(js, placement)
        self._set(elsewhere)


def shadow_of(now: int, state: TrainingState, js: JobState, rule: PlacementRule) -> Shadow | None:
    """When and where a blocked job can start as running jobs end; None when it could not even if all of them had."""
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
