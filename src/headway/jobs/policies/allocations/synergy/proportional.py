"""Proportional: each job has its GPUs' share of a node's CPUs, memory and storage bandwidth, no more and no less.

What clusters do today, and Synergy's baseline ("fair"; Mohan et al., OSDI 2022).
"""

from headway.jobs.model.actions import ReallocateJob
from headway.jobs.model.resources import Grant, Placement
from headway.jobs.policies.allocations.shared.demands import Demands, can_have_proportional, place_by_gpus
from headway.jobs.policies.parts import Allocation, PlacementRule
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.pool import Demand
from headway.jobs.state.state import TrainingState


class Proportional(Allocation):
    """The proportional share of each job."""

    name = "proportional"

    def bind(self, state: TrainingState) -> None:
        """Begin to divide the nodes of a state."""
        self._demands = Demands(state)

    def place(self, state: TrainingState, js: Demand, rule: PlacementRule) -> Placement | None:
        """Return where its GPUs are free, and jobs without GPUs leave it its proportional share."""
        if not js.gpus:
            return rule.place(state.pool, js)
        shares = self._demands.shares
        return place_by_gpus(
            state, state.jobs[js.id], rule, lambda _, node, gpus: can_have_proportional(state, shares, node, gpus)
        )

    def enter(
        self, now: int, state: TrainingState, js: JobState, placement: Placement
    ) -> tuple[list[ReallocateJob], Grant]:
        """Return the proportional share of a job; no other job changes."""
        return [], self._demands.proportional(js, placement)
