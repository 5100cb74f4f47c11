"""Tune: full demands where they fit, else proportional shares (Synergy-TUNE; Mohan et al., OSDI 2022, section 4).

1. Which jobs run depends on GPUs alone. Among jobs, larger demands go first: by GPUs, then CPUs, then memory.
2. A job gets its full demand on the node with the least free on which it fits. A job that spans nodes gets CPUs and
   memory on each in proportion to its GPUs there.
3. If it fits nowhere, and exceeds its proportional share in some resource, it asks for its proportional share instead.
4. If that fits nowhere either, nodes are picked by GPUs alone. Jobs there are lowered to their proportional shares
   until enough is free: those on fewer nodes first, then those with more CPUs per GPU, then more memory per GPU.
5. Now it fits. No running job falls below its proportional share.
6. Not in the paper, and only with ``leftovers``: what is left goes to jobs that are held to their proportional share,
   those first that gain most (``leftovers.py``).

Running jobs stay where they are. When jobs came or left, their nodes are divided anew by the same steps, larger demands
first. Departures: jobs that start at one instant find their nodes one at a time in the policy's order, instead of
larger demands first. A proportional share is that of a job's own nodes, which may differ. Storage bandwidth, where it
is counted, is a third resource throughout.
"""

from collections.abc import Callable, Iterable, Iterator

from headway.jobs.model.actions import Action, ReallocateJob
from headway.jobs.model.resources import Grant, Placement
from headway.jobs.policies.allocations.shared.demands import (
    Demands,
    exceeds,
    place_by_kind,
    place_with_proportional,
    reallocations,
)
from headway.jobs.policies.allocations.shared.free_resources import FreeResources, GrantedJob
from headway.jobs.policies.allocations.shared.tightest import place_tightest
from headway.jobs.policies.allocations.synergy.changed_nodes import ChangedNodes
from headway.jobs.policies.allocations.synergy.leftovers import hand_out
from headway.jobs.policies.parts import Allocation, PlacementRule
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.pool import Demand
from headway.jobs.state.state import TrainingState
from headway.jobs.state.tentative_demand import TentativeDemand


class Tune(Allocation):
    """The full demand, else the proportional share, for which others are lowered to theirs."""

    name = "tune"

    def __init__(self, leftovers: bool = False) -> None:
        self.leftovers = leftovers

    def bind(self, state: TrainingState) -> None:
        """Begin to divide the nodes of a state."""
        self.demands = Demands(state)
        self._changed = ChangedNodes()

    def place(self, state: TrainingState, js: Demand, rule: PlacementRule) -> Placement | None:
        """Return where the full demand fits, else the proportional share, else just its GPUs (steps 2 to 4)."""
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
        """Return what other jobs give up, and the job's full demand or proportional share (steps 2 to 5)."""
        resources = FreeResources(state.pool)
        coming = self._held(js, placement)
        known: dict[int, GrantedJob] = {}

        def placed_on(node: int) -> Iterator[GrantedJob]:
            for other in state.on_node[node].values():
                if other is not js:
                    if other.id not in known:
                        known[other.id] = self._held(other, other.placement)
                    yield known[other.id]

        lowered = _grant_and_lower(resources, coming, placed_on)
        return reallocations(state, {job.js.id: job.grant for job in lowered}), coming.grant

    def _held(self, js: JobState, placement: Placement) -> GrantedJob:
        demands = self.demands
        full = demands.demand(js.job, demands.shares.per_gpu(placement), demands.pace(placement))
        return GrantedJob(js, placement, full, demands.proportional(js, placement), js.grant)

    # --- those that run ---------------------------------------------------------------------------------------

    def divide(self, now: int, state: TrainingState) -> Iterable[Action]:
        """Return the changes that the same steps make on the nodes where jobs came or left."""
        jobs = self._changed.jobs(state)
        if not jobs:
            return ()
        resources = FreeResources(state.pool)
        held = [self._held(js, js.placement) for js in jobs if js.gpus]
        for job in held:
            resources.give(job.placement, job.js.gpus, job.grant)
        placed_on: dict[int, list[GrantedJob]] = {}
        for job in sorted(held, key=lambda job: job.order):
            _grant_and_lower(resources, job, lambda node: placed_on.get(node, ()))
            resources.take(job.placement, job.js.gpus, job.grant)
            for node, _ in job.placement:
                placed_on.setdefault(node, []).append(job)
        _keep_where_short(resources, held)
        if self.leftovers:
            hand_out(resources, held, self.demands)
        return reallocations(state, {job.js.id: job.grant for job in held})


def _keep_where_short(resources: FreeResources, held: list[GrantedJob]) -> None:
    """Restore the current grants on nodes where jobs without GPUs leave too little for all proportional shares."""
    while short := resources.short():
        for job in held:
            if job.grant != job.js.grant and any(node in short for node, _ in job.placement):
                resources.regrant(job, job.js.grant)


def _grant_and_lower(
    resources: FreeResources, coming: GrantedJob, placed_on: Callable[[int], Iterable[GrantedJob]]
) -> list[GrantedJob]:
    """Set the grant of a job on its nodes; return the jobs that are lowered for it, of those ``placed_on`` its nodes.

    A job that is lowered in one resource may be raised in another, on other nodes too. Jobs there are then lowered as
    well.
    """
    gpus = coming.js.gpus
    coming.grant = coming.full
    if resources.fits(coming.placement, gpus, coming.full):
        return []
    if exceeds(coming.full, coming.proportional):
        coming.grant = coming.proportional
    lowered: list[GrantedJob] = []
    nodes = {node for node, _ in coming.placement}
    resources.take(coming.placement, gpus, coming.grant)
    while short := [node for node in nodes if min(resources.free(node)) < 0]:
        able = {other.js.id: other for node in short for other in placed_on(node) if other.js.gpus}
        giver = min((o for o in able.values() if exceeds(o.grant, o.proportional)), key=_lowering_order, default=None)
        if giver is None:
            break
        resources.regrant(giver, giver.proportional)
        nodes.update(node for node, _ in giver.placement)
        lowered.append(giver)
    resources.give(coming.placement, gpus, coming.grant)
    return lowered


def _lowering_order(held: GrantedJob) -> tuple[int, float, float, int]:
    """Return the sort key of jobs to be lowered: on fewer nodes, with more CPUs per GPU, with more memory per GPU."""
    gpus = max(1, held.js.gpus)
    return len(held.placement), -held.grant.cpu_milli / gpus, -held.grant.memory_bytes / gpus, held.js.id
