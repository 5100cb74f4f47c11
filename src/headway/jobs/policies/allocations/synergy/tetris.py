"""Tetris as a complete scheduler: static full demands, packed by how well they match what is free.

The comparison of Synergy (Mohan et al., OSDI 2022) with Tetris (Grandl et al., SIGCOMM 2014), which takes demands as
given: a job gets all it could use or waits, as under ``greedy``. The job comes next that has the smallest remaining
work times packed demand, divided by the alignment of its demand with what is free: the dot product of the two, over
the sum of the demand. So of jobs with as much left to do the one comes first that wants what there is most of.
Whatever order the policy names only breaks ties.

Departures: the paper aligns a task with one machine, here a job is aligned with the whole cluster's free resources,
because it may need several machines; and it adds the two scores with a weight, where this divides one by the other, as
they have no common unit. No fairness knob.
"""

from collections.abc import Hashable, Iterable
from math import inf

from headway.jobs.policies.allocations.synergy.greedy import Greedy
from headway.jobs.policies.allocations.synergy.ties import Tied
from headway.jobs.policies.orders.tetris import Tetris
from headway.jobs.policies.parts import Order
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.queue import Key, own_key
from headway.jobs.state.state import TrainingState


class TetrisDemands(Greedy):
    """Full demands; jobs first that match what is free and have little work left."""

    name = "tetris"

    def order(self, order: Order) -> Order:
        """Return the order by alignment and remaining work; the policy's order breaks ties."""
        return Aligned(order)


class Aligned(Tied, Tetris):
    """Puts jobs of one demand into a lane; orders lanes by their first job's remaining work over its alignment."""

    def key(self, now: int, js: JobState) -> Key:
        """Return remaining work times demand, then the key of the order that breaks ties."""
        return super().key(now, js), self.ties.key(now, js)

    def lane(self, js: JobState) -> Hashable:
        """Return the demand: jobs with the same demand keep their order when what is free changes."""
        return self.packing.fractions(js)

    def lane_key(self, state: TrainingState, js: JobState) -> Key:
        """Return a job's remaining work times demand over its alignment with what is free now."""
        aligned = self.packing.alignment(state, js)
        return own_key(js.key)[0] / aligned if aligned else inf

    def victims(self, now: int, state: TrainingState, js: JobState) -> Iterable[JobState]:
        """Yield running jobs with more remaining work times demand, the most first; their alignment does not count."""
        mine = own_key(js.key)[0]
        for value, job in state.ranked.descending(now):
            if value <= mine:
                return
            yield state.running[job]
