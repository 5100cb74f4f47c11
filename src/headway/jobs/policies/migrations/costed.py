"""Costed defragmentation: move running jobs only when what it admits is worth more than the moves cost.

When the first blocked job would fit into one node but for fragmentation, look for the node that can be cleared with the
fewest moves. The gain is the wait that it saves: from now until the job would fit by itself, by the expected ends of
the running jobs. The loss is what the moves cost, each in the time that the moved job stands still. The moves are made
when the gain exceeds ``margin`` times the loss. Hysteresis: a job that started or moved less than ``rest`` times its
move's cost ago stays where it is.

A strict queue served in turn stands still until its head has started, so there nobody is displaced by a move. Where
others may overtake, by the backfill or by the order, the GPUs that a wide job is helped to would have served many
narrow ones, and helping it can lengthen the mean: there moves are made only for a job that waits alone and will hold
its GPUs for no longer than the wait that it is spared. Partitions that share no node have queues of their own: when the
first blocked job cannot be helped, the first of another may be.

After AnalySIM (arXiv 2201.03175), whose migration is free in its results; there every move to a tighter place is made
(``migrate-always``). Jobs that span several nodes, and shares of a GPU, are not moved; jobs wider than a node need no
defragmentation.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from functools import lru_cache
from math import ceil

from headway.jobs.model.actions import Action, MigrateJob, StartJob, WakeAt
from headway.jobs.model.resources import Placement
from headway.jobs.policies.backfills.forecast import earliest_fit
from headway.jobs.policies.backfills.reservation import without
from headway.jobs.policies.parts import Admission, Migration, PlacementRule
from headway.jobs.policies.placements.pick import gpus_of
from headway.jobs.policies.ranges import from_zero
from headway.jobs.state.feasible import quota_refusal
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.pool import members
from headway.jobs.state.state import TrainingState

Plan = tuple[list[tuple[JobState, Placement]], Placement]
"""The moves of running jobs, and the placement of the blocked job afterwards."""

_MOST_MOVES = 8
_CLEARANCES_TRIED = 16
_HEADS_TRIED = 8


class Costed(Migration):
    """Moves jobs where the gain exceeds the cost."""

    name = "migrate"
    ranks_ends = True

    def __init__(self, margin: float = 2.0, rest: float = 10.0) -> None:
        from_zero(self.name, margin=margin, rest=rest)
        self.margin = margin
        self.rest = rest
        self._failed: tuple[int, tuple[int, ...]] = (-1, ())
        """Jobs for which no moves were found, and the state's count of changes then."""
        self._rested = 0
        """The time at which the first job whose rest kept it from moving may move; 0 for none."""

    def decide(self, now: int, state: TrainingState, policy: Admission) -> Iterator[Action]:
        """Clear a node for the first blocked job of each group of partitions, where that pays."""
        strict = policy.backfill.strict and policy.order.in_turn
        while (blocked := policy.blocked) is not None:
            tried: list[int] = []
            plan = None
            if 0 < self._rested <= now:
                self._failed = (-1, ())
            for js, taken in _heads(state, policy, blocked, strict=strict):
                if js.id in policy.barred:
                    continue
                tried.append(js.id)
                if state.changes == self._failed[0] and js.id in self._failed[1]:
                    continue
                self._rested = 0
                plan = self._plan(now, state, js, policy.placement, taken, strict=strict)
                if plan is not None:
                    break
            if plan is None:
                self._failed = (state.changes, tuple(tried))
                if self._rested > now:
                    yield WakeAt(self._rested)
                return
            moves, placement = plan
            for moved, target in moves:
                yield MigrateJob(moved.id, target)
            yield StartJob(js.id, placement)
            policy.blocked = None
            yield from policy.walk(now, state)

    def _plan(
        self, now: int, state: TrainingState, js: JobState, rule: PlacementRule, taken: int, *, strict: bool
    ) -> Plan | None:
        pool = state.pool
        if js.gpu_milli < 1000 or js.nodes > 1 or not js.gpus or quota_refusal(js) is not None:
            return None
        if not strict and state.queue.size > 1:
            return None
        if pool.free_among(js.eligible) < js.gpus or js.gpus > pool.largest_among(js.eligible):
            return None
        for node, movers in self._clearances(now, state, js):
            plan = _try(state, js, rule, node, movers, taken)
            if plan is not None:
                fits_by_itself = earliest_fit(now, state, js, rule)
                saved = (1 << 62) if fits_by_itself is None else fits_by_itself - now
                loss = sum(state.costs.of_migration(moved.job) for moved in movers)
                worth = saved > self.margin * loss and (strict or js.remaining(now) <= saved)
                return plan if worth else None
        return None

    def _clearances(self, now: int, state: TrainingState, js: JobState) -> list[tuple[int, list[JobState]]]:
        """Return nodes that could be cleared, with the jobs that would have to leave, cheapest first."""
        pool = state.pool
        found: list[tuple[int, int, int, list[JobState]]] = []
        widest_gap = max(free for free, nodes in enumerate(pool.buckets) if nodes)
        for free in range(js.gpus - 1, -1, -1):
            for node in members(pool.buckets[free] & js.eligible):
                if pool.capacity[node] < js.gpus:
                    continue
                movable = [mover for mover in self._movable(now, state, node) if mover.gpus <= widest_gap]
                for movers in covers(movable, js.gpus - free):
                    loss = sum(state.costs.of_migration(moved.job) for moved in movers)
                    found.append((loss, sum(moved.gpus for moved in movers), node, movers))
        found.sort(key=lambda item: item[:3])
        return [(node, movers) for _, _, node, movers in found[:_CLEARANCES_TRIED]]

    def _movable(self, now: int, state: TrainingState, node: int) -> list[JobState]:
        found = []
        for js in state.on_node[node].values():
            if len(js.placement) > 1 or js.gpu_milli < 1000 or not js.gpus or not js.job.preemptible or js.nodes > 1:
                continue
            rested = js.since + ceil(self.rest * state.costs.of_migration(js.job))
            if rested <= now:
                found.append(js)
            elif not self._rested or rested < self._rested:
                self._rested = rested
        return found


def _heads(
    state: TrainingState, policy: Admission, blocked: JobState, *, strict: bool
) -> Iterator[tuple[JobState, int]]:
    """The first blocked job, then those that come first in partitions that share no node with the ones before.

    With each comes the set of nodes that those before wait for, where nobody may be moved.
    """
    yield blocked, 0
    if not strict or len(state.queue.lanes) == 1 or not state.cluster.partitions:
        return
    taken = state.eligible(blocked.job.partition, ())
    tried = 1
    for lane in policy.lanes_in_order(state):
        js = state.jobs[lane.head[1]]
        if not state.eligible(js.job.partition, ()) & taken and (not state.quotas or quota_refusal(js) is None):
            yield js, taken
            tried += 1
            if tried == _HEADS_TRIED:
                return
            taken |= state.eligible(js.job.partition, ())


def covers(movable: list[JobState], deficit: int) -> list[list[JobState]]:
    """Return jobs whose leaving frees this many GPUs: as few as possible, or as narrow as possible."""
    movable.sort(key=lambda js: (js.gpus, js.id))
    sizes = tuple([js.gpus for js in movable])
    return [
        [movable[index] for index in chosen] for chosen in {_cover(sizes, deficit), _narrow(sizes, deficit)} if chosen
    ]


@lru_cache(maxsize=1 << 14)
def _narrow(sizes: tuple[int, ...], deficit: int) -> tuple[int, ...] | None:
    """Return the indexes of the narrowest jobs that suffice: narrow jobs fit where wide ones do not."""
    chosen: list[int] = []
    total = 0
    for position, size in enumerate(sizes):
        chosen.append(position)
        total += size
        if total >= deficit:
            spare = total - deficit
            for taken in reversed(chosen):
                if sizes[taken] <= spare:
                    spare -= sizes[taken]
                    chosen.remove(taken)
            return tuple(chosen) if len(chosen) <= _MOST_MOVES else None
    return None


@lru_cache(maxsize=1 << 14)
def _cover(sizes: tuple[int, ...], deficit: int) -> tuple[int, ...] | None:
    """Return the indexes of the fewest sizes that cover the deficit, with the smallest such sum; sizes ascend."""
    most = min(_MOST_MOVES, len(sizes))
    count = next((c for c in range(1, most + 1) if sum(sizes[-c:]) >= deficit), None)
    if count is None:
        return None
    reachable: list[dict[int, tuple[int, ...]]] = [{0: ()}, *({} for _ in range(count))]
    for position, size in enumerate(sizes):
        for taken in range(count - 1, -1, -1):
            for total, chosen in reachable[taken].items():
                reachable[taken + 1].setdefault(total + size, (*chosen, position))
    return reachable[count][min(total for total in reachable[count] if total >= deficit)]


def _try(
    state: TrainingState, js: JobState, rule: PlacementRule, node: int, movers: list[JobState], taken: int
) -> Plan | None:
    """Return the moves and the job's placement if the movers leave this node; None if one of them fits nowhere else."""
    pool = state.pool
    with state.draft() as draft:
        for moved in movers:
            draft.release(moved)
        if not pool.host_fits(js, node, js.gpus):
            return None
        placement: Placement = ((node, gpus_of(pool, node, js.gpus)),)
        if not rule.allows(js, placement):
            return None
        draft.start(js, placement)
        moves: list[tuple[JobState, Placement]] = []
        for moved in sorted(movers, key=lambda m: (-m.gpus, m.id)):
            with without(pool, taken) if taken else nullcontext():
                target = rule.place(pool, moved)
            if target is None or any(where == node for where, _ in target):
                return None
            draft.start(moved, target)
            moves.append((moved, target))
    return moves, placement
