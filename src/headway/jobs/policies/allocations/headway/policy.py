"""Headway: the allocation with the largest total speed in which no job is slower than with its proportional share.

Grants change and jobs move only where that pays. What differs from Synergy's tune and opt (Mohan et al., OSDI 2022):

- Grants are cells of the whole matrix and what lies between them.
- Each node is divided optimally, as a knapsack (``knapsack.py``).
- A job starts where the cluster gains most speed (``node_choice.py``).
- A job that spans nodes is charged for what the jobs on each of its nodes lose.
- Running jobs move or swap where the gain exceeds the standstill (``exchanges.py``).
- Observed speeds take precedence over profiles (``estimates.py``).
"""

from collections.abc import Iterable, Iterator, Mapping

from headway.jobs.model.actions import Action, ReallocateJob, WakeAt
from headway.jobs.model.proportional_share import scaled
from headway.jobs.model.resources import Grant, Placement
from headway.jobs.policies.allocations.headway.estimates import Estimates
from headway.jobs.policies.allocations.headway.exchanges import Exchanges
from headway.jobs.policies.allocations.headway.node_choice import NodeChoice
from headway.jobs.policies.allocations.headway.node_models import (
    NodeModel,
    NodeModels,
    grants_of_picks,
    minus,
    plus,
)
from headway.jobs.policies.allocations.shared.demands import exceeds, reallocations, reductions
from headway.jobs.policies.allocations.shared.free_resources import FreeResources, part_of_grant
from headway.jobs.policies.parts import Allocation, PlacementRule
from headway.jobs.policies.placements.best_fit import BestFit
from headway.jobs.policies.ranges import from_zero, shares
from headway.jobs.state.feasible import grant_refusal
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.pool import Demand
from headway.jobs.state.state import TrainingState
from headway.units import MINUTE, REFERENCE_SPEED_PPM, WHOLE_GPU_MILLI, Duration

_REST = Duration(60 * MINUTE)
_LOOK_AGAIN = 5 * MINUTE
"""Time from a change made because a profile was wrong until its effect is observed."""


class Headway(Allocation):
    """The largest total speed, with a guarantee for each job."""

    name = "headway"
    swaps = True

    def __init__(self, moves: int = 4, margin: float = 10.0, rest: Duration = _REST, slowdown: float = 0.1) -> None:
        from_zero(self.name, moves=moves, margin=margin, rest=rest)
        shares(self.name, slowdown=slowdown)
        self.moves = moves
        self.margin = margin
        self.rest = rest
        self.slowdown = slowdown
        self._unobserved: list[tuple[JobState, int]] = []
        """Jobs whose grants changed at the last decision and whose speed was not observed since, with their leases."""

    def bind(self, state: TrainingState) -> None:
        """Begin to divide the nodes of a state."""
        self._reset(state, Estimates(state))

    def _reset(self, state: TrainingState, estimates: Estimates, granted: dict[int, Grant] | None = None) -> None:
        self.models = NodeModels(state, estimates, granted or {})
        """The jobs of each node and their possible grants."""
        self._node_choice = NodeChoice(self.models, self.slowdown)
        self._exchanges = Exchanges(self.models, self.moves, self.margin, self.rest)

    # --- where a job goes -------------------------------------------------------------------------------------

    def place(self, state: TrainingState, js: Demand, rule: PlacementRule) -> Placement | None:
        """Return where the cluster gains most speed; with a placement other than best fit, where that rule puts it."""
        job, node_choice = state.jobs[js.id], self._node_choice
        if job.gpus > state.pool.free_gpus and job.gpu_milli == WHOLE_GPU_MILLI:
            return None
        self.models.refresh()
        if not job.gpus:
            return node_choice.for_cpus(job, rule)
        if type(rule) is not BestFit or job.gpu_milli != WHOLE_GPU_MILLI or job.nodes > 1:
            return node_choice.by_rule(job, rule)
        return node_choice.best(job) or node_choice.by_rule(job, rule)  # where grants of others can be lowered

    # --- what it gets there -----------------------------------------------------------------------------------

    def enter(
        self, now: int, state: TrainingState, js: JobState, placement: Placement
    ) -> tuple[Iterable[ReallocateJob], Grant]:
        """Return what other jobs give up, and the job's grant in the best division of its nodes."""
        self.models.refresh()
        self.models.expect(js, placement)
        resources = FreeResources(state.pool)
        if (alone := self._grant_without_changes(state, js, placement, resources)) is not None:
            return [], alone
        node_models = [self._model_without(state, node, js) for node, _ in placement]
        targets = self._target_grants(state, js, placement, node_models)
        grant = targets.pop(js.id)
        if resources.fits(placement, js.gpus, grant):
            return [], grant
        for node_model in node_models:
            targets = self.models.spanning_targets(node_model) | targets
        moves_here = any(node_model is not self.models.nodes[node_model.node] for node_model in node_models)
        return _reduced_first(state, targets, more_at_once=not moves_here), grant

    def _model_without(self, state: TrainingState, node: int, js: JobState) -> NodeModel:
        if js.id not in state.on_node[node]:
            return self.models.nodes[node]
        return self.models.with_jobs(node, [other for other in state.on_node[node].values() if other is not js])

    def _grant_without_changes(
        self, state: TrainingState, js: JobState, placement: Placement, resources: FreeResources
    ) -> Grant | None:
        """Return the grant a job can have while all others keep theirs; None if they have to change.

        A job without GPUs gets all it asks for. Others get the best grant that is free, but only where reallocating
        costs time: else the node is divided anew anyway.
        """
        if not js.gpus:
            requested = Grant(js.job.cpu_milli, js.job.memory_bytes)
            return requested if resources.fits(placement, 0, requested) else None
        if not state.costs.reallocation:
            return None
        grants = self.models.grants_for_job(js, placement)
        best = next((grant for grant in reversed(grants) if resources.fits(placement, js.gpus, grant)), None)
        if best is not None and len(placement) > 1:
            self.models.granted[js.id] = best
        return best

    def _target_grants(
        self, state: TrainingState, js: JobState, placement: Placement, node_models: list[NodeModel]
    ) -> dict[int, Grant]:
        """Return the target grants of all jobs on a placement's nodes when one more job comes."""
        targets: dict[int, Grant] = {}
        while True:
            if len(placement) == 1:
                division = self._targets_on_one_node(js, placement, node_models[0])
            else:
                division = self._targets_on_several_nodes(js, placement, node_models)
            if division is not None:
                return targets | division
            if not self._lower_one_spanning_job(node_models, targets):
                return self._all_fallback(state, js, placement)

    def _targets_on_one_node(
        self, js: JobState, placement: Placement, node_model: NodeModel
    ) -> dict[int, Grant] | None:
        if not js.gpus:
            requested = Grant(js.job.cpu_milli, js.job.memory_bytes)
            picks = node_model.knapsack.picks(node_model.code, minus(node_model.spare, requested))
            return None if picks is None else grants_of_picks(node_model.jobs, picks) | {js.id: requested}
        item = self.models.item(js, placement)
        picks = node_model.knapsack.picks(node_model.code + item.code, minus(node_model.spare, item.minimum))
        return None if picks is None else grants_of_picks([*node_model.jobs, (js, item)], picks)

    def _targets_on_several_nodes(
        self, js: JobState, placement: Placement, node_models: list[NodeModel]
    ) -> dict[int, Grant] | None:
        grant = self._best_grant(js, placement, node_models, Grant(0, 0))
        if grant is None:
            return None
        self.models.granted[js.id] = grant
        targets = {js.id: grant}
        for node_model, (_, mask) in zip(node_models, placement, strict=True):
            picks = node_model.knapsack.picks(
                node_model.code, minus(node_model.spare, part_of_grant(grant, mask.bit_count(), js.gpus))
            )
            assert picks is not None, "the grant was chosen so that the others fit beside it"
            targets |= grants_of_picks(node_model.jobs, picks)
        return targets

    def _lower_one_spanning_job(self, node_models: list[NodeModel], targets: dict[int, Grant]) -> bool:
        """Lower one job that spans nodes to its fallback grant; return False when all are lowered already."""
        for node_model in node_models:
            for js, count in node_model.spanning:
                if js.id not in targets:
                    before = self.models.granted.get(js.id, js.grant)
                    grant = targets[js.id] = self.models.fallback(js, js.placement)
                    self.models.regrant(js, grant)
                    for other in node_models:  # of nodes that the coming job itself is still on
                        if other is not self.models.nodes[other.node] and any(js is each for each, _ in other.spanning):
                            freed = part_of_grant(before, count, js.gpus)
                            other.spare = minus(plus(other.spare, freed), part_of_grant(grant, count, js.gpus))
                    return True
        return False

    def _all_fallback(self, state: TrainingState, js: JobState, placement: Placement) -> dict[int, Grant]:
        """Return fallback grants for all jobs on these nodes. They always fit, though maybe not in whole units."""
        here = {job: other for node, _ in placement for job, other in state.on_node[node].items() if other.gpus}
        targets = {job: self.models.fallback(other, other.placement) for job, other in here.items()}
        targets[js.id] = (
            self.models.fallback(js, placement) if js.gpus else Grant(js.job.cpu_milli, js.job.memory_bytes)
        )
        if len(placement) > 1:
            self.models.granted[js.id] = targets[js.id]
        return targets

    def _best_grant(
        self, js: JobState, placement: Placement, node_models: list[NodeModel], before: Grant
    ) -> Grant | None:
        """Return the grant of a job that spans nodes with the largest total speed on all of them; None if none fits.

        ``before``: what the job holds now, which is free for it.
        """
        choices = self.models.choices(js, placement)
        totals = choices.rates * (js.width * js.account.weight) // WHOLE_GPU_MILLI
        for node_model, (_, mask) in zip(node_models, placement, strict=True):
            count = mask.bit_count()
            spare = plus(node_model.spare, part_of_grant(before, count, js.gpus))
            totals += node_model.knapsack.gains(node_model.code, spare, choices.amounts * count)
        best = int(totals.argmax())
        return scaled(choices.grants[best], js.width) if totals[best] >= 0 else None

    # --- those that run ---------------------------------------------------------------------------------------

    def divide(self, now: int, state: TrainingState) -> Iterable[Action]:
        """Divide the nodes anew where jobs came or left; return the actions."""
        self._observe(state)
        self.models.refresh()
        return self._divide(now, state) if self.models.dirty else ()

    def _observe(self, state: TrainingState) -> None:
        """Compare the speeds of jobs with new grants to the estimates; rebuild all node models if one was wrong."""
        estimates = self.models.estimates
        running = [js for js, lease in self._unobserved if js.lease == lease and js.id in state.running]
        surprises = [estimates.observe(js, self.models.pace(js, js.placement)) for js in running]
        self._unobserved = []
        self.unsettled = False
        if any(surprises):
            self._reset(state, estimates, self.models.granted)

    def _divide(self, now: int, state: TrainingState) -> Iterator[Action]:
        models = self.models
        if self.moves:
            yield from self._exchanges.decide(now, state)
            models.refresh()
        nodes = models.dirty
        models.dirty = set()
        targets = self._targets_of_nodes(state, nodes)
        yield from reallocations(
            state, self._without_unprofitable(now, state, targets) if state.costs.reallocation else targets
        )
        for job in targets:
            if (js := state.running[job]).gpu_milli == WHOLE_GPU_MILLI and not models.estimates.is_observed(js):
                self._unobserved.append((js, js.lease))
        if any(models.estimates.is_profile_wrong(js) for js, _ in self._unobserved):
            self.unsettled = True
            yield WakeAt(now + _LOOK_AGAIN)

    def _targets_of_nodes(self, state: TrainingState, nodes: set[int]) -> dict[int, Grant]:
        """Return target grants for the jobs of these nodes, and of nodes that a job spanning nodes connects to them."""
        models = self.models
        targets: dict[int, Grant] = {}
        for js in {js.id: js for node in sorted(nodes) for js, _ in models.nodes[node].spanning}.values():
            before = models.granted.get(js.id, js.grant)
            grant: Grant | None = before
            if not state.costs.reallocation:
                grant = self._best_grant(js, js.placement, [models.nodes[node] for node, _ in js.placement], before)
            targets[js.id] = grant or models.fallback(js, js.placement)
            models.regrant(js, targets[js.id])
        left = nodes | models.dirty
        while left:
            models.dirty = set()
            for node in sorted(left):
                targets |= self._targets_of_node(models.nodes[node])
            left = models.dirty  # where jobs that span nodes were lowered
        return targets

    def _targets_of_node(self, node_model: NodeModel) -> dict[int, Grant]:
        picks = node_model.knapsack.picks(node_model.code, node_model.spare)
        if picks is not None:
            return grants_of_picks(node_model.jobs, picks)
        if not self.models.has_room_for(node_model, Grant(0, 0), gpus=False):
            return {}
        fallback = {js.id: self.models.fallback(js, js.placement) for js, _ in (*node_model.spanning, *node_model.jobs)}
        for js, _ in node_model.spanning:  # it does not fit in whole units, but it does exactly
            self.models.regrant(js, fallback[js.id])
        return fallback

    def _without_unprofitable(self, now: int, state: TrainingState, targets: dict[int, Grant]) -> dict[int, Grant]:
        """Return the targets without the nodes where what the changes gain is less than the standstill they cost."""
        kept, estimates = dict(targets), self.models.estimates
        growing = [
            js for job in targets if exceeds(targets[job], (js := state.running[job]).grant) and len(js.placement) > 1
        ]
        bound = {node for js in growing for node, _ in js.placement}  # jobs there have to make room
        for node in sorted({state.running[job].placement[0][0] for job in targets} - bound):
            changed = [js for js, _ in self.models.nodes[node].jobs if targets.get(js.id, js.grant) != js.grant]
            gained = lost = 0
            for js in changed:
                pace = self.models.pace(js, js.placement)
                old, new = (estimates.speed(js, grant, pace) for grant in (js.grant, targets[js.id]))
                proportional = estimates.demands.shares.per_gpu(js.placement)
                if old < estimates.guaranteed_speed(js, proportional, pace):
                    break  # it is below its guarantee: change it at any cost
                left = js.remaining(now) * REFERENCE_SPEED_PPM // max(new, 1)
                gained += (new - old) * js.width * left
                lost += new * js.width * state.costs.reallocation
            else:
                if gained <= self.margin * lost:
                    kept |= {js.id: js.grant for js in changed}
        return kept


def _reduced_first(
    state: TrainingState, targets: Mapping[int, Grant], *, more_at_once: bool
) -> Iterator[ReallocateJob]:
    """Yield actions that lower grants to their targets; with ``more_at_once`` also those that raise the other
    resources of the same jobs, where that fits."""
    lowered = reductions(state, targets)
    yield from lowered
    for job in (action.job for action in lowered if more_at_once and action.grant != targets[action.job]):
        if grant_refusal(state, job, targets[job]) is None:
            yield ReallocateJob(job, targets[job])
