"""Which running jobs to move so that all gain: one at a time while that pays, and now and then by programme 2.

A move costs the job's standstill. What it gains lasts as long as the job, at most as long as one cares to look ahead:
others come and go. It is made when the gain is some times the cost.
"""

from collections.abc import Iterator
from math import ceil
from typing import NamedTuple

from headway.training.jobstate import JobState
from headway.training.policies.allocations.shared.caching import cached
from headway.training.policies.allocations.synergy.node_models import NodeModel, NodeModels
from headway.training.policies.allocations.synergy.programs import Cell, JobGroup, rearrange
from headway.training.policies.placements.pick import on_node
from headway.training.pool import members
from headway.training.state import TrainingState
from headway.units import REFERENCE_SPEED_PPM, WHOLE_GPU_MILLI

MOST_MOVES = 8
"""In one decision."""
MOST_SOURCES, MOST_TARGETS = 4, 12
"""Nodes that lack most and nodes with most to spare that are tried."""
MOST_BRANCHES = 30
"""Of programme 2, which is only to find what single moves do not."""
Move = tuple[JobState, int]
_Kind = tuple[tuple[Cell, ...], int]
"""Cells, and whole GPUs."""


class Mover(NamedTuple):
    """A job that could move."""

    js: JobState
    cells: tuple[Cell, ...]
    span: int
    """For how long moving it would help."""
    cost: int
    """In worth times nanoseconds."""


class Moves:
    """Moves on one cluster."""

    def __init__(self, models: NodeModels, margin: float, horizon: int, every: int) -> None:
        self._models = models
        self._margin = margin
        self._horizon = horizon
        self._every = every
        self._next = 0
        self._summary: dict[object, bool] = {}

    def single(self, now: int, state: TrainingState) -> Iterator[Move]:
        """Moves of one job that pay, the best first; each is to be made before the next is asked for."""
        for _ in range(MOST_MOVES):
            best: tuple[float, int, int] | None = None
            targets = self._targets(state)
            for source in self._sources(state) if targets else ():
                for node in targets:
                    if node != source and self._promising(state, source, node):
                        for mover in self._movers(now, state, source):
                            if (net := self._net(state, source, mover, node)) > 0:
                                mark = (net, -mover.js.id, -node)
                                best = mark if best is None else max(best, mark)
            if best is None:
                return
            yield state.running[-best[1]], -best[2]

    def _promising(self, state: TrainingState, source: int, node: int) -> bool:
        """Whether a move from one node to another could pay if all jobs went on for long; told once for as long as both
        stay as they are."""
        key = (source, self._models.at(source).version, node, self._models.at(node).version)
        movers = (self._mover(0, state, js, self._horizon) for js in state.on_node[source].values())
        gains = (mover is not None and self._net(state, source, mover, node) > 0 for mover in movers)
        return cached(self._summary, key, lambda: any(gains))

    def _sources(self, state: TrainingState) -> list[int]:
        """Nodes whose jobs could gain from more room, those that lack most first."""
        crowded = ((self._models.at(node), node) for node, here in enumerate(state.on_node) if len(here) > 1)
        lacking = [
            (node_model.worth - node_model.most, node) for node_model, node in crowded if not node_model.spanning
        ]
        return [node for lack, node in sorted(lacking)[:MOST_SOURCES] if lack < 0]

    def _targets(self, state: TrainingState) -> list[int]:
        """Nodes with a GPU free, those with most to spare first; of nodes that are alike the first."""
        found: dict[object, tuple[float, int]] = {}
        alike = self._models.alike
        for free in range(1, len(state.pool.buckets)):
            for node in members(state.pool.buckets[free]):
                node_model = self._models.at(node)
                if not node_model.spanning:
                    found.setdefault(
                        (node_model.kinds, node_model.room, free, alike[node]), (-self._spare(node_model, node), node)
                    )
        return [node for _, node in sorted(found.values())[:MOST_TARGETS]]

    def _spare(self, node_model: NodeModel, node: int) -> float:
        return sum(left / has for left, has in zip(node_model.spare, self._models.capacity[node], strict=True) if has)

    def _movers(self, now: int, state: TrainingState, node: int) -> list[Mover]:
        """Of each kind of job on a node, the one that has longest to go."""
        found: dict[tuple[Cell, ...], Mover] = {}
        for js in state.on_node[node].values():
            mover = self._mover(now, state, js)
            if mover is not None and (mover.cells not in found or mover.span > found[mover.cells].span):
                found[mover.cells] = mover
        return list(found.values())

    def _mover(self, now: int, state: TrainingState, js: JobState, span: int = 0) -> Mover | None:
        """A job as one that could move; None where it cannot. ``span``: whenever that is, and for so long."""
        if not js.gpus or js.gpu_milli != WHOLE_GPU_MILLI or js.nodes > 1 or not js.job.preemptible:
            return None
        if not span and js.base > now:
            return None
        if js.since == now and js.lease != js.turn:
            return None  # it was moved at this instant: no move is undone at once
        cells = self._models.kinds.cells(js, js.placement)
        left = span or js.remaining(now) * REFERENCE_SPEED_PPM // max(1, js.speed)
        return Mover(js, cells, max(1, min(left, self._horizon)), state.costs.of_migration(js.job) * cells[-1].worth)

    def _net(self, state: TrainingState, source: int, mover: Mover, node: int) -> float:
        """Return what a move is worth over its span, less its cost; nothing where it cannot be made."""
        js, models, pool = mover.js, self._models, state.pool
        if pool.free_count[node] < js.gpus or not js.eligible & pool.bits[node]:
            return 0
        kind = models.fronts.number(models.kinds.cells(js, on_node(pool, node, js.gpus)))
        gain = models.gain(node, kind)
        if gain is None:
            return 0
        more = gain - models.loss(source, mover.cells)
        return more * mover.span - self._margin * mover.cost if more > 0 else 0

    # --- programme 2 ------------------------------------------------------------------------------------------

    def exchange(self, now: int, state: TrainingState) -> list[Move]:
        """What programme 2 does with the node that lacks most and the one that has most to spare, in an order in which
        it can be done; nothing where it does not pay, or so soon after the last time."""
        if now < self._next:
            return []
        sources, targets, alike = self._sources(state), self._targets(state), self._models.alike
        pair = next(((a, b) for a in sources for b in targets if a != b and alike[a] == alike[b]), None)
        if pair is None:
            return []
        self._next = now + self._every
        groups, movers = self._groups(now, state, pair)
        rooms, gpus = [], []
        for node in pair:
            node_model = self._models.at(node)
            room = [has + sum(cell.grant[r] for _, cell in node_model.settled) for r, has in enumerate(node_model.room)]
            rooms.append((room[0], room[1], room[2]))
            whole = sum(js.gpus for js in state.on_node[node].values() if js.gpu_milli == WHOLE_GPU_MILLI)
            gpus.append(state.pool.free_count[node] + whole)
        found = rearrange(list(groups.values()), rooms, gpus, branches=MOST_BRANCHES)
        return [] if found is None else self._plan(state, pair, movers, dict(zip(groups, found, strict=True)))

    def _groups(
        self, now: int, state: TrainingState, pair: tuple[int, int]
    ) -> tuple[dict[_Kind, JobGroup], dict[_Kind, list[list[Mover]]]]:
        """The jobs of two nodes by their kinds, and those of each kind, node by node, that can move: cheapest first."""
        jobs: dict[_Kind, list[list[JobState]]] = {}
        for index, node in enumerate(pair):
            for js in state.on_node[node].values():
                if js.gpus:
                    jobs.setdefault(self._kind(js), [[], []])[index].append(js)
        both = state.pool.bits[pair[0]] | state.pool.bits[pair[1]]
        groups, movers = {}, {}
        for kind, sides in jobs.items():
            able = movers[kind] = [
                [mover for js in side if js.eligible & both == both and (mover := self._mover(now, state, js))]
                for side in sides
            ]
            for side in able:
                side.sort(key=lambda mover: (mover.cost / mover.span, mover.js.id))
            price = min((self._price(side[0]) for side in able if side), default=0)
            stay = (len(sides[0]) - len(able[0]), len(sides[1]) - len(able[1]))
            groups[kind] = JobGroup(*kind, (len(sides[0]), len(sides[1])), stay, ceil(price))
        return groups, movers

    def _price(self, mover: Mover) -> float:
        """A move's cost, spread over the time that it helps."""
        return self._margin * mover.cost / mover.span

    def _plan(
        self,
        state: TrainingState,
        pair: tuple[int, int],
        movers: dict[_Kind, list[list[Mover]]],
        found: dict[_Kind, tuple[int, ...]],
    ) -> list[Move]:
        """The moves from how it is to how it is best, if they pay and there are GPUs to make them one by one."""
        jobs = [list(state.on_node[node].values()) for node in pair]
        price, moves = 0.0, []
        for kind, counts in found.items():
            for side, other in ((0, 1), (1, 0)):
                here = sum(self._kind(js) == kind for js in state.on_node[pair[side]].values() if js.gpus)
                for mover in movers[kind][side][: max(0, here - counts[side])]:
                    jobs[side].remove(mover.js)
                    jobs[other].append(mover.js)
                    price += self._price(mover)
                    moves.append((mover.js, other))
        after = (
            self._models.with_jobs(node, [(js, ((node, js.placement[0][1]),)) for js in crowd])
            for node, crowd in zip(pair, jobs, strict=True)
        )
        worth = sum(node_model.worth for node_model in after) - sum(self._models.at(node).worth for node in pair)
        return _in_order(moves, pair, [state.pool.free_count[node] for node in pair]) if worth > price else []

    def _kind(self, js: JobState) -> _Kind:
        return self._models.kinds.cells(js, js.placement), js.gpus * (js.gpu_milli == WHOLE_GPU_MILLI)


def _in_order(moves: list[Move], pair: tuple[int, int], free: list[int]) -> list[Move]:
    """Moves to one or the other of two nodes so that GPUs are free for each when it is made; none if there is no such
    order."""
    ordered = []
    while moves:
        move = next(((js, to) for js, to in moves if free[to] >= js.gpus), None)
        if move is None:
            return []
        js, to = move
        free[to] -= js.gpus
        free[1 - to] += js.gpus
        moves.remove(move)
        ordered.append((js, pair[to]))
    return ordered
