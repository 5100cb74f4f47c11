"""The jobs of one region and what the last plan found for them, so that the next one searches only what has changed.

Two plans of a region go through nearly the same jobs in nearly the same order. As long as nodes are free at the same
times as they were when the last plan came to a job, they need not be searched again for it: only the others could hold
it sooner, or no longer when they did. Which these are is kept as a set of nodes: those on which something has started
or ended, and those of reservations that only one of the two plans has made so far.
"""

from collections.abc import Container, Hashable, Iterator
from typing import NamedTuple

from headway.training.jobstate import JobState
from headway.training.policies.backfills.held import NEVER
from headway.training.policies.backfills.hopes import mask_of
from headway.training.policies.backfills.profile import Found, Parts, Profile
from headway.training.pool import host_share, members
from headway.training.queue import Entry

_NEAR = 8
"""A job that comes so many places sooner than in the last plan has overtaken nobody: those in between were held up."""
_MOST = 1000
"""Of more reservations than these of earlier plans only the last ones are kept."""


class Slot(NamedTuple):
    """The reservation of a job: time, nodes and GPUs."""

    js: JobState
    start: int
    end: int
    parts: Parts


class _Before(NamedTuple):
    """What an earlier plan has found for a job."""

    job: int
    nodes: int
    found: Found
    length: int


class Region:
    """Nodes, the jobs that wait for them in order, and how far they are planned."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
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
        self.due = 0
        """No reservation that was put off begins before this time."""
        self.first_end = NEVER
        """When the first of the jobs is to end that have started since."""
        self.changed = 0
        """Nodes that are not as they were when the plan before came to this job."""
        self.at = 0
        """When the plan was begun."""
        self._before: list[_Before] = []
        self._place: dict[int, int] = {}
        """Of jobs in the plan before."""
        self._position = 0
        self._made: list[_Before] = []
        self._to_come: set[int] = set()
        self._times: list[tuple[int, int]] = []
        """(place in ``put_off``, time as of which reservations from there on are to be made)."""

    def renew(self, now: int, changed: int) -> None:
        """Begin a new plan: these nodes are others than when the last one began."""
        before = self._made
        if self._position < len(self._before):
            if self.changed:
                before.append(_Before(-1, self.changed, Found(0), 0))
            before += self._before[self._position :]
        self.at, self._before, self._made, self._position, self.changed = now, before[:_MOST], [], 0, changed
        self._place = {each.job: place for place, each in reversed([*enumerate(self._before)])}
        self.first_end, self.planned = NEVER, []
        self.put_off, self.next, self._times, self._to_come = [], 0, [], set()

    def add(self, now: int, jobs: list[JobState]) -> None:
        """Put off the reservations of these jobs, which come after all others."""
        self._times.append((len(self.put_off), now))
        self.put_off += jobs
        new = [js.id for js in jobs]
        self.planned += new
        self._to_come.update(new)

    @property
    def has_left(self) -> bool:
        """Return whether there are jobs that are not dealt with yet."""
        return self.next < len(self.put_off)

    def is_to_come(self, job: int) -> bool:
        """Return whether a job is not dealt with yet."""
        return job in self._to_come

    def head(self) -> Entry:
        """Return the entry of the next job that is not dealt with."""
        js = self.put_off[self.next]
        return js.key, js.id

    def take(self) -> tuple[int, JobState]:
        """Return the next job, which is taken for dealt with, and the time as of which its reservation is to be
        made."""
        place = self.next
        self.next += 1
        js = self.put_off[place]
        self._to_come.discard(js.id)
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
            self._to_come.difference_update(gone)
            self.leave_out(gone)
        return gone

    def leave_out(self, jobs: Container[int]) -> None:
        """Take note that some jobs are not planned: they are to be when somebody looks the next time."""
        self.jobs = [job for job in self.jobs if job not in jobs]
        self.versions = None

    # --- searching --------------------------------------------------------------------------------------------

    def known(self, time: int, js: JobState, length: int, profile: Profile) -> Found | None:
        """Return what a search would find for the job that comes next, where that can be told without one."""
        before = self._last(js.id)
        if before is None:
            return None
        found = before.found
        if time != self.at or found.start <= time or not found.reason or before.length != length:
            self.changed |= before.nodes
            return None
        again = self.changed & js.eligible
        if not again:
            return found
        known = (
            _one(js, length, time, found, again, profile)
            if js.nodes <= 1
            else _several(js, length, time, found, again, profile)
        )
        if known is not found:
            self.changed |= before.nodes
        return known

    def _last(self, job: int) -> _Before | None:
        """Return what the plan before has found for the job that comes next; None where it has not come to it."""
        before, to_come = self._before, self._to_come
        position, count = self._position, len(self._before)
        while position < count and (other := before[position].job) not in to_come and other != job:
            self.changed |= before[position].nodes
            position += 1
        place = self._place.get(job, -1)
        if not position <= place <= position + _NEAR:
            self._position = position
            return None
        for each in before[position:place]:
            self.changed |= each.nodes
        self._position = place + 1
        return before[place]

    def note(self, job: int, found: Found, length: int, known: Found | None) -> None:
        """Take note of what was found for a job; ``known`` if the plan before had found the same."""
        nodes = mask_of(found.parts)
        if found is not known:
            self.changed |= nodes
        self._made.append(_Before(job, nodes, found, length))


def _one(js: JobState, length: int, now: int, found: Found, again: int, profile: Profile) -> Found | None:
    """Return where a job goes that needs one node, if only the nodes ``again`` are others than when this was found."""
    ((node, need),) = found.parts
    best = (found.start, max(now, found.reason[0]), node)
    least = None
    for other in members(again):
        first, start = profile.when(other, need, js.cpu_milli, js.memory_bytes, now, length)
        if least is None or (start, first, other) < least:
            least = start, first, other
    assert least is not None
    if least < best:
        return Found(least[0], ((least[2], need),), (least[1],))
    if least == best or not again >> node & 1:
        return found
    return None


def _several(js: JobState, length: int, now: int, found: Found, again: int, profile: Profile) -> Found | None:
    """The same for one that needs several equal nodes: what was found where nothing could be otherwise."""
    each = js.gpus // js.nodes
    need = (each, *host_share(js, each))
    rooms = {node: room for (node, _), room in zip(found.parts, found.reason, strict=True)}
    for node in members(again):
        start = profile.when(node, *need, now, length)[1]
        if node not in rooms:
            if start <= found.start:
                return None
        elif start != found.start or profile.least_room(js, node, start, start + length) != rooms[node]:
            return None
    return found
