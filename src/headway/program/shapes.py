"""Shapes of pipelines: what ``first >> {second, third} >> last`` means, before it has a name.

A shape has tasks and edges. ``>>`` leads from every last task of the left to every first task of the right; a set, a
list or a tuple puts its parts side by side. A set has no order: its parts come in the order in which their tasks were
defined.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from headway.errors import InputError

_numbers = count()
_ONCE = "a graph calls a task once and has no cycles; define a second task for a second call"


class Part:
    """Something that ``>>`` joins: a task, or a shape of tasks."""

    def shape(self) -> "Shape":
        """Return it as a shape."""
        raise NotImplementedError

    def __rshift__(self, other: Any) -> "Shape":
        """Return the shape in which ``other`` follows."""
        return joined(self.shape(), shape_of(other))

    def __rrshift__(self, other: Any) -> "Shape":
        """Return the shape in which this follows ``other``: a set, a list or a tuple."""
        return joined(shape_of(other), self.shape())


@dataclass(frozen=True, eq=False)
class Node(Part):
    """A part that is one task."""

    name: str
    defined: int = field(default_factory=_numbers.__next__, init=False, repr=False)
    """When it was made, among all others: the order of definition in a file."""

    def shape(self) -> "Shape":
        """Return the shape of this task alone."""
        return Shape((self,), (), (self,), (self,))


@dataclass(frozen=True, eq=False)
class Shape(Part):
    """Tasks and edges, in the order in which they were written."""

    tasks: tuple[Node, ...]
    edges: tuple[tuple[Node, Node], ...]
    first: tuple[Node, ...]
    """Tasks that nothing in it precedes."""
    last: tuple[Node, ...]
    """Tasks that nothing in it follows."""

    def shape(self) -> "Shape":
        """Return this shape."""
        return self


def shape_of(part: Any) -> Shape:
    """Return what a user wrote as a shape: a task, a shape, or a set, list or tuple of them."""
    if isinstance(part, Part):
        return part.shape()
    if not isinstance(part, set | frozenset | list | tuple):
        raise InputError(
            f"{_said(part)} is no task of a graph: write a function with @hw.task, or a set or list of such"
        )
    shapes = [shape_of(each) for each in part]
    if isinstance(part, set | frozenset):
        shapes.sort(key=lambda shape: min(task.defined for task in shape.tasks))
    if not shapes:
        raise InputError(f"{part!r} in a graph has no tasks: name at least one")
    return beside(shapes)


def beside(shapes: Iterable[Shape]) -> Shape:
    """Return several shapes side by side; no task may be in two of them."""
    parts = tuple(shapes)
    return Shape(
        _once(task for shape in parts for task in shape.tasks),
        tuple(edge for shape in parts for edge in shape.edges),
        tuple(task for shape in parts for task in shape.first),
        tuple(task for shape in parts for task in shape.last),
    )


def joined(left: Shape, right: Shape) -> Shape:
    """Return the shape in which one follows the other."""
    between = tuple((source, target) for target in right.first for source in left.last)
    tasks = _once((*left.tasks, *right.tasks))
    return Shape(tasks, (*left.edges, *between, *right.edges), left.first, right.last)


def _once(tasks: Iterable[Node]) -> tuple[Node, ...]:
    found: dict[Node, None] = {}
    for task in tasks:
        if task in found:
            raise InputError(f"task {task.name} is twice in {' >> '.join(map(_name, (*found, task)))}: {_ONCE}")
        found[task] = None
    return tuple(found)


def _name(task: Node) -> str:
    return task.name


def _said(part: Any) -> str:
    """Return how an object is named in an error: a function by its name."""
    name = getattr(part, "__name__", None)
    return f"{type(part).__name__} {name}" if isinstance(name, str) else f"{type(part).__name__} {part!r:.60}"
