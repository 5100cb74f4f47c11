"""The jobs that wait for the nodes of one region, and how far their reservations are made."""

from bisect import bisect_right
from collections.abc import Container, Hashable, Iterator

from headway.jobs.policies.backfills.conservative.last_plan import Before, Slot
from headway.jobs.policies.backfills.conservative.running import NEVER, Held
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.pool import members
from headway.jobs.state.queue import Entry


class Region:
    """Nodes, the jobs that wait for them in order, and how far they are planned."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.at = 0
        """When the plan was begun."""
        self.versions: list[int] | None = None
        """Of the lanes in which they wait; None if not all in them count."""
        self.jobs: list[int] = []
        """In order when the region was planned last."""
        self.planned: list[int] = []
        """All that have got a reservation since, or whose reservation was put off."""
        self.put_off: list[JobState] = []
        """Jobs in order whose reservations are made when they are asked for."""
        self.next = 0
        """The first of them that is not dealt with yet."""
        self.due: int | None = None
        """No reservation that was put off begins before this time; None if that was not looked at yet."""
        self.first_end = NEVER
        """When the first of the jobs is to end that have started since."""
        self.made: list[Slot] | None = []
        """Reservations in the order in which they were made; None if not all are known."""
        self.before = Before()
        """Those of the plan before."""
        self.too_late = NEVER
        """When the first of the reservations begins that are not held free because they begin too late."""
        self._times: list[tuple[int, int]] = []
        """(place in ``put_off``, time as of which reservations from there on are to be made)."""

    def renew(self, now: int, changed: int) -> None:
        """Begin a new plan; on ``changed`` nodes running jobs hold something else than when the last one was made."""
        self.before = self.before.next(self.nodes, self.made, changed)
        self.made = []
        self.at, self.first_end, self.planned, self.too_late = now, NEVER, [], NEVER
        self.put_off, self.next, self._times = [], 0, []

    def add(self, now: int, jobs: list[JobState]) -> list[int]:
        """Put off the reservations of these jobs, which come after all others; return their numbers."""
        self.due = None
        self._times.append((len(self.put_off), now))
        self.put_off += jobs
        ids = [js.id for js in jobs]
        self.planned += ids
        return ids

    def join(self, other: "Region") -> None:
        """Take over the jobs of a region that is part of this one now; what it has put off was made before."""
        self.planned += other.planned
        self.first_end, self.too_late = min(self.first_end, other.first_end), min(self.too_late, other.too_late)
        self.made = None

    def stands(self, now: int) -> None:
        """Take note that a plan made now would be the same; what is put off is to be made as of now."""
        if self.has_left:
            self._times, self.due = [(0, now)], None

    @property
    def extended(self) -> int:
        """Return when jobs were last added."""
        return self._times[-1][1]

    @property
    def has_left(self) -> bool:
        """Return whether there are jobs that are not dealt with yet."""
        return self.next < len(self.put_off)

    def head(self) -> Entry:
        """Return the entry of the next job that is not dealt with."""
        js = self.put_off[self.next]
        return js.key, js.id

    def first_due(self, held: Held | None) -> int:
        """Return when something next becomes free, before which nothing that was put off begins; what is late counts
        as at once."""
        if self.due is None:
            assert held is not None
            first = self.first_end
            for node in members(self.nodes):
                times = held.times[node]
                if (index := bisect_right(times, self.at)) < len(times) and times[index] < first:
                    first = times[index]
            self.due = max(first if first < NEVER else 0, self.extended + 1)
        return self.due

    def take(self) -> tuple[int, JobState]:
        """Return the next job, which is taken for dealt with, and the time as of which its reservation is to be
        made."""
        place = self.next
        self.next += 1
        js = self.put_off[place]
        while len(self._times) > 1 and self._times[1][0] <= place:
            del self._times[0]
        return self._times[0][1], js

    def left(self) -> Iterator[tuple[int, JobState]]:
        """Yield what ``take`` returns, as long as there is something."""
        while self.has_left:
            yield self.take()

    def hold_back(self, now: int, after: Entry, lanes: Container[Hashable]) -> list[int]:
        """Take out jobs of these lanes that come after another one and were put off now; return them."""
        first = max(self.next, self._times[-1][0]) if self._times and self._times[-1][1] == now else len(self.put_off)
        rest = self.put_off[first:]
        gone = [js.id for js in rest if js.lane in lanes and (js.key, js.id) > after]
        if gone:
            self.put_off[first:] = [js for js in rest if js.id not in gone]
            self.leave_out()
        return gone

    def leave_out(self) -> None:
        """Take note that some jobs are planned and wait no longer, or the other way round: the plan is to be made anew
        when somebody looks the next time."""
        self.jobs, self.versions = [-1], None
