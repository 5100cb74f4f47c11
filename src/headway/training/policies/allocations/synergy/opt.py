"""Opt: the division with the largest throughput, every round (Synergy-OPT; Mohan et al., OSDI 2022, section 4.2).

A job's worth is its throughput against its reference, and no job gets less than its due gives it. Programme 1 finds
what all jobs could be worth if the cluster were one machine; that is the bound. With everybody where they are, each
node is then divided by the same programme for itself, exactly (``fronts.py``). What is missing to the bound can only be
had by moving: moves of one job that pay are made every round, and programme 2 looks at the two nodes that have most to
gain from each other where these are not enough (``moves.py``).

Departures: the paper solves both programmes from scratch, moves jobs for nothing and calls it too slow to use. Here a
job is never split and moves only when it pays; the cells are those of the matrix and, between them, whole numbers of
CPUs; a due is a job's own nodes'; storage bandwidth, where it is counted, is a third resource.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from headway.training.actions import Action, Grant, MigrateJob, Placement, ReallocateJob
from headway.training.jobstate import JobState
from headway.training.policies.allocations.shared.demands import place_with_proportional, reallocations, reductions
from headway.training.policies.allocations.shared.tightest import place_tightest
from headway.training.policies.allocations.synergy.moves import Moves
from headway.training.policies.allocations.synergy.node_models import NodeModel, NodeModels
from headway.training.policies.allocations.synergy.programs import Resources, choose, within
from headway.training.policies.parts import Allocation, PlacementRule
from headway.training.policies.placements.best_fit import BestFit
from headway.training.policies.placements.pick import on_node
from headway.training.policies.ranges import from_zero, shares
from headway.training.pool import Demand, members
from headway.training.state import TrainingState
from headway.training.tentative_demand import TentativeDemand
from headway.units import HOUR, MINUTE, WHOLE_GPU_MILLI, Duration

_HORIZON, _EVERY = Duration(30 * MINUTE), Duration(3 * HOUR)


class Division(NamedTuple):
    """How good a division was, in parts per million of a job at its reference speed, summed over jobs."""

    time: int
    achieved_ppm: int
    bound_ppm: int
    """What it could be at most, with any job anywhere."""
    wished_ppm: int
    """What it would be if there were enough for everybody; contended where the others are less."""


class Opt(Allocation):
    """The largest throughput."""

    name = "opt"

    def __init__(
        self,
        by_gpus: bool = False,
        between: bool = True,
        gap: float = 0.01,
        branches: int = 10,
        moves: bool = True,
        margin: float = 2.0,
        horizon: Duration = _HORIZON,
        every: Duration = _EVERY,
    ) -> None:
        from_zero(self.name, branches=branches, margin=margin, horizon=horizon, every=every)
        shares(self.name, gap=gap)
        self.by_gpus = by_gpus
        self.between = between
        self.gap = gap
        self.branches = branches
        self.moves = moves
        self.margin = margin
        self.horizon = horizon
        self.every = every
        self.divisions: list[Division] = []
        """What came of each decision that divided something, in order."""

    def bind(self, state: TrainingState) -> None:
        """Take note whose nodes are divided."""
        self.models = NodeModels(state, by_gpus=self.by_gpus, between=self.between)
        self._moves = Moves(self.models, self.margin, self.horizon, self.every)
        self._divided = -1
        capacity = self.models.capacity
        self._seen = [NodeModel((-1, 0), room=room) for room in capacity]
        """The nodes as they were last divided."""
        self._worth = [0] * len(capacity)
        self._groups: Counter[int] = Counter()
        self._capacity = [sum(room[r] for room in capacity) for r in range(3)]
        self._wished = self._achieved = 0
        self.divisions = []

    @property
    def bounds(self) -> Sequence[tuple[int, int]]:  # type: ignore[override]
        """Return what every division reached, and programme 1's bound."""
        return [(each.achieved_ppm, each.bound_ppm) for each in self.divisions]

    # --- starting ---------------------------------------------------------------------------------------------

    def place(self, state: TrainingState, js: Demand, rule: PlacementRule) -> Placement | None:
        """On one node, that where all gain most by it; of such nodes that with the fewest GPUs free, then the least
        CPUs and memory. On several only if what it could use is more than any node has, and is free there. Under any
        placement but best fit, where the rule has it."""
        job, demands = state.jobs[js.id], self.models.kinds.demands
        if not job.gpus:
            return rule.place(state.pool, js)
        if type(rule) is not BestFit or job.gpu_milli != WHOLE_GPU_MILLI or job.nodes > 1:
            return place_with_proportional(state, demands, job, rule)
        found = self._best_node(state, job)
        full = demands.demand(job.job, demands.shares.kinds[0][0])
        if job.gpus > 1 and not within(full, self.models.fronts.most):
            wide = place_tightest(state.pool, TentativeDemand(job, full), rule)
            if wide is not None and (found is None or self.models.kinds.cells(job, wide)[-1].worth > found[1]):
                return wide
        return place_with_proportional(state, demands, job, rule) if found is None else found[0]

    def _best_node(self, state: TrainingState, js: JobState) -> tuple[Placement, int] | None:
        """A node and what all gain there; None where there is none, or nodes have to be looked at by what is free on
        them, while jobs are tried out that do not run, or where some have no GPUs."""
        pool, models = state.pool, self.models
        best: tuple[int, int, int, int, int] | None = None
        known: dict[int, int] = {}
        most = 0
        for free in range(js.gpus, len(pool.buckets)):
            for node in members(pool.buckets[free] & js.eligible):
                node_model = models.at(node)
                if node_model.has_cpu_jobs or node_model.gpus + free != pool.capacity[node]:
                    return None
                kind = known.get(models.alike[node], -1)
                if kind < 0:
                    cells = models.kinds.cells(js, on_node(pool, node, js.gpus))
                    kind = known[models.alike[node]] = models.fronts.number(cells)
                    most = max(most, cells[-1].worth)
                gain = (node_model.gains[kind] if kind in node_model.gains else models.gain(node, kind)) or 0
                if best is None or gain >= best[0]:
                    mark = (gain, -free, -pool.cpu_free[node], -pool.memory_free[node], -node)
                    best = mark if best is None else max(best, mark)
            if best is not None and best[0] == most:
                break
        return None if best is None else (on_node(pool, -best[-1], js.gpus), best[0])

    def enter(
        self, now: int, state: TrainingState, js: JobState, placement: Placement
    ) -> tuple[list[ReallocateJob], Grant]:
        """Return what it has in the best division of its nodes with it; who has less in that gives it up."""
        if not js.gpus:
            return [], self.models.kinds.demands.proportional(js, placement)
        wanted = self.models.division_with(js, placement)
        grant = wanted.pop(js.id)
        return reductions(state, wanted), grant

    # --- those that run ---------------------------------------------------------------------------------------

    def divide(self, now: int, state: TrainingState) -> Iterator[Action]:
        """Moves that pay, then the best division of all nodes where somebody came or went."""
        if state.tenures == self._divided:
            return
        if self.moves and state.pool.free_gpus:
            for js, node in self._moves.single(now, state):
                yield from self._move(now, state, js, node)
            for js, node in self._moves.exchange(now, state):
                yield from self._move(now, state, js, node)
        self._divided = state.tenures
        yield from reallocations(state, self._wanted(state))
        self.divisions.append(self._summary(now, state))

    def evaluated(self, now: int, state: TrainingState) -> Division:
        """Return what the best division would be worth with everybody where they are, whoever divides this state."""
        self._wanted(state)
        return self._summary(now, state)

    def _move(self, now: int, state: TrainingState, js: JobState, node: int) -> Iterator[Action]:
        placement = on_node(state.pool, node, js.gpus)
        given, grant = self.enter(now, state, js, placement)
        yield from given
        yield MigrateJob(js.id, placement, grant)

    def _wanted(self, state: TrainingState) -> dict[int, Grant]:
        """Return what jobs hold from now on, as far as their nodes changed."""
        models = self.models
        wanted: dict[int, Grant] = {}
        for node, seen in enumerate(self._seen):
            if models.at(node) is seen:
                continue
            connected_nodes = models.connected([node])
            worth, grants = models.best_division(connected_nodes)
            if (held := self._better_held(state, node, worth, grants)) is not None:
                worth, grants = held, {}
            wanted |= grants
            for each in connected_nodes:
                self._record(each, models.at(each), worth if each == node else 0)
        return wanted

    def _better_held(self, state: TrainingState, node: int, worth: int, grants: dict[int, Grant]) -> int | None:
        """What a node is worth as it is, if it stays so: when there is nothing to gain, or less than it costs those who
        are stopped for it."""
        node_model = self.models.at(node)
        held = None if node_model.spanning else self.models.held_worth(node_model)
        if held is None:
            return None
        stopped = sum(state.running[job].grant != grant for job, grant in grants.items())
        lost = self.margin * state.costs.reallocation * worth * stopped / max(1, len(grants))
        return held if (worth - held) * self.horizon <= lost else None

    # --- how good it is ---------------------------------------------------------------------------------------

    def _record(self, node: int, node_model: NodeModel, achieved: int) -> None:
        """Keep what programme 1 is about up to date: how many jobs there are of each kind, and how much for them."""
        before, self._seen[node] = self._seen[node], node_model
        self._groups.subtract(before.kinds)
        self._groups.update(node_model.kinds)
        for r in range(3):
            self._capacity[r] += node_model.room[r] - before.room[r]
        self._wished += node_model.most - before.most
        self._achieved += achieved - self._worth[node]
        self._worth[node] = achieved

    def _summary(self, now: int, state: TrainingState) -> Division:
        """Return what the division is worth, and what programme 1 says of that."""
        models = self.models
        crossing = {js.id: js for node_model in self._seen for js in node_model.spanning}
        groups = +self._groups
        wished = self._wished
        for js in crossing.values():
            cells = models.kinds.cells(js, js.placement)
            groups[models.fronts.number(cells)] += 1
            wished += cells[-1].worth
        room = list(self._capacity)
        for node in members(state.pool.everywhere & ~state.pool.schedulable):
            if not state.on_node[node]:
                for r in range(3):
                    room[r] -= self._seen[node].room[r]
        return Division(now, self._achieved, self._bound(groups, (room[0], room[1], room[2]), wished), wished)

    def _bound(self, groups: Mapping[int, int], room: Resources, wished: int) -> int:
        """At most this in all; programme 1 is asked only where not everybody can have everything."""
        kinds = self.models.fronts.kinds
        some = [(kinds[kind], groups[kind]) for kind in sorted(groups)]
        asked = [sum(count * cells[-1].grant[r] for cells, count in some) for r in range(3)]
        if within((asked[0], asked[1], asked[2]), room):
            return wished
        choice = choose(some, room, gap=self.gap, branches=self.branches)
        settled = wished - sum(count * cells[-1].worth for cells, count in some)
        return wished if choice is None else min(wished, choice.bound + settled)
