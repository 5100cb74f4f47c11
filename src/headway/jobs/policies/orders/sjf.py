"""Shortest job first: by the estimated run time, without preemption unless it is asked for.

Optimal in mean waiting time on one machine among policies that never preempt, when estimates are right. Jobs with no
estimate of their own count with what the workload says they take (see ``--estimates``).
"""

from headway.jobs.policies.parts import Order
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.queue import Key


class Sjf(Order):
    """By estimated run time."""

    name = "sjf"
    starves = True

    def key(self, now: int, js: JobState) -> Key:
        """The whole estimate, whatever was delivered already."""
        return js.expected
