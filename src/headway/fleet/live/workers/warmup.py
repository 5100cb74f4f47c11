"""Warm up a worker: run its tasks on their examples before it takes orders.

Libraries load their kernels, and choose among them, when a shape first comes: on a GPU the first run of a function, and
the first of each batch size, takes up to seconds where later ones take milliseconds.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from headway.fleet.scenarios.app import batches_of
from headway.program.pipeline import Graph, Task

Call = Callable[[Task, list[list[Any]]], list[Any]]
"""Runs a task, its models loaded, on a list of inputs from each task before it; returns a list of results."""
_EVERY_SIZE = 8
"""Tasks with larger batches are warmed up for the sizes that a profile measures."""


def warm_up(graphs: Sequence[Graph], call: Call) -> Iterator[str]:
    """Run every task on a device for each batch size; yield a line for each graph that cannot be run."""
    done: set[Task] = set()
    for graph in graphs:
        try:
            _push(graph, call, done)
        except Exception as problem:  # noqa: BLE001 - the user's functions; requests will say it again
            yield f"graph {graph.name} is not warmed up: {type(problem).__name__}: {problem}"


def _push(graph: Graph, call: Call, done: set[Task]) -> None:
    """Push the examples of a graph through it."""
    count = max(task.max_batch for task in graph.tasks)
    results: list[list[Any]] = []
    for at, task in enumerate(graph.tasks):
        lists = [results[before] for before in graph.predecessors(at)]
        if not lists:
            if task.example is None:
                raise ValueError(f"task {task.name} has no example")
            lists = [list(task.example(count))]
        if task.slices and task not in done:
            for size in _sizes(task):
                call(task, [each[:size] for each in lists])
            done.add(task)
        found: list[Any] = []
        for start in range(0, count, task.max_batch):
            found += call(task, [each[start : start + task.max_batch] for each in lists])
        results.append(found)


def _sizes(task: Task) -> Sequence[int]:
    return range(1, task.max_batch + 1) if task.max_batch <= _EVERY_SIZE else batches_of(task)
