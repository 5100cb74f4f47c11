"""Connects an allocation to the other parts of a policy: where jobs are placed, and with which grant.

``Allotted`` wraps the policy's placement rule, so that backfills, migrations and preemption place jobs as the
allocation wants. ``granted`` adds grants to the starts and moves that they decide, after the actions of other jobs that
give something up.
"""

from collections.abc import Iterable, Iterator
from copy import copy

from headway.jobs.model.actions import Action, MigrateJob, ReallocateJob, StartJob
from headway.jobs.model.proportional_share import ProportionalShares
from headway.jobs.model.resources import Placement
from headway.jobs.policies.allocations.shared.demands import can_have_proportional, reduced
from headway.jobs.policies.parts import Allocation, PlacementRule
from headway.jobs.state.pool import Demand, Pool
from headway.jobs.state.state import TrainingState


class Allotted(PlacementRule):
    """A placement rule with an allocation: the allocation decides where a job fits."""

    name = "allotted"

    def __init__(self, rule: PlacementRule, allocation: Allocation) -> None:
        self.rule = rule
        self.allocation = allocation
        self.state: TrainingState | None = None
        self._shares: ProportionalShares | None = None

    def bind(self, state: TrainingState, shares: ProportionalShares) -> None:
        """Set the state whose jobs it places."""
        self.state, self._shares = state, shares

    def __copy__(self) -> "Allotted":
        """Return a copy for the same state, with a copy of the rule and its memory."""
        other = Allotted(copy(self.rule), self.allocation)
        other.state, other._shares = self.state, self._shares
        return other

    @property
    def remembers(self) -> bool:  # type: ignore[override]
        """As the rule does."""
        return self.rule.remembers

    def place(self, pool: Pool, js: Demand) -> Placement | None:
        """Return the allocation's placement of a job; for a pool of another state, that of the rule alone."""
        if self.state is None or pool is not self.state.pool:
            return self.rule.place(pool, js)
        return self.allocation.place(self.state, js, self.rule)

    def allows(self, js: Demand, placement: Placement) -> bool:
        """Return whether a job can have its proportional share on a placement, if the allocation guarantees it."""
        state, shares = self.state, self._shares
        if state is None or shares is None or not self.allocation.guarantees or not js.gpus:
            return True
        return all(can_have_proportional(state, shares, node, mask.bit_count()) for node, mask in placement)

    def needs_one_node(self, pool: Pool, js: Demand) -> bool:
        """As the rule has it."""
        return self.rule.needs_one_node(pool, js)

    def domains(self, pool: Pool, js: Demand) -> Iterable[int]:  # type: ignore[override]
        """As the rule has them."""
        return self.rule.domains(pool, js)


def taken_over(state: TrainingState, shares: ProportionalShares) -> Iterator[ReallocateJob]:
    """Yield actions that bring running jobs to their proportional shares, as far as these are free.

    A policy that takes over a run from another one begins with this.
    """
    targets = {js.id: shares.of(js.placement, js.width) for js in state.running.values() if js.gpus}
    for job, proportional in targets.items():
        if (less := reduced(state.running[job].grant, proportional)) is not None:
            yield ReallocateJob(job, less)
    for job, proportional in targets.items():
        if state.check(ReallocateJob(job, proportional)) is None:
            yield ReallocateJob(job, proportional)


def granted(now: int, state: TrainingState, allocation: Allocation, actions: Iterable[Action]) -> Iterator[Action]:
    """Yield the actions with grants filled in. Each has to be carried out before the next one is asked for."""
    for action in actions:
        if isinstance(action, StartJob | MigrateJob) and action.grant is None:
            js = state.jobs[action.job]
            if isinstance(action, MigrateJob):
                with state.draft() as draft:
                    draft.release(js)
                    changes, grant = allocation.enter(now, state, js, action.placement)
            else:
                changes, grant = allocation.enter(now, state, js, action.placement)
            yield from changes
            yield type(action)(action.job, action.placement, grant)
        else:
            yield action
