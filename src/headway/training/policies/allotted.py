"""An allocation as part of a policy: where jobs go, and with what.

``Allotted`` stands in for the policy's placement rule, so that backfills, migrations and preemption find places as the
allocation wants them. ``granted`` turns the bare starts and moves that they decide into ones that say what the job
holds, after what others give up for it.
"""

from collections.abc import Iterable, Iterator
from copy import copy

from msgspec.structs import replace

from headway.training.actions import Action, MigrateJob, Placement, ReallocateJob, StartJob
from headway.training.policies.allocations.shared.wants import can_have_due, lesser
from headway.training.policies.parts import Allocation, PlacementRule
from headway.training.pool import Demand, Pool
from headway.training.shares import Dues
from headway.training.state import TrainingState


class Allotted(PlacementRule):
    """A placement rule that an allocation has a say in."""

    name = "allotted"

    def __init__(self, rule: PlacementRule, allocation: Allocation) -> None:
        self.rule = rule
        self.allocation = allocation
        self.state: TrainingState | None = None
        self._dues: Dues | None = None

    def bind(self, state: TrainingState, dues: Dues) -> None:
        """Whose jobs it will place."""
        self.state, self._dues = state, dues

    def __copy__(self) -> "Allotted":
        """One that may be asked in its stead: of the same state, with a rule that remembers for itself."""
        other = Allotted(copy(self.rule), self.allocation)
        other.state, other._dues = self.state, self._dues
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
        state, dues = self.state, self._dues
        if state is None or dues is None or not self.allocation.guarantees or not js.gpus:
            return True
        return all(can_have_due(state, dues, node, mask.bit_count()) for node, mask in placement)

    def needs_one_node(self, pool: Pool, js: Demand) -> bool:
        """As the rule has it."""
        return self.rule.needs_one_node(pool, js)

    def domains(self, pool: Pool, js: Demand) -> Iterable[int]:  # type: ignore[override]
        """As the rule has them."""
        return self.rule.domains(pool, js)


def taken_over(state: TrainingState, dues: Dues) -> Iterator[ReallocateJob]:
    """Running jobs brought to their due, as far as it is free: a policy that takes over from another begins there."""
    fair = {js.id: dues.of(js.placement, js.width) for js in state.running.values() if js.gpus}
    for job, due in fair.items():
        if (less := lesser(state.running[job].grant, due)) is not None:
            yield ReallocateJob(job, less)
    for job, due in fair.items():
        if state.check(ReallocateJob(job, due)) is None:
            yield ReallocateJob(job, due)


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
