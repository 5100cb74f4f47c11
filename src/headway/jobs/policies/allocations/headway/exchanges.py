"""Moves and swaps of running jobs: one job moves to free GPUs, or two of one width swap, where the cluster gains.

For each node and each two kinds of jobs, the tables of ``knapsack.py`` give the gain if a job of the first kind left
and one of the second came. Free GPUs count as a kind too. The best exchange in the cluster is then the largest sum of
two such gains. What it gains until the first of the two jobs is estimated to end has to exceed the work lost while both
stand still, ``margin`` times over.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import numpy as np

from headway.jobs.model.actions import Action, MigrateJob, PreemptJob, ReallocateJob, StartJob
from headway.jobs.model.resources import Grant, Placement
from headway.jobs.policies.allocations.headway.knapsack import IMPOSSIBLE
from headway.jobs.policies.allocations.headway.node_models import (
    NodeModel,
    NodeModels,
    grants_of_picks,
    minus,
    plus,
)
from headway.jobs.policies.allocations.shared.demands import reductions
from headway.jobs.policies.placements.pick import gpus_of
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.pool import members
from headway.jobs.state.state import TrainingState
from headway.units import REFERENCE_SPEED_PPM, WHOLE_GPU_MILLI

_NEVER = IMPOSSIBLE * 4
_TRIES = 12
"""Exchanges that are tried for each that is made."""
_LEAST_GAIN = 20_000
"""Parts per million of a GPU: exchanges that gain less are not considered."""

Kind: TypeAlias = tuple[tuple[Grant, int, int], ...]
"""What distinguishes jobs in knapsacks: minimum, code and base value of their item, for each kind of nodes."""


class ExchangeGains:
    """The gain of each node if one job of a given width left and another came."""

    def __init__(self, models: NodeModels, width: int) -> None:
        self.nodes = [node for node, has in enumerate(models.state.cluster.nodes) if has.gpus]
        self.rows = {node: row for row, node in enumerate(self.nodes)}
        self.width = width
        self._models = models
        self._node_of_kind = {models.kinds[node]: node for node in reversed(self.nodes)}
        """A node of each kind."""
        self._alike: dict[tuple[object, ...], int] = {}
        nobody: Kind = ((Grant(0, 0, 0), 0, 0),) * (1 + max(models.kinds))
        self._kinds = {nobody: 0}
        """Index by kind; the first stands for free GPUs."""
        self._kinds_in_order: list[Kind] = [nobody]
        self.gains = np.full((len(self.nodes), 1, 1), _NEVER, dtype=np.int64)
        self.stale = set(self.nodes)
        """Nodes whose gains have to be computed again."""
        self.quiet = False
        """Whether there was no exchange with a gain, and nothing has changed since."""
        self._least = _LEAST_GAIN * width // WHOLE_GPU_MILLI

    def kind(self, js: JobState) -> int:
        """Return the index of a job's kind; a new kind is added."""
        job = js.job
        key = (job.model, job.cpu_milli, job.memory_bytes, job.communication_ppm, js.account.weight)
        found = self._alike.get(key)
        if found is None:
            mask = (1 << js.gpus) - 1
            items = {kind: self._models.item(js, ((node, mask),)) for kind, node in self._node_of_kind.items()}
            other = self._kinds_in_order[0]
            kind = tuple(
                (items[at].minimum, items[at].code, items[at].base) if at in items else other[at]
                for at in range(len(other))
            )
            found = self._alike[key] = self._kinds.get(kind, len(self._kinds_in_order))
            if found == len(self._kinds_in_order):
                self._grow(kind)
        return found

    def _grow(self, kind: Kind) -> None:
        size = self._kinds[kind] = len(self._kinds_in_order)
        self._kinds_in_order.append(kind)
        grown = np.full((len(self.nodes), size + 1, size + 1), _NEVER, dtype=np.int64)
        grown[:, :-1, :-1] = self.gains
        self.gains = grown
        self.stale.update(self.nodes)

    def update(self, node_model: NodeModel, places: bool, here: Iterable[JobState]) -> None:
        """Compute the gains of a node anew; ``places``: whether it has free GPUs, ``here``: jobs that could leave."""
        leaving = {self.kind(js) for js in here}
        if places:
            leaving.add(0)
        row = self.gains[self.rows[node_model.node]]
        if self.quiet and not leaving and row.max() == _NEVER:
            return
        self.quiet = False
        row[:] = _NEVER
        now, gain, at = node_model.gain, node_model.knapsack.gain, self._models.kinds[node_model.node]
        if now < 0:  # not even the minimum fits in whole units
            return
        for i in leaving:
            minimum, code, base = self._kinds_in_order[i][at]
            spare, rest = plus(node_model.spare, minimum), node_model.code - code
            for j, kind in enumerate(self._kinds_in_order):
                takes, adds, brings = kind[at]
                if i != j and (then := gain(rest + adds, minus(spare, takes))) >= 0:
                    row[i, j] = then - now + brings - base

    def best(self) -> tuple[int, int, int, int, int] | None:
        """Return the best exchange: (gain, a node, the kind that leaves it, another node, the kind that leaves that).

        None if no exchange gains anything.
        """
        if self.quiet or len(self.nodes) < 2 or len(self._kinds_in_order) < 2:
            return None
        gains, (row, column) = self.gains, np.indices(self.gains.shape[1:], sparse=True)
        first = gains.argmax(axis=0)
        best = gains[first, row, column]
        sums = best + best.T
        clash = first == first.T
        if sums[clash].max(initial=_NEVER) >= self._least:  # one node cannot swap with itself: the next best then
            others = gains.copy()
            others[first, row, column] = _NEVER
            second = others.argmax(axis=0)
            sums = np.where(clash, best + others[second, row, column].T, sums)
            found = np.where(clash, second, first)
        else:
            sums = np.where(clash, _NEVER, sums)
            found = first
        i, j = divmod(int(sums.argmax()), len(self._kinds_in_order))
        if sums[i, j] < self._least:
            self.quiet = True
            return None
        return int(sums[i, j]), self.nodes[int(first[i, j])], i, self.nodes[int(found[j, i])], j

    def forbid(self, node: int, leaves: int, comes: int) -> None:
        """Exclude an exchange until the gains of the node are computed again."""
        self.gains[self.rows[node], leaves, comes] = _NEVER


class Exchanges:
    """Moves and swaps, a few at a time."""

    def __init__(self, models: NodeModels, moves: int, margin: float, rest: int) -> None:
        self.models = models
        self.moves = moves
        self.margin = margin
        self.rest = rest
        self._gains_by_width: dict[int, ExchangeGains] = {}
        """By the width of jobs."""
        self._schedulable = models.state.pool.schedulable
        self._resting: dict[int, int] = {}
        """Nodes with a gain that could not be had yet, and the times at which they are tried again."""

    def _mark_stale(self, now: int) -> None:
        """Mark the gains of nodes as stale where jobs came, left or changed grants, or where a rest is over."""
        touched = self.models.touched
        for node in touched:
            for js, _ in self.models.nodes[node].jobs:
                if js.width not in self._gains_by_width and js.gpu_milli == WHOLE_GPU_MILLI:
                    self._gains_by_width[js.width] = ExchangeGains(self.models, js.width)
        touched.update(node for node, time in self._resting.items() if time <= now)
        schedulable = self.models.state.pool.schedulable
        touched.update(members(schedulable ^ self._schedulable))
        self._schedulable = schedulable
        for gains in self._gains_by_width.values():
            gains.stale.update(node for node in touched if node in gains.rows)
        for node in touched:
            self._resting.pop(node, None)
        touched.clear()

    def decide(self, now: int, state: TrainingState) -> Iterator[Action]:
        """Yield the actions of exchanges that pay, best first. The nodes have to be divided anew afterwards."""
        left = self.moves
        self._mark_stale(now)
        for _, gains in sorted(self._gains_by_width.items()):
            for _ in range(_TRIES):
                if not left:
                    return
                self._update_stale(state, gains)
                if (found := gains.best()) is None:
                    break
                if (actions := self._actions_of_exchange(now, state, gains, *found)) is None:
                    gains.forbid(found[1], found[2], found[4])
                    self._resting[found[1]] = now + self.rest
                    continue
                yield from actions
                left -= 1
                self.models.refresh()
                self._mark_stale(now)

    def _update_stale(self, state: TrainingState, gains: ExchangeGains) -> None:
        gpus = gains.width // WHOLE_GPU_MILLI
        while gains.stale:
            node = min(gains.stale)
            gains.stale.discard(node)
            node_model = self.models.nodes[node]
            usable = bool(state.pool.schedulable >> node & 1) and not any(node_model.cpu_only)
            here = [js for js, _ in node_model.jobs if js.width == gains.width and usable and js.job.preemptible]
            gains.update(node_model, usable and state.pool.free_count[node] >= gpus, here)

    def _actions_of_exchange(
        self, now: int, state: TrainingState, gains: ExchangeGains, gain: int, a: int, i: int, b: int, j: int
    ) -> list[Action] | None:
        one = self._mover(now, state, gains, a, i, b) if i else None
        other = self._mover(now, state, gains, b, j, a) if j else None
        if (i and one is None) or (j and other is None):
            return None
        movers = [js for js in (one, other) if js is not None]
        if not self._pays(now, state, gain, movers):
            return None
        if one is None:
            one, other, a, b = other, None, b, a
        assert one is not None
        if other is None:
            there: Placement = ((b, gpus_of(state.pool, b, one.gpus)),)
            coming = self._coming(state, b, one, there, None)
            return None if coming is None else [*coming[0], MigrateJob(one.id, there, coming[1])]
        if state.quotas:
            return None
        there, here = other.placement, one.placement
        coming = self._coming(state, b, one, there, other)
        going = self._coming(state, a, other, here, one)
        if coming is None or going is None:
            return None
        changed: list[Action] = [
            PreemptJob(other.id),
            MigrateJob(one.id, there, coming[1]),
            StartJob(other.id, here, going[1]),
        ]
        return [*coming[0], *going[0], *changed]

    def _coming(
        self, state: TrainingState, node: int, js: JobState, placement: Placement, going: JobState | None
    ) -> tuple[list[ReallocateJob], Grant] | None:
        """Return what others on a node give up when a job comes in place of another, and the grant of that job.

        None where it does not fit, because it is slower on that placement than its kind is.
        """
        node_model = self.models.nodes[node]
        jobs = [(other, item) for other, item in node_model.jobs if other is not going]
        jobs.append((js, self.models.item(js, placement)))
        code, spare = node_model.code, node_model.spare
        for other, item in node_model.jobs:
            if other is going:
                code, spare = code - item.code, plus(spare, item.minimum)
        code, spare = code + jobs[-1][1].code, minus(spare, jobs[-1][1].minimum)
        picks = node_model.knapsack.picks(code, spare)
        if picks is None:
            return None
        wanted = grants_of_picks(jobs, picks) | self.models.spanning_targets(node_model)
        grant = wanted.pop(js.id)
        return reductions(state, wanted), grant

    def _mover(
        self, now: int, state: TrainingState, gains: ExchangeGains, node: int, kind: int, to: int
    ) -> JobState | None:
        """Return the job of a kind on a node that has longest to run and may move to another node; None if none may."""
        able = (
            js
            for js, _ in self.models.nodes[node].jobs
            if js.width == gains.width
            and gains.kind(js) == kind
            and js.job.preemptible
            and js.eligible >> to & 1
            and now - js.since >= self.rest
            and js.base <= now
        )
        return max(able, key=lambda js: js.remaining(now), default=None)

    def _pays(self, now: int, state: TrainingState, gain: int, movers: list[JobState]) -> bool:
        ends = min(js.remaining(now) * REFERENCE_SPEED_PPM // js.speed for js in movers)
        costs = state.costs
        lost = sum(
            js.speed * js.width // WHOLE_GPU_MILLI * max(costs.of_migration(js.job), costs.of_preemption(js.job))
            for js in movers
        )
        return gain * ends > self.margin * lost
