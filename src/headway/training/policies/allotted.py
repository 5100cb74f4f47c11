"""An allocation as part of a policy: where jobs go, and with what.

``Allotted`` stands in for the policy's placement rule, so that backfills, migrations and preemption find places as the
allocation wants them. ``granted`` turns the bare starts and moves that they decide into ones that say what the job
holds, after what others give up for it.
"""

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import replace

from headway.training.actions import Action, MigrateJob, Placement, ReallocateJob, StartJob
from headway.training.policies.allocations.shared.demands import can_have_proportional, reduced
from headway.training.policies.parts import Allocation, PlacementRule
from headway.training.pool import Demand, Pool
from headway.training.proportional_share import ProportionalShares
from headway.training.state import TrainingState


class Allotted(PlacementRule):
    """A placement rule that an allocation has a say in."""

    name = "allotted"

    def __init__(self, rule: PlacementRule, allocation: Allocation) -> None:
        self.rule = rule
        self.allocation = allocation
        self.state: TrainingState | None = None
        self._shares: ProportionalShares | None = None

    def bind(self, state: TrainingState, shares: ProportionalShares) -> None:
        """Whose jobs it will place."""
        self.state, self._shares = state, shares

    def __copy__(self) -> "Allotted":
        """One that may be asked in its stead: of the same state, with a rule that remembers for itself."""
        other = Allotted(copy(self.rule), self.allocation)
        other.state, other._shares = self.state, self._shares
        return other

    @property
    def remembers(self) -> bool:  # type: ignore[override]
        """As the rule does."""
        return self.rule.remembers

    def place(self, pool: Pool, js: Demand) -> Placement | None:
        """GPUs for a job of the state that it is bound to, as far as the allocation lets it have them."""
        if self.state is None or pool is not self.state.pool:
            return self.rule.place(pool, js)
        return self.allocation.place(self.state, js, self.rule)

    def allows(self, js: Demand, placement: Placement) -> bool:
        """Return whether a job with a guarantee can have its due there."""
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
    """Running jobs brought to their due, as far as it is free: a policy that takes over from another begins there."""
    fair = {js.id: shares.of(js.placement, js.width) for js in state.running.values() if js.gpus}
    for job, proportional in fair.items():
        if (less := reduced(state.running[job].grant, proportional)) is not None:
            yield ReallocateJob(job, less)
    for job, proportional in fair.items():
        if state.check(ReallocateJob(job, proportional)) is None:
            yield ReallocateJob(job, proportional)


def granted(now: int, state: TrainingState, allocation: Allocation, actions: Iterable[Action]) -> Iterator[Action]:
    """Actions with what jobs hold filled in; each is done before the next one is asked for."""
    for action in actions:
        if isinstance(action, StartJob | MigrateJob) and action.grant is None:
            js = state.jobs[action.job]
            if isinstance(action, MigrateJob):
                with state.draft() as draft:
                    draft.release(js)
                    given, grant = allocation.enter(now, state, js, action.placement)
            else:
                given, grant = allocation.enter(now, state, js, action.placement)
            yield from given
            yield replace(action, grant=grant)
        else:
            yield action
