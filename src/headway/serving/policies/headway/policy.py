"""Headway: configuration × placement × residency decided together.

Where one place decides for the whole fleet (``state.central``) it is ``Configuring`` that does: batches, CPUs and
slices against the deadline at true cost. Where every worker decides with its own view it is ``Placed``: each request
is placed by the worker that it reached, and each worker orders, batches, evicts and fetches for itself.
docs/serving/headway.md says how, and where it departs from Compass.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

from headway.errors import ExperimentError
from headway.serving.actions import Action
from headway.serving.policies.headway.central import Central
from headway.serving.policies.headway.decentralised import Decentralised
from headway.serving.policies.local import FIFO, LOOKAHEAD
from headway.serving.policies.parts import ServingPolicy
from headway.serving.state import ServingState


class Headway(ServingPolicy):
    """The policy that knows weights, queues, slices, deadlines and cost at once; the setting says who decides."""

    name = "headway"
    authors: ClassVar[dict[str, Any]] = {"evict": FIFO, "prefetch": 0}

    def __init__(self, evict: str = LOOKAHEAD, prefetch: int = 3, drop: bool = True) -> None:
        """``drop``: give up requests that cannot be answered by their deadline."""
        if evict not in (FIFO, LOOKAHEAD):
            raise ExperimentError(f"policy headway: option evict={evict} is neither {LOOKAHEAD} nor {FIFO}")
        if prefetch < 0:
            raise ExperimentError(f"policy headway: option prefetch={prefetch} is negative: it counts tasks to look at")
        self.evict = evict
        self.prefetch = prefetch
        self.drop = drop

    def bind(self, state: ServingState) -> None:
        """Choose the half that the setting asks for."""
        placed = Decentralised(self.evict, self.prefetch, drop=self.drop)
        self._half: Central | Decentralised = Central(drop=self.drop) if state.central else placed
        self._half.bind(state)

    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        """See the halves."""
        return self._half.decide(now, state)
