"""The nodes as the programmes see them: who is on each, what kinds of jobs these are, the room that they divide, and
its best division with everybody where they are.

Jobs on one node have the best that their node's front shows. A job over several nodes joins these: its cells are tried
one by one with the best that its nodes can then do, and where there are several such jobs, in turn until none gains.
The optimum with one of them, and nearly always with more.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from headway.training.actions import Grant, Placement
from headway.training.jobstate import JobState
from headway.training.policies.allocations.shared.room import part
from headway.training.policies.allocations.synergy.fronts import Fronts
from headway.training.policies.allocations.synergy.kinds import Kinds
from headway.training.policies.allocations.synergy.programs import Cell, Room, take
from headway.training.state import TrainingState

_MOST_ROUNDS = 4
_NOTHING: Mapping[int, Grant] = MappingProxyType({})


@dataclass(slots=True)
class Shelf:
    """One node: the jobs on it alone that have a choice of cells, and the room that they divide."""

    version: tuple[int, int]
    kinds: tuple[int, ...] = ()
    """Numbers of their kinds, ascending."""
    jobs: tuple[JobState, ...] = ()
    """In the order of ``kinds``."""
    room: Room = (0, 0, 0)
    settled: tuple[tuple[JobState, Cell], ...] = ()
    """Jobs on it alone that have no choice; what they get is not in ``room``."""
    across: tuple[JobState, ...] = ()
    """Jobs over several nodes, this one among them; what they get here is in ``room``."""
    gpus: int = 0
    """Whole GPUs in use."""
    hosts: bool = False
    """Whether there are jobs without GPUs; what they hold is not in ``room``."""
    worth: int = 0
    """Of all on it alone, in the best division."""
    most: int = 0
    """The same if there were room for everything."""
    spare: Room = (0, 0, 0)
    """What that division leaves over."""
    gains: dict[int, int | None] = field(default_factory=dict)
    """What one more job would add, by the number of its kind, as far as it was asked."""


class Shelves:
    """All nodes of a cluster."""

    def __init__(self, state: TrainingState, *, by_gpus: bool, between: bool) -> None:
        self._state = state
        self.capacity: list[Room] = [node.host for node in state.cluster.nodes]
        self.kinds = Kinds(state, self.capacity, by_gpus=by_gpus, between=between)
        most = [max(room[r] for room in self.capacity) for r in range(3)]
        alike: dict[object, int] = {}
        self.alike = [
            alike.setdefault((room, due, node.gpus, node.gpu_type, node.island_gpus), len(alike))
            for room, due, node in zip(self.capacity, self.kinds.wants.dues.of_node, state.cluster.nodes, strict=True)
        ]
        """The same number for nodes on which a job is the same."""
        self.fronts = Fronts((most[0], most[1], most[2]))
        self._shelves = [Shelf((0, 0), room=room) for room in self.capacity]

    def at(self, node: int) -> Shelf:
        """A node as it is now."""
        here = self._state.on_node[node]
        shelf = self._shelves[node]
        version = (len(here), next(reversed(here.values())).lease if here else 0)
        if shelf.version != version:
            # A job that comes has the largest lease and is last, so these two tell any two moments apart.
            shelf = self._shelves[node] = self.shelf(node, [(js, js.placement) for js in here.values()], version)
        return shelf

    def shelf(self, node: int, jobs: Iterable[tuple[JobState, Placement]], version: tuple[int, int] = (-1, 0)) -> Shelf:
        """A node with these jobs on it."""
        room = list(self.capacity[node])
        choosers, settled, across, masks = [], [], [], 0
        hosts = False
        for js, placement in jobs:
            if not js.gpus:
                hosts = True
                take(room, js.grant)
                continue
            masks |= next(mask for where, mask in placement if where == node)
            if len(placement) > 1:
                across.append(js)
                continue
            cells = self.kinds.cells(js, placement)
            if len(cells) > 1:
                choosers.append((self.fronts.number(cells), js.lease, js.id, js))
            else:
                settled.append((js, cells[0]))
                take(room, cells[0].grant)
        choosers.sort(key=lambda each: each[:3])
        shelf = Shelf(
            version,
            tuple([each[0] for each in choosers]),
            tuple([each[3] for each in choosers]),
            (room[0], room[1], room[2]),
            tuple(settled),
            tuple(across),
            masks.bit_count(),
            hosts,
        )
        fixed = sum(cell.worth for _, cell in settled)
        shelf.most = fixed + sum(self.fronts.kinds[kind][-1].worth for kind in shelf.kinds)
        if not across and (found := self.fronts.best(shelf.kinds, shelf.room)) is not None:
            shelf.worth = fixed + found[0]
            for kind, index in zip(shelf.kinds, found[1], strict=True):
                take(room, self.fronts.kinds[kind][index].grant)
            shelf.spare = (room[0], room[1], room[2])
        return shelf

    def together(self, nodes: Iterable[int]) -> list[int]:
        """These nodes, and those joined to them by jobs over several."""
        found: dict[int, None] = {}
        ahead = list(nodes)
        while ahead:
            node = ahead.pop()
            if node not in found:
                found[node] = None
                ahead += [other for js in self.at(node).across for other, _ in js.placement]
        return sorted(found)

    # --- trying out -------------------------------------------------------------------------------------------

    def gain(self, node: int, kind: int) -> int | None:
        """What all on a node are worth more with one more job of a kind; None where there is no room for it unless jobs
        over several nodes give some up."""
        shelf = self.at(node)
        if shelf.across:
            return self._gain(shelf, self.beside(node, shelf), kind)
        if kind not in shelf.gains:
            shelf.gains[kind] = self._gain(shelf, shelf.room, kind)
        return shelf.gains[kind]

    def _gain(self, shelf: Shelf, room: Room, kind: int) -> int | None:
        cells = self.fronts.kinds[kind]
        if len(cells) > 1:
            kinds = tuple(sorted((*shelf.kinds, kind)))
            return self._more(shelf, room, kinds, room, 0)
        rest = list(room)
        take(rest, cells[0].grant)
        return self._more(shelf, room, shelf.kinds, (rest[0], rest[1], rest[2]), cells[0].worth)

    def loss(self, node: int, cells: tuple[Cell, ...]) -> int:
        """Return what all on a node are worth less without one of its jobs, which has these cells."""
        shelf = self.at(node)
        if len(cells) > 1:
            kinds = list(shelf.kinds)
            kinds.remove(self.fronts.number(cells))
            more = self._more(shelf, shelf.room, tuple(kinds), shelf.room, 0)
        else:
            rest = [has + grant for has, grant in zip(shelf.room, cells[0].grant, strict=True)]
            more = self._more(shelf, shelf.room, shelf.kinds, (rest[0], rest[1], rest[2]), -cells[0].worth)
        return 0 if more is None else -more

    def _more(self, shelf: Shelf, room: Room, kinds: tuple[int, ...], then: Room, worth: int) -> int | None:
        before, after = self.fronts.best(shelf.kinds, room), self.fronts.best(kinds, then)
        return None if before is None or after is None else after[0] + worth - before[0]

    def beside(self, node: int, shelf: Shelf, grants: Mapping[int, Grant] = _NOTHING) -> Room:
        """A node's room beside what jobs over several nodes hold there, or would with these grants."""
        room = shelf.room
        for js in shelf.across:
            if js.id in self._state.running:
                grant = grants.get(js.id, js.grant)
                room = _less({node: room}, [each for each in js.placement if each[0] == node], js.gpus, grant)[node]
        return room

    def held(self, shelf: Shelf) -> int | None:
        """What the jobs on a node alone are worth with what they hold; None where that is none of their cells."""
        choosers = zip(shelf.jobs, (self.fronts.kinds[kind] for kind in shelf.kinds), strict=True)
        jobs = [*choosers, *((js, (cell,)) for js, cell in shelf.settled)]
        worths = [cell.worth for js, cells in jobs for cell in cells if cell.grant == js.grant]
        return sum(worths) if len(worths) == len(jobs) else None

    # --- dividing ---------------------------------------------------------------------------------------------

    def divided(self, nodes: Iterable[int]) -> tuple[int, dict[int, Grant]]:
        """(worth, what each job gets) of the best division of these nodes, and of no others joined to them. A node that
        cannot give everybody their due is left as it is."""
        shelves = {node: self.at(node) for node in nodes}
        across = {js.id: (js, js.placement) for shelf in shelves.values() for js in shelf.across}
        wanted: dict[int, Grant] = {}
        total, rooms = 0, {node: shelf.room for node, shelf in shelves.items()}
        if across:
            total = self._spread(shelves, rooms, across, wanted)
            if any(min(room) < 0 for room in rooms.values()):
                return 0, {}
        return total + self._fill(shelves, rooms, wanted), wanted

    def entered(self, js: JobState, placement: Placement) -> dict[int, Grant]:
        """What a job that comes here gets, and the others of its nodes then; jobs that are on more nodes than these
        keep what they hold, or go down to their due where that is not enough."""
        shelves: dict[int, Shelf] = {}
        others: dict[int, Grant] = {}
        for node, _ in placement:
            here = [(other, other.placement) for other in self._state.on_node[node].values() if other is not js]
            shelf = shelves[node] = self.shelf(node, [*here, (js, placement)])
            shelf.across = tuple(other for other in shelf.across if other is not js)
            others.update((other.id, self.kinds.cells(other, other.placement)[0].grant) for other in shelf.across)
        for held in (_NOTHING, others):
            wanted: dict[int, Grant] = {}
            rooms = {node: self.beside(node, shelf, held) for node, shelf in shelves.items()}
            if len(placement) > 1:
                self._spread(shelves, rooms, {js.id: (js, placement)}, wanted)
            self._fill(shelves, rooms, wanted)
            everybody = all(job.id in wanted for shelf in shelves.values() for job in (js, *shelf.jobs))
            if everybody and all(min(room) >= 0 for room in rooms.values()):
                return {**wanted, **held}
        return {js.id: self.kinds.least(js, placement)}

    def _fill(self, shelves: Mapping[int, Shelf], rooms: Mapping[int, Room], wanted: dict[int, Grant]) -> int:
        """The best for those who are on one node each; what that is worth."""
        total = 0
        for node, shelf in shelves.items():
            found = self.fronts.best(shelf.kinds, rooms[node])
            if found is not None:
                total += found[0] + sum(cell.worth for _, cell in shelf.settled)
                wanted.update((js.id, cell.grant) for js, cell in shelf.settled)
                self._hand_out(shelf, found[1], wanted)
        return total

    def _hand_out(self, shelf: Shelf, chosen: Sequence[int], wanted: dict[int, Grant]) -> None:
        """The cells of a division to the jobs of their kinds: who holds one keeps it; among others the first comers
        have the best."""
        left: dict[int, list[int]] = {}
        for kind, cell in zip(shelf.kinds, chosen, strict=True):
            left.setdefault(kind, []).append(cell)
        without = []
        for kind, js in zip(shelf.kinds, shelf.jobs, strict=True):
            cells = self.fronts.kinds[kind]
            held = next((index for index in left[kind] if cells[index].grant == js.grant), None)
            if held is None:
                without.append((kind, js))
            else:
                left[kind].remove(held)
                wanted[js.id] = js.grant
        for kind, js in without:
            cells = self.fronts.kinds[kind]
            best = max(left[kind], key=lambda index: cells[index].worth)
            left[kind].remove(best)
            wanted[js.id] = cells[best].grant

    def _spread(
        self,
        shelves: Mapping[int, Shelf],
        rooms: dict[int, Room],
        across: Mapping[int, tuple[JobState, Placement]],
        wanted: dict[int, Grant],
    ) -> int:
        """Cells for jobs over several nodes, taken out of ``rooms``; what these are worth."""
        chosen: dict[int, Cell] = {}
        for job, (js, placement) in across.items():
            chosen[job] = self.kinds.cells(js, placement)[0]
            rooms.update(_less(rooms, placement, js.gpus, chosen[job].grant))
        for _ in range(_MOST_ROUNDS):
            before = dict(chosen)
            for job, (js, placement) in across.items():
                free = _less(rooms, placement, js.gpus, chosen[job].grant, -1)
                best = None
                for cell in self.kinds.cells(js, placement):
                    rest = _less(free, placement, js.gpus, cell.grant)
                    found = [self.fronts.best(shelves[node].kinds, room) for node, room in rest.items()]
                    worth = cell.worth + sum(each[0] for each in found if each is not None)
                    if None not in found and (best is None or worth > best[0]):
                        best = (worth, cell, rest)
                if best is not None:
                    _, chosen[job], rest = best
                    rooms.update(rest)
            if chosen == before:
                break
        wanted.update((job, cell.grant) for job, cell in chosen.items())
        return sum(cell.worth for cell in chosen.values())


def _less(
    rooms: Mapping[int, Room], placement: Iterable[tuple[int, int]], gpus: int, grant: Grant, sign: int = 1
) -> dict[int, Room]:
    """The room of a placement's nodes without a job's grant there; with ``sign`` -1 with it."""
    less = {}
    for node, mask in placement:
        room, taken = rooms[node], part(grant, mask.bit_count(), gpus)
        less[node] = (room[0] - sign * taken[0], room[1] - sign * taken[1], room[2] - sign * taken[2])
    return less
