"""Headway's serving policy: decide configuration, placement and residency together.

With central control (``state.central``) ``Central`` decides for the whole fleet: batches, CPUs and slices that keep the
deadline at least cost. With decentralised control ``Decentralised`` decides: each request is placed by the worker that
it reached, and each worker orders, batches, evicts and fetches for itself.
docs/reference/policies/fleet/headway.md says how, and where it departs from Compass.
"""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from headway.errors import ExperimentError
from headway.fleet.model.actions import Action
from headway.fleet.model.graph import Graph
from headway.fleet.model.request import Request
from headway.fleet.policies.central.forming import check_delay
from headway.fleet.policies.compass.worker import FIFO, LOOKAHEAD
from headway.fleet.policies.headway.central.decide import LONGEST, Central
from headway.fleet.policies.headway.worker.decide import Decentralised
from headway.fleet.policies.parts import ServingPolicy
from headway.fleet.state.state import ServingState
from headway.units import Duration


class Headway(ServingPolicy):
    """Weighs weights, queues, slices, deadlines and cost together; ``state.central`` says which half decides."""

    name = "headway"
    authors: ClassVar[dict[str, Any]] = {"evict": FIFO, "prefetch": 0}

    def __init__(
        self,
        evict: str = LOOKAHEAD,
        prefetch: int = 3,
        drop: bool = True,
        max_delay: Duration = LONGEST,
        feedback: bool = False,
    ) -> None:
        """Store the options.

        ``drop``: drop requests that cannot be answered by their deadline. Under central control alone ``max_delay``:
        the longest time that a batch waits for more tasks, and ``feedback``: count only on batches that form.
        """
        if evict not in (FIFO, LOOKAHEAD):
            raise ExperimentError(f"policy headway: option evict={evict} is neither {LOOKAHEAD} nor {FIFO}")
        if prefetch < 0:
            raise ExperimentError(f"policy headway: option prefetch={prefetch} is negative: it counts tasks to look at")
        self.evict = evict
        self.prefetch = prefetch
        self.drop = drop
        self.max_delay = max_delay
        self.feedback = feedback

    def check_requests(self, requests: Sequence[Request], graphs: Sequence[Graph]) -> None:
        """Raise where a batch may wait beyond a deadline, if someone asked for that."""
        if self.max_delay is not LONGEST:  # given, though it may be as long as the default
            check_delay(self.name, self.max_delay, requests, graphs)

    def bind(self, state: ServingState) -> None:
        """Choose the half that decides, and bind it."""
        central = Central(self.drop, self.max_delay, feedback=self.feedback)
        placed = Decentralised(self.evict, self.prefetch, drop=self.drop)
        self._half: Central | Decentralised = central if state.central else placed
        self._half.bind(state)

    @property
    def states_evaluated(self) -> int:
        """Return how many offers, or places for a task, were looked at."""
        return self._half.states_evaluated

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        """Return the actions of the half that decides."""
        return self._half.decide(now, state)
