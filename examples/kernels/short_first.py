"""A policy of one's own for programs that share a GPU: short kernels go at any time, long ones wait for idle time.

    headway gpu compare resnet50 resnet101-b64 --seconds 0.2 \
        --policies "mps-priority,./examples/kernels/short_first.py:ShortFirst(longest=30us)"
"""

from collections.abc import Iterator

from headway.errors import ExperimentError
from headway.gpu import Action, LetGo, Policy, Reason, State, idle_above, in_turn
from headway.units import MICROSECOND, Duration

LONGEST = Duration(50 * MICROSECOND)


class ShortFirst(Policy):
    """One kernel of each program below at a time: at most ``longest``, or nobody above has anything on the GPU."""

    name = "short-first"
    raised = True  # the GPU heeds priorities too
    starves = True  # a long kernel waits as long as those above are at work

    def __init__(self, longest: Duration = LONGEST) -> None:
        if longest < 0:
            raise ExperimentError(f"policy short-first: longest={longest} must not be negative")
        self.longest = longest  # an option is stored under its name

    def decide(self, now: int, state: State) -> Iterator[Action]:
        """Asked whenever something happened; whoever is not let go waits on."""
        for client in in_turn(state):  # those at the gate, the highest priority first
            if client.outstanding:
                continue
            if idle_above(state, client):
                yield LetGo(client.id, client.reached, Reason.ALONE)
            elif client.fill <= self.longest:  # how long its kernel is predicted to take
                yield LetGo(client.id, client.reached, Reason.CREDIT)
