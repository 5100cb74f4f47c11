"""An inference pipeline: a graph of tasks, each a call of one function, its result the input of what follows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import networkx as nx

from headway.errors import ExperimentError

Time = TypeVar("Time", int, float)


@dataclass(frozen=True, slots=True)
class Task:
    """A node of a graph."""

    name: str
    function: int
    """Which function of the catalogue it calls."""
    input_bytes: int = 0
    """Bytes of the request's own input; counts for tasks without predecessors."""
    output_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Graph:
    """Tasks and their dependencies. Everywhere else a task is its position in ``tasks``."""

    name: str
    tasks: tuple[Task, ...]
    edges: tuple[tuple[int, int], ...]
    ttft: int = 0
    """Deadline of the first token that its last generating task gives, from the arrival; 0: none."""
    tpot: int = 0
    """Deadline of each further token, in the mean over a request; 0: none."""
    predecessors: tuple[tuple[int, ...], ...] = field(init=False)
    successors: tuple[tuple[int, ...], ...] = field(init=False)
    order: tuple[int, ...] = field(init=False)
    """Topological order; ties by position."""
    entries: tuple[int, ...] = field(init=False)
    """Tasks without predecessors."""
    functions: tuple[int, ...] = field(init=False)
    """By task, the function that it calls."""
    waits: tuple[int, ...] = field(init=False)
    """By task, the number of its predecessors."""

    def __post_init__(self) -> None:
        if not (count := len(self.tasks)):
            raise ExperimentError(f"graph {self.name}: has no tasks")
        before: list[list[int]] = [[] for _ in range(count)]
        after: list[list[int]] = [[] for _ in range(count)]
        for source, target in self.edges:
            if not (0 <= source < count and 0 <= target < count):
                raise ExperimentError(f"graph {self.name}: edge {source} → {target} leads to no task")
            if source in before[target]:
                raise ExperimentError(f"graph {self.name}: edge {self._named((source, target))} is there twice")
            before[target].append(source)
            after[source].append(target)
        net = nx.DiGraph()
        net.add_nodes_from(range(count))
        net.add_edges_from(self.edges)
        if not nx.is_directed_acyclic_graph(net):
            cycle = [source for source, _ in nx.find_cycle(net)]
            raise ExperimentError(f"graph {self.name}: has a cycle, {self._named([*cycle, cycle[0]])}")
        object.__setattr__(self, "predecessors", tuple(map(tuple, before)))
        object.__setattr__(self, "successors", tuple(map(tuple, after)))
        object.__setattr__(self, "order", tuple(nx.lexicographical_topological_sort(net)))
        object.__setattr__(self, "entries", tuple(task for task in range(count) if not before[task]))
        object.__setattr__(self, "functions", tuple(task.function for task in self.tasks))
        object.__setattr__(self, "waits", tuple(map(len, before)))

    def critical_path(self, times: Sequence[int]) -> int:
        """Return the length of the critical path when task ``i`` takes ``times[i]`` and nothing else takes time."""
        return max(self.lengths_to(times))

    def lengths_to(self, times: Sequence[Time]) -> list[Time]:
        """Return by task the longest path from the beginning to its end, when task ``i`` takes ``times[i]``."""
        return _lengths(times, self.order, self.predecessors)

    def lengths_from(self, times: Sequence[Time]) -> list[Time]:
        """Return by task the longest path from its start to the end, when task ``i`` takes ``times[i]``."""
        return _lengths(times, reversed(self.order), self.successors)

    def _named(self, tasks: Iterable[int]) -> str:
        return " → ".join(self.tasks[task].name for task in tasks)


def _lengths(times: Sequence[Time], order: Iterable[int], before: Sequence[Sequence[int]]) -> list[Time]:
    """Return by task its time plus the longest path before it; ``order``: ``before[task]`` comes before ``task``."""
    lengths = list(times[: len(before)])
    for task in order:
        lengths[task] += max((lengths[other] for other in before[task]), default=0)
    return lengths
