"""Greedy: a job gets its full demand or waits (Synergy-GREEDY, the strawman of Mohan et al., OSDI 2022, section 4).

The demand is the smallest cell of the job's matrix that gives all its speed. The policy's placement finds a node that
has all of it free, in the policy's order; a job for which there is none is passed over, if the backfill lets others
pass. Nothing is ever taken from a running job, and nothing tuned: GPUs whose node has run out of CPUs or memory stay
idle while jobs wait.

Departures: a demand that no set of empty nodes could give is cut down to what one could, so that no job waits for ever
(``full.py``); one of several GPUs whose demand is more than a node has may be divided over nodes, as the placement has
it; storage bandwidth, where it is counted, is a third resource.
"""

from headway.training.actions import Grant, Placement, ReallocateJob
from headway.training.jobstate import JobState
from headway.training.policies.allocations.synergy.full_demand import FullDemands
from headway.training.policies.parts import Allocation, PlacementRule
from headway.training.state import TrainingState


class Greedy(Allocation):
    """Everything or nothing."""

    name = "greedy"
    guarantees = False

    def bind(self, state: TrainingState) -> None:
        """Take note whose jobs ask for what."""
        self._demands = FullDemands(state)

    def asks(self, js: JobState, rule: PlacementRule) -> Grant:
        """All that it can use."""
        return self._demands.within(js, rule)

    def enter(
        self, now: int, state: TrainingState, js: JobState, placement: Placement
    ) -> tuple[list[ReallocateJob], Grant]:
        """Return what it waited for; nobody gives anything up."""
        return [], js.grant
