"""Opt: the division with the largest throughput, every round (Synergy-OPT; Mohan et al., OSDI 2022, section 4.2).

A job's worth is its throughput relative to its reference. No job is slower than with its proportional share. Programme
1 finds the largest total worth if the cluster were one machine: this is the bound. With all jobs where they are, each
node is then divided by the same programme, exactly (``pareto_fronts.py``). The rest of the bound can only be reached by
moving jobs. Moves of one job that pay are made every round. Programme 2 then looks at the two nodes that have most to
gain from each other (``moves.py``).

Departures: the paper solves both programmes from scratch, moves jobs at no cost and calls it too slow to use. Here a
job is never split and moves only when it pays. The cells are those of the matrix and, between them, whole numbers of
CPUs. A proportional share is that of a job's own nodes. Storage bandwidth, where it is counted, is a third resource.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from headway.jobs.model.actions import Action, MigrateJob, ReallocateJob
from headway.jobs.model.resources import Grant, Placement
from headway.jobs.policies.allocations.shared.demands import place_with_proportional, reallocations, reductions
from headway.jobs.policies.allocations.shared.tightest import place_tightest
from headway.jobs.policies.allocations.synergy.moves import Moves
from headway.jobs.policies.allocations.synergy.node_models import NodeModel, NodeModels
from headway.jobs.policies.allocations.synergy.programs import Resources, choose, within
from headway.jobs.policies.parts import Allocation, PlacementRule
from headway.jobs.policies.placements.best_fit import BestFit
from headway.jobs.policies.placements.pick import on_node
from headway.jobs.policies.ranges import from_zero, shares
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.pool import Demand, members
from headway.jobs.state.state import TrainingState
from headway.jobs.state.tentative_demand import TentativeDemand
from headway.units import HOUR, MINUTE, WHOLE_GPU_MILLI, Duration

_HORIZON, _EVERY = Duration(30 * MINUTE), Duration(3 * HOUR)


class Division(NamedTuple):
    """How good a division was, in parts per million of a job at its reference speed, summed over jobs."""

    time: int
    achieved_ppm: int
    bound_ppm: int
    """An upper bound, with any job on any node."""
    wished_ppm: int
    """What it would be if all jobs had their full demands; the cluster is contended where the others are less."""


class Opt(Allocation):
    """The allocation with the largest throughput."""

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
        """One entry for each decision that divided something, in order."""

    def bind(self, state: TrainingState) -> None:
        """Begin to divide the nodes of a state."""
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
        """Return what each division reached, and the bound of programme 1."""
        return [(division.achieved_ppm, division.bound_ppm) for division in self.divisions]

    # --- starting ---------------------------------------------------------------------------------------------

    def place(self, state: TrainingState, js: Demand, rule: PlacementRule) -> Placement | None:
        """Return the node where the total worth grows most; ties by fewest free GPUs, then least CPUs and memory.

        Several nodes only if the full demand is more than any node has, and is free there. Under another placement than
        best fit, where that rule puts the job.
        """
        job, demands = state.jobs[js.id], self.models.kinds.demands
        if not job.gpus:
            return rule.place(state.pool, js)
        if type(rule) is not BestFit or job.gpu_milli != WHOLE_GPU_MILLI or job.nodes > 1:
            return place_with_proportional(state, demands, job, rule)
        best = self._best_node(state, job)
        full = demands.demand(job.job, demands.shares.kinds[0][0])
        if job.gpus > 1 and not within(full, self.models.fronts.most):
            wide = place_tightest(state.pool, TentativeDemand(job, full), rule)
            if wide is not None and (best is None or self.models.kinds.cells(job, wide)[-1].worth > best[1]):
                return wide
        return place_with_proportional(state, demands, job, rule) if best is None else best[0]

    def _best_node(self, state: TrainingState, js: JobState) -> tuple[Placement, int] | None:
        """Return the best node for a job and what the total worth grows there.

        None where no node fits, where a node has jobs without GPUs, or in a draft where jobs are tried out.
        """
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
                    rank = (gain, -free, -pool.cpu_free[node], -pool.memory_free[node], -node)
                    best = rank if best is None else max(best, rank)
            if best is not None and best[0] == most:
                break
        return None if best is None else (on_node(pool, -best[-1], js.gpus), best[0])

    def enter(
        self, now: int, state: TrainingState, js: JobState, placement: Placement
    ) -> tuple[list[ReallocateJob], Grant]:
        """Return what other jobs give up, and the job's grant in the best division of its nodes."""
        if not js.gpus:
            return [], self.models.kinds.demands.proportional(js, placement)
        wanted = self.models.division_with(js, placement)
        grant = wanted.pop(js.id)
        return reductions(state, wanted), grant

    # --- those that run ---------------------------------------------------------------------------------------

    def divide(self, now: int, state: TrainingState) -> Iterator[Action]:
        """Yield moves that pay, then the best division of the nodes where jobs came or left."""
        if state.tenures == self._divided:
            return
        if self.moves and state.pool.free_gpus:
            for js, node in self._moves.single(now, state):
                yield from self._move(now, state, js, node)
            for js, node in self._moves.exchange(now, state):
                yield from self._move(now, state, js, node)
        self._divided = state.tenures
        yield from reallocations(state, self._target_grants(state))
        self.divisions.append(self._summary(now, state))

    def evaluated(self, now: int, state: TrainingState) -> Division:
        """Return how good the best division would be with all jobs where they are, for a state of any allocation."""
        self._target_grants(state)
        return self._summary(now, state)

    def _move(self, now: int, state: TrainingState, js: JobState, node: int) -> Iterator[Action]:
        placement = on_node(state.pool, node, js.gpus)
        given, grant = self.enter(now, state, js, placement)
        yield from given
        yield MigrateJob(js.id, placement, grant)

    def _target_grants(self, state: TrainingState) -> dict[int, Grant]:
        """Return the target grants of the jobs on nodes that changed."""
        models = self.models
        targets: dict[int, Grant] = {}
        for node, seen in enumerate(self._seen):
            if models.at(node) is seen:
                continue
            connected = models.connected([node])
            worth, grants = models.best_division(connected)
            if (held := self._better_held(state, node, worth, grants)) is not None:
                worth, grants = held, {}
            targets |= grants
            for other in connected:
                self._record(other, models.at(other), worth if other == node else 0)
        return targets

    def _better_held(self, state: TrainingState, node: int, worth: int, grants: dict[int, Grant]) -> int | None:
        """Return the worth of a node as it is if dividing it anew does not pay; else None.

        It does not pay when nothing is gained, or less than the jobs lose that stand still for it.
        """
        node_model = self.models.at(node)
        held = None if node_model.spanning else self.models.held_worth(node_model)
        if held is None:
            return None
        stopped = sum(state.running[job].grant != grant for job, grant in grants.items())
        lost = self.margin * state.costs.reallocation * worth * stopped / max(1, len(grants))
        return held if (worth - held) * self.horizon <= lost else None

    # --- how good it is ---------------------------------------------------------------------------------------

    def _record(self, node: int, node_model: NodeModel, achieved: int) -> None:
        """Update the inputs of programme 1: the number of jobs of each kind, and the capacity for them."""
        before, self._seen[node] = self._seen[node], node_model
        self._groups.subtract(before.kinds)
        self._groups.update(node_model.kinds)
        for r in range(3):
            self._capacity[r] += node_model.room[r] - before.room[r]
        self._wished += node_model.most - before.most
        self._achieved += achieved - self._worth[node]
        self._worth[node] = achieved

    def _summary(self, now: int, state: TrainingState) -> Division:
        """Return how good the current division is, with the bound of programme 1."""
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
        """Return an upper bound of the total worth; programme 1 is solved only where not all full demands fit."""
        kinds = self.models.fronts.kinds
        some = [(kinds[kind], groups[kind]) for kind in sorted(groups)]
        asked = [sum(count * cells[-1].grant[r] for cells, count in some) for r in range(3)]
        if within((asked[0], asked[1], asked[2]), room):
            return wished
        choice = choose(some, room, gap=self.gap, branches=self.branches)
        settled = wished - sum(count * cells[-1].worth for cells, count in some)
        return wished if choice is None else min(wished, choice.bound + settled)
