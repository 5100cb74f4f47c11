"""Search space of Aquatope: one option for each task, as a point of the unit cube.

A task has one coordinate for each of batch, CPUs and slices. A coordinate is the position of a value among the values
that occur, from 0 (least) to 1 (largest). Where a profile has no cell at some coordinates, the nearest cell is meant.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from headway.fleet.policies.central.fronts import Option

Value = TypeVar("Value")
Floats = npt.NDArray[np.float64]
Points = npt.NDArray[np.intp]
"""A row is a point: by task, the position of its option."""


def value_at(values: Sequence[Value], x: float) -> Value:
    """Return the value at coordinate ``x`` of sorted values: 0 is the first, 1 the last, rounded to the nearest."""
    return values[round(x * (len(values) - 1))]


class Space:
    """All plans of a graph: by task, its options."""

    def __init__(self, tasks: Sequence[Sequence[Option]]) -> None:
        self.tasks = [sorted(options, key=lambda option: option.configuration) for options in tasks]
        self._places = [_places(options) for options in self.tasks]
        self._moves = [_moves(places) for places in self._places]
        self._used = np.concatenate([places.max(axis=0) > 0.0 for places in self._places])
        """Which coordinates take more than one value."""
        self.size = 1
        for options in self.tasks:
            self.size *= len(options)

    def options(self, point: Sequence[int]) -> tuple[Option, ...]:
        """Return the options of a point, by task."""
        return tuple(options[at] for options, at in zip(self.tasks, point, strict=True))

    def coordinates(self, points: Points) -> Floats:
        """Return the coordinates of points, without those that have one value only."""
        columns = [places[points[:, task]] for task, places in enumerate(self._places)]
        return np.concatenate(columns, axis=1)[:, self._used]

    def nearest(self, cube: Floats) -> Points:
        """Return the points nearest to rows of the unit cube: batch, CPUs and slices of each task in turn."""
        columns = []
        for task, places in enumerate(self._places):
            apart = cube[:, None, 3 * task : 3 * task + 3] - places[None]
            columns.append((apart * apart).sum(axis=2).argmin(axis=1))
        return np.stack(columns, axis=1)

    def all_points(self) -> Points:
        """Return every point, in order."""
        return np.indices([len(options) for options in self.tasks]).reshape(len(self.tasks), -1).T

    def draw(self, random: np.random.Generator, count: int) -> Points:
        """Return points drawn uniformly from the cube."""
        return self.nearest(random.random((count, 3 * len(self.tasks))))

    def neighbours(self, points: Points) -> Points:
        """Return all points one step up or down in one coordinate from given ones, in order, each step a row."""
        steps = []
        for task, moves in enumerate(self._moves):
            for to in moves[points[:, task]].T:
                stepped = points.copy()
                stepped[:, task] = to
                steps.append(stepped)
        return np.stack(steps, axis=1).reshape(-1, len(self.tasks))


def _places(options: Sequence[Option]) -> Floats:
    """Return the coordinates of a task's options."""
    columns = []
    for values in zip(*(option.configuration for option in options), strict=True):
        rank = {value: at for at, value in enumerate(sorted(set(values)))}
        columns.append([rank[value] / max(1, len(rank) - 1) for value in values])
    return np.array(columns, dtype=np.float64).T


def _moves(places: Floats) -> Points:
    """Return by option the nearest option above and below it in each coordinate; itself where there is none."""
    moves = np.repeat(np.arange(len(places))[:, None], 2 * places.shape[1], axis=1)
    apart = ((places[:, None] - places[None]) ** 2).sum(axis=2)
    for axis in range(places.shape[1]):
        ahead = places[None, :, axis] - places[:, None, axis]
        for side, beyond in enumerate((ahead > 0.0, ahead < 0.0)):
            nearest = np.where(beyond, apart, np.inf).argmin(axis=1)
            some = beyond.any(axis=1)
            moves[some, 2 * axis + side] = nearest[some]
    return moves
