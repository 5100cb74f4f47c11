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
from headway.training.policies.allocations.shared.free_resources import part_of_grant
from headway.training.policies.allocations.synergy.kinds import Kinds
from headway.training.policies.allocations.synergy.pareto_fronts import ParetoFronts
from headway.training.policies.allocations.synergy.programs import Cell, Resources, take
from headway.training.state import TrainingState

_MOST_ROUNDS = 4
_NOTHING: Mapping[int, Grant] = MappingProxyType({})


@dataclass(slots=True)
class NodeModel:
    """One node: the jobs on it alone that have a choice of cells, and the room that they divide."""

    version: tuple[int, int]
    kinds: tuple[int, ...] = ()
    """Numbers of their kinds, ascending."""
    jobs: tuple[JobState, ...] = ()
    """In the order of ``kinds``."""
    room: Resources = (0, 0, 0)
    settled: tuple[tuple[JobState, Cell], ...] = ()
    """Jobs on it alone that have no choice; what they get is not in ``room``."""
    spanning: tuple[JobState, ...] = ()
    """Jobs over several nodes, this one among them; what they get here is in ``room``."""
    gpus: int = 0
    """Whole GPUs in use."""
    has_cpu_jobs: bool = False
    """Whether there are jobs without GPUs; what they hold is not in ``room``."""
    worth: int = 0
    """Of all on it alone, in the best division."""
    most: int = 0
    """The same if there were room for everything."""
    spare: Resources = (0, 0, 0)
    """What that division leaves over."""
    gains: dict[int, int | None] = field(default_factory=dict)
    """What one more job would add, by the number of its kind, as far as it was asked."""


class NodeModels:
    """All nodes of a cluster."""

    def __init__(self, state: TrainingState, *, by_gpus: bool, between: bool) -> None:
        self._state = state
        self.capacity: list[Resources] = [node.host for node in state.cluster.nodes]
        self.kinds = Kinds(state, self.capacity, by_gpus=by_gpus, between=between)
        most = [max(room[r] for room in self.capacity) for r in range(3)]
        alike: dict[object, int] = {}
        self.alike = [
            alike.setdefault((room, proportional, node.gpus, node.gpu_type, node.island_gpus), len(alike))
            for room, proportional, node in zip(
                self.capacity, self.kinds.demands.shares.of_node, state.cluster.nodes, strict=True
            )
        ]
        """The same number for nodes on which a job is the same."""
        self.fronts = ParetoFronts((most[0], most[1], most[2]))
        self._models = [NodeModel((0, 0), room=room) for room in self.capacity]

    def at(self, node: int) -> NodeModel:
        """A node as it is now."""
        here = self._state.on_node[node]
        node_model = self._models[node]
        version = (len(here), next(reversed(here.values())).lease if here else 0)
        if node_model.version != version:
            # A job that comes has the largest lease and is last, so these two tell any two moments apart.
            node_model = self._models[node] = self.with_jobs(
                node, [(js, js.placement) for js in here.values()], version
            )
        return node_model

    def with_jobs(
        self, node: int, jobs: Iterable[tuple[JobState, Placement]], version: tuple[int, int] = (-1, 0)
    ) -> NodeModel:
        """A node with these jobs on it."""
        room = list(self.capacity[node])
        choosers, settled, spanning, masks = [], [], [], 0
        has_cpu_jobs = False
        for js, placement in jobs:
            if not js.gpus:
                has_cpu_jobs = True
                take(room, js.grant)
                continue
            masks |= next(mask for where, mask in placement if where == node)
            if len(placement) > 1:
                spanning.append(js)
                continue
            cells = self.kinds.cells(js, placement)
            if len(cells) > 1:
                choosers.append((self.fronts.number(cells), js.lease, js.id, js))
            else:
                settled.append((js, cells[0]))
                take(room, cells[0].grant)
        choosers.sort(key=lambda each: each[:3])
        node_model = NodeModel(
            version,
            tuple([each[0] for each in choosers]),
            tuple([each[3] for each in choosers]),
            (room[0], room[1], room[2]),
            tuple(settled),
            tuple(spanning),
            masks.bit_count(),
            has_cpu_jobs,
        )
        fixed = sum(cell.worth for _, cell in settled)
        node_model.most = fixed + sum(self.fronts.kinds[kind][-1].worth for kind in node_model.kinds)
        if not spanning and (found := self.fronts.best(node_model.kinds, node_model.room)) is not None:
            node_model.worth = fixed + found[0]
            for kind, index in zip(node_model.kinds, found[1], strict=True):
                take(room, self.fronts.kinds[kind][index].grant)
            node_model.spare = (room[0], room[1], room[2])
        return node_model

    def connected(self, nodes: Iterable[int]) -> list[int]:
        """These nodes, and those joined to them by jobs over several."""
        found: dict[int, None] = {}
        ahead = list(nodes)
        while ahead:
            node = ahead.pop()
            if node not in found:
                found[node] = None
                ahead += [other for js in self.at(node).spanning for other, _ in js.placement]
        return sorted(found)

    # --- trying out -------------------------------------------------------------------------------------------

    def gain(self, node: int, kind: int) -> int | None:
        """What all on a node are worth more with one more job of a kind; None where there is no room for it unless jobs
        over several nodes give some up."""
        node_model = self.at(node)
        if node_model.spanning:
            return self._gain(node_model, self.capacity_left(node, node_model), kind)
        if kind not in node_model.gains:
            node_model.gains[kind] = self._gain(node_model, node_model.room, kind)
        return node_model.gains[kind]

    def _gain(self, node_model: NodeModel, room: Resources, kind: int) -> int | None:
        cells = self.fronts.kinds[kind]
        if len(cells) > 1:
            kinds = tuple(sorted((*node_model.kinds, kind)))
            return self._more(node_model, room, kinds, room, 0)
        rest = list(room)
        take(rest, cells[0].grant)
        return self._more(node_model, room, node_model.kinds, (rest[0], rest[1], rest[2]), cells[0].worth)

    def loss(self, node: int, cells: tuple[Cell, ...]) -> int:
        """Return what all on a node are worth less without one of its jobs, which has these cells."""
        node_model = self.at(node)
        if len(cells) > 1:
            kinds = list(node_model.kinds)
            kinds.remove(self.fronts.number(cells))
            more = self._more(node_model, node_model.room, tuple(kinds), node_model.room, 0)
        else:
            rest = [has + grant for has, grant in zip(node_model.room, cells[0].grant, strict=True)]
            more = self._more(
                node_model, node_model.room, node_model.kinds, (rest[0], rest[1], rest[2]), -cells[0].worth
            )
        return 0 if more is None else -more

    def _more(
        self, node_model: NodeModel, room: Resources, kinds: tuple[int, ...], then: Resources, worth: int
    ) -> int | None:
        before, after = self.fronts.best(node_model.kinds, room), self.fronts.best(kinds, then)
        return None if before is None or after is None else after[0] + worth - before[0]

    def capacity_left(self, node: int, node_model: NodeModel, grants: Mapping[int, Grant] = _NOTHING) -> Resources:
        """A node's room beside what jobs over several nodes hold there, or would with these grants."""
        room = node_model.room
        for js in node_model.spanning:
            if js.id in self._state.running:
                grant = grants.get(js.id, js.grant)
                room = _less({node: room}, [each for each in js.placement if each[0] == node], js.gpus, grant)[node]
        return room

    def held_worth(self, node_model: NodeModel) -> int | None:
        """What the jobs on a node alone are worth with what they hold; None where that is none of their cells."""
        choosers = zip(node_model.jobs, (self.fronts.kinds[kind] for kind in node_model.kinds), strict=True)
        jobs = [*choosers, *((js, (cell,)) for js, cell in node_model.settled)]
        worths = [cell.worth for js, cells in jobs for cell in cells if cell.grant == js.grant]
        return sum(worths) if len(worths) == len(jobs) else None

    # --- dividing ---------------------------------------------------------------------------------------------

    def best_division(self, nodes: Iterable[int]) -> tuple[int, dict[int, Grant]]:
        """(worth, what each job gets) of the best division of these nodes, and of no others joined to them. A node that
        cannot give everybody their due is left as it is."""
        models = {node: self.at(node) for node in nodes}
        spanning = {js.id: (js, js.placement) for node_model in models.values() for js in node_model.spanning}
        wanted: dict[int, Grant] = {}
        total, rooms = 0, {node: node_model.room for node, node_model in models.items()}
        if spanning:
            total = self._spread(models, rooms, spanning, wanted)
            if any(min(room) < 0 for room in rooms.values()):
                return 0, {}
        return total + self._fill(models, rooms, wanted), wanted

    def division_with(self, js: JobState, placement: Placement) -> dict[int, Grant]:
        """What a job that comes here gets, and the others of its nodes then; jobs that are on more nodes than these
        keep what they hold, or go down to their due where that is not enough."""
        models: dict[int, NodeModel] = {}
        others: dict[int, Grant] = {}
        for node, _ in placement:
            here = [(other, other.placement) for other in self._state.on_node[node].values() if other is not js]
            node_model = models[node] = self.with_jobs(node, [*here, (js, placement)])
            node_model.spanning = tuple(other for other in node_model.spanning if other is not js)
            others.update(
                (other.id, self.kinds.cells(other, other.placement)[0].grant) for other in node_model.spanning
            )
        for held in (_NOTHING, others):
            wanted: dict[int, Grant] = {}
            rooms = {node: self.capacity_left(node, node_model, held) for node, node_model in models.items()}
            if len(placement) > 1:
                self._spread(models, rooms, {js.id: (js, placement)}, wanted)
            self._fill(models, rooms, wanted)
            everybody = all(job.id in wanted for node_model in models.values() for job in (js, *node_model.jobs))
            if everybody and all(min(room) >= 0 for room in rooms.values()):
                return {**wanted, **held}
        return {js.id: self.kinds.fallback(js, placement)}

    def _fill(self, models: Mapping[int, NodeModel], rooms: Mapping[int, Resources], wanted: dict[int, Grant]) -> int:
        """The best for those who are on one node each; what that is worth."""
        total = 0
        for node, node_model in models.items():
            found = self.fronts.best(node_model.kinds, rooms[node])
            if found is not None:
                total += found[0] + sum(cell.worth for _, cell in node_model.settled)
                wanted.update((js.id, cell.grant) for js, cell in node_model.settled)
                self._hand_out(node_model, found[1], wanted)
        return total

    def _hand_out(self, node_model: NodeModel, chosen: Sequence[int], wanted: dict[int, Grant]) -> None:
        """The cells of a division to the jobs of their kinds: who holds one keeps it; among others the first comers
        have the best."""
        left: dict[int, list[int]] = {}
        for kind, cell in zip(node_model.kinds, chosen, strict=True):
            left.setdefault(kind, []).append(cell)
        without = []
        for kind, js in zip(node_model.kinds, node_model.jobs, strict=True):
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
        models: Mapping[int, NodeModel],
        rooms: dict[int, Resources],
        spanning: Mapping[int, tuple[JobState, Placement]],
        wanted: dict[int, Grant],
    ) -> int:
        """Cells for jobs over several nodes, taken out of ``rooms``; what these are worth."""
        chosen: dict[int, Cell] = {}
        for job, (js, placement) in spanning.items():
            chosen[job] = self.kinds.cells(js, placement)[0]
            rooms.update(_less(rooms, placement, js.gpus, chosen[job].grant))
        for _ in range(_MOST_ROUNDS):
            before = dict(chosen)
            for job, (js, placement) in spanning.items():
                free = _less(rooms, placement, js.gpus, chosen[job].grant, -1)
                best = None
                for cell in self.kinds.cells(js, placement):
                    rest = _less(free, placement, js.gpus, cell.grant)
                    found = [self.fronts.best(models[node].kinds, room) for node, room in rest.items()]
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
    rooms: Mapping[int, Resources], placement: Iterable[tuple[int, int]], gpus: int, grant: Grant, sign: int = 1
) -> dict[int, Resources]:
    """The room of a placement's nodes without a job's grant there; with ``sign`` -1 with it."""
    less = {}
    for node, mask in placement:
        room, taken = rooms[node], part_of_grant(grant, mask.bit_count(), gpus)
        less[node] = (room[0] - sign * taken[0], room[1] - sign * taken[1], room[2] - sign * taken[2])
    return less
