"""The reservations of the last plan, gone through beside those of the next one: most jobs get the same again.

A plan is made job by job. What a job gets depends on what is held on the nodes that it may use, and on what those who
come before it have got there. On nodes where both are as they were, its start is as it was; so only the others are
looked at. Time alone makes no start sooner. It may only decide between nodes that are free at the same time, and a
reservation says until when it does not.
"""

from collections.abc import Container
from typing import NamedTuple

from headway.training.jobstate import JobState
from headway.training.policies.backfills.held import NEVER
from headway.training.policies.backfills.profile import Parts
from headway.training.policies.backfills.whole_nodes import WholeNodes
from headway.training.pool import members

_FEW = 4
"""So many reservations are passed over to get to that of a job which comes sooner than before."""


class Slot(NamedTuple):
    """The reservation of a job: time, nodes and GPUs."""

    js: JobState
    start: int
    end: int
    parts: Parts
    nodes: int = 0
    """The nodes of its parts, as a bit set."""
    stands: int = NEVER
    """Until then time alone makes no other node the better one of two that are free at the same time."""
    tied: int = 0
    """Nodes that are free at the same time, as a bit set; 0 if there is no choice."""


class Differences:
    """Nodes on which something is held or reserved otherwise than in the plan before, and from when on.

    A reservation that ends before a node differs is not touched by that, and nor is any that could be made sooner.
    """

    __slots__ = ("nodes", "now", "since", "started")

    def __init__(self, now: int = 0, started: int = 0) -> None:
        self.now = self.nodes = now
        """Nodes that differ from now on, and all of them; as bit sets."""
        self.started = started
        """Nodes on which jobs have started that the plan before knew of: they decide between nodes that are free at
        the same time, and nothing else."""
        self.since: dict[int, int] = {}
        """The others: from when on, by node as a bit set of one."""

    def add_now(self, nodes: int) -> None:
        """Take note of nodes that differ from now on."""
        self.now |= nodes
        self.nodes |= nodes

    def add(self, nodes: int, time: int) -> None:
        """Take note of nodes that differ from a time on."""
        self.nodes |= nodes
        nodes &= ~self.now
        since = self.since
        while nodes:
            node = nodes & -nodes
            nodes ^= node
            if since.get(node, NEVER) > time:
                since[node] = time

    def join(self, other: "Differences") -> None:
        """Take over what others differ in."""
        self.add_now(other.now)
        self.started |= other.started
        for node, time in other.since.items():
            self.add(node, time)

    def before(self, time: int, nodes: int) -> int:
        """Return those of some nodes that differ before a time."""
        found, nodes = self.now & nodes, nodes & self.nodes
        if found != nodes:
            for node, since in self.since.items():
                if since < time:
                    found |= node & nodes
        return found


class Before:
    """The reservations of the last plan, which are gone through beside those of the next one.

    On nodes that do not differ all that was reserved before a job is the same in both plans.
    """

    def __init__(
        self,
        slots: list[Slot] | None = None,
        differs: Differences | None = None,
        older: int = NEVER,
        besides: Differences | None = None,
    ) -> None:
        self._slots = slots or []
        self._next = 0
        self._older, self._besides = older, besides
        """From this place on they are those of a plan still before; what differs besides from there on."""
        self._places: dict[int, int] | None = None
        self.differs = differs or Differences()
        """Where something is reserved otherwise so far, or held otherwise."""

    def of(self, js: JobState, to_come: Container[int]) -> Slot | None:
        """Return the reservation that a job had; None if it had none, or comes much sooner than it did.

        ``to_come``: the jobs that the next plan has not dealt with yet.
        """
        slots, count = self._slots, len(self._slots)
        while self._next < count:
            if self._next >= self._older and self._besides is not None:
                self.differs.join(self._besides)
                self._besides = None
            slot = slots[self._next]
            if slot.js is js:
                self._next += 1
                return slot
            if slot.js.id in to_come and not self._follows(js):
                return None
            self._next += 1
            self.differs.add(slot.nodes, slot.start)
        return None

    def seek(self, js: JobState, to_come: Container[int]) -> bool:
        """Go on to the reservation that a job had; return whether it is the next one."""
        if self.of(js, to_come) is None:
            return False
        self._next -= 1
        return True

    def next(self, nodes: int, made: list[Slot] | None, differs: Differences) -> "Before":
        """Return the same for the plan after the next one of a region; of this one what was not got to is kept."""
        if made is None:
            return Before()
        besides = self.differs
        if self._besides is not None:
            besides.join(self._besides)
        if nodes & ~besides.now and self._next < len(self._slots):
            return Before(made + self._slots[self._next :], differs, len(made), besides)
        return Before(made, differs)

    def ahead(self) -> list[Slot]:
        """Return the next reservations that are of one plan."""
        return self._slots[self._next : None if self._besides is None else self._older]

    def pass_over(self, count: int) -> None:
        """Take note that so many of those ahead are dealt with."""
        self._next += count

    def note(self, last: Slot | None, slot: Slot | None, nodes: int) -> None:
        """Take note of what a job has got that had another reservation or none, and of its nodes."""
        differs = self.differs
        if slot is None:
            differs.add_now(nodes)
        elif last is None:
            differs.add(nodes, slot.start)
        elif slot.start == last.start and slot.end == last.end and slot.parts == last.parts:
            return
        else:
            differs.add(nodes, slot.start)
        if last is not None:
            differs.add(last.nodes, last.start)

    def _follows(self, js: JobState) -> bool:
        """Return whether a job had one of the next few reservations."""
        if self._places is None:
            self._places = {slot.js.id: place for place, slot in enumerate(self._slots)}
        return self._next < self._places.get(js.id, -1) <= self._next + _FEW


def following(now: int, slot: Slot, differences: Differences, profile: WholeNodes) -> Slot | None:
    """Return the reservation that a job would get now that had another one, where something is held or reserved
    otherwise; None where all nodes have to be looked at, or it may start now."""
    js, start, end, _, nodes, stands, tied = slot
    if start <= now or stands < 0:
        return None
    differs = differences.before(end, js.eligible)
    if js.nodes > 1:
        return _over_several(now, slot, differs, differences, profile)
    stays = not differs & nodes and stands >= now and not (tied and nodes & differences.started)
    if stays and (not differs or profile.among(js, now, end - start, differs, start)[1] < 0):
        return slot
    found, node = profile.among(js, now, end - start, differs | nodes | tied, start)
    if not now < found <= start:
        return None
    if (found, 1 << node, profile.stands, profile.tied) == (start, nodes, stands, tied):
        return slot
    length = end - start
    return Slot(js, found, found + length, ((node, js.gpus),), 1 << node, profile.stands, profile.tied)


def _over_several(now: int, slot: Slot, differs: int, differences: Differences, profile: WholeNodes) -> Slot | None:
    """Return the same of a job on several nodes."""
    js, start, end, parts, nodes, _, tied = slot
    if tied and (tied | nodes) & differences.started:  # what is left on a node decides
        return None
    if not differs:
        return slot
    others, moves, length = differs & ~nodes, differs & nodes, end - start
    if others and profile.among(js, now, length, others, start)[1] >= 0:
        return None
    for node in members(moves):
        if profile.among(js, now, length, 1 << node, start)[0] != start:
            return None
    if not moves & differences.now:
        return slot
    if tied:
        return None
    ordered = profile.by_room(js, parts, start)
    return slot if ordered == parts else slot._replace(parts=ordered)
