"""The nodes as the programmes see them: who is on each, what kinds of jobs these are, the room that they divide, and
its best division with everybody where they are.

Jobs on one node have the best that their node's front shows. A job over several nodes joins these: its cells are tried
one by one with the best that its nodes can then do, and where there are several such jobs, in turn until none gains.
The optimum with one of them, and nearly always with more.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headway.training.actions import Grant, Placement
from headway.training.jobstate import JobState
from headway.training.policies.allocations.fronts import Fronts
from headway.training.policies.allocations.kinds import Kinds
from headway.training.policies.allocations.programmes import Cell, Room
from headway.training.policies.allocations.room import part
from headway.training.pool import UNCOUNTED
from headway.training.state import TrainingState

_MOST_ROUNDS = 8
Found = tuple[int, tuple[int, ...]]
"""Worth, and a cell for each job of a shelf."""


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


class Shelves:
    """All nodes of a cluster."""

    def __init__(self, state: TrainingState, *, by_gpus: bool, between: bool) -> None:
        self.kinds = Kinds(state, by_gpus=by_gpus, between=between)
        self._state = state
        self.capacity: list[Room] = [
            (_counted(node.cpu_milli), _counted(node.memory_bytes), _counted(node.storage_bytes_per_second))
            for node in state.cluster.nodes
        ]
        most = [max(room[r] for room in self.capacity) for r in range(3)]
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

    def shelf(
        self, node: int, jobs: Iterable[tuple[JobState, Placement]], version: tuple[int, int] = (-1, 0)
    ) -> Shelf:
        """A node with these jobs on it."""
        room = list(self.capacity[node])
        choosers, settled, across, masks = [], [], [], 0
        hosts = False
        for js, placement in jobs:
            if not js.gpus:
                hosts = True
                _take(room, js.grant)
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
                _take(room, cells[0].grant)
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
                _take(room, self.fronts.kinds[kind][index].grant)
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

    def gain(self, shelf: Shelf, cells: tuple[Cell, ...]) -> int | None:
        """What all on a node are worth more with one more job; None where there is no room for it."""
        if len(cells) > 1:
            kinds = tuple(sorted((*shelf.kinds, self.fronts.number(cells))))
            return self._more(shelf, kinds, shelf.room, 0)
        room = list(shelf.room)
        _take(room, cells[0].grant)
        return self._more(shelf, shelf.kinds, (room[0], room[1], room[2]), cells[0].worth)

    def loss(self, shelf: Shelf, cells: tuple[Cell, ...]) -> int:
        """What all on a node are worth less without one of its jobs, which has these cells."""
        if len(cells) > 1:
            kinds = list(shelf.kinds)
            kinds.remove(self.fronts.number(cells))
            more = self._more(shelf, tuple(kinds), shelf.room, 0)
        else:
            room = [has + grant for has, grant in zip(shelf.room, cells[0].grant, strict=True)]
            more = self._more(shelf, shelf.kinds, (room[0], room[1], room[2]), -cells[0].worth)
        return 0 if more is None else -more

    def _more(self, shelf: Shelf, kinds: tuple[int, ...], room: Room, worth: int) -> int | None:
        before, after = self.fronts.best(shelf.kinds, shelf.room), self.fronts.best(kinds, room)
        return None if before is None or after is None else after[0] + worth - before[0]

    def held(self, shelf: Shelf) -> int | None:
        """What the jobs on a node alone are worth with what they hold; None where that is none of their cells."""
        total = 0
        jobs = [*zip(shelf.jobs, (self.fronts.kinds[kind] for kind in shelf.kinds), strict=True)]
        for js, cells in (*jobs, *((js, (cell,)) for js, cell in shelf.settled)):
            grant = js.grant
            worth = next((cell.worth for cell in cells if cell.grant == grant), None)
            if worth is None:
                return None
            total += worth
        return total

    # --- dividing ---------------------------------------------------------------------------------------------

    def divided(
        self, shelves: Mapping[int, Shelf], placements: Mapping[int, Placement]
    ) -> tuple[int, dict[int, Grant]]:
        """(worth, what each job gets) of the best division of these nodes; ``placements`` of jobs over several, which
        are on no other nodes. Nodes that cannot give everybody their due are left as they are."""
        wanted: dict[int, Grant] = {}
        across = {js.id: js for shelf in shelves.values() for js in shelf.across}
        rooms = {node: shelf.room for node, shelf in shelves.items()}
        total = 0
        if across:
            total, rooms = self._spread(shelves, across, placements, wanted)
        for node, shelf in shelves.items():
            found = self.fronts.best(shelf.kinds, rooms[node])
            if found is not None:
                total += found[0] + sum(cell.worth for _, cell in shelf.settled)
                wanted.update((js.id, cell.grant) for js, cell in shelf.settled)
                self._hand_out(shelf, found[1], wanted)
        return total, wanted

    def _hand_out(self, shelf: Shelf, chosen: Sequence[int], wanted: dict[int, Grant]) -> None:
        """The cells of a division to the jobs of their kinds: who holds one keeps it; among others the first comers
        have the best."""
        left: dict[int, list[int]] = {}
        for kind, cell in zip(shelf.kinds, chosen, strict=True):
            left.setdefault(kind, []).append(cell)
        without = []
        for kind, js in zip(shelf.kinds, shelf.jobs, strict=True):
            cells, held = self.fronts.kinds[kind], js.grant
            for index in left[kind]:
                if cells[index].grant == held:
                    left[kind].remove(index)
                    wanted[js.id] = held
                    break
            else:
                without.append((kind, js))
        for kind, js in without:
            cells = self.fronts.kinds[kind]
            best = max(left[kind], key=lambda index: cells[index].worth)
            left[kind].remove(best)
            wanted[js.id] = cells[best].grant

    def _spread(
        self,
        shelves: Mapping[int, Shelf],
        across: Mapping[int, JobState],
        placements: Mapping[int, Placement],
        wanted: dict[int, Grant],
    ) -> tuple[int, dict[int, Room]]:
        """Cells for jobs over several nodes; (what these are worth, the room left beside them)."""
        cells = {job: self.kinds.cells(js, placements[job]) for job, js in across.items()}
        chosen = dict.fromkeys(across, 0)
        rooms = {node: shelf.room for node, shelf in shelves.items()}
        for job, js in across.items():
            rooms |= _less(rooms, placements[job], js.gpus, cells[job][0].grant)
        for _ in range(_MOST_ROUNDS):
            before = dict(chosen)
            for job, js in across.items():
                free = _less(rooms, placements[job], js.gpus, cells[job][chosen[job]].grant, -1)
                tried = []
                for index, cell in enumerate(cells[job]):
                    rest = _less({**rooms, **free}, placements[job], js.gpus, cell.grant)
                    found = [self.fronts.best(shelves[node].kinds, room) for node, room in rest.items()]
                    if all(each is not None for each in found):
                        tried.append((cell.worth + sum(each[0] for each in found if each), -index, rest))
                if tried:
                    _, negative, rest = max(tried, key=lambda each: each[:2])
                    chosen[job] = -negative
                    rooms |= rest
            if chosen == before:
                break
        wanted.update({job: cells[job][index].grant for job, index in chosen.items()})
        return sum(cells[job][index].worth for job, index in chosen.items()), rooms


def _counted(amount: int | None) -> int:
    return UNCOUNTED if amount is None else amount


def _take(room: list[int], grant: Grant) -> None:
    for r in range(3):
        room[r] -= grant[r]


def _less(
    rooms: Mapping[int, Room], placement: Placement, gpus: int, grant: Grant, sign: int = 1
) -> dict[int, Room]:
    """The room of a placement's nodes without a job's grant there; with ``sign`` -1 with it."""
    less = {}
    for node, mask in placement:
        room, taken = rooms[node], part(grant, mask.bit_count(), gpus)
        less[node] = (room[0] - sign * taken[0], room[1] - sign * taken[1], room[2] - sign * taken[2])
    return less
