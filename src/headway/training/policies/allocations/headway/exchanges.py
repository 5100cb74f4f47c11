"""Jobs that change places: one moves to free GPUs, or two of a width swap, where the cluster gains more than it costs.

For each node and each two kinds of jobs it is known what the node would deliver more if one of the first kind left and
one of the second came (``water.py`` has it in tables), a free place being a kind too. The best exchange in the cluster
is then the largest sum of two such numbers. What is gained, for as long as the one that ends first is believed to run,
has to exceed the work lost while both stand still, several times over.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import numpy as np

from headway.training.actions import Action, Grant, MigrateJob, Placement, PreemptJob, ReallocateJob, StartJob
from headway.training.jobstate import JobState
from headway.training.policies.allocations.headway.knapsack import IMPOSSIBLE
from headway.training.policies.allocations.headway.node_models import (
    NodeModel,
    NodeModels,
    grants_of_picks,
    minus,
    plus,
)
from headway.training.policies.allocations.shared.demands import reductions
from headway.training.policies.placements.pick import gpus_of
from headway.training.pool import members
from headway.training.state import TrainingState
from headway.units import REFERENCE_SPEED_PPM, WHOLE_GPU_MILLI

_NEVER = IMPOSSIBLE * 4
_TRIES = 12
"""Exchanges looked at for each that is made."""
_LEAST_GAIN = 20_000
"""Parts per million of a GPU: less is not worth the trouble of looking."""

Kind: TypeAlias = tuple[tuple[Grant, int, int], ...]
"""What tells jobs apart as far as nodes are concerned: corner, mark and base, on each kind of nodes."""


class ExchangeGains:
    """All nodes, for jobs of one width: what each would deliver more if one left and another came."""

    def __init__(self, models: NodeModels, width: int) -> None:
        self.nodes = [node for node, has in enumerate(models.state.cluster.nodes) if has.gpus]
        self.rows = {node: row for row, node in enumerate(self.nodes)}
        self.width = width
        self._models = models
        self._there = {models.kinds[node]: node for node in reversed(self.nodes)}
        """A node of each kind."""
        self._alike: dict[tuple[object, ...], int] = {}
        nobody: Kind = ((Grant(0, 0, 0), 0, 0),) * (1 + max(models.kinds))
        self._kinds = {nobody: 0}
        """The first is a free place."""
        self._listed: list[Kind] = [nobody]
        self.changes = np.full((len(self.nodes), 1, 1), _NEVER, dtype=np.int64)
        self.stale = set(self.nodes)
        """Nodes to look at again."""
        self.quiet = False
        """Whether nothing was to be gained, and nothing has changed since."""
        self._least = _LEAST_GAIN * width // WHOLE_GPU_MILLI

    def kind(self, js: JobState) -> int:
        """The position of a job's kind, met before or not."""
        job = js.job
        key = (job.model, job.cpu_milli, job.memory_bytes, job.communication_ppm, js.account.weight)
        found = self._alike.get(key)
        if found is None:
            mask = (1 << js.gpus) - 1
            items = {kind: self._models.item(js, ((node, mask),)) for kind, node in self._there.items()}
            other = self._listed[0]
            kind = tuple(
                (items[at].minimum, items[at].code, items[at].base) if at in items else other[at]
                for at in range(len(other))
            )
            found = self._alike[key] = self._kinds.get(kind, len(self._listed))
            if found == len(self._listed):
                self._grow(kind)
        return found

    def _grow(self, kind: Kind) -> None:
        size = self._kinds[kind] = len(self._listed)
        self._listed.append(kind)
        grown = np.full((len(self.nodes), size + 1, size + 1), _NEVER, dtype=np.int64)
        grown[:, :-1, :-1] = self.changes
        self.changes = grown
        self.stale.update(self.nodes)

    def update(self, node_model: NodeModel, places: bool, here: Iterable[JobState]) -> None:
        """What a node would deliver more, for all who could leave and come."""
        leaving = {self.kind(js) for js in here}
        if places:
            leaving.add(0)
        row = self.changes[self.rows[node_model.node]]
        if self.quiet and not leaving and row.max() == _NEVER:
            return
        self.quiet = False
        row[:] = _NEVER
        now, gain, at = node_model.gain, node_model.knapsack.gain, self._models.kinds[node_model.node]
        if now < 0:  # not even the least fits in whole units
            return
        for i in leaving:
            minimum, code, base = self._listed[i][at]
            spare, rest = plus(node_model.spare, minimum), node_model.code - code
            for j, kind in enumerate(self._listed):
                takes, adds, brings = kind[at]
                if i != j and (then := gain(rest + adds, minus(spare, takes))) >= 0:
                    row[i, j] = then - now + brings - base

    def best(self) -> tuple[int, int, int, int, int] | None:
        """(gain, a node, the kind that leaves it, another node, the kind that leaves that); None: nothing to gain."""
        if self.quiet or len(self.nodes) < 2 or len(self._listed) < 2:
            return None
        changes, (row, column) = self.changes, np.indices(self.changes.shape[1:], sparse=True)
        first = changes.argmax(axis=0)
        best = changes[first, row, column]
        sums = best + best.T
        clash = first == first.T
        if sums[clash].max(initial=_NEVER) >= self._least:  # one node cannot swap with itself: the next best then
            others = changes.copy()
            others[first, row, column] = _NEVER
            second = others.argmax(axis=0)
            sums = np.where(clash, best + others[second, row, column].T, sums)
            found = np.where(clash, second, first)
        else:
            sums = np.where(clash, _NEVER, sums)
            found = first
        i, j = divmod(int(sums.argmax()), len(self._listed))
        if sums[i, j] < self._least:
            self.quiet = True
            return None
        return int(sums[i, j]), self.nodes[int(first[i, j])], i, self.nodes[int(found[j, i])], j

    def forbid(self, node: int, leaves: int, comes: int) -> None:
        """Not this one, until the node is looked at again."""
        self.changes[self.rows[node], leaves, comes] = _NEVER


class Exchanges:
    """Moves and swaps, a few at a time."""

    def __init__(self, models: NodeModels, moves: int, margin: float, rest: int) -> None:
        self.models = models
        self.moves = moves
        self.margin = margin
        self.rest = rest
        self._gains: dict[int, ExchangeGains] = {}
        """By the width of jobs."""
        self._schedulable = models.state.pool.schedulable
        self._resting: dict[int, int] = {}
        """Nodes where something would have been gained, but for now; and until when."""

    def _note(self, now: int) -> None:
        """Somebody came to some nodes, or left them, or holds something else on several, or has rested."""
        touched = self.models.touched
        for node in touched:
            for js, _ in self.models.nodes[node].jobs:
                if js.width not in self._gains and js.gpu_milli == WHOLE_GPU_MILLI:
                    self._gains[js.width] = ExchangeGains(self.models, js.width)
        touched.update(node for node, time in self._resting.items() if time <= now)
        schedulable = self.models.state.pool.schedulable
        touched.update(members(schedulable ^ self._schedulable))
        self._schedulable = schedulable
        for exchange_gains in self._gains.values():
            exchange_gains.stale.update(node for node in touched if node in exchange_gains.rows)
        for node in touched:
            self._resting.pop(node, None)
        touched.clear()

    def decide(self, now: int, state: TrainingState) -> Iterator[Action]:
        """Yield what pays, best first; all there is then to be divided anew."""
        left = self.moves
        self._note(now)
        for _, exchange_gains in sorted(self._gains.items()):
            for _ in range(_TRIES):
                if not left:
                    return
                self._look(state, exchange_gains)
                if (found := exchange_gains.best()) is None:
                    break
                if (actions := self._exchanged(now, state, exchange_gains, *found)) is None:
                    exchange_gains.forbid(found[1], found[2], found[4])
                    self._resting[found[1]] = now + self.rest
                    continue
                yield from actions
                left -= 1
                self.models.refresh()
                self._note(now)

    def _look(self, state: TrainingState, exchange_gains: ExchangeGains) -> None:
        gpus = exchange_gains.width // WHOLE_GPU_MILLI
        while exchange_gains.stale:
            node = min(exchange_gains.stale)
            exchange_gains.stale.discard(node)
            node_model = self.models.nodes[node]
            usable = bool(state.pool.schedulable >> node & 1) and not any(node_model.cpu_only)
            here = [
                js for js, _ in node_model.jobs if js.width == exchange_gains.width and usable and js.job.preemptible
            ]
            exchange_gains.update(node_model, usable and state.pool.free_count[node] >= gpus, here)

    def _exchanged(
        self, now: int, state: TrainingState, exchange_gains: ExchangeGains, gain: int, a: int, i: int, b: int, j: int
    ) -> list[Action] | None:
        one = self._mover(now, state, exchange_gains, a, i, b) if i else None
        other = self._mover(now, state, exchange_gains, b, j, a) if j else None
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
        """What others on a node give up when a job comes in place of another, and what it then holds; None: it is
        slower there than was thought, and there is not enough for it."""
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
        wanted = grants_of_picks(jobs, picks) | self.models.promised(node_model)
        grant = wanted.pop(js.id)
        return reductions(state, wanted), grant

    def _mover(
        self, now: int, state: TrainingState, exchange_gains: ExchangeGains, node: int, kind: int, to: int
    ) -> JobState | None:
        """The job of a kind on a node that runs longest from now on, if one may move there."""
        able = (
            js
            for js, _ in self.models.nodes[node].jobs
            if js.width == exchange_gains.width
            and exchange_gains.kind(js) == kind
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
