"""Batches that form: until when a stage waits for more tasks, the wake-ups for it, and what came of planned batches.

``Wakes`` is the mechanics: each batch that waits asks once to be woken. ``Holding`` is the rule of policies with a pool
of tasks (``esg`` and its relatives): a batch waits until it is full, or its first task has waited for ``max_delay``.
With ``max_delay=slack`` the deadline says how long: the time between now and the latest start at which a full batch
still keeps it, divided over the stages ahead. No batch waits beyond that latest start, whatever ``max_delay`` is.
``FormedBatches`` compares the sizes that plans counted on with those that ran.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import ClassVar, Generic, Protocol, TypeVar

from headway.errors import ExperimentError
from headway.fleet.model.actions import WakeAt
from headway.fleet.model.graph import Graph
from headway.fleet.model.request import Request
from headway.fleet.policies.central.fronts import NEVER, Option
from headway.fleet.state.state import ServingState
from headway.units import exact_duration, parse_duration

SLACK = "slack"
OFF = "0"
_FORGET = 0.1
"""Weight of the latest batch in the means of planned and formed sizes."""
_LEAST = 20
"""Tasks of a stage that must have run before its mean counts."""

Key = tuple[int, int]
"""(graph, task): a queue."""
KeyT = TypeVar("KeyT", bound=Hashable)
_ROUNDING = 1e-9


class Wakes(Generic[KeyT]):
    """Wake-ups of batches that wait, each asked for once."""

    def __init__(self) -> None:
        self._asked: dict[KeyT, int] = {}
        self._heap: list[tuple[int, int, KeyT]] = []
        self._number = 0

    def hold(self, key: KeyT, until: int) -> Iterator[WakeAt]:
        """Ask to be woken when a batch must run, unless that was asked already."""
        if self._asked.get(key) != until:
            self._asked[key] = until
            self._number += 1
            heappush(self._heap, (until, self._number, key))
            yield WakeAt(until)

    def due(self, now: int) -> list[KeyT]:
        """Return the batches whose time has come, earliest first."""
        keys = []
        while self._heap and self._heap[0][0] <= now:
            until, _, key = heappop(self._heap)
            keys.append(key)
            if self._asked.get(key) == until:
                del self._asked[key]
        return keys


def parse_delay(policy: str, text: str) -> int | None:
    """Return the option ``max_delay`` in nanoseconds; None: by the slack of the deadline."""
    if text == SLACK:
        return None
    what = f"policy {policy}: option max_delay"
    if text.startswith("-"):
        raise ExperimentError(f"{what}={text} is negative: write a duration, or {SLACK}")
    return parse_duration(text, what=what)


def check_options(policy: str, max_delay: str, insist: bool) -> None:
    """Raise where the options about batches that wait make no sense."""
    if parse_delay(policy, max_delay) == 0 and insist:
        rule = "needs a max_delay: a plan insists on its batch while that may wait"
        raise ExperimentError(f"policy {policy}: option insist=on {rule}")


def check_delay(
    policy: str, delay: int, requests: Iterable[Request], graphs: Sequence[Graph], *, remedy: str = "give a shorter one"
) -> None:
    """Raise where a batch may wait as long as the deadline of a request, or longer."""
    for request in requests:
        if request.deadline and delay >= (allowed := request.deadline - request.arrival):
            raise ExperimentError(
                f"policy {policy}: option max_delay={exact_duration(delay)} is not shorter than the deadline of "
                f"{graphs[request.graph].name}, {exact_duration(allowed)}: {remedy}"
            )


def time_left(now: int, state: ServingState, request: int) -> int:
    """Return the time from ``now`` to the deadline of a request; ``NEVER`` where it has none."""
    deadline = state.requests[request].request.deadline
    return deadline - now if deadline else NEVER


class Holding:
    """Says until when the tasks at the head of a queue wait for others."""

    def __init__(
        self,
        delay: int | None,
        graphs: Sequence[Graph],
        options: Sequence[Sequence[Option]],
        slower: Sequence[Sequence[float]],
        *,
        insist: bool,
    ) -> None:
        """Compute what full batches and later stages take at least.

        ``delay``: the most that a task waits; None: its share of the slack. ``options``: by function. ``slower``: by
        graph and task, the factor of the reserve. ``insist``: wait for the batch of the plan, not for the largest.
        """
        self._delay, self._graphs, self._options, self._slower, self._insist = delay, graphs, options, slower, insist
        self._most = [max(option.configuration.batch for option in choices) for choices in options]
        fastest = [min(choices).time for choices in options]
        lengths = [graph.lengths_from([fastest[function] for function in graph.functions]) for graph in graphs]
        self._after = [
            [whole - fastest[function] for whole, function in zip(of_graph, graph.functions, strict=True)]
            for of_graph, graph in zip(lengths, graphs, strict=True)
        ]
        """By graph and task: the least time of what follows."""
        self._stages = [graph.lengths_from([1] * len(graph.tasks)) for graph in graphs]
        self.wakes: Wakes[Key] = Wakes()

    def until(
        self, state: ServingState, key: Key, heads: Sequence[int], plan: Callable[[int], Sequence[Option]], ahead: int
    ) -> int:
        """Return until when the heads of a queue wait for more; 0: they do not.

        ``plan``: returns the options for a queue that may become so long, the best first. ``ahead``: what a plan that
        is fixed takes from here on, 0 where there is none.
        """
        (graph, task), first = key, state.requests[heads[0]]
        wanted = most = self._most[self._graphs[graph].functions[task]]
        if self._insist and len(heads) < most:
            wanted = plan(most)[0].configuration.batch
        if len(heads) >= wanted:
            return 0
        since = first.since[task]
        left = min(time_left(since, state, request) for request in heads)
        return since + self._longest(key, left, wanted, ahead)

    def time_to_run(self, graph: int, slack: int) -> int:
        """Return what a plan for a whole graph has of the slack, where its batches wait in the rest of it.

        With waits by the slack it is half, so that a stage may wait as long as it runs.
        """
        return slack // 2 if self._delay is None else max(0, slack - self._delay * max(self._stages[graph]))

    def _longest(self, key: Key, left: int, wanted: int, ahead: int) -> int:
        """Return how long a task waits for a batch of ``wanted``, where its deadline is ``left`` after it was ready."""
        graph, task = key
        options = self._options[self._graphs[graph].functions[task]]
        full = min(option.time for option in options if option.configuration.batch >= wanted)
        if left >= NEVER:
            return full if self._delay is None else self._delay
        spare = max(0, int(left / self._slower[graph][task]) - max(ahead, full + self._after[graph][task]))
        return spare // self._stages[graph][task] if self._delay is None else min(self._delay, spare)


class Holds(Protocol):
    """What ``holding_of`` needs of a policy."""

    name: ClassVar[str]
    max_delay: str
    insist: bool
    options: list[tuple[Option, ...]]
    slower: list[list[float]]


def holding_of(policy: Holds, graphs: Sequence[Graph]) -> Holding | None:
    """Return the rule by which the batches of a policy wait; None: they do not."""
    delay = parse_delay(policy.name, policy.max_delay)
    return None if delay == 0 else Holding(delay, graphs, policy.options, policy.slower, insist=policy.insist)


class FormedBatches:
    """Compares batch sizes by stage: what plans counted on, and what ran; says what the next plan may count on."""

    def __init__(self, graphs: Sequence[Graph], sizes: Sequence[Iterable[int]]) -> None:
        """Begin without batches. ``sizes``: by function, the batch sizes that were measured."""
        self._graphs = graphs
        self._sizes = [sorted(set(each)) for each in sizes]
        self.planned: dict[Key, float] = {}
        """By graph and task: the mean size that plans counted on there."""
        self.formed: dict[Key, float] = {}
        """By graph and task: the mean size of the batches that ran there, as their requests saw it."""
        self._seen: dict[Key, int] = {}

    def on_planned(self, graph: int, task: int, sizes: Sequence[int]) -> None:
        """Note the sizes that a plan counts on for the tasks that follow ``task`` in a chain."""
        after = self._graphs[graph].successors
        for size in sizes:
            if len(after[task]) != 1:
                return
            task = after[task][0]
            mean = self.planned.get((graph, task), float(size))
            self.planned[graph, task] = mean + _FORGET * (size - mean)

    def on_formed(self, key: Key, size: int, tasks: int) -> None:
        """Note the size of a batch that runs, once for each of its tasks of this stage."""
        mean = self.formed.get(key, float(size))
        self.formed[key] = size + (1 - _FORGET) ** tasks * (mean - size)
        self._seen[key] = self._seen.get(key, 0) + tasks

    def limits(self, graph: int, task: int) -> tuple[int, ...]:
        """Return by task of a graph the largest batch that a plan made at ``task`` may count on."""
        return tuple(
            self._sizes[function][-1] if other == task else self.expected((graph, other))
            for other, function in enumerate(self._graphs[graph].functions)
        )

    def by_function(self) -> tuple[int, ...]:
        """Return by function the largest batch that a plan may count on, at the stage of it where that is most."""
        most = [0] * len(self._sizes)
        for index, graph in enumerate(self._graphs):
            for task, function in enumerate(graph.functions):
                most[function] = max(most[function], self.expected((index, task)))
        return tuple(most)

    def expected(self, key: Key) -> int:
        """Return the largest batch that a plan may count on at a stage: a measured size, no more than the mean.

        The largest of all while too few tasks have run there.
        """
        sizes = self._sizes[self._graphs[key[0]].functions[key[1]]]
        if self._seen.get(key, 0) < _LEAST:
            return sizes[-1]
        return max((size for size in sizes if size <= self.formed[key] + _ROUNDING), default=sizes[0])


def batch_sizes(options: Sequence[Sequence[Option]]) -> list[set[int]]:
    """Return by function the batch sizes of its options."""
    return [{option.configuration.batch for option in choices} for choices in options]
