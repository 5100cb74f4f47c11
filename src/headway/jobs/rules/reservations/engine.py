"""Which nodes each job may use beside advance reservations, and from when on these are others.

A waiting job may use the nodes that nobody has reserved for the time for which it would hold them if it started now.
So they become fewer as a reservation draws near, and more when it is over. The state is told when that changes for a
job: it costs what changes. A job that waits for its own reservation to begin is set aside until then.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from headway.jobs.model.cluster import Cluster
from headway.jobs.rules.limits.counters import NEVER
from headway.jobs.rules.reservations.reservation import AdvanceReservation
from headway.jobs.state.jobstate import JobState, Status
from headway.jobs.state.pool import members

if TYPE_CHECKING:
    from headway.jobs.state.state import TrainingState


class SetAside(NamedTuple):
    """The lane of jobs whose reservation has not begun."""

    lane: Hashable


class Inside(NamedTuple):
    """The lane of jobs that wait for nodes of their own reservation."""

    reservation: str
    lane: Hashable


class Allowed(NamedTuple):
    """Where a job may run now."""

    nodes: int
    until: int
    """When that is next to be looked at again."""
    begins: int = -1
    """When the reservation begins that it waits for; -1: it waits for none."""
    inside: bool = False
    """Whether these are nodes of its own reservation."""


class ReservedNodes:
    """The reservations of a cluster that are not over, and the waiting jobs that they concern."""

    def __init__(self, cluster: Cluster) -> None:
        self._windows = sorted(cluster.reservations, key=lambda each: (each.start, each.end, each.name))
        self._sets = [sum(1 << node for node in each.nodes) for each in self._windows]
        self._starts = [each.start for each in self._windows]
        self._ends = sorted(each.end for each in self._windows)
        self._named: dict[str, list[int]] = {}
        for index, each in enumerate(self._windows):
            self._named.setdefault(each.name, []).append(index)
        self._over = 0
        """So many of the first windows are over."""
        self._due: list[tuple[int, int]] = []
        """(time, job): when to look at a waiting job again."""
        self._next: dict[int, int] = {}
        """The last such time of each."""
        self.begins: dict[int, int] = {}
        """When the reservation begins that a job waits for."""
        self.inside: set[int] = set()
        """Jobs that wait for nodes of their own reservation, which has begun: no other job holds these back."""
        self.version = 0
        """Grows whenever the nodes of a waiting job have changed."""

    # --- which nodes ------------------------------------------------------------------------------------------

    def allowed(self, now: int, js: JobState, base: int) -> Allowed:
        """Return where a job may start now, or run on; ``base`` is where it might if nothing were reserved."""
        length = max(1, js.expected_end() - now) if js.status is Status.RUNNING else js.debt + js.remaining(now)
        own = [index for index in self._named.get(js.job.reservation, ()) if self._windows[index].end > now]
        if not own:
            return self._beside(now, length, base, ())
        first = self._windows[own[0]]
        if first.flex:
            return self._beside(now, length, base, own)
        if first.start > now:
            return Allowed(0, first.start, first.start)
        active = [index for index in own if self._windows[index].start <= now]
        inside = base & _union(self._sets[index] for index in active)
        ends = min(self._windows[index].end for index in active)
        if any(self._windows[index].overlaps for index in active):
            return Allowed(inside, ends, inside=True)
        found = self._beside(now, length, inside, own)
        return Allowed(found.nodes, min(found.until, ends), inside=True)

    def _beside(self, now: int, length: int, base: int, own: Sequence[int]) -> Allowed:
        """Return the nodes that others have not reserved for any of the time from now on for ``length``."""
        last = bisect_left(self._starts, now + length, lo=self._over)
        blocked, until = 0, NEVER
        for index in range(self._over, last):
            if (end := self._windows[index].end) > now and index not in own and self._sets[index] & base:
                blocked |= self._sets[index]
                until = min(until, end)
        if last < len(self._starts):
            until = min(until, self._starts[last] - length + 1)
        return Allowed(base & ~blocked, until)

    def holding(self, now: int, js: JobState, nodes: int) -> list[AdvanceReservation]:
        """Return the reservations that keep a job off some of these nodes now, the first to end first."""
        if js.id in self.begins:
            return []
        end = now + js.debt + js.remaining(now)
        found = [
            each
            for each, kept in zip(self._windows[self._over :], self._sets[self._over :], strict=True)
            if each.end > now and each.start < end and kept & nodes and each.name != js.job.reservation
        ]
        return sorted(found, key=lambda each: each.end)

    # --- as time passes ---------------------------------------------------------------------------------------

    def look(self, now: int, js: JobState, base: int) -> None:
        """Set the nodes of a job that begins to wait, and note when they change."""
        js.eligible, until, begins, inside = self.allowed(now, js, base)
        self.begins.pop(js.id, None)
        self.inside.discard(js.id)
        if inside:
            self.inside.add(js.id)
        if begins >= 0:
            self.begins[js.id] = begins
        if until < NEVER:
            self._next[js.id] = until
            heappush(self._due, (until, js.id))
        else:
            self._next.pop(js.id, None)

    def advance(self, now: int, state: "TrainingState") -> None:
        """Look again at the waiting jobs whose nodes have changed by now."""
        windows = self._windows
        while self._over < len(windows) and windows[self._over].end <= now:
            self._over += 1
        due = self._due
        while due and due[0][0] <= now:
            time, job = heappop(due)
            if self._next.get(job) == time:
                self._again(now, job, state)

    def _again(self, now: int, job: int, state: "TrainingState") -> None:
        js = state.jobs.get(job)
        if js is None or js.status is not Status.WAITING:
            del self._next[job]
            self.begins.pop(job, None)
            self.inside.discard(job)
            return
        before, waited = js.eligible, job in self.begins
        state.dequeue(js)
        self.look(now, js, state.eligible(js.job.partition, js.job.gpu_types))
        js.lane = state.arrangement.lane(js)
        state.enqueue(js)
        self.version += 1
        state.changes += 1
        if waited or js.eligible & ~before:
            gained = sum(state.pool.capacity[node] for node in members(js.eligible & ~before))
            state.releases += gained or 1

    def opens(self, now: int) -> int:
        """Return when time alone may next give a waiting job more nodes, after now; ``NEVER``: not at all."""
        place = bisect_right(self._ends, now)
        ends = self._ends[place] if place < len(self._ends) else NEVER
        return min(ends, *self.begins.values()) if self.begins else ends


def _union(sets: Iterable[int]) -> int:
    found = 0
    for each in sets:
        found |= each
    return found


def moves_with_time(state: "TrainingState") -> bool:
    """Return whether time alone can let a job go that is held back."""
    return state.reserved is not None or (state.limits is not None and state.limits.moves)


def opens(now: int, state: "TrainingState") -> int:
    """Return when time alone may next let somebody go who is held back, or hold somebody back for whom others wait;
    ``NEVER`` where it does not."""
    time = NEVER if state.limits is None else state.limits.opens()
    if state.limits is not None and state.queue.size > 1:
        time = min(time, state.limits.closes())
    if state.reserved is None or len(state.jobs) == len(state.running):
        return time
    return min(time, state.reserved.opens(now))


def is_inside(state: "TrainingState", js: JobState) -> bool:
    """Return whether a job waits for nodes of its own reservation: it neither holds others back nor they it."""
    return state.reserved is not None and js.id in state.reserved.inside


def version_of(state: "TrainingState") -> int:
    """Return a number that grows whenever reservations change the nodes of a waiting job."""
    return 0 if state.reserved is None else state.reserved.version
