"""Which waiting tasks of a function run together, whether it pays to wait for more, and who those would be.

For each way to go on, what all requests concerned are then expected to cost is added up from the tables: run some or
all of those that wait, now; or wait for the next companions, those under way whose times are known and those expected
to arrive, and run with them. Who is not in the batch counts with what it costs on its own. The least sum decides.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from headway.serving.policies.headway.offers import Array, CostTables, Menu
from headway.serving.requeststate import RequestState, Stage
from headway.serving.state import ServingState
from headway.serving.workerstate import Batch
from headway.units import MILLISECOND

SOON = 2 * MILLISECOND
"""What is overdue is expected within this."""
AHEAD = 7
"""How many arrivals are looked forward to."""
FORGET = 0.1
"""How fast the gaps between arrivals, and the times that they are given, are learnt anew."""


class QueueEntry(NamedTuple):
    """One task of one request that waits, or will."""

    deadline: int
    request: int
    """-1: one that is only expected."""
    graph: int
    task: int
    when: int = 0
    """When it can run."""


class Choice(NamedTuple):
    """What to do about a function's waiting tasks."""

    entries: tuple[QueueEntry, ...]
    """Who runs together; with ``until`` who shall, the first of them waiting already."""
    values: Array
    """By offer: what it all costs, if they run with it."""
    until: int
    """When they run; now, or later."""


class Batching:
    """Weighs batches of one function by the tables of an outlook."""

    def __init__(self, menus: Sequence[Menu], usd: Sequence[Array], costs: CostTables) -> None:
        self.menus = menus
        self._usd = usd
        self.sizes = tuple(menu.size for menu in menus)
        self.largest = max(self.sizes, default=0)
        self._tables = costs.tables
        self._position = [
            next(index for index, size in enumerate(self.sizes) if size >= count)
            for count in range(1, self.largest + 1)
        ]

    def menu(self, count: int) -> Menu:
        """Return the offers for so many requests at once: those of the next size that was measured."""
        return self.menus[self._position[count - 1]]

    def values(self, entries: Sequence[QueueEntry], at: int) -> Array:
        """Return by offer what these cost together, and all that follows, if they run at this time."""
        position = self._position[len(entries) - 1]
        found = self._usd[position].copy()
        for entry in entries:
            table = self._tables[entry.graph][entry.task]
            found += table.after[position][table.index(entry.deadline - at)]
        return found

    def alone(self, entry: QueueEntry, at: int) -> float:
        """Return what one costs from here on, left to itself."""
        table = self._tables[entry.graph][entry.task]
        return float(table.rest[table.index(entry.deadline - at)])

    def choose(self, now: int, entries: Sequence[QueueEntry], coming: Sequence[QueueEntry]) -> Choice:
        """Return the best way to go on. ``lots``: who waits, tightest first; ``coming``: who will, soonest first."""
        first = entries[: self.largest]
        best, chosen = self._now(now, first)
        if len(first) == len(entries) and len(first) < self.largest and coming:
            expected = coming[: self.largest - len(first)]
            apart = [0.0]
            for entry in reversed(expected):
                apart.append(apart[-1] + self.alone(entry, max(now, entry.when)))
            apart.reverse()  # apart[k]: all companions from the k-th on
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
        """Return what all who wait cost with the best choice among those that wait, and that choice."""
        apart = [self.alone(entry, now) for entry in first]
        batches = [tuple(first[:size]) for size in (*(size for size in self.sizes if size < len(first)), len(first))]
        choices = [Choice(entries, self.values(entries, now), now) for entries in batches]
        return min(
            ((float(choice.values.min()) + sum(apart[len(choice.entries) :]), choice) for choice in choices),
            key=itemgetter(0),
        )

    def _worth_trying(self, waiting: int, coming: int) -> list[int]:
        """Return the numbers of companions that fill a batch, or all there are."""
        full = [size - waiting for size in self.sizes if 0 < size - waiting <= coming]
        return full if coming in full else [*full, coming]


class Forecast:
    """Who will wait for a function: tasks whose predecessors run, and as many as arrive at the usual pace."""

    def __init__(self, state: ServingState, allowed: Sequence[int]) -> None:
        """``allowed``: by graph, the time that a request is given, until some have been seen."""
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
        """Note that a request's first task is there."""
        self._allowed[graph] += FORGET * (deadline - now - self._allowed[graph])
        if self._latest[function] >= 0:
            gap, known = now - self._latest[function], self._gaps[function]
            self._gaps[function] = known + FORGET * (gap - known) if known else gap
        self._latest[function] = now

    def on_task_started(self, batch: Batch, rs: RequestState, task: int, deadline: int) -> None:
        """Note that a task runs: its successors follow when all that they wait for has run."""
        for after in rs.graph.successors[task]:
            if all(rs.stage[other] >= Stage.RUNNING for other in rs.graph.predecessors[after]):
                coming = self._running[rs.graph.tasks[after].function]
                key = rs.request.id, after
                when = max(batch.end, coming[key].when if key in coming else 0)
                coming[key] = QueueEntry(deadline, rs.request.id, rs.request.graph, after, when)

    def on_task_ready(self, function: int, request: int, task: int) -> None:
        """Expect a task no more: it waits, or will not come."""
        self._running[function].pop((request, task), None)

    def forget(self, requests: set[int]) -> None:
        """Expect nothing of these requests any more."""
        for function, coming in enumerate(self._running):
            self._running[function] = {key: entry for key, entry in coming.items() if key[0] not in requests}

    def upcoming(self, now: int, function: int) -> list[QueueEntry]:
        """Return the next ones, soonest first."""
        found = [
            entry if entry.when > now else entry._replace(when=now + SOON) for entry in self._running[function].values()
        ]
        first_tasks, gap = self._first_tasks[function], self._gaps[function]
        if first_tasks and gap:
            gap = max(gap, now - self._latest[function] - gap)  # a pause that lasts is a new pace
            for step in range(1, AHEAD + 1):
                graph, task = first_tasks[step % len(first_tasks)]
                when = now + max(round(gap * step), 1)
                found.append(QueueEntry(when + round(self._allowed[graph]), -1, graph, task, when))
        found.sort(key=lambda entry: (entry.when, entry))
        return found
