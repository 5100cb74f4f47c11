"""Which waiting jobs could start now, as far as has been planned: a plan of reservations may stop when none could.

Jobs that ask for the same are looked at together, with the shortest of them. Each reservation only takes room: what
cannot start beside those made so far cannot start beside all of them.
"""

from collections.abc import Container, Iterable

from headway.training.jobstate import JobState
from headway.training.policies.backfills.profile import Profile
from headway.training.policies.parts import PlacementRule
from headway.training.policies.placements.pick import equal_nodes, holding
from headway.training.pool import host_share, members
from headway.training.state import TrainingState

Shape = tuple[int, int, int, int, int, int]
"""What a job of whole GPUs asks for: nodes it may use, GPUs, number of nodes, CPUs, memory and storage."""


def length_of(js: JobState, now: int) -> int:
    """Return how long a waiting job is expected to hold its GPUs, at reference speed."""
    return js.debt + js.remaining(now)


class Waiting:
    """All waiting jobs by what they ask for."""

    def __init__(self) -> None:
        self.shape: dict[int, Shape] = {}
        """By job."""
        self.jobs: dict[Shape, set[int]] = {}
        self.region_of: dict[int, int] = {}
        """By job: the nodes that it may use, and those of all whom it may be in the way of, directly or not."""
        self._regions: dict[int, int] = {}
        """The same by the nodes that a job may use."""
        self.shares: set[int] = set()
        """Jobs that want a share of a GPU."""
        self.longest = 0
        """Length of the longest job so far."""
        self.single: dict[Shape, bool] = {}
        """Whether a job goes on one node or waits."""

    def follow(self, now: int, state: TrainingState) -> None:
        """Take note of who has come and gone since the last time."""
        waiting = state.jobs.keys() - state.running.keys()
        for job in self.shape.keys() - waiting:
            shape = self.shape.pop(job)
            del self.region_of[job]
            alike = self.jobs[shape]
            alike.remove(job)
            self.shares.discard(job)
            if not alike:
                del self.jobs[shape]
        for job in waiting - self.shape.keys():
            js = state.jobs[job]
            shape = self.shape[job] = _shape(js)
            self.jobs.setdefault(shape, set()).add(job)
            self.longest = max(self.longest, length_of(js, now))
            if js.gpu_milli < 1000:
                self.shares.add(job)
            if js.eligible not in self._regions:
                self._join(js.eligible)
            self.region_of[job] = self._regions[js.eligible]

    def _join(self, eligible: int) -> None:
        """Make one region of those that these nodes connect."""
        region = eligible
        for other in self._regions.values():
            if other & eligible:
                region |= other
        self._regions[eligible] = region
        for nodes in self._regions:
            if nodes & region:
                self._regions[nodes] = region
        for job, other in self.region_of.items():
            if other & region:
                self.region_of[job] = region

    def is_single(self, state: TrainingState, rule: PlacementRule, js: JobState) -> bool:
        """Return whether a job goes on one node or waits."""
        shape = _shape(js)
        found = self.single.get(shape)
        if found is None:
            found = self.single[shape] = rule.needs_one_node(state.pool, js)
        return found or js.gpu_milli < 1000


def _shape(js: JobState) -> Shape:
    return js.eligible, js.gpus, js.nodes, js.cpu_milli, js.memory_bytes, js.storage


class _Hope:
    """Jobs that ask for the same, and the nodes on which the shortest of them could start now."""

    __slots__ = ("count", "lengths", "needs", "nodes")

    def __init__(self, js: JobState, lengths: list[tuple[int, int]], nodes: int, count: int) -> None:
        self.lengths = lengths
        """(length, job) of those that are not planned yet, longest first."""
        self.nodes = nodes
        self.count = count
        """So many of the nodes are needed; 0: as many as it takes, which is not looked into."""
        each = js.gpus // max(1, count)
        self.needs = (each, *host_share(js, each))

    def look(self, nodes: int, profile: Profile, now: int) -> bool:
        """Look at these nodes again; return whether there is hope left."""
        if self.count:
            shortest = self.lengths[-1][0]
            for node in members(self.nodes & nodes):
                if not profile.has_room(node, *self.needs, now, shortest):
                    self.nodes ^= 1 << node
        return self.nodes.bit_count() >= self.count


class Hopes:
    """The waiting jobs that could start now beside what is reserved so far."""

    def __init__(
        self,
        now: int,
        state: TrainingState,
        rule: PlacementRule,
        waiting: Waiting,
        unplanned: Container[int],
        profile: Profile,
    ) -> None:
        """``unplanned`` are the jobs that are not planned yet."""
        self._now = now
        self._profile = profile
        self._shape = waiting.shape
        self._region_of = waiting.region_of
        self._hopes: dict[Shape, _Hope] = {}
        self._regions: dict[int, int] = {}
        """How many shapes have hope in each region."""
        for shape, alike in waiting.jobs.items():
            jobs = [job for job in alike if job in unplanned]
            if not jobs:
                continue
            js = state.jobs[jobs[0]]
            nodes, count = _room(state, js, waiting.is_single(state, rule, js))
            if nodes and nodes.bit_count() >= count:
                lengths = sorted([(length_of(state.jobs[job], now), job) for job in jobs], reverse=True)
                hope = _Hope(js, lengths, nodes, count)
                if hope.look(profile.changed, profile, now):
                    self._hopes[shape] = hope
                    region = waiting.region_of[js.id]
                    self._regions[region] = self._regions.get(region, 0) + 1

    def __bool__(self) -> bool:
        return bool(self._hopes)

    def __contains__(self, job: int) -> bool:
        return self._shape[job] in self._hopes

    def among(self, js: JobState) -> bool:
        """Return whether a job could be in the way of one that could start now, or is one."""
        return self._regions.get(self._region_of[js.id], 0) > 0

    def planned(self, job: int, parts: Iterable[tuple[int, int]]) -> None:
        """Take note that a job was dealt with, and that something of these nodes was given to it, now or for later."""
        hopes, own = self._hopes, self._shape[job]
        touched = 0
        for node, _ in parts:
            touched |= 1 << node
        lost = []
        for shape, hope in hopes.items():
            nodes = hope.nodes & touched
            if shape == own:
                if hope.lengths[-1][1] == job:
                    nodes = hope.nodes
                hope.lengths = [entry for entry in hope.lengths if entry[1] != job]
            if not hope.lengths or (nodes and not hope.look(nodes, self._profile, self._now)):
                lost.append(shape)
        for shape in lost:
            del hopes[shape]
            self._regions[self._region_of[job]] -= 1


def _room(state: TrainingState, js: JobState, single: bool) -> tuple[int, int]:
    """Return the nodes that could hold a job, or its part for one node, now; and how many of them it needs."""
    pool = state.pool
    if single:
        return holding(pool, js), 1
    if js.nodes > 1:
        return equal_nodes(pool, js, pool.everywhere), js.nodes
    return (js.eligible, 0) if pool.free_among(js.eligible) >= js.gpus else (0, 0)
