"""Which waiting jobs could start now, as far as has been planned: a plan of reservations may stop when none could.

Jobs that ask for the same are looked at together, with the shortest of them. Each reservation only takes room: what
cannot start beside those made so far cannot start beside all of them.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping

from headway.jobs.policies.backfills.conservative.availability import Profile
from headway.jobs.policies.backfills.conservative.running import NEVER
from headway.jobs.policies.backfills.conservative.whole_nodes import WholeNodes
from headway.jobs.policies.parts import Admission, Order, PlacementRule
from headway.jobs.policies.placements.pick import equal_nodes, holding
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.pool import host_share, members
from headway.jobs.state.queue import Lane
from headway.jobs.state.state import TrainingState

Shape = tuple[int, int, int, int, int, int]
"""What a job of whole GPUs asks for: nodes it may use, GPUs, number of nodes, CPUs, memory and storage."""
Lengths = list[tuple[int, int]]
"""(length, job), shortest first."""


def length_of(js: JobState, now: int) -> int:
    """Return how long a waiting job is expected to hold its GPUs, at reference speed."""
    return js.debt + js.remaining(now)


class Waiting:
    """All waiting jobs by what they ask for, and the regions that they wait in.

    A region is a set of nodes that no job of other partitions may use.
    """

    def __init__(self) -> None:
        self.shape: dict[int, Shape] = {}
        """By job."""
        self.lengths: dict[Shape, Lengths] = {}
        """How long jobs of a shape are expected to take: the same as long as they wait."""
        self.length: dict[int, int] = {}
        """By job."""
        self.single: dict[int, bool] = {}
        """By job: whether it goes on one node or waits, once somebody has asked."""
        self.regions: dict[int, int] = {}
        """By the nodes that a job may use: these, and those of all whom it may be in the way of, directly or not."""
        self.region_of: dict[str, int] = {}
        """The same by partition; of all jobs together where there are none, because they wait in one lane."""
        self.shares: set[int] = set()
        """Jobs that want a share of a GPU."""
        self.started: set[int] = set()
        """Jobs that have started since the last time: should they wait again, they take another time."""
        self.longest = 0
        """Length of the longest job so far."""
        self._last = self._returns = -1
        """The last job that came, and ``returns`` of the state, the last time."""
        self._single: dict[Shape, bool] = {}
        """Whether a job goes on one node or waits."""

    def follow(self, now: int, state: TrainingState) -> None:
        """Take note of who has come and gone since the last time."""
        for job in self.started:
            self._leave(job)
        self.started.clear()
        jobs, running, shapes = state.jobs, state.running, self.shape
        for job in reversed(jobs):  # the last to come come last
            if job == self._last:
                break
            if job not in running and job not in shapes:
                self._come(now, state, jobs[job])
        self._last = next(reversed(jobs), -1)
        if self._returns == state.returns and len(shapes) == len(jobs) - len(running):
            return
        self._returns = state.returns
        waiting = jobs.keys() - running.keys()
        for job in shapes.keys() - waiting:
            self._leave(job)
        for job in waiting - shapes.keys():
            self._come(now, state, jobs[job])

    def _come(self, now: int, state: TrainingState, js: JobState) -> None:
        shape = self.shape[js.id] = _shape(js)
        length = self.length[js.id] = length_of(js, now)
        insort(self.lengths.setdefault(shape, []), (length, js.id))
        self.longest = max(self.longest, length)
        if js.gpu_milli < 1000:
            self.shares.add(js.id)
        partition = js.job.partition if state.cluster.partitions else ""
        if self.regions.get(js.eligible) != self.region_of.get(partition) or partition not in self.region_of:
            self._join(partition, js.eligible)

    def _leave(self, job: int) -> None:
        if (shape := self.shape.pop(job, None)) is not None:
            alike = self.lengths[shape]
            del alike[bisect_left(alike, (self.length.pop(job), job))]
            self.single.pop(job, None)
            self.shares.discard(job)
            if not alike:
                del self.lengths[shape]

    def _join(self, partition: str, eligible: int) -> None:
        """Make one region of those that the nodes of a job and its partition connect."""
        region = joined = eligible | self.region_of.get(partition, 0)
        for other in self.regions.values():
            if other & joined:
                region |= other
        self.regions[eligible] = self.region_of[partition] = region
        self.regions = {nodes: region if other & region else other for nodes, other in self.regions.items()}
        self.region_of = {name: region if other & region else other for name, other in self.region_of.items()}

    def may_put_off(self, state: TrainingState, policy: Admission) -> bool:
        """Return whether reservations may be made later: jobs start here alone, and each fits somewhere."""
        pool, ends = state.pool, state.ends.of_rate(0)
        return (
            state.speed.constant
            and state.reserved is None
            and not (policy.preempts or state.quotas or state.divides)
            and policy.migration is None
            and type(policy.order).lane is Order.lane
            and pool.schedulable == pool.everywhere
            and not self.shares
            and (ends[-1][0] if ends else 0) + self.longest * (state.queue.size + 1) < NEVER
        )

    def lanes(self, state: TrainingState) -> dict[int, list[Lane]]:
        """Return the lanes in which the jobs of each region wait."""
        found: dict[int, list[Lane]] = {}
        divided = bool(state.cluster.partitions)
        for lane in state.queue.lanes.values():
            partition = state.jobs[lane.head[1]].job.partition if divided else ""
            found.setdefault(self.region_of[partition], []).append(lane)
        return found

    def is_single(self, state: TrainingState, rule: PlacementRule, js: JobState) -> bool:
        """Return whether a job goes on one node or waits."""
        found = self.single.get(js.id)
        if found is None:
            shape = _shape(js)
            alike = self._single.get(shape)
            if alike is None:
                alike = self._single[shape] = rule.needs_one_node(state.pool, js)
            found = self.single[js.id] = alike or js.gpu_milli < 1000
        return found


class TooLate:
    """Jobs that begin too late for something to be held free, as far as a plan has come.

    What is reserved meanwhile only takes room: who comes after one of them, asks for the same and takes no less time
    begins no sooner, and need not be looked at.
    """

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self._shortest: dict[Shape, int] = {}
        self._at = -1

    def forget(self) -> None:
        """Begin anew: room may have been given back."""
        self._shortest.clear()

    def note(self, time: int, job: int, length: int) -> None:
        """Take note of a job that begins too late, seen from this time."""
        if time != self._at:
            self._at, self._shortest = time, {}
        shape = self._waiting.shape.get(job)
        if shape is not None and length < self._shortest.get(shape, NEVER):
            self._shortest[shape] = length

    def has(self, time: int, job: int) -> bool:
        """Return whether it is known that a job begins too late as well."""
        waiting = self._waiting
        return time == self._at and waiting.length[job] >= self._shortest.get(waiting.shape[job], NEVER)


def _shape(js: JobState) -> Shape:
    return js.eligible, js.gpus, js.nodes, js.cpu_milli, js.memory_bytes, js.storage


class _Hope:
    """Jobs that ask for the same, and the nodes on which the shortest of them could start now."""

    __slots__ = ("count", "lengths", "needs", "nodes", "region", "shortest")

    def __init__(self, js: JobState, region: int, lengths: Lengths, nodes: int, count: int) -> None:
        self.region = region
        self.lengths = lengths
        self.shortest = 0
        """Place of the shortest one that is not planned yet."""
        self.nodes = nodes
        self.count = count
        """So many of the nodes are needed; 0: as many as it takes, which is not looked into."""
        each = js.gpus // max(1, count)
        self.needs = (each, *host_share(js, each))

    def look(self, nodes: int, profile: Profile | WholeNodes, now: int) -> bool:
        """Look at these nodes again; return whether there is hope left."""
        if self.count:
            shortest = self.lengths[self.shortest][0]
            for node in members(self.nodes & nodes):
                if not profile.has_room(node, *self.needs, now, shortest):
                    self.nodes ^= 1 << node
        return self.nodes.bit_count() >= self.count

    def is_over(self, unplanned: set[int]) -> bool:
        """Go on to the shortest that is not planned yet; return whether there is none."""
        lengths, place = self.lengths, self.shortest
        while place < len(lengths) and lengths[place][1] not in unplanned:
            place += 1
        self.shortest = place
        return place == len(lengths)


class Hopes:
    """The waiting jobs that could start now beside what is reserved so far."""

    def __init__(
        self,
        now: int,
        state: TrainingState,
        rule: PlacementRule,
        waiting: Waiting,
        profile: Profile | WholeNodes,
    ) -> None:
        self._now = now
        self._seen = state, rule, waiting
        self._profile = profile
        self._shape = waiting.shape
        self.unplanned: dict[int, set[int]] = {}
        """By region: jobs that are not dealt with yet."""
        self._hopes: dict[Shape, _Hope] = {}
        self.regions: dict[int, int] = {}
        """How many shapes have hope in each region."""
        self._nodes = 0
        """Nodes on which one could start."""

    def add(self, unplanned: Mapping[int, set[int]]) -> None:
        """Look at regions; ``unplanned`` are the jobs that are not planned yet in each."""
        state, rule, waiting = self._seen
        now, profile = self._now, self._profile
        self.unplanned.update(unplanned)
        for shape, lengths in waiting.lengths.items():
            region = waiting.regions[shape[0]]
            if region not in unplanned:
                continue
            js = state.jobs[lengths[0][1]]
            nodes, count = _room(state, js, waiting.is_single(state, rule, js))
            if nodes and nodes.bit_count() >= count:
                hope = _Hope(js, region, lengths, nodes, count)
                if not hope.is_over(unplanned[region]) and hope.look(profile.changed, profile, now):
                    self._hopes[shape] = hope
                    self._nodes |= hope.nodes
                    self.regions[region] = self.regions.get(region, 0) + 1

    def __contains__(self, job: int) -> bool:
        return self._shape[job] in self._hopes

    def planned(self, job: int, region: int, nodes: int) -> bool:
        """Take note that a job was dealt with, and that something of these nodes was given to it, now or for later;
        return whether less could start now for it."""
        unplanned = self.unplanned[region]
        unplanned.discard(job)
        own, lost = self._shape[job], []
        if not nodes & self._nodes and own not in self._hopes:
            return False
        for shape, hope in self._hopes.items():
            if hope.region != region:
                continue
            again = hope.nodes & nodes
            if shape == own and hope.lengths[hope.shortest][1] == job:
                again = hope.nodes
                if hope.is_over(unplanned):
                    lost.append(shape)
                    continue
            if again and not hope.look(again, self._profile, self._now):
                lost.append(shape)
        for shape in lost:
            del self._hopes[shape]
            self.regions[region] -= 1
        self._nodes = 0
        for hope in self._hopes.values():
            self._nodes |= hope.nodes
        return bool(lost)


def _room(state: TrainingState, js: JobState, single: bool) -> tuple[int, int]:
    """Return the nodes that could hold a job, or its part for one node, now; and how many of them it needs."""
    pool = state.pool
    if single:
        return holding(pool, js), 1
    if js.nodes > 1:
        return equal_nodes(pool, js, pool.everywhere), js.nodes
    return (js.eligible, 0) if pool.free_among(js.eligible) >= js.gpus else (0, 0)


def mask_of(parts: Iterable[tuple[int, int]]) -> int:
    """Return the nodes of a placement or a reservation as a bit set."""
    nodes = 0
    for node, _ in parts:
        nodes |= 1 << node
    return nodes
