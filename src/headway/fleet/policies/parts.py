"""Base class of serving policies.

A policy is asked once an instant, with the state and what is new in it. Its constructor takes options and stores
them; ``bind`` is called once before the run, for what is worth computing beforehand (ranks, fronts).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from headway.fleet.model.actions import Action
from headway.fleet.model.graph import Graph
from headway.fleet.model.request import Request
from headway.fleet.state.state import ServingState


class ServingPolicy(ABC):
    """Decides for a whole fleet; under decentralised control for each worker with that worker's view alone."""

    name: ClassVar[str]
    central: ClassVar[bool] = False
    """Whether one planner decides with fresh rows; else each worker decides with its own view."""

    authors: ClassVar[dict[str, Any]] = {}
    """Defaults of its options under ``--fidelity authors``."""

    def bind(self, state: ServingState) -> None:  # noqa: B027  # most have nothing to prepare
        """Prepare for a run; called once, before the first decision."""

    def check_requests(  # noqa: B027  # few have options that depend on them
        self, requests: Sequence[Request], graphs: Sequence[Graph]
    ) -> None:
        """Raise where an option contradicts the requests of a run; called before it."""

    def plans_for(self, state: ServingState, requests: Sequence[Request]) -> str:
        """Return what a search before the run finds for its requests: the policy's option ``plans``; empty: nothing.

        Called once while a run is prepared. The result is kept in the experiment; it takes no time of the run.
        """
        return ""

    @property
    def states_evaluated(self) -> int:
        """Return how many states (configurations, or plans) its searches have evaluated since ``bind``."""
        return 0

    @abstractmethod
    def decide(self, now: int, state: ServingState) -> Iterator[Action]:
        """Return the actions of this instant."""
