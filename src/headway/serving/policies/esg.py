"""esg: the K cheapest configurations of the next stages within the deadline, planned again at each stage."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from headway.serving.policies.fronts import Option, cells_on
from headway.serving.policies.pool import Key, PoolPolicy
from headway.serving.policies.split import GROUP, Split, average_latencies
from headway.serving.state import ServingState


@dataclass(eq=False)
class Esg(PoolPolicy):
    """Uses ESG's search and split; only the first stage of each plan is run."""

    name = "esg"

    least_options: ClassVar[dict[str, int]] = {"ranks": 1, "group": 1}
    ranks: int = 5
    group: int = GROUP
    together: bool = field(default=False, kw_only=True)

    def bind(self, state: ServingState) -> None:
        """Split each graph."""
        super().bind(state)
        self._splits = [
            Split(
                graph,
                [self.options[function] for function in graph.functions],
                average_latencies([cells_on(state, function) for function in graph.functions]),
                size=self.group,
                ranks=self.ranks,
                together=self.together,
            )
            for graph in state.catalogue.graphs
        ]

    @property
    def states_evaluated(self) -> int:
        """Return how many configurations all searches have looked at."""
        return sum(split.states for split in self._splits)

    def choices(self, now: int, state: ServingState, key: Key, requests: Sequence[int], slack: int) -> Sequence[Option]:
        """Return the first stages of the K cheapest paths."""
        paths = self._splits[key[0]].plan(key[1], slack, len(requests))
        return list(dict.fromkeys(path.options[0] for path in paths))
