"""stagewise: each stage alone, within its fixed share of the deadline. What INFless and FaST-GShare do, by class.

The deadline is divided once over the tasks, by their mean service time along the longest way through each. A stage
takes its cheapest configurations that keep to its share, less what it waited; what earlier stages saved or lost is not
its business. Queues, dispatch and warm processes are those of ``esg``: only the choice differs.
"""

from bisect import bisect_right
from collections.abc import Sequence

from headway.serving.policies.fronts import NEVER, Option, skyband
from headway.serving.policies.pool import LAST, Key, PoolPolicy
from headway.serving.state import ServingState


class Stagewise(PoolPolicy):
    """A share of the deadline a stage, and its cheapest configurations within it."""

    name = "stagewise"

    def __init__(
        self, ranks: int = 5, deviations: float = 2.0, late: str = LAST, patience: int = 3, prewarm: bool = True
    ) -> None:
        self.ranks = ranks
        self.deviations = deviations
        self.late = late
        self.patience = patience
        self.prewarm = prewarm
        self.check_options(ranks=1)

    def bind(self, state: ServingState) -> None:
        """Shares by graph and task."""
        super().bind(state)
        means = [sum(option.time for option in options) / len(options) for options in self.options]
        self._shares: list[list[float]] = []
        for graph in state.catalogue.graphs:
            mean = [means[task.function] for task in graph.tasks]
            to, onward = [0.0] * len(mean), [0.0] * len(mean)
            for task in graph.order:
                to[task] = mean[task] + max((to[other] for other in graph.predecessors[task]), default=0.0)
            for task in reversed(graph.order):
                onward[task] = mean[task] + max((onward[other] for other in graph.successors[task]), default=0.0)
            self._shares.append([mean[task] / (to[task] + onward[task] - mean[task]) for task in range(len(mean))])
        self._bands: dict[tuple[int, int], tuple[Option, ...]] = {}

    def choices(self, now: int, state: ServingState, key: Key, requests: Sequence[int], slack: int) -> Sequence[Option]:
        """The stage's cheapest configurations within what is left of its share; else its fastest."""
        graph, task = key
        if slack < NEVER:
            rs = state.requests[requests[0]]
            share = self._shares[graph][task] * (rs.request.deadline - rs.request.arrival)
            slack = int(share / max(self.slower[graph])) - (now - rs.since[task])
        band = self._band(state.catalogue.graphs[graph].tasks[task].function, len(requests))
        feasible = bisect_right(band, slack, key=lambda option: option.time)
        return sorted(band[:feasible], key=lambda option: (option.cost, option.time))[: self.ranks] or band[:1]

    def _band(self, function: int, queue: int) -> tuple[Option, ...]:
        """What may be among the cheapest for some time, with batches that a queue fills."""
        band = self._bands.get((function, queue))
        if band is None:
            options = self.options[function]
            least = min(option.configuration.batch for option in options)
            within = [option for option in options if option.configuration.batch <= max(queue, least)]
            band = self._bands[function, queue] = skyband(within, self.ranks)
        return band
