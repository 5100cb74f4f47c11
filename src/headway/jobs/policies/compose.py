"""A training policy: an order, a backfill, a placement, preemption on or off, and a migration, put together.

The parts are independent; this module is the only place that knows all of them. It is also the ``Arrangement`` by
which the state keeps its queue, so that what a part reads is already in order.
"""

from collections.abc import Hashable, Iterable, Iterator
from copy import copy
from operator import attrgetter

from headway.jobs.model.actions import Action, PreemptJob, StartJob, WakeAt
from headway.jobs.model.proportional_share import ProportionalShares
from headway.jobs.model.resources import Grant, Placement
from headway.jobs.policies.allocations.allotted import Allotted, granted, taken_over
from headway.jobs.policies.backfills.walk import guaranteed
from headway.jobs.policies.parts import RESTART, Allocation, Backfill, Migration, Order, PlacementRule
from headway.jobs.policies.preemption.declared import SitePreemption
from headway.jobs.policies.preemption.releasing import shortfall
from headway.jobs.policies.preemption.victims import borrowed, fits, make_room, open_to_preemption
from headway.jobs.rules.limits.counters import NEVER
from headway.jobs.rules.preemption.tiers import tiers_of
from headway.jobs.rules.reservations.engine import Inside, moves_with_time, opens
from headway.jobs.state.feasible import quota_refusal
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.queue import Lane, tier_of
from headway.jobs.state.state import TrainingState

_head = attrgetter("head")


class ComposedPolicy:
    """Order + backfill + placement + preemption + migration."""

    def __init__(
        self,
        name: str,
        order: Order,
        backfill: Backfill,
        placement: PlacementRule,
        migration: Migration | None = None,
        allocation: Allocation | None = None,
        *,
        preempts: bool | None = None,
        quantum: int | None = None,
        round_length: int = 0,
    ) -> None:
        self.name = name
        self.named_order, self.rule = order, placement
        """The parts as they were named; an allocation may put its own in between."""
        if allocation is not None:
            order = allocation.order(order)
            placement = Allotted(placement, allocation)
        self.order = order
        self.backfill = backfill
        self.placement = placement
        self.migration = migration
        self.allocation = allocation
        self.divides = allocation is not None
        self.preempts = order.preempts if preempts is None else preempts
        self.ranks_lanes = False
        """Whether lanes are compared by more than the keys of their heads."""
        self.own_quantum = order.quantum
        """As the order has it by itself."""
        self.quantum = order.quantum = order.quantum if quantum is None else quantum
        self.round_length = round_length
        self.blocked: JobState | None = None
        self.barred: dict[int, JobState] = {}
        self.shortfall = 1
        self.refresh = order.refresh
        self.rekeys = order.rekeys()
        self.ranks_running = self.preempts
        self.ranks_ends = backfill.ranks_ends or (migration is not None and migration.ranks_ends)
        self.watches_ends = order.watches_ends
        self.key = order.key
        self.keys = order.keys
        self.moved = order.moved
        self.rank = order.rank
        self.ended = order.ended
        self.starves = order.starves or backfill.starves
        self._alone = migration is None and allocation is None
        self._plain = self._alone and not self.preempts and not self.refresh and not round_length
        """The backfill alone decides."""
        self._limits_move = False
        self._site: SitePreemption | None = None
        self._woken_for = 0
        self._divided_at = 0
        """``tenures`` of the state when what jobs hold was last divided."""
        self.took_over = False
        """Whether what running jobs hold was given by this policy."""
        self._shares: ProportionalShares | None = None
        self._moves = self.preempts and (order.moves or self.quantum > 0 or order.key_moves_with_time)
        """Whether time alone can make a running job give way."""

    def bind(self, state: TrainingState) -> None:
        """Told once, before the run, which state it will decide on."""
        self._tenant_lanes = state.quotas
        self._partition_lanes = bool(state.cluster.partitions)
        self._order_lanes = type(self.order).lane is not Order.lane
        self.ranks_lanes = self._tenant_lanes or self._order_lanes
        self._tiers = bool(tiers_of(state.cluster))
        self._reserved = state.reserved
        lanes = (self.backfill.by_shape, self._tenant_lanes, self._partition_lanes, self._order_lanes)
        self._one_lane = not any(lanes)
        # A start takes free GPUs, which a job that preempts could have had: it never helps one that is blocked. Only
        # where jobs are not tried in one order may a job start or move ahead of one that could preempt it an instant
        # later.
        in_order = type(self.order).victims is Order.victims and not self._order_lanes and self._alone
        self._only_releases_help = not state.quotas and (not self.preempts or in_order)
        self._limits_move = moves_with_time(state)
        self._site = None if state.preempting is None else SitePreemption(state.preempting)
        # Where something may be reclaimed, jobs are stopped; where a limit lets jobs go with time, it wakes up.
        self._plain = self._plain and not state.quotas and not self._limits_move and self._site is None
        self.order.bind(state)
        self.divide_on(state)

    @property
    def forgets(self) -> int | None:
        """Return the pause after which nothing is left of what it remembered when a job ends before its time; None
        where something may be."""
        if not self._alone or self.preempts or self.round_length:
            return None
        remembers = self.order.remembers or self.placement.remembers or hasattr(self.placement, "__copy__")
        return None if remembers else self.backfill.forgets

    def take_up(self, woken_for: int) -> None:
        """Go on where nothing is left of what it remembered but the wake-up that is to come."""
        self._woken_for = woken_for

    def divide_on(self, state: TrainingState) -> None:
        """Told whose CPUs, memory and storage it divides, and again when the nodes have become others."""
        if self.allocation is not None:
            assert isinstance(self.placement, Allotted)
            self._shares = ProportionalShares(state.cluster)
            self.placement.bind(state, self._shares)
            self.allocation.bind(state)

    # --- how the state keeps the jobs -------------------------------------------------------------------------

    def lane(self, js: JobState) -> Hashable:
        """Jobs that can be compared by their keys alone, and block each other."""
        if self._reserved is not None and js.id in self._reserved.inside:
            return Inside(js.job.reservation, self._lane_outside(js))
        return self._lane_outside(js)

    def _lane_outside(self, js: JobState) -> Hashable:
        """The same of jobs that run in no reservation."""
        if self._one_lane:
            return ""
        if self.backfill.by_shape:
            shape = (js.eligible, js.gpus, js.gpu_milli, js.nodes, js.cpu_milli, js.memory_bytes, js.storage)
            if not self._tenant_lanes and not self._order_lanes:
                return shape
            partition = js.job.partition if self._tiers else ""
            return shape, partition, js.account.name, js.job.preemptible, self.order.lane(js)
        if not self._tenant_lanes and not self._order_lanes:
            return js.job.partition if self._partition_lanes else ""
        return js.job.partition, js.account.name if self._tenant_lanes else "", self.order.lane(js)

    def key_due(self, now: int, since: int) -> bool:
        """As the order has it, at instants at which the policy decides."""
        return not (self.round_length and now % self.round_length) and self.order.key_due(now, since)

    def asks(self, js: JobState) -> Grant:
        """As the allocation has it."""
        assert self.allocation is not None
        return self.allocation.asks(js, self.rule)

    def expects(self, js: JobState, placement: Placement) -> Grant:
        """Return what it asks for; where it waits for GPUs alone, its due there."""
        asked = js.grant
        return asked if self._shares is None or any(asked) or not js.gpus else self._shares.of(placement, js.width)

    # --- deciding ---------------------------------------------------------------------------------------------

    def decide(self, now: int, state: TrainingState) -> Iterable[Action]:
        """Return what to do at this instant."""
        if self._plain:
            self.blocked = None
            return self.backfill.decide(now, state, self) if state.queue.size else ()
        if self._site is None:
            return self._until_limits_open(now, state) if self._limits_move else self._chosen(now, state)
        return self._by_site(now, state, self._site)

    def _until_limits_open(self, now: int, state: TrainingState) -> Iterator[Action]:
        yield from self._chosen(now, state)
        if (time := opens(now, state)) < NEVER:
            yield from self._wake(now, time)

    def _by_site(self, now: int, state: TrainingState, site: SitePreemption) -> Iterator[Action]:
        """Do what the cluster's rules of preemption ask for first, and once more for those who wait still."""
        self.barred = {}
        yield from site.decide(now, state, self)
        yield from self._until_limits_open(now, state)
        before = state.changes
        yield from site.decide(now, state, self)
        if state.changes != before:
            yield from self._until_limits_open(now, state)
        if (time := site.next(now)) < NEVER:
            yield from self._wake(now, time)

    def _chosen(self, now: int, state: TrainingState) -> Iterable[Action]:
        if self.barred and self._site is None:
            self.barred = {}
        if not state.queue.size and not (state.running and self._looks_after_runs(state)):
            return ()
        if self.round_length and now % self.round_length:
            return self._wake(now, (now // self.round_length + 1) * self.round_length)
        if self.allocation is not None:
            return self._divided(now, state)
        if not state.queue.size and self.migration is not None:
            return self.migration.idle(now, state, self)
        return self._decide(now, state)

    def _looks_after_runs(self, state: TrainingState) -> bool:
        """Return whether there is something to decide though nobody waits."""
        if self.allocation is None:
            return self.migration is not None
        return self.migration is not None or self._divided_at != state.tenures or self.allocation.unsettled

    def _divided(self, now: int, state: TrainingState) -> Iterator[Action]:
        """Starts and moves, with what jobs then hold; then all that is held, divided anew."""
        assert self.allocation is not None
        assert self._shares is not None
        if not self.took_over:
            self.took_over = True
            yield from taken_over(state, self._shares)
        if state.queue.size:
            yield from granted(now, state, self.allocation, self._decide(now, state))
        elif self.migration is not None:
            yield from granted(now, state, self.allocation, self.migration.idle(now, state, self))
        yield from self.allocation.divide(now, state)
        self._divided_at = state.tenures

    def _decide(self, now: int, state: TrainingState) -> Iterator[Action]:
        self.blocked = None
        yield from self.backfill.decide(now, state, self)
        if self.migration is not None and self.blocked is not None:
            yield from self.migration.decide(now, state, self)
        if state.queue.size:
            if self.round_length:
                yield from self._wake(now, now + self.round_length)
                return
            if self.barred and self._could_restart(now, state):
                yield from self._wake(now, now + RESTART)
            if self.refresh:
                yield from self._wake(now, now + self.refresh)
            if self._moves and state.running and (time := self.order.next_turn(now, state)):
                yield from self._wake(now, time)

    def _could_restart(self, now: int, state: TrainingState) -> bool:
        """Return whether a job that this decision has stopped would fit elsewhere at once.

        Or whether it has turned into borrowed GPUs, or freed, what is promised to a job that was tried before.
        """
        rule = copy(self.placement) if hasattr(self.placement, "__copy__") else self.placement
        if any(js.since == now and fits(state, js, rule) is not None for js in self.barred.values()):
            return True
        heads = (state.jobs[lane.head[1]] for lane in state.queue.lanes.values()) if state.quotas else ()
        owed = (js for js in heads if js.account.promised and guaranteed(js))
        return any(fits(state, js, rule) or make_room(state, js, rule, borrowed(state, js)).placement for js in owed)

    def _wake(self, now: int, time: int) -> Iterator[Action]:
        if self._woken_for <= now or time < self._woken_for:
            self._woken_for = time
            yield WakeAt(time)

    def walk(self, now: int, state: TrainingState) -> Iterator[Action]:
        """The backfill's walk, if anybody waits."""
        if state.queue.size:
            yield from self.backfill.decide(now, state, self)

    def version(self, now: int, state: TrainingState) -> int:
        """Return what only a release makes grow, where only that helps; else what any change makes grow."""
        if self._moves:
            return -1
        return state.releases if self._only_releases_help else state.changes

    def lanes_in_order(self, state: TrainingState) -> list[Lane]:
        """The lanes by their heads, the one that comes first first; guaranteed jobs before borrowing ones."""
        lanes = list(state.queue.lanes.values())
        if len(lanes) > 1:
            if not self.ranks_lanes:
                lanes.sort(key=_head)
            else:
                jobs, order = state.jobs, self.order
                heads = [jobs[lane.head[1]] for lane in lanes]
                places = [
                    (not guaranteed(js), tier_of(lane.head[0]), order.lane_key(state, js), lane.head, lane)
                    for js, lane in zip(heads, lanes, strict=True)
                ]
                places.sort()
                lanes = [lane for *_, lane in places]
        return lanes

    def admit(self, now: int, state: TrainingState, js: JobState) -> list[Action] | None:
        """The actions that start a job now, its preemptions before it; None when it cannot start."""
        self.shortfall = 1
        if self.barred and js.id in self.barred:
            return None
        kept_out = state.quotas and quota_refusal(js) is not None
        if kept_out and not self.preempts:
            return None
        if not kept_out and (placement := self.placement.place(state.pool, js)) is not None:
            return [StartJob(js.id, placement)]
        room = None
        if state.quotas and js.account.promised and guaranteed(js):
            room = make_room(state, js, self.placement, borrowed(state, js))
        if self.preempts and (room is None or room.placement is None):
            offered = self.order.victims(now, state, js)
            if offered != ():
                offered = open_to_preemption(now, state, js, offered, self.quantum)
                room = make_room(state, js, self.placement, offered)
        if room is None or room.placement is None:
            if self._only_releases_help and self.allocation is None:  # releases are counted in GPUs
                if room is not None:
                    self.shortfall = room.shortfall
                elif self.preempts:
                    self.shortfall = shortfall(state.pool, js, self.placement)
                elif js.gpus > state.pool.free_gpus:
                    self.shortfall = js.gpus - state.pool.free_gpus
            return None
        self.barred |= {victim.id: victim for victim in room.victims}
        return [*(PreemptJob(victim.id) for victim in room.victims), StartJob(js.id, room.placement)]
