"""Greedy: a job gets its full demand or waits (Synergy-GREEDY, the strawman of Mohan et al., OSDI 2022, section 4).

The demand is the smallest cell of the job's matrix that gives all its speed. The policy's placement finds a node that
has all of it free, in the policy's order. A job for which there is none is passed over, if the backfill lets others
pass. The grants of running jobs never change: GPUs whose node has run out of CPUs or memory stay idle while jobs wait.

Departures: a demand that does not fit on empty nodes is limited to what fits, so that no job waits for ever
(``full_demand.py``). A job of several GPUs whose demand is more than a node has may span nodes, as the placement has
it. Storage bandwidth, where it is counted, is a third resource.
"""

from headway.jobs.model.actions import ReallocateJob
from headway.jobs.model.resources import Grant, Placement
from headway.jobs.policies.allocations.synergy.full_demand import FullDemands
from headway.jobs.policies.parts import Allocation, PlacementRule
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.state import TrainingState


class Greedy(Allocation):
    """The full demand or nothing."""

    name = "greedy"
    guarantees = False

    def bind(self, state: TrainingState) -> None:
        """Begin to compute the demands of a state's jobs."""
        self._demands = FullDemands(state)

    def asks(self, js: JobState, rule: PlacementRule) -> Grant:
        """Return the full demand of a job."""
        return self._demands.within(js, rule)

    def enter(
        self, now: int, state: TrainingState, js: JobState, placement: Placement
    ) -> tuple[list[ReallocateJob], Grant]:
        """Return the full demand that the job waited for; no other job changes."""
        return [], js.grant
