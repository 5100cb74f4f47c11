"""First in, first out: jobs in the order of their submission. A job that was preempted keeps its place.

The oldest discipline, and the default of most cluster schedulers. No paper, no departures.
"""

from headway.jobs.policies.parts import Order
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.queue import Key


class Fifo(Order):
    """By submission."""

    name = "fifo"
    in_turn = True

    def key(self, now: int, js: JobState) -> Key:
        """Return the id: ids are given in order of submission."""
        return js.id
