"""Acquisition of Aquatope: noisy expected improvement times the probability of feasibility (Letham et al., 2019).

The values without noise at the sampled points are drawn jointly, 32 times. For each draw the improvement over the best
feasible point has a closed form, as has the chance to be in time; their product is averaged over the draws. Several
points are proposed one after the other, each given draws of those before it.
"""

from math import pi, sqrt
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from headway.fleet.policies.aquatope.gaussian import Conditioned, Process
from headway.fleet.policies.aquatope.space import Floats, Points, Space

DRAWS = 32
_RAW = 32
_RESTARTS = 10
_STEPS = 8
"""Most steps of a local search; the authors' gradient search has up to 200 iterations."""
_FEW = 256
"""Spaces of so many points are searched wholly."""
_TIE = 1e-9


class Belief(NamedTuple):
    """What draws say of the objective (to be raised) and of the latency; ``limit``: the latest latency in time."""

    objective: Conditioned
    latency: Conditioned | None
    limit: float
    """On the scale of the latency's process. No latency: there is no deadline."""


def believe(
    objective: Process, latency: Process | None, target: float, proposals: int, random: np.random.Generator
) -> tuple[Belief, list[tuple[Floats, Floats]]]:
    """Return the belief after the samples, and normals for the values of each proposal."""
    count = len(objective.values) + proposals
    first, second = normals(random, count), normals(random, count)
    sampled = count - proposals
    drawn = Conditioned(objective, objective.points, objective.draws(first[:sampled]))
    timed = None
    if latency is not None:
        timed = Conditioned(latency, latency.points, latency.draws(second[:sampled]))
    limit = latency.standard(target) if latency is not None else 0.0
    return Belief(drawn, timed, limit), [(first[at : at + 1], second[at : at + 1]) for at in range(sampled, count)]


def normals(random: np.random.Generator, dimensions: int) -> Floats:
    """Return standard normals, a column a draw, stratified in every dimension (a Latin hypercube)."""
    strata = np.stack([random.permutation(DRAWS) for _ in range(dimensions)])
    drawn: Floats = ndtri((strata + 0.5) / DRAWS)
    return drawn


def best_values(belief: Belief) -> Floats:
    """Return for each draw the best objective of a point in time; below all where none is."""
    values = belief.objective.draws
    worst = float(values.min()) - 1.0
    if belief.latency is not None:
        values = np.where(belief.latency.draws <= belief.limit, values, worst)
    best: Floats = values.max(axis=0)
    return best


def score(belief: Belief, coordinates: Floats) -> Floats:
    """Return the acquisition of points: the mean over the draws of improvement times probability of feasibility."""
    means, deviation = belief.objective.predict(coordinates)
    ahead = (means - best_values(belief)) / deviation[:, None]
    density = np.exp(-0.5 * ahead * ahead) / sqrt(2.0 * pi)
    gain = deviation[:, None] * (ahead * ndtr(ahead) + density)
    if belief.latency is not None:
        times, spread = belief.latency.predict(coordinates)
        gain = gain * ndtr((belief.limit - times) / spread[:, None])
    scores: Floats = gain.mean(axis=1)
    return scores


def propose(
    space: Space,
    belief: Belief,
    pending: list[tuple[Floats, Floats]],
    sampled: set[tuple[int, ...]],
    around: Points,
    random: np.random.Generator,
) -> list[tuple[int, ...]]:
    """Return a new point for each pair of normals in ``pending``; fewer where no point is left.

    ``around``: sampled points near which to look as well.
    """
    proposals: list[tuple[int, ...]] = []
    for first, second in pending:
        few = space.size <= _FEW
        raw = space.all_points() if few else np.concatenate((space.draw(random, _RAW), space.neighbours(around)))
        point = _climb(space, belief, np.unique(raw, axis=0), sampled.union(proposals), 0 if few else _STEPS)
        if point is None:
            break
        proposals.append(point)
        at = space.coordinates(np.array([point]))
        latency = belief.latency.extended(at, second) if belief.latency is not None else None
        belief = Belief(belief.objective.extended(at, first), latency, belief.limit)
    return proposals


def _climb(
    space: Space, belief: Belief, points: Points, known: set[tuple[int, ...]], steps: int
) -> tuple[int, ...] | None:
    """Return the best point, not known, that local searches from the best of ``points`` find; None: all are known."""
    scores = _new_scores(space, belief, points, known)
    starts = np.argsort(-scores, kind="stable")[:_RESTARTS]
    points, scores = points[starts], scores[starts]
    for _ in range(steps):
        near = space.neighbours(points)
        stepped = _new_scores(space, belief, near, known).reshape(len(points), -1)
        chosen = stepped.argmax(axis=1)
        rows = np.arange(len(points))
        better = stepped[rows, chosen] > np.maximum(scores, 0.0) * (1.0 + _TIE)
        if not better.any():
            break
        points = np.where(better[:, None], near.reshape(len(points), -1, points.shape[1])[rows, chosen], points)
        scores = np.where(better, stepped[rows, chosen], scores)
    top = int(np.flatnonzero(scores >= scores.max() * (1.0 - _TIE))[0]) if scores.max() > 0.0 else int(scores.argmax())
    return tuple(points[top].tolist()) if scores[top] >= 0.0 else None


def _new_scores(space: Space, belief: Belief, points: Points, known: set[tuple[int, ...]]) -> Floats:
    """Return the acquisition of points; -1 for those that are known: another sample of them says nothing new."""
    fresh = np.array([tuple(point) not in known for point in points.tolist()])
    scores = np.full(len(points), -1.0)
    if fresh.any():
        scores[fresh] = score(belief, space.coordinates(points[fresh]))
    return scores
