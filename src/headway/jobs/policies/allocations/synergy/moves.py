"""Moves of running jobs that raise the total worth: one job at a time, and from time to time by programme 2.

A move costs the job's standstill. Its gain lasts as long as the job, but counts for at most ``horizon``, since other
jobs come and go. A move is made when the gain is ``margin`` times the cost.
"""

from collections.abc import Iterator
from math import ceil
from typing import NamedTuple

from headway.jobs.policies.allocations.shared.caching import cached
from headway.jobs.policies.allocations.synergy.node_models import NodeModel, NodeModels
from headway.jobs.policies.allocations.synergy.programs import Cell, JobGroup, rearrange
from headway.jobs.policies.placements.pick import on_node
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.pool import members
from headway.jobs.state.state import TrainingState
from headway.units import REFERENCE_SPEED_PPM, WHOLE_GPU_MILLI

MOST_MOVES = 8
"""Moves in one decision."""
MOST_SOURCES, MOST_TARGETS = 4, 12
"""Nodes that are tried: those whose jobs lack most, and those with most to spare."""
MOST_BRANCHES = 30
"""Branches of programme 2, which only has to find what single moves do not."""
Move = tuple[JobState, int]
_Kind = tuple[tuple[Cell, ...], int]
"""Cells, and whole GPUs."""


class Mover(NamedTuple):
    """A job that could move."""

    js: JobState
    cells: tuple[Cell, ...]
    span: int
    """For how long the move would help, in nanoseconds."""
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
        """Yield moves of one job that pay, the best first; each has to be made before the next is asked for."""
        for _ in range(MOST_MOVES):
            best: tuple[float, int, int] | None = None
            targets = self._targets(state)
            for source in self._sources(state) if targets else ():
                for node in targets:
                    if node != source and self._promising(state, source, node):
                        for mover in self._movers(now, state, source):
                            if (net := self._net(state, source, mover, node)) > 0:
                                rank = (net, -mover.js.id, -node)
                                best = rank if best is None else max(best, rank)
            if best is None:
                return
            yield state.running[-best[1]], -best[2]

    def _promising(self, state: TrainingState, source: int, node: int) -> bool:
        """Return whether a move from one node to another could pay if all jobs ran for the whole horizon.

        The answer is cached for as long as both nodes stay as they are.
        """
        key = (source, self._models.at(source).version, node, self._models.at(node).version)
        movers = (self._mover(0, state, js, self._horizon) for js in state.on_node[source].values())
        gains = (mover is not None and self._net(state, source, mover, node) > 0 for mover in movers)
        return cached(self._summary, key, lambda: any(gains))

    def _sources(self, state: TrainingState) -> list[int]:
        """Return the nodes whose jobs would gain from more resources, those that lack most first."""
        crowded = ((self._models.at(node), node) for node, here in enumerate(state.on_node) if len(here) > 1)
        lacking = [
            (node_model.worth - node_model.most, node) for node_model, node in crowded if not node_model.spanning
        ]
        return [node for lack, node in sorted(lacking)[:MOST_SOURCES] if lack < 0]

    def _targets(self, state: TrainingState) -> list[int]:
        """Return nodes with a free GPU, those with most to spare first; of nodes that are alike only the first."""
        by_kind: dict[object, tuple[float, int]] = {}
        alike = self._models.alike
        for free in range(1, len(state.pool.buckets)):
            for node in members(state.pool.buckets[free]):
                node_model = self._models.at(node)
                if not node_model.spanning:
                    by_kind.setdefault(
                        (node_model.kinds, node_model.room, free, alike[node]), (-self._spare(node_model, node), node)
                    )
        return [node for _, node in sorted(by_kind.values())[:MOST_TARGETS]]

    def _spare(self, node_model: NodeModel, node: int) -> float:
        return sum(left / has for left, has in zip(node_model.spare, self._models.capacity[node], strict=True) if has)

    def _movers(self, now: int, state: TrainingState, node: int) -> list[Mover]:
        """Return the job of each kind on a node that has longest to run."""
        by_cells: dict[tuple[Cell, ...], Mover] = {}
        for js in state.on_node[node].values():
            mover = self._mover(now, state, js)
            if mover is not None and (mover.cells not in by_cells or mover.span > by_cells[mover.cells].span):
                by_cells[mover.cells] = mover
        return list(by_cells.values())

    def _mover(self, now: int, state: TrainingState, js: JobState, span: int = 0) -> Mover | None:
        """Return a job as one that could move; None where it cannot.

        With ``span`` the move is assumed to help for that long, and the job need not be able to move right now.
        """
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
        """Return what a move gains over its span, less its cost; 0 where it cannot be made."""
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
        """Return the moves of programme 2 between the node that lacks most and the one with most to spare.

        They are in an order in which they can be made. Empty where they do not pay, or within ``every`` of the last
        time.
        """
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
        counts = rearrange(list(groups.values()), rooms, gpus, branches=MOST_BRANCHES)
        return [] if counts is None else self._plan(state, pair, movers, dict(zip(groups, counts, strict=True)))

    def _groups(
        self, now: int, state: TrainingState, pair: tuple[int, int]
    ) -> tuple[dict[_Kind, JobGroup], dict[_Kind, list[list[Mover]]]]:
        """Return the jobs of two nodes grouped by kind, and of each kind those that can move, cheapest first."""
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
        """Return a move's cost divided by the time that it helps."""
        return self._margin * mover.cost / mover.span

    def _plan(
        self,
        state: TrainingState,
        pair: tuple[int, int],
        movers: dict[_Kind, list[list[Mover]]],
        counts: dict[_Kind, tuple[int, ...]],
    ) -> list[Move]:
        """Return the moves to the numbers of jobs that programme 2 counts, if they pay and can be made one by one."""
        jobs = [list(state.on_node[node].values()) for node in pair]
        price, moves = 0.0, []
        for kind, numbers in counts.items():
            for side, other in ((0, 1), (1, 0)):
                here = sum(self._kind(js) == kind for js in state.on_node[pair[side]].values() if js.gpus)
                for mover in movers[kind][side][: max(0, here - numbers[side])]:
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
    """Return moves between two nodes in an order in which GPUs are free for each; empty if there is no such order."""
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
