"""Batching under central control: which waiting tasks of a function run together, and whether to wait for more.

Each choice is scored by the expected cost of all requests concerned, from the cost tables. The choices are: run some or
all of the waiting tasks now, or wait for the next tasks that are expected and run with them. Tasks outside the batch
count with their cost alone. The least sum decides.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from headway.fleet.policies.headway.central.offers import Array, CostTables, Menu
from headway.fleet.state.requeststate import RequestState, Stage
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import Batch
from headway.units import MILLISECOND

SOON = 2 * MILLISECOND
"""A task that is overdue is expected after this."""
AHEAD = 7
"""How many future arrivals are forecast."""
FORGET = 0.1
"""Weight of the latest sample in the moving averages of inter-arrival times and of times to the deadline."""


class QueueEntry(NamedTuple):
    """A task of a request that waits, or is expected to."""

    deadline: int
    request: int
    """-1: a forecast request."""
    graph: int
    task: int
    when: int = 0
    """When it can run."""


class Choice(NamedTuple):
    """A batch of a function's waiting tasks, and when it runs."""

    entries: tuple[QueueEntry, ...]
    """The tasks that run together; where they run later, those that wait already come first."""
    values: Array
    """By offer: the expected cost of all of them if they run with it."""
    until: int
    """When they run; now, or later."""


class Batching:
    """Scores batches of one function with the cost tables."""

    def __init__(self, menus: Sequence[Menu], usd: Sequence[Array], costs: CostTables) -> None:
        self.menus = menus
        self._usd = usd
        self.offers = sum(map(len, usd))
        self.sizes = tuple(menu.size for menu in menus)
        self.largest = max(self.sizes, default=0)
        self._tables = costs.tables
        self._position = [
            next(index for index, size in enumerate(self.sizes) if size >= count)
            for count in range(1, self.largest + 1)
        ]

    def menu(self, count: int) -> Menu:
        """Return the offers for a batch of ``count``: those of the next size that was measured."""
        return self.menus[self._position[count - 1]]

    def values(self, entries: Sequence[QueueEntry], at: int) -> Array:
        """Return by offer the expected cost of these tasks and their successors if they run together at ``at``."""
        position = self._position[len(entries) - 1]
        costs = self._usd[position].copy()
        for entry in entries:
            table = self._tables[entry.graph][entry.task]
            costs += table.after[position][table.index(entry.deadline - at)]
        return costs

    def alone(self, entry: QueueEntry, at: int) -> float:
        """Return the expected cost of one task and its successors, if it is not batched with these."""
        table = self._tables[entry.graph][entry.task]
        return float(table.rest[table.index(entry.deadline - at)])

    def choose(self, now: int, entries: Sequence[QueueEntry], coming: Sequence[QueueEntry]) -> Choice:
        """Return the choice of least expected cost.

        ``entries``: waiting tasks, earliest deadline first. ``coming``: expected tasks, soonest first.
        """
        first = entries[: self.largest]
        best, chosen = self._now(now, first)
        if len(first) == len(entries) and len(first) < self.largest and coming:
            expected = coming[: self.largest - len(first)]
            apart = [0.0]
            for entry in reversed(expected):
                apart.append(apart[-1] + self.alone(entry, max(now, entry.when)))
            apart.reverse()  # apart[k]: all expected tasks from the k-th on
            best += apart[0]
            for more in self._worth_trying(len(first), len(expected)):
                at = max(now, expected[more - 1].when)
                together = (*first, *expected[:more])
                values = self.values(together, at)
                total = float(values.min()) + apart[more]
                if total < best:
                    best, chosen = total, Choice(together, values, at)
        return chosen

    def _now(self, now: int, first: Sequence[QueueEntry]) -> tuple[float, Choice]:
        """Return the best choice that runs now, and the expected cost of all waiting tasks with it."""
        apart = [self.alone(entry, now) for entry in first]
        batches = [tuple(first[:size]) for size in (*(size for size in self.sizes if size < len(first)), len(first))]
        choices = [Choice(entries, self.values(entries, now), now) for entries in batches]
        return min(
            ((float(choice.values.min()) + sum(apart[len(choice.entries) :]), choice) for choice in choices),
            key=itemgetter(0),
        )

    def _worth_trying(self, waiting: int, coming: int) -> list[int]:
        """Return how many expected tasks to wait for: numbers that fill a batch, and all of them."""
        full = [size - waiting for size in self.sizes if 0 < size - waiting <= coming]
        return full if coming in full else [*full, coming]


class Forecast:
    """Forecasts the tasks of each function: successors of running tasks, and arrivals at the recent rate."""

    def __init__(self, state: ServingState, allowed: Sequence[int]) -> None:
        """Start the averages. ``allowed``: by graph, the time to the deadline to assume until some were seen."""
        functions = len(state.catalogue.functions)
        self._running: list[dict[tuple[int, int], QueueEntry]] = [{} for _ in range(functions)]
        self._allowed = [float(time) for time in allowed]
        self._gaps = [0.0] * functions
        self._latest = [-1] * functions
        entries = [
            (graph.tasks[task].function, (index, task))
            for index, graph in enumerate(state.catalogue.graphs)
            for task in graph.entries
        ]
        self._first_tasks = [
            [first for called, first in entries if called == function] for function in range(functions)
        ]

    def on_request_arrived(self, now: int, graph: int, function: int, deadline: int) -> None:
        """Update the averages with a request whose first task is ready."""
        self._allowed[graph] += FORGET * (deadline - now - self._allowed[graph])
        if self._latest[function] >= 0:
            gap, known = now - self._latest[function], self._gaps[function]
            self._gaps[function] = known + FORGET * (gap - known) if known else gap
        self._latest[function] = now

    def on_task_started(self, batch: Batch, rs: RequestState, task: int, deadline: int) -> None:
        """Forecast the successors of a task that started, where all their predecessors have."""
        for after in rs.graph.successors[task]:
            if all(rs.stage[other] >= Stage.RUNNING for other in rs.graph.predecessors[after]):
                coming = self._running[rs.graph.tasks[after].function]
                key = rs.request.id, after
                when = max(batch.end, coming[key].when if key in coming else 0)
                coming[key] = QueueEntry(deadline, rs.request.id, rs.request.graph, after, when)

    def on_task_ready(self, function: int, request: int, task: int) -> None:
        """Remove a task from the forecast: it is ready."""
        self._running[function].pop((request, task), None)

    def forget(self, requests: set[int]) -> None:
        """Remove these requests from the forecast."""
        for function, coming in enumerate(self._running):
            self._running[function] = {key: entry for key, entry in coming.items() if key[0] not in requests}

    def upcoming(self, now: int, function: int) -> list[QueueEntry]:
        """Return the forecast tasks of a function, soonest first."""
        forecast = [
            entry if entry.when > now else entry._replace(when=now + SOON) for entry in self._running[function].values()
        ]
        first_tasks, gap = self._first_tasks[function], self._gaps[function]
        if first_tasks and gap:
            gap = max(gap, now - self._latest[function] - gap)  # a pause that lasts is a new pace
            for step in range(1, AHEAD + 1):
                graph, task = first_tasks[step % len(first_tasks)]
                when = now + max(round(gap * step), 1)
                forecast.append(QueueEntry(when + round(self._allowed[graph]), -1, graph, task, when))
        forecast.sort(key=lambda entry: (entry.when, entry))
        return forecast
