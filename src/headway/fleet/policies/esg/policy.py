"""esg: the K cheapest configurations of the next stages within the deadline, planned again at each stage."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

from headway.fleet.policies.central.forming import FormedBatches, Key, batch_sizes
from headway.fleet.policies.central.fronts import Option, cells_on
from headway.fleet.policies.central.pool import PoolPolicy
from headway.fleet.policies.esg.dominators import GROUP, Split, average_latencies
from headway.fleet.policies.esg.esg_1q import within_batch
from headway.fleet.state.state import ServingState

_KEPT = 64
"""How many splits are cached, with ``feedback``."""


@dataclass(eq=False)
class Esg(PoolPolicy):
    """Uses ESG's search and split; only the first stage of each plan is run."""

    name = "esg"

    least_options: ClassVar[dict[str, int]] = {"ranks": 1, "group": 1}
    ranks: int = 5
    group: int = GROUP
    together: bool = field(default=False, kw_only=True)
    feedback: bool = field(default=False, kw_only=True)

    def bind(self, state: ServingState) -> None:
        """Split each graph."""
        super().bind(state)
        self._graphs = graphs = state.catalogue.graphs
        self._weights = [average_latencies([cells_on(state, f) for f in graph.functions]) for graph in graphs]
        self._splits = [self._split(index, None) for index in range(len(graphs))]
        self._limited = lru_cache(_KEPT)(self._split)
        self._searched = 0
        """Configurations that splits with limits have looked at."""
        self.formed = FormedBatches(graphs, batch_sizes(self.options)) if self.feedback else None

    @property
    def states_evaluated(self) -> int:
        """Return how many configurations all searches have looked at."""
        return self._searched + sum(split.states for split in self._splits)

    def _split(self, index: int, limits: tuple[int, ...] | None) -> Split:
        """Return the split of a graph. ``limits``: by task, the largest batch that plans may count on."""
        graph = self._graphs[index]
        options = [self.options[function] for function in graph.functions]
        if limits is not None:
            options = [tuple(within_batch(each, most)) for each, most in zip(options, limits, strict=True)]
        return Split(graph, options, self._weights[index], size=self.group, ranks=self.ranks, together=self.together)

    def choices(
        self, now: int, state: ServingState, key: Key, requests: Sequence[int], slack: int, queue: int
    ) -> Sequence[Option]:
        """Return the first stages of the K cheapest paths."""
        graph, task = key
        if self.formed is None:
            paths = self._splits[graph].plan(task, slack, queue)
        else:
            split = self._limited(graph, self.formed.limits(graph, task))
            before = split.states
            paths = split.plan(task, slack, queue)
            self._searched += split.states - before
            self.formed.on_planned(graph, task, [option.configuration.batch for option in paths[0].options[1:]])
        return list(dict.fromkeys(path.options[0] for path in paths))
