"""exact: the cheapest configurations for all that is left of a graph, planned anew at each stage. The yardstick.

No split and no groups: a label-setting programme over (time, cost) fronts gives the optimum for the whole rest of the
graph, for any graph. Where the rest is a chain the K cheapest paths are searched as in ``esg``, through all of it. Where
it forks, what runs already counts with the time that it still needs, and a task's alternatives are its own cheapest
options within the time that the optimum gives it. Queues, dispatch and warm processes are those of ``esg``.
"""

from collections.abc import Sequence

from headway.serving.graph import Graph
from headway.serving.policies.fronts import NEVER, Front, Option, fixed, front_of, whole
from headway.serving.policies.pool import LAST, Key, PoolPolicy
from headway.serving.policies.search import Search
from headway.serving.requeststate import RequestState, Stage
from headway.serving.state import ServingState
from headway.units import MILLISECOND

_BUCKET = 10 * MILLISECOND
"""How finely the time that running tasks still need is told apart."""


class Exact(PoolPolicy):
    """The optimum over everything that is left."""

    name = "exact"

    def __init__(
        self, ranks: int = 5, margin: float = 0.1, late: str = LAST, patience: int = 3, prewarm: bool = True
    ) -> None:
        self.ranks = ranks
        self.margin = margin
        self.late = late
        self.patience = patience
        self.prewarm = prewarm

    def bind(self, state: ServingState) -> None:
        """Searches for chains, fronts for the rest."""
        super().bind(state)
        self._fronts = [front_of(options) for options in self.options]
        self._searches: dict[Key, Search | None] = {}
        self._wholes: dict[tuple[int, tuple[int, ...]], Front] = {}

    def choices(self, now: int, state: ServingState, key: Key, requests: Sequence[int], slack: int) -> Sequence[Option]:
        """The first stages of the K cheapest paths, or the K cheapest within the time the optimum gives."""
        graph = state.catalogue.graphs[key[0]]
        if key not in self._searches:
            chain = _chain(graph, key[1])
            stages = [self.options[graph.tasks[task].function] for task in chain]
            self._searches[key] = Search(stages, self.ranks) if chain else None
        search = self._searches[key]
        if search is not None:
            paths = search.near(slack, len(requests))
            return list(dict.fromkeys(path.options[0] for path in paths))
        return self._forked(now, state, key, requests, slack)
