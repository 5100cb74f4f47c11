"""Tune: full demands where they fit, and nobody below their due (Synergy-TUNE; Mohan et al., OSDI 2022, section 4).

1. Who runs is a matter of GPUs alone. Among jobs, larger demands go first: by GPUs, then CPUs, then memory.
2. A job gets its full demand on the node with least free that can give it; one over several nodes gets CPUs and memory
   on each in proportion to its GPUs there.
3. If none can, and it wants more than its due of something, it asks for its due of everything instead.
4. If none can give that either, nodes are picked by GPUs alone. The jobs there are walked through, those on fewer nodes
   first, then those with more CPUs a GPU, then more memory a GPU, and brought down to their due until enough is free.
5. Now it fits. Nobody who runs falls below their due.
6. Not the paper's, and only with ``leftovers``: what is left to nobody goes to jobs that are held to their due, those
   first that gain most by it (``leftovers.py``).

Running jobs stay where they are; when somebody came or went they are divided anew on their nodes by the same steps,
larger demands first. Departures: jobs that start at one instant find their nodes in the policy's order, one at a time,
instead of larger demands first; a due is a job's own nodes' (nodes may differ); storage bandwidth, where it is counted,
is a third resource throughout.
"""

from collections.abc import Callable, Iterable, Iterator

from headway.training.actions import Action, Grant, Placement, ReallocateJob
from headway.training.jobstate import JobState
from headway.training.policies.allocations.shared.demands import (
    Demands,
    exceeds,
    place_by_kind,
    place_with_proportional,
    reallocations,
)
from headway.training.policies.allocations.shared.free_resources import FreeResources, GrantedJob
from headway.training.policies.allocations.shared.tightest import place_tightest
from headway.training.policies.allocations.synergy.changed_nodes import ChangedNodes
from headway.training.policies.allocations.synergy.leftovers import hand_out
from headway.training.policies.parts import Allocation, PlacementRule
from headway.training.pool import Demand
from headway.training.state import TrainingState
from headway.training.tentative_demand import TentativeDemand


class Tune(Allocation):
    """Full demand, else due, else others are brought down to theirs."""

    name = "tune"

    def __init__(self, leftovers: bool = False) -> None:
        self.leftovers = leftovers

    def bind(self, state: TrainingState) -> None:
        """Take note whose nodes are divided, and what is believed of the jobs there."""
        self.demands = Demands(state)
        self._changed = ChangedNodes()

    def place(self, state: TrainingState, js: Demand, rule: PlacementRule) -> Placement | None:
        """Return where the full demand fits; else where the due does; else where its GPUs are free (steps 2 to 4)."""
        job = state.jobs[js.id]
        if not job.gpus:
            return rule.place(state.pool, js)
        return self._full_place(state, job, rule) or place_with_proportional(state, self.demands, job, rule)

    def _full_place(self, state: TrainingState, js: JobState, rule: PlacementRule) -> Placement | None:
        demands, kinds = self.demands, self.demands.kinds
        if len(kinds) == 1 or (demands.same_pace and demands.profile(js.job) is not None):
            return place_tightest(state.pool, TentativeDemand(js, demands.demand(js.job, *kinds[0][:2])), rule)
        return place_by_kind(
            state, demands, js, rule, lambda proportional, pace: demands.demand(js.job, proportional, pace)
        )

    def enter(
        self, now: int, state: TrainingState, js: JobState, placement: Placement
    ) -> tuple[Iterable[ReallocateJob], Grant]:
        """All it wants, or its due, for which others may have to come down to theirs (steps 2 to 5)."""
        room = FreeResources(state.pool)
        coming = self._held(js, placement)
        known: dict[int, GrantedJob] = {}

        def there(node: int) -> Iterator[GrantedJob]:
            for other in state.on_node[node].values():
                if other is not js:
                    if other.id not in known:
                        known[other.id] = self._held(other, other.placement)
                    yield known[other.id]

        lowered = _settle(room, coming, there)
        return reallocations(state, {each.js.id: each.grant for each in lowered}), coming.grant

    def _held(self, js: JobState, placement: Placement) -> GrantedJob:
        demands = self.demands
        full = demands.demand(js.job, demands.shares.per_gpu(placement), demands.pace(placement))
        return GrantedJob(js, placement, full, demands.proportional(js, placement), js.grant)

    # --- those that run ---------------------------------------------------------------------------------------

    def divide(self, now: int, state: TrainingState) -> Iterable[Action]:
        """The same steps for all jobs of the nodes where somebody came or went."""
        jobs = self._changed.jobs(state)
        if not jobs:
            return ()
        room = FreeResources(state.pool)
        held = [self._held(js, js.placement) for js in jobs if js.gpus]
        for each in held:
            room.give(each.placement, each.js.gpus, each.grant)
        there: dict[int, list[GrantedJob]] = {}
        for each in sorted(held, key=lambda each: each.order):
            _settle(room, each, lambda node: there.get(node, ()))
            room.take(each.placement, each.js.gpus, each.grant)
            for node, _ in each.placement:
                there.setdefault(node, []).append(each)
        _keep_where_short(room, held)
        if self.leftovers:
            hand_out(room, held, self.demands)
        return reallocations(state, {each.js.id: each.grant for each in held})


def _keep_where_short(room: FreeResources, held: list[GrantedJob]) -> None:
    """Where jobs without GPUs leave less than everybody's due, nobody's due can be asked for: all there stay as they
    are."""
    while short := room.short():
        for each in held:
            if each.grant != each.js.grant and any(node in short for node, _ in each.placement):
                room.regrant(each, each.js.grant)


def _settle(room: FreeResources, coming: GrantedJob, there: Callable[[int], Iterable[GrantedJob]]) -> list[GrantedJob]:
    """Decide what a job gets on its nodes; those who have to come down for it, of the jobs that are ``there``.

    One that comes down in one respect may go up in another, on other nodes too: who is there then comes down as well.
    """
    gpus = coming.js.gpus
    coming.grant = coming.full
    if room.fits(coming.placement, gpus, coming.full):
        return []
    if exceeds(coming.full, coming.proportional):
        coming.grant = coming.proportional
    lowered: list[GrantedJob] = []
    nodes = {node for node, _ in coming.placement}
    room.take(coming.placement, gpus, coming.grant)
    while short := [node for node in nodes if min(room.free(node)) < 0]:
        able = {other.js.id: other for node in short for other in there(node) if other.js.gpus}
        giver = min((o for o in able.values() if exceeds(o.grant, o.proportional)), key=_reluctance, default=None)
        if giver is None:
            break
        room.regrant(giver, giver.proportional)
        nodes.update(node for node, _ in giver.placement)
        lowered.append(giver)
    room.give(coming.placement, gpus, coming.grant)
    return lowered


def _reluctance(held: GrantedJob) -> tuple[int, float, float, int]:
    """Return who gives first: on fewer nodes, with more CPUs a GPU, with more memory a GPU."""
    gpus = max(1, held.js.gpus)
    return len(held.placement), -held.grant.cpu_milli / gpus, -held.grant.memory_bytes / gpus, held.js.id
