"""Offline search of Aquatope for one workflow and one target: random samples, then rounds of three proposals.

A sample is one run of the whole workflow on an empty fleet: run times of the profile, each with a draw of its spread.
The same configuration is sampled once. After each round, samples outside the 95 % interval of a leave-one-out process
are left out of the model and of the choice; with ``anew`` all are judged again after the next round.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import exp, inf
from typing import NamedTuple

import numpy as np

from headway.fleet.model.graph import Graph
from headway.fleet.policies.aquatope.acquisition import believe, propose
from headway.fleet.policies.aquatope.gaussian import Process, Shape, fit
from headway.fleet.policies.aquatope.space import Floats, Points, Space
from headway.fleet.policies.central.fronts import NEVER, Option
from headway.streams import small_stream, stream
from headway.units import MILLISECOND

MICRO_USD = 10**9
"""Femtodollars."""
_INTERVAL = 1.96
"""Standard deviations on either side of a 95 % interval."""
_AROUND = 3


class Effort(NamedTuple):
    """How much is sampled, and how samples are judged."""

    initial: int = 10
    rounds: int = 20
    proposals: int = 3
    outliers: bool = True
    """Leave out samples outside the 95 % interval of a leave-one-out process."""
    anew: bool = True
    """Judge samples that were left out again after each round; off, as published: they stay out."""
    penalty: float = inf
    """Millionths of a dollar on a late sample; infinite: a sample in time is always better."""


class Sample(NamedTuple):
    """One run of a workflow."""

    point: tuple[int, ...]
    cost: float
    """Millionths of a dollar."""
    latency: float
    """Milliseconds."""


class Plan(NamedTuple):
    """What a search found: by task an option, and what was sampled."""

    options: tuple[Option, ...]
    samples: tuple[Sample, ...]


class Workflow(NamedTuple):
    """A graph with the options and the spread of each task."""

    graph: Graph
    tasks: tuple[tuple[Option, ...], ...]
    spreads: tuple[float, ...]


@lru_cache(maxsize=64)  # another seed of the workload asks for the same search again
def optimise(workflow: Workflow, target: int, seed: int, effort: Effort) -> Plan:
    """Return the best plan that was sampled; it depends on nothing but the arguments."""
    space = Space(workflow.tasks)
    random = stream(seed, f"aquatope:{workflow.graph.name}:{target}")
    limit = target / MILLISECOND if target < NEVER else inf
    samples: dict[tuple[int, ...], Sample] = {}
    dropped: set[tuple[int, ...]] = set()
    shapes = None
    points = [tuple(point) for point in space.draw(random, effort.initial).tolist()]
    for left in range(effort.rounds, -1, -1):
        for point in points:
            if point not in samples:
                samples[point] = sampled(workflow, space.options(point), point, seed)
        kept = [sample for sample in samples.values() if sample.point not in dropped]
        if shapes is not None and effort.outliers:
            inside = without_outliers(space, kept, shapes)
            if not effort.anew:
                dropped |= {sample.point for sample in kept} - {sample.point for sample in inside}
            kept = inside
        if not left or len(samples) >= space.size:
            break
        objective, latency = _processes(space, kept, shapes)
        shapes = objective.shape, latency.shape
        belief, pending = believe(objective, latency if limit < inf else None, limit, effort.proposals, random)
        points = propose(space, belief, pending, set(samples), _best_few(kept, limit), random)
    if all(sample.latency > limit for sample in kept):
        kept = list(samples.values())
    return Plan(space.options(chosen(kept, limit, effort.penalty).point), tuple(samples.values()))


def sampled(workflow: Workflow, options: Sequence[Option], point: tuple[int, ...], seed: int) -> Sample:
    """Return one run of a workflow: the same for the same configurations and seed."""
    name = ";".join(",".join(map(str, option.configuration)) for option in options)
    random = small_stream(seed, f"aquatope:{workflow.graph.name}:run:{name}")
    slower = [exp(random.gauss(0.0, spread)) if spread else 1.0 for spread in workflow.spreads]
    times = [option.time * factor for option, factor in zip(options, slower, strict=True)]
    cost = sum(option.cost * factor for option, factor in zip(options, slower, strict=True))
    return Sample(point, cost / MICRO_USD, max(workflow.graph.lengths_to(times)) / MILLISECOND)


def chosen(samples: Sequence[Sample], limit: float, penalty: float = inf) -> Sample:
    """Return the sample of least cost and penalty; with an infinite penalty, where all are late, the fastest."""

    def rank(sample: Sample) -> tuple[float, float]:
        late = sample.latency > limit
        if late and penalty == inf:
            return inf, sample.latency
        return sample.cost + (penalty if late else 0.0), sample.latency

    return min(samples, key=rank)


def without_outliers(space: Space, samples: Sequence[Sample], shapes: tuple[Shape, Shape]) -> list[Sample]:
    """Return the samples whose cost and latency lie in the 95 % interval that the others predict for them."""
    points = _coordinates(space, samples)
    inside = np.ones(len(samples), dtype=np.bool_)
    for values, shape in zip(_values(samples), shapes, strict=True):
        process = Process(points, values, shape)
        means, variances = process.leave_one_out()
        inside &= np.abs(process.values - means) <= _INTERVAL * np.sqrt(variances)
    kept = [sample for sample, keep in zip(samples, inside, strict=True) if keep]
    return kept if len(kept) > 1 else list(samples)


def _processes(space: Space, samples: Sequence[Sample], shapes: tuple[Shape, Shape] | None) -> tuple[Process, Process]:
    """Return the processes of the objective, which is the negative cost, and of the latency."""
    points = _coordinates(space, samples)
    start = Shape((1,) * points.shape[1])
    before, sweeps = (shapes, 1) if shapes is not None else ((start, start), 3)
    costs, latencies = _values(samples)
    return fit(points, costs, before[0], sweeps), fit(points, latencies, before[1], sweeps)


def _coordinates(space: Space, samples: Sequence[Sample]) -> Floats:
    return space.coordinates(np.array([sample.point for sample in samples]))


def _values(samples: Sequence[Sample]) -> tuple[Floats, Floats]:
    return np.array([-sample.cost for sample in samples]), np.array([sample.latency for sample in samples])


def _best_few(samples: Sequence[Sample], limit: float) -> Points:
    """Return the points of the best samples so far."""
    ranked = sorted(samples, key=lambda sample: (max(0.0, sample.latency - limit), sample.cost))
    return np.array([sample.point for sample in ranked[:_AROUND]])
