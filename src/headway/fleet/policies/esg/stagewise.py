"""stagewise: an ablation of ``esg``: each stage alone, within its fixed share of the deadline.

The deadline is divided once over the tasks, by their mean service time along the longest path through each. A stage
takes its cheapest configurations within its share, less what it waited. What earlier stages saved or lost does not
count. Queues, dispatch and warm processes are those of ``esg``. Priorities are head starts: tasks and queues go in the
order of the time since which they wait, less the head start.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice
from typing import ClassVar

from headway.fleet.policies.central.forming import Key
from headway.fleet.policies.central.fronts import NEVER, Option, skyband
from headway.fleet.policies.central.pool import PoolPolicy
from headway.fleet.policies.central.priority import HeadStarts
from headway.fleet.policies.esg.esg_1q import within_batch
from headway.fleet.state.state import ServingState


@dataclass(eq=False)
class Stagewise(PoolPolicy):
    """Gives each stage a share of the deadline, and its cheapest configurations within it."""

    name = "stagewise"

    least_options: ClassVar[dict[str, int]] = {"ranks": 1}
    ranks: int = 5
    states_evaluated: int = field(default=0, init=False)
    """Configurations that were looked at since ``bind``."""

    def bind(self, state: ServingState) -> None:
        """Compute the shares of all tasks."""
        super().bind(state)
        self._shares = shares_by_mean(state, self.options)
        self._band = cache(self._best)
        self._starts = HeadStarts(state)
        self.states_evaluated = 0

    def ordered(self, state: ServingState, keys: dict[Key, None]) -> Iterable[Key]:
        """Return the queues with the most urgent head first, where some request has a priority; sort those queues."""
        for request, _ in state.ended:
            if request not in state.requests:
                self._starts.forget(request)
        for request in state.landed:
            self._starts.note(state.requests[request].request)
        if not self._starts:
            return keys
        heads = {}
        for key in keys:
            queue = self._live[key] = dict(sorted(self._live[key].items(), key=partial(self._rank, state, key[1])))
            heads[key] = min(
                (self._rank(state, key[1], (request, None)) for request in islice(queue, 1)), default=NEVER
            )
        return sorted(keys, key=heads.__getitem__)

    def _rank(self, state: ServingState, task: int, queued: tuple[int, None]) -> int:
        """Return since when a task waits, less its head start; a request that is gone comes first, to be removed."""
        rs = state.requests.get(queued[0])
        return -1 if rs is None else rs.since[task] - self._starts.of(queued[0])

    def choices(
        self, now: int, state: ServingState, key: Key, requests: Sequence[int], slack: int, queue: int
    ) -> Sequence[Option]:
        """Return the stage's cheapest configurations within what is left of its share; else its fastest."""
        graph, task = key
        if slack < NEVER:
            rs = state.requests[requests[0]]
            share = self._shares[graph][task] * (rs.request.deadline - rs.request.arrival)
            slack = int(share / max(self.slower[graph])) - (now - rs.since[task])
        band = self._band(state.catalogue.graphs[graph].tasks[task].function, queue)
        feasible = bisect_right(band, slack, key=lambda option: option.time)
        self.states_evaluated += feasible
        return sorted(band[:feasible], key=lambda option: (option.cost, option.time))[: self.ranks] or band[:1]

    def _best(self, function: int, queue: int) -> tuple[Option, ...]:
        """Return the options that may be among the cheapest for some slack, with batches that a queue fills."""
        return skyband(within_batch(self.options[function], queue), self.ranks)


def shares_by_mean(state: ServingState, options: Sequence[Sequence[Option]]) -> list[list[float]]:
    """Return by graph and task the share of the deadline: by mean time, along the longest path through the task."""
    means = [sum(option.time for option in choices) / len(choices) for choices in options]
    shares = []
    for graph in state.catalogue.graphs:
        mean = [means[task.function] for task in graph.tasks]
        paths = zip(mean, graph.lengths_to(mean), graph.lengths_from(mean), strict=True)
        shares.append([time / (to + onward - time) for time, to, onward in paths])
    return shares
