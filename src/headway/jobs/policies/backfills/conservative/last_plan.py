"""The reservations of the last plan, gone through beside those of the next one: most jobs get the same again.

A plan is made job by job. What a job gets depends on what is held on the nodes that it may use, and on what those who
come before it have got there. On nodes where both are as they were, its start is as it was; so only the others are
looked at. Time alone makes no start sooner. It may only decide between nodes that are free at the same time, and a
reservation says until when it does not.
"""

from collections.abc import Container
from typing import NamedTuple

from headway.jobs.policies.backfills.conservative.availability import Parts
from headway.jobs.policies.backfills.conservative.running import NEVER
from headway.jobs.policies.backfills.conservative.whole_nodes import WholeNodes
from headway.jobs.state.jobstate import JobState

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
    taken: int = 0
    """The nodes that are held free: none where it begins too late for that."""


class Before:
    """The reservations of the last plan, which are gone through beside those of the next one.

    On nodes that do not differ all that was reserved before a job is the same in both plans.
    """

    def __init__(self, slots: list[Slot] | None = None, differs: int = 0, older: int = NEVER, besides: int = 0) -> None:
        self._slots = slots or []
        self._next = 0
        self._older, self._besides = older, besides
        """From this place on they are those of a plan still before; nodes that differ besides from there on."""
        self._places: dict[int, int] | None = None
        self._last: Slot | None = None
        """What ``of`` returned last."""
        self.differs = differs
        """Nodes on which something is reserved otherwise so far, or held otherwise."""

    def of(self, js: JobState, to_come: Container[int]) -> Slot | None:
        """Return the reservation that a job had; None if it had none, or comes much sooner than it did.

        ``to_come``: the jobs that the next plan has not dealt with yet.
        """
        slots, count, place = self._slots, len(self._slots), self._next
        if place < count and place < self._older and (slot := slots[place]).js is js:
            self._next, self._last = place + 1, slot
            return slot
        self._last = None
        while self._next < count:
            if self._next >= self._older:
                self.differs |= self._besides
            slot = slots[self._next]
            if slot.js is js:
                self._next += 1
                self._last = slot
                return slot
            if slot.js.id in to_come and not self._follows(js):
                return None
            self._next += 1
            self.differs |= slot.taken
        return None

    def next(self, nodes: int, made: list[Slot] | None, changed: int) -> "Before":
        """Return the same for the plan after the next one of a region; of this one what was not got to is kept."""
        if made is None:
            return Before()
        besides = self.differs | self._besides
        if nodes & ~besides and self._next < len(self._slots):
            return Before(made + self._slots[self._next :], changed, len(made), besides)
        return Before(made, changed)

    def note(self, slot: Slot | None, nodes: int) -> None:
        """Take note of what the job that was asked for last has got, and the nodes that it holds free or has got."""
        if (last := self._last) is None:
            self.differs |= nodes
        elif slot is None or (slot[1:4], slot.taken) != (last[1:4], last.taken):
            self.differs |= nodes | last.taken

    def _follows(self, js: JobState) -> bool:
        """Return whether a job had one of the next few reservations."""
        if self._places is None:
            self._places = {slot.js.id: place for place, slot in enumerate(self._slots)}
        return self._next < self._places.get(js.id, -1) <= self._next + _FEW


def following(now: int, slot: Slot, differs: int, profile: WholeNodes) -> Slot | None:
    """Return the reservation that a job would get now that had another one, and ``differs`` are the nodes on which
    something is held or reserved otherwise; None where all nodes have to be looked at, or it may start now."""
    js, start, end, _, nodes, stands, _ = slot
    differs &= js.eligible
    if stands < now or start <= now:
        return None
    if not differs:
        return slot
    moves = nodes & differs
    if moves and (js.nodes > 1 or stands < NEVER):  # others may be free at the same time
        return None
    length = end - start
    if js.nodes > 1:
        return slot if profile.among(js, now, length, differs, start)[1] < 0 else None
    found, node = profile.among(js, now, length, differs | nodes, start)
    if not now < found <= start:
        return None
    if (found, 1 << node) == (start, nodes):
        return slot
    return Slot(js, found, found + length, ((node, js.gpus),), 1 << node, profile.stands)
