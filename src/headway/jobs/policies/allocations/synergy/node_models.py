"""Models of the nodes for the programmes of ``opt``: the jobs on each, their kinds, the resources that they divide, and
the best division with all jobs where they are.

Jobs on one node get the best point of their node's Pareto front. For a job that spans nodes each cell is tried with the
best divisions of its nodes beside it. Where several such jobs are connected, they are tried in turn until none gains.
This is the optimum with one such job, and nearly always with more.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from headway.jobs.model.resources import Grant, Placement
from headway.jobs.policies.allocations.shared.free_resources import part_of_grant
from headway.jobs.policies.allocations.synergy.kinds import Kinds
from headway.jobs.policies.allocations.synergy.pareto_fronts import ParetoFronts
from headway.jobs.policies.allocations.synergy.programs import Cell, Resources, take
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.state import TrainingState

_MOST_ROUNDS = 4
_NOTHING: Mapping[int, Grant] = MappingProxyType({})


@dataclass(slots=True)
class NodeModel:
    """One node: the jobs on it alone that have a choice of cells, and the resources (``room``) that they divide."""

    version: tuple[int, int]
    kinds: tuple[int, ...] = ()
    """Numbers of their kinds, ascending."""
    jobs: tuple[JobState, ...] = ()
    """In the order of ``kinds``."""
    room: Resources = (0, 0, 0)
    settled: tuple[tuple[JobState, Cell], ...] = ()
    """Jobs on it alone that have no choice; what they get is not in ``room``."""
    spanning: tuple[JobState, ...] = ()
    """Jobs that span nodes, this one among them; what they get here is in ``room``."""
    gpus: int = 0
    """Whole GPUs in use."""
    has_cpu_jobs: bool = False
    """Whether there are jobs without GPUs; what they hold is not in ``room``."""
    worth: int = 0
    """The worth of all jobs on it alone, in the best division."""
    most: int = 0
    """The same if all had their full demands."""
    spare: Resources = (0, 0, 0)
    """What the best division leaves free."""
    gains: dict[int, int | None] = field(default_factory=dict)
    """What the worth grows with one more job, by the number of its kind: a cache."""


class NodeModels:
    """The models of all nodes of a cluster."""

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
        """A number for each node, the same for nodes on which a job has the same cells."""
        self.fronts = ParetoFronts((most[0], most[1], most[2]))
        self._models = [NodeModel((0, 0), room=room) for room in self.capacity]

    def at(self, node: int) -> NodeModel:
        """Return the model of a node as it is now."""
        here = self._state.on_node[node]
        node_model = self._models[node]
        version = (len(here), next(reversed(here.values())).lease if here else 0)
        if node_model.version != version:
            # A job that comes has the largest lease and is last, so these two change whenever the jobs do.
            node_model = self._models[node] = self.with_jobs(
                node, [(js, js.placement) for js in here.values()], version
            )
        return node_model

    def with_jobs(
        self, node: int, jobs: Iterable[tuple[JobState, Placement]], version: tuple[int, int] = (-1, 0)
    ) -> NodeModel:
        """Return a model of a node with these jobs on it."""
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
        choosers.sort(key=lambda chooser: chooser[:3])
        node_model = NodeModel(
            version,
            tuple([chooser[0] for chooser in choosers]),
            tuple([chooser[3] for chooser in choosers]),
            (room[0], room[1], room[2]),
            tuple(settled),
            tuple(spanning),
            masks.bit_count(),
            has_cpu_jobs,
        )
        fixed = sum(cell.worth for _, cell in settled)
        node_model.most = fixed + sum(self.fronts.kinds[kind][-1].worth for kind in node_model.kinds)
        if not spanning and (best_choice := self.fronts.best(node_model.kinds, node_model.room)) is not None:
            node_model.worth = fixed + best_choice[0]
            for kind, index in zip(node_model.kinds, best_choice[1], strict=True):
                take(room, self.fronts.kinds[kind][index].grant)
            node_model.spare = (room[0], room[1], room[2])
        return node_model

    def connected(self, nodes: Iterable[int]) -> list[int]:
        """Return these nodes and all nodes connected to them by jobs that span nodes."""
        reached: dict[int, None] = {}
        to_visit = list(nodes)
        while to_visit:
            node = to_visit.pop()
            if node not in reached:
                reached[node] = None
                to_visit += [other for js in self.at(node).spanning for other, _ in js.placement]
        return sorted(reached)

    # --- trying out -------------------------------------------------------------------------------------------

    def gain(self, node: int, kind: int) -> int | None:
        """Return what the worth of a node grows with one more job of a kind; None where it only fits if jobs that span
        nodes give something up."""
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
        """Return what the worth of a node falls without one of its jobs, which has these cells."""
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
        """Return a node's room less what jobs that span nodes hold there, or would hold with these grants."""
        room = node_model.room
        for js in node_model.spanning:
            if js.id in self._state.running:
                grant = grants.get(js.id, js.grant)
                room = _less({node: room}, [part for part in js.placement if part[0] == node], js.gpus, grant)[node]
        return room

    def held_worth(self, node_model: NodeModel) -> int | None:
        """Return the worth of the jobs on a node alone with their current grants; None where one is not among their
        cells."""
        choosers = zip(node_model.jobs, (self.fronts.kinds[kind] for kind in node_model.kinds), strict=True)
        jobs = [*choosers, *((js, (cell,)) for js, cell in node_model.settled)]
        worths = [cell.worth for js, cells in jobs for cell in cells if cell.grant == js.grant]
        return sum(worths) if len(worths) == len(jobs) else None

    # --- dividing ---------------------------------------------------------------------------------------------

    def best_division(self, nodes: Iterable[int]) -> tuple[int, dict[int, Grant]]:
        """Return (worth, grants) of the best division of these nodes, to which no other nodes are connected.

        A node that cannot give all jobs their proportional shares is left as it is.
        """
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
        """Return the grants of a job that comes and of the others on its nodes. Jobs that span nodes keep theirs, or
        are lowered to their first cells where that is not enough."""
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
        """Add the best grants of jobs that are on one node to ``wanted``; return what they are worth."""
        total = 0
        for node, node_model in models.items():
            best_choice = self.fronts.best(node_model.kinds, rooms[node])
            if best_choice is not None:
                total += best_choice[0] + sum(cell.worth for _, cell in node_model.settled)
                wanted.update((js.id, cell.grant) for js, cell in node_model.settled)
                self._hand_out(node_model, best_choice[1], wanted)
        return total

    def _hand_out(self, node_model: NodeModel, chosen: Sequence[int], wanted: dict[int, Grant]) -> None:
        """Assign the chosen cells to the jobs of their kinds. Jobs that hold one keep it; of the others the first to
        arrive get the best."""
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
        """Choose cells for jobs that span nodes, and take them out of ``rooms``; return what they are worth."""
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
                    best_choices = [self.fronts.best(models[node].kinds, room) for node, room in rest.items()]
                    worth = cell.worth + sum(choice[0] for choice in best_choices if choice is not None)
                    if None not in best_choices and (best is None or worth > best[0]):
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
    """Return the room of a placement's nodes less a job's grant there; with ``sign`` -1 plus the grant."""
    less = {}
    for node, mask in placement:
        room, taken = rooms[node], part_of_grant(grant, mask.bit_count(), gpus)
        less[node] = (room[0] - sign * taken[0], room[1] - sign * taken[1], room[2] - sign * taken[2])
    return less
