"""Headway: the division that delivers most, with nobody below their due, and no more disturbance than it is worth.

Beside Synergy's tune and opt (Mohan et al., OSDI 2022): grants are cells of the whole matrix and what lies between;
each node is divided exactly (``water.py``); a job starts where the cluster gains most by it (``sites.py``); jobs over
several nodes weigh what they take on each; running jobs change places where that pays for the standstill
(``exchanges.py``); and what jobs are seen to do counts more than what their profiles say (``beliefs.py``).
"""

from collections.abc import Iterable, Iterator, Mapping

from headway.training.actions import Action, Grant, Placement, ReallocateJob, WakeAt
from headway.training.feasible import grant_refusal
from headway.training.jobstate import JobState
from headway.training.policies.allocations.headway.estimates import Estimates
from headway.training.policies.allocations.headway.exchanges import Exchanges
from headway.training.policies.allocations.headway.node_choice import NodeChoice
from headway.training.policies.allocations.headway.node_models import (
    NodeModel,
    NodeModels,
    grants_of_picks,
    minus,
    plus,
)
from headway.training.policies.allocations.shared.demands import exceeds, reallocations, reductions
from headway.training.policies.allocations.shared.free_resources import FreeResources, part_of_grant
from headway.training.policies.parts import Allocation, PlacementRule
from headway.training.policies.placements.best_fit import BestFit
from headway.training.policies.ranges import from_zero, shares
from headway.training.pool import Demand
from headway.training.proportional_share import scaled
from headway.training.state import TrainingState
from headway.units import MINUTE, REFERENCE_SPEED_PPM, WHOLE_GPU_MILLI, Duration

_REST = Duration(60 * MINUTE)
_LOOK_AGAIN = 5 * MINUTE
"""When something was seen that the profile did not say: until what was done about it is looked at."""


class Headway(Allocation):
    """What the cluster gains most by."""

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
        """Jobs that hold something else since the last decision, and their leases then."""

    def bind(self, state: TrainingState) -> None:
        """Take note whose nodes are divided."""
        self._open(state, Estimates(state))

    def _open(self, state: TrainingState, estimates: Estimates, granted: dict[int, Grant] | None = None) -> None:
        self.models = NodeModels(state, estimates, granted or {})
        """What the nodes are asked for."""
        self._node_choice = NodeChoice(self.models, self.slowdown)
        self._exchanges = Exchanges(self.models, self.moves, self.margin, self.rest)

    # --- where a job goes -------------------------------------------------------------------------------------

    def place(self, state: TrainingState, js: Demand, rule: PlacementRule) -> Placement | None:
        """Return where the cluster gains most by it; with a placement other than best fit, where that puts it."""
        job, sites = state.jobs[js.id], self._node_choice
        if job.gpus > state.pool.free_gpus and job.gpu_milli == WHOLE_GPU_MILLI:
            return None
        self.models.refresh()
        if not job.gpus:
            return sites.for_cpus(job, rule)
        if type(rule) is not BestFit or job.gpu_milli != WHOLE_GPU_MILLI or job.nodes > 1:
            return sites.by_rule(job, rule)
        return sites.best(job) or sites.by_rule(job, rule)  # what is in the way of the best can be brought down

    # --- what it gets there -----------------------------------------------------------------------------------

    def enter(
        self, now: int, state: TrainingState, js: JobState, placement: Placement
    ) -> tuple[Iterable[ReallocateJob], Grant]:
        """Its part of the best division of its nodes; others give up what they would have to anyway."""
        self.models.refresh()
        self.models.expect(js, placement)
        room = FreeResources(state.pool)
        if (alone := self._undisturbed(state, js, placement, room)) is not None:
            return [], alone
        there = [self._but(state, node, js) for node, _ in placement]
        wanted = self._planned(state, js, placement, there)
        grant = wanted.pop(js.id)
        if room.fits(placement, js.gpus, grant):
            return [], grant
        for node_model in there:
            wanted = self.models.promised(node_model) | wanted
        moves_here = any(node_model is not self.models.nodes[node_model.node] for node_model in there)
        return _reduced_first(state, wanted, more_at_once=not moves_here), grant

    def _but(self, state: TrainingState, node: int, js: JobState) -> NodeModel:
        if js.id not in state.on_node[node]:
            return self.models.nodes[node]
        return self.models.reading(node, [other for other in state.on_node[node].values() if other is not js])

    def _undisturbed(
        self, state: TrainingState, js: JobState, placement: Placement, room: FreeResources
    ) -> Grant | None:
        """What a job gets while everybody keeps what they have: all of it, if it has no GPUs; where changes stop those
        who are changed, the best that is free. None: not even what it is due."""
        if not js.gpus:
            own = Grant(js.job.cpu_milli, js.job.memory_bytes)
            return own if room.fits(placement, 0, own) else None
        if not state.costs.reallocation:
            return None
        whole = self.models.whole(js, placement)
        found = next((grant for grant in reversed(whole) if room.fits(placement, js.gpus, grant)), None)
        if found is not None and len(placement) > 1:
            self.models.granted[js.id] = found
        return found

    def _planned(
        self, state: TrainingState, js: JobState, placement: Placement, there: list[NodeModel]
    ) -> dict[int, Grant]:
        """Return what all jobs of some nodes are to hold when one more comes."""
        wanted: dict[int, Grant] = {}
        while True:
            found = self._alone(js, placement, there[0]) if len(placement) == 1 else self._over(js, placement, there)
            if found is not None:
                return wanted | found
            if not self._squeeze(there, wanted):
                return self._all_fallback(state, js, placement)

    def _alone(self, js: JobState, placement: Placement, node_model: NodeModel) -> dict[int, Grant] | None:
        if not js.gpus:
            own = Grant(js.job.cpu_milli, js.job.memory_bytes)
            picks = node_model.knapsack.picks(node_model.code, minus(node_model.spare, own))
            return None if picks is None else grants_of_picks(node_model.jobs, picks) | {js.id: own}
        item = self.models.item(js, placement)
        picks = node_model.knapsack.picks(node_model.code + item.code, minus(node_model.spare, item.minimum))
        return None if picks is None else grants_of_picks([*node_model.jobs, (js, item)], picks)

    def _over(self, js: JobState, placement: Placement, there: list[NodeModel]) -> dict[int, Grant] | None:
        grant = self._choice(js, placement, there, Grant(0, 0))
        if grant is None:
            return None
        self.models.granted[js.id] = grant
        wanted = {js.id: grant}
        for node_model, (_, mask) in zip(there, placement, strict=True):
            picks = node_model.knapsack.picks(
                node_model.code, minus(node_model.spare, part_of_grant(grant, mask.bit_count(), js.gpus))
            )
            assert picks is not None, "it was chosen because they can have it"
            wanted |= grants_of_picks(node_model.jobs, picks)
        return wanted

    def _squeeze(self, there: list[NodeModel], wanted: dict[int, Grant]) -> bool:
        """Bring one job over several nodes that is here down to its due; False when all are."""
        for node_model in there:
            for js, count in node_model.spanning:
                if js.id not in wanted:
                    before = self.models.granted.get(js.id, js.grant)
                    grant = wanted[js.id] = self.models.fallback(js, js.placement)
                    self.models.regrant(js, grant)
                    for other in there:  # of nodes that the coming job itself is still on
                        if other is not self.models.nodes[other.node] and any(js is each for each, _ in other.spanning):
                            freed = part_of_grant(before, count, js.gpus)
                            other.spare = minus(plus(other.spare, freed), part_of_grant(grant, count, js.gpus))
                    return True
        return False

    def _all_fallback(self, state: TrainingState, js: JobState, placement: Placement) -> dict[int, Grant]:
        """Everybody on these nodes has what is modest: in whole units it may not fit, to the last bit it does."""
        here = {job: other for node, _ in placement for job, other in state.on_node[node].items() if other.gpus}
        wanted = {job: self.models.fallback(other, other.placement) for job, other in here.items()}
        wanted[js.id] = self.models.fallback(js, placement) if js.gpus else Grant(js.job.cpu_milli, js.job.memory_bytes)
        if len(placement) > 1:
            self.models.granted[js.id] = wanted[js.id]
        return wanted

    def _choice(self, js: JobState, placement: Placement, there: list[NodeModel], before: Grant) -> Grant | None:
        """Return what a job over several nodes that holds this much should hold, for the best of all there."""
        choices = self.models.choices(js, placement)
        totals = choices.rates * (js.width * js.account.weight) // WHOLE_GPU_MILLI
        for node_model, (_, mask) in zip(there, placement, strict=True):
            count = mask.bit_count()
            spare = plus(node_model.spare, part_of_grant(before, count, js.gpus))
            totals += node_model.knapsack.gains(node_model.code, spare, choices.amounts * count)
        best = int(totals.argmax())
        return scaled(choices.grants[best], js.width) if totals[best] >= 0 else None

    # --- those that run ---------------------------------------------------------------------------------------

    def divide(self, now: int, state: TrainingState) -> Iterable[Action]:
        """Nodes where somebody came or went, divided anew."""
        self._observe(state)
        self.models.refresh()
        return self._divide(now, state) if self.models.dirty else ()

    def _observe(self, state: TrainingState) -> None:
        """See how fast jobs have become with what they were given last time; begin anew if that was not believed."""
        estimates = self.models.estimates
        running = [js for js, lease in self._unobserved if js.lease == lease and js.id in state.running]
        surprises = [estimates.observe(js, self.models.pace(js, js.placement)) for js in running]
        self._unobserved = []
        self.unsettled = False
        if any(surprises):
            self._open(state, estimates, self.models.granted)

    def _divide(self, now: int, state: TrainingState) -> Iterator[Action]:
        models = self.models
        if self.moves:
            yield from self._exchanges.decide(now, state)
            models.refresh()
        nodes = models.dirty
        models.dirty = set()
        wanted = self._settled(state, nodes)
        yield from reallocations(state, self._worthwhile(now, state, wanted) if state.costs.reallocation else wanted)
        for job in wanted:
            if (js := state.running[job]).gpu_milli == WHOLE_GPU_MILLI and not models.estimates.is_observed(js):
                self._unobserved.append((js, js.lease))
        if any(models.estimates.is_profile_wrong(js) for js, _ in self._unobserved):
            self.unsettled = True
            yield WakeAt(now + _LOOK_AGAIN)

    def _settled(self, state: TrainingState, nodes: set[int]) -> dict[int, Grant]:
        """Return what the jobs of these nodes are to hold, and those of others where that changes what they share."""
        models = self.models
        wanted: dict[int, Grant] = {}
        for js in {js.id: js for node in sorted(nodes) for js, _ in models.nodes[node].spanning}.values():
            before = models.granted.get(js.id, js.grant)
            grant: Grant | None = before
            if not state.costs.reallocation:
                grant = self._choice(js, js.placement, [models.nodes[node] for node, _ in js.placement], before)
            wanted[js.id] = grant or models.fallback(js, js.placement)
            models.regrant(js, wanted[js.id])
        left = nodes | models.dirty
        while left:
            models.dirty = set()
            for node in sorted(left):
                wanted |= self._of_node(models.nodes[node])
            left = models.dirty  # where jobs over several nodes had to come down
        return wanted

    def _of_node(self, node_model: NodeModel) -> dict[int, Grant]:
        picks = node_model.knapsack.picks(node_model.code, node_model.spare)
        if picks is not None:
            return grants_of_picks(node_model.jobs, picks)
        if not self.models.holds(node_model, Grant(0, 0), gpus=False):
            return {}
        fallback = {js.id: self.models.fallback(js, js.placement) for js, _ in (*node_model.spanning, *node_model.jobs)}
        for js, _ in node_model.spanning:  # in whole units it does not fit, to the last bit it does
            self.models.regrant(js, fallback[js.id])
        return fallback

    def _worthwhile(self, now: int, state: TrainingState, wanted: dict[int, Grant]) -> dict[int, Grant]:
        """Return where a change stops a job for a while: only what pays, all of a node or nothing of it."""
        kept = dict(wanted)
        growing = [
            js for job in wanted if exceeds(wanted[job], (js := state.running[job]).grant) and len(js.placement) > 1
        ]
        bound = {node for js in growing for node, _ in js.placement}  # who is there has to make room
        for node in sorted({state.running[job].placement[0][0] for job in wanted} - bound):
            changed = [js for js, _ in self.models.nodes[node].jobs if wanted.get(js.id, js.grant) != js.grant]
            gained = lost = 0
            for js in changed:
                pace = self.models.pace(js, js.placement)
                old, new = (self.models.estimates.speed(js, grant, pace) for grant in (js.grant, wanted[js.id]))
                if old < self.models.estimates.guaranteed_speed(
                    js, self.models.estimates.demands.shares.per_gpu(js.placement), pace
                ):
                    break  # it must have more, whatever that costs
                left = js.remaining(now) * REFERENCE_SPEED_PPM // max(new, 1)
                gained += (new - old) * js.width * left
                lost += new * js.width * state.costs.reallocation
            else:
                if gained <= self.margin * lost:
                    kept |= {js.id: js.grant for js in changed}
        return kept


def _reduced_first(state: TrainingState, wanted: Mapping[int, Grant], *, more_at_once: bool) -> Iterator[ReallocateJob]:
    """Those who give something up do so; who is to have more of something else for it gets that, if there is room."""
    given = reductions(state, wanted)
    yield from given
    for job in (action.job for action in given if more_at_once and action.grant != wanted[action.job]):
        if grant_refusal(state, job, wanted[job]) is None:
            yield ReallocateJob(job, wanted[job])
