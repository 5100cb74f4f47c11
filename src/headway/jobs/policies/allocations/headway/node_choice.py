"""Chooses the node or nodes for a job: those with which the total speed of all jobs is largest.

Ties are broken as in best fit: the fewest free GPUs, then the first node. A job that fits on one node spans several
only if all of this holds:

- The cluster gains more by it; where no node has room now, at least half of what the job itself delivers.
- No narrower job waits for these GPUs.
- It slows the job down by no more than ``slowdown``.
"""

from collections.abc import Iterator
from itertools import chain
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from headway.jobs.model.resources import Grant, Placement
from headway.jobs.policies.allocations.headway.knapsack import IMPOSSIBLE, Item
from headway.jobs.policies.allocations.headway.node_models import NodeModel, NodeModels, minus
from headway.jobs.policies.allocations.shared.demands import place_by_gpus
from headway.jobs.policies.allocations.shared.free_resources import part_of_grant
from headway.jobs.policies.parts import PlacementRule
from headway.jobs.policies.placements.pick import gpus_of, on_node
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.pool import members
from headway.units import WHOLE_GPU_MILLI

_LEAST_GAIN_DIVISOR = 2
"""A spread job must gain the cluster at least what it delivers itself, divided by this."""
Alike = tuple[int, tuple[int, int, int], int]
"""Code and spare resources of a node model, and the GPUs that are taken there: nodes that agree have one price."""
Prices = npt.NDArray[np.int64]
"""What the other jobs on a node lose, for each grant that a job may choose."""


class NodeChoice:
    """Chooses nodes by what the cluster gains."""

    def __init__(self, models: NodeModels, slowdown: float) -> None:
        self.models = models
        self.state = models.state
        self.slowdown = slowdown

    def best(self, js: JobState) -> Placement | None:
        """Return the best placement for a job of whole GPUs; None where it only fits if spanning jobs are lowered."""
        one = self._one_node(js)
        several = self._several(js) if js.gpus > 1 and js.nodes != 1 else None
        if several is not None and several[0] > (self._least(js, several[1]) if one is None else one[0]):
            return several[1]
        return None if one is None else one[1]

    def _least(self, js: JobState, placement: Placement) -> int:
        """Return the least gain for which a job is spread because no node has room for it: a part of what it delivers.
        For less, the other jobs should keep the CPUs."""
        if js.gpus > self.state.pool.largest_among(js.eligible):
            return 0
        return (
            self.models.choices(js, placement).speeds[0]
            * js.width
            * js.account.weight
            // WHOLE_GPU_MILLI
            // _LEAST_GAIN_DIVISOR
        )

    def for_cpus(self, js: JobState, rule: PlacementRule) -> Placement | None:
        """Return where a job without GPUs fits, or where the others lose least by making room for it."""
        asks = Grant(js.job.cpu_milli, js.job.memory_bytes)
        found = rule.place(self.state.pool, js)
        if found is not None and self.models.has_room_for(self.models.at(found[0][0]), asks, gpus=False):
            return found
        node_models = map(self.models.at, members(js.eligible & self.state.pool.schedulable))
        able = (node_model for node_model in node_models if self.models.has_room_for(node_model, asks, gpus=False))
        lost = (
            (
                node_model.gain - node_model.knapsack.gain(node_model.code, minus(node_model.spare, asks)),
                node_model.node,
            )
            for node_model in able
        )
        best = min(lost, default=None)
        return None if best is None else ((best[1], 0),)

    def by_rule(self, js: JobState, rule: PlacementRule) -> Placement | None:
        """Return where a placement rule puts a job by GPUs alone, on nodes where jobs without GPUs leave it enough."""
        models = self.models

        def suits(found: Placement, node: int, count: int) -> bool:
            return models.has_room_for(models.at(node), part_of_grant(models.fallback(js, found), count, js.gpus))

        return place_by_gpus(self.state, js, rule, suits)

    def _one_node(self, js: JobState) -> tuple[int, Placement] | None:
        pool, models, kinds = self.state.pool, self.models, self.models.kinds
        items: dict[int, Item] = {}
        best: tuple[int, int, int] | None = None
        for node in members(pool.with_free(js.gpus, js.eligible)):
            node_model = models.nodes[node]
            if node_model.mask != pool.free_mask[node]:
                node_model = models.at(node)
            item = items.get(kinds[node])
            if item is None or js.job.communication_ppm:
                item = items[kinds[node]] = models.item(js, on_node(pool, node, js.gpus))
            value = node_model.gain_by_item.get(item)
            if value is None:
                value = node_model.gain_with(item)
            key = (-value, pool.free_count[node], node)
            if value > 0 and (best is None or key < best) and models.has_room_for(node_model, item.fallback):
                best = key
        return None if best is None else (-best[0], on_node(pool, best[2], js.gpus))

    # --- several nodes ----------------------------------------------------------------------------------------

    def _several(self, js: JobState) -> tuple[int, Placement] | None:
        """Return (gain, placement) on several nodes of one kind, where the other jobs lose least; None if none fits."""
        pool, models = self.state.pool, self.models
        if pool.free_among(js.eligible) < js.gpus:
            return None
        fits_one = js.gpus <= pool.largest_among(js.eligible)
        if fits_one and self._narrower_waits(js):
            return None
        node_models = [models.at(node) for node in members(pool.with_free(1, js.eligible))]
        node_models = [
            node_model for node_model in node_models if not any(node_model.cpu_only) and node_model.gain >= 0
        ]
        alike: dict[int, list[NodeModel]] = {}
        for node_model in node_models:
            alike.setdefault(models.kinds[node_model.node], []).append(node_model)
        spreads = chain.from_iterable(self._spreads(js, same) for same in alike.values())
        quick = (found for found in spreads if not (fits_one and self._slow(js, found[1])))
        return max(quick, key=itemgetter(0), default=None)

    def _narrower_waits(self, js: JobState) -> bool:
        """Return whether the GPUs that a job leaves free may be too few for the narrower jobs that wait.

        All jobs of a lane count as wide as its first. Jobs of the same instant that are not decided yet count too.
        """
        lanes = self.state.queue.lanes.values()
        waiting = ((self.state.jobs[lane.head[1]].gpus, len(lane)) for lane in lanes)
        narrower = sum(gpus * count for gpus, count in waiting if gpus < js.gpus)
        return narrower > self.state.pool.free_gpus - js.gpus

    def _slow(self, js: JobState, placement: Placement) -> bool:
        """Return whether a job is slower there than on one such node by more than ``slowdown``."""
        node = placement[0][0]
        alone = self.state.speed.pace(js.job, ((node, (1 << js.gpus) - 1),))
        return self.models.pace(js, placement) < (1 - self.slowdown) * alone

    def _spreads(self, js: JobState, node_models: list[NodeModel]) -> Iterator[tuple[int, Placement]]:
        """Yield (gain, placement) with at most all GPUs of the job on one node, then half of them, a quarter, ...

        The fewer GPUs it has on a node, the more CPUs and memory the node can give to each.
        """
        free = [self.state.pool.free_count[node_model.node] for node_model in node_models]
        known: dict[Alike, Prices] = {}
        most = js.gpus
        while most:
            if most == 1 or most // 2 < max(free):  # else half of them is no other limit
                found = self._spread(js, node_models, [min(most, count) for count in free], known)
                if found is not None:
                    yield found
            most //= 2

    def _spread(
        self, js: JobState, node_models: list[NodeModel], free: list[int], known: dict[Alike, Prices]
    ) -> tuple[int, Placement] | None:
        """Return (gain, placement) of the best grant, each grant on the nodes where the others lose least for it."""
        pool = self.state.pool
        counts = np.array(free)
        if counts.sum() < js.gpus:
            return None
        choices = self.models.choices(js, tuple((node_model.node, 1) for node_model in node_models[:2]))
        prices = np.empty((len(node_models), len(choices.grants)), dtype=np.int64)
        for row, (node_model, count) in enumerate(zip(node_models, free, strict=True)):
            alike = (node_model.code, node_model.spare, count)  # empty nodes, above all
            if alike not in known:
                known[alike] = node_model.gain - node_model.knapsack.gains(
                    node_model.code, node_model.spare, choices.amounts * count
                )
            prices[row] = known[alike]
        taken = np.where(prices < -IMPOSSIBLE // 2, counts[:, None], 0)
        each = np.where(taken > 0, prices // np.maximum(taken, 1), -IMPOSSIBLE)
        order = np.lexsort((-taken, each), axis=0)
        have = np.take_along_axis(taken, order, axis=0).cumsum(axis=0)
        lost = np.take_along_axis(prices, order, axis=0).cumsum(axis=0)
        last = (have >= js.gpus).argmax(axis=0)
        values = choices.rates * (js.width * js.account.weight) // WHOLE_GPU_MILLI
        values -= np.take_along_axis(lost, last[None, :], axis=0)[0]
        values[have[-1] < js.gpus] = IMPOSSIBLE
        pick = int(values.argmax())
        if values[pick] <= 0:
            return None
        left, chosen = js.gpus, []
        for row in order[: last[pick] + 1, pick].tolist():
            count = min(left, int(taken[row, pick]))
            chosen.append((node_models[row].node, gpus_of(pool, node_models[row].node, count)))
            left -= count
        return int(values[pick]), tuple(chosen)
