"""The parts that a policy is made of. Each lives in one file; its constructor arguments are its options, stored and
nothing more.

An ``Order`` says which job comes first. A ``Backfill`` walks the queue and says who may overtake whom. A
``PlacementRule`` finds GPUs for one job. A ``Migration`` makes room by moving. Preemption is one rule for all orders
(``jobs/policies/preemption/victims.py``).
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Protocol

from headway.errors import ExperimentError
from headway.jobs.model.actions import Action, ReallocateJob
from headway.jobs.model.resources import Grant, Placement
from headway.jobs.policies.placements.pick import one_node
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.pool import Demand, Pool
from headway.jobs.state.queue import Key, Lane, own_key
from headway.jobs.state.state import TrainingState
from headway.units import DAY, HOUR, SECOND, WHOLE_GPU_MILLI

RESTART = SECOND
"""A job that was stopped and would fit at once elsewhere is looked at again so much later, if nothing comes first."""

_AHEAD = ((HOUR, "an hour"), (400 * DAY, "400 days"))
"""When keys are asked for, to see whether they move: the second is for those that move in few and large steps."""


class Order(ABC):
    """Which job comes first: a key for each waiting job, smaller first."""

    name: ClassVar[str]
    preempts: ClassVar[bool] = False
    """Whether preemption is on by default."""
    backfill: ClassVar[str] = "none"
    """The backfill where a policy names none: what the order's authors do with a job that does not fit."""
    key_moves_with_time: ClassVar[bool] = False
    """Whether ``key`` depends on ``now``. Waiting and running jobs are then ranked anew at every decision, and every
    ``refresh`` while anybody waits; other orders do not pay for that."""
    starves: ClassVar[bool] = False
    """Whether a job may wait for ever under endless arrivals of others."""
    in_turn: ClassVar[bool] = False
    """Whether nobody who arrives later ever comes before one who waits."""
    refresh: int = 0
    """Above 0: waiting jobs get their keys anew this often, and the policy is woken for it while anybody waits."""
    watches_ends: ClassVar[bool] = False
    quantum: int = 0
    """A started job is not preempted before it has run this long; the policy is woken when one could be."""
    moves: ClassVar[bool] = False
    """Whether a running job's key can grow past a waiting one's while nothing happens."""
    remembers: ClassVar[bool] = False
    """Whether why a job waits depends on what it was asked before, in a way that the state does not show."""
    one_instant: ClassVar[bool] = False
    """Whether jobs are preempted for others at one instant a round only, which it remembers."""

    _standing: tuple[int, Sequence[tuple[Key, int]]] = (-1, ())
    """With ``key_moves_with_time``: an instant, and (key, job) of what ran then, in order."""

    def bind(self, state: TrainingState) -> None:  # noqa: B027 - most orders need nothing
        """Take note, once and before the run, whose jobs it will order."""

    @abstractmethod
    def key(self, now: int, js: JobState) -> Key:
        """Return the key of a waiting job; the smaller key comes first.

        It is asked when a job begins to wait and then stands until the job starts, unless ``key_due`` says otherwise.
        """

    def keys(self, now: int, waiting: Sequence[JobState]) -> Sequence[Key]:
        """Return the keys of these waiting jobs, each as ``key`` has it, for orders that know a quicker way."""
        return [self.key(now, js) for js in waiting]

    def moved(self, now: int, waiting: Sequence[JobState]) -> Sequence[JobState]:
        """Return those of all waiting jobs whose keys are to be computed anew, for orders that know which stand."""
        return waiting

    def rekeys(self) -> bool:
        """Return whether ``key_due`` has to be asked."""
        return self.refresh > 0 or self.key_moves_with_time

    def key_due(self, now: int, since: int) -> bool:
        """Return whether the keys of waiting jobs are to be computed anew now; they last were at ``since``."""
        if self.key_moves_with_time:
            return now > since
        return 0 < self.refresh <= now - since

    def rank(self, now: int, js: JobState) -> tuple[int, Key]:
        """Return (rate, offset): a running job's key at any time t is offset + rate * t."""
        if not self.key_moves_with_time and type(self).victims is Order.victims:
            self._refuse_moving(now, js)
        return 0, own_key(js.key)

    def _refuse_moving(self, now: int, js: JobState) -> None:
        """Raise if the key of a job that runs moves with time: ``rank`` would leave it where it was when it waited."""
        present = self.key(now, js)
        for ahead, said in _AHEAD:
            later = self.key(now + ahead, js)
            if present != later and present == self.key(now, js):
                raise ExperimentError(
                    f"order {self.name}: its key moves with time (job {js.id}: {present} now, {later} {said} later), "
                    "and it preempts; write key_moves_with_time = True in the class, so that running jobs are ranked "
                    "anew"
                )

    def lane(self, js: JobState) -> Hashable:
        """Return what separates jobs whose relative order moves (a tenant, for fair shares); None when nothing does.

        It is the same as long as a job waits.
        """
        return None

    def lane_key(self, state: TrainingState, js: JobState) -> Key:
        """With lanes of its own: return what the heads of lanes are compared by, ahead of their keys."""
        return 0

    def victims(self, now: int, state: TrainingState, js: JobState) -> Iterable[JobState]:
        """Return running jobs that this waiting one comes before, last ones first."""
        if self.key_moves_with_time:
            return self._behind(now, state, js)
        largest = state.ranked.largest(now)
        return () if largest is None or largest <= own_key(js.key) else self._after(now, state, js)

    def _after(self, now: int, state: TrainingState, js: JobState) -> Iterator[JobState]:
        """Yield those by their ranks."""
        mine = own_key(js.key)
        for value, job in state.ranked.descending(now):
            if value <= mine:
                return
            yield state.running[job]

    def _behind(self, now: int, state: TrainingState, js: JobState) -> Iterator[JobState]:
        """The same by keys as they are now. Running jobs are ranked once an instant; who starts later is no victim."""
        if self._standing[0] != now:
            ranked = sorted((self.key(now, s), s.id) for s in state.running.values() if s.job.preemptible)
            self._standing = now, ranked
        mine = own_key(js.key)
        for key, job in reversed(self._standing[1]):
            if key <= mine:
                return
            if (victim := state.running.get(job)) is not None:
                yield victim

    def next_turn(self, now: int, state: TrainingState) -> int:
        """With ``moves``: when a running job may next fall behind a waiting one though nothing happens; 0 for never."""
        if not self.quantum:
            return 0
        ends = (js.base + self.quantum for js in state.running.values() if js.job.preemptible)
        return min((end for end in ends if end > now), default=0)

    def ended(self, now: int, js: JobState) -> None:  # noqa: B027 - most orders need nothing
        """A job left for good (only called with ``watches_ends``)."""


class PlacementRule(ABC):
    """Where a job goes.

    A rule that remembers what it was asked defines ``__copy__``, so that a copy may be asked in its stead and tell it
    nothing.
    """

    name: ClassVar[str]
    remembers: ClassVar[bool] = False
    """Whether where a job goes depends on what it was asked before, in a way that the state does not show."""

    @abstractmethod
    def place(self, pool: Pool, js: Demand) -> Placement | None:
        """Return GPUs for this job among those free now; None when it does not fit."""

    def allows(self, js: Demand, placement: Placement) -> bool:
        """Return whether a job may have GPUs that somebody else than ``place`` found for it, and that are free."""
        return True

    def needs_one_node(self, pool: Pool, js: Demand) -> bool:
        """Return whether a job of whole GPUs goes on one node or waits: GPUs free on several are of no use to it."""
        return js.gpu_milli == WHOLE_GPU_MILLI and js.nodes <= 1 and one_node(pool, js)

    def domains(self, pool: Pool, js: Demand) -> Sequence[int]:
        """Return sets of nodes inside one of which all of a job over several nodes has to lie: by default all nodes."""
        return (pool.everywhere,)


class Admission(Protocol):
    """What a backfill or a migration asks of the policy it is part of."""

    order: Order
    backfill: "Backfill"
    placement: PlacementRule
    migration: "Migration | None"
    preempts: bool
    blocked: JobState | None
    """The first job that could not start for want of resources, as the backfill found it in this decision."""
    barred: dict[int, JobState]
    """Jobs that may not start in this decision: those that it has stopped for others, because no instant undoes its own
    actions and to change places is a migration's business; and those that a job which waits for room could preempt."""

    def admit(self, now: int, state: TrainingState, js: JobState) -> list[Action] | None:
        """Return the actions that start a job now, its preemptions before it; None when it cannot start."""

    def walk(self, now: int, state: TrainingState) -> Iterator[Action]:
        """Yield what the backfill would do now; after moves that made room."""

    def lanes_in_order(self, state: TrainingState) -> list[Lane]:
        """Return the lanes of the queue, the one whose head comes first first."""

    shortfall: int
    """How much ``version`` has to grow before the job that ``admit`` refused last may be admissible."""

    def version(self, now: int, state: TrainingState) -> int:
        """Return a number that grows when a blocked job may be admissible now; negative when that cannot be told."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """When and where a waiting job is to start at the latest, if the estimates are right."""

    job: int
    start: int
    gpus: int
    nodes: tuple[int, ...]


class Backfill(ABC):
    """Who may overtake whom when the job that comes first cannot start."""

    name: ClassVar[str]
    strict: ClassVar[bool] = False
    """Whether a job that cannot start holds back all that come after it."""
    by_shape: ClassVar[bool] = False
    """Whether it wants a lane for each shape of demand instead of one a partition."""
    ranks_ends: ClassVar[bool] = False
    """Whether it needs running jobs in order of their expected end."""
    starves: bool = False
    """Whether it may let a job wait for ever under endless arrivals of others."""
    reserves: ClassVar[bool] = False
    """Whether it promises GPUs to jobs that wait, and lets none start that would delay these."""
    remembers: ClassVar[bool] = False
    """Whether why a job waits depends on more that it was asked before than what it has reserved."""
    forgets: int | None = None
    """A pause between decisions after which a job that ends before its time leaves nothing of what it remembers; None
    where something may be left."""
    reservations: Mapping[int, Reservation] = MappingProxyType({})
    """What it has promised, by job; empty for one that promises nothing."""

    @abstractmethod
    def decide(self, now: int, state: TrainingState, policy: Admission) -> Iterable[Action]:
        """Start what may start; ``blocked`` then names the first job that could not."""

    def leaves(self, js: JobState) -> None:  # noqa: B027 - most remember nothing of it
        """Take note that a waiting job is about to start that this backfill did not start."""

    def would_promise(self, now: int, state: TrainingState, policy: Admission) -> Iterable[int]:
        """With ``reserves``: the jobs to which it would promise GPUs if it were asked now for the first time, when all
        that may start has started. It is left as it is; ``policy`` is one that may be asked at will."""
        return ()


class Allocation(ABC):
    """Who gets how much of the CPUs, the memory and the storage bandwidth that the GPUs of a node come with.

    Jobs wait for GPUs, and for what it ``asks`` for them besides. When one has found some, ``enter`` says what it gets
    there and what others give up for it; at the end of each decision ``divide`` may divide anew what running jobs hold.
    """

    name: ClassVar[str]
    guarantees: ClassVar[bool] = True
    """Whether no running job ever is slower than with its GPUs' share of everything."""
    swaps: ClassVar[bool] = False
    """Whether its moves stop jobs for a moment that are not to be preempted, to let two change places."""
    moves: int = 0
    """Above 0: it may move running jobs."""
    bounds: Sequence[tuple[int, int]] = ()
    """(throughput reached, the most there could have been) of each division, where it knows."""
    unsettled: bool = False
    """Whether it wants to divide again though nobody came or went."""

    def bind(self, state: TrainingState) -> None:  # noqa: B027 - some need nothing
        """Take note, once and before the run, whose resources it will divide."""

    def order(self, order: Order) -> Order:
        """Return the order that jobs come in: the policy's own, unless this one has its own idea of it."""
        return order

    def asks(self, js: JobState, rule: PlacementRule) -> Grant:
        """Return what a job waits for besides GPUs, by default nothing. Backfills, migrations, preemption go by it."""
        return Grant(0, 0)

    def place(self, state: TrainingState, js: Demand, rule: PlacementRule) -> Placement | None:
        """Return GPUs for a waiting job; None when it has to wait."""
        return rule.place(state.pool, js)

    @abstractmethod
    def enter(
        self, now: int, state: TrainingState, js: JobState, placement: Placement
    ) -> tuple[Iterable[ReallocateJob], Grant]:
        """Return what others give up before a job starts (or comes) here, and what it then holds.

        Each change is made before the next one is asked for. What the job itself holds elsewhere counts as free.
        """

    def divide(self, now: int, state: TrainingState) -> Iterable[Action]:
        """Yield the changes to what running jobs hold, after the starts of this instant."""
        return ()


class Migration(ABC):
    """Making room by moving running jobs."""

    name: ClassVar[str]
    ranks_ends: ClassVar[bool] = False
    charged: ClassVar[bool] = True
    """Whether its moves cost anything; False only to reproduce published results that charge nothing."""

    @abstractmethod
    def decide(self, now: int, state: TrainingState, policy: Admission) -> Iterator[Action]:
        """Yield moves, and the starts they make possible, after the backfill has done what it could."""

    def idle(self, now: int, state: TrainingState, policy: Admission) -> Iterable[Action]:
        """Yield moves while nobody waits; none by default."""
        return ()
