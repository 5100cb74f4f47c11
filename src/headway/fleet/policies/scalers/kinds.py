"""Kinds of workers of a fleet, cheapest for a request first, and how many of each a number of workers means."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from headway.fleet.model.catalogue import Catalogue
from headway.fleet.model.fleet import Fleet, Worker
from headway.fleet.model.latency import LatencyModel
from headway.fleet.policies.central.fronts import can_hold
from headway.units import SECOND


@dataclass(frozen=True, slots=True)
class WorkerKind:
    """Workers that are equal but for their names and places."""

    workers: tuple[int, ...]
    hour_usd: float
    """Rent of one."""
    seconds: tuple[float, ...]
    """By graph: how long one worker, always full, takes for a request; infinite: it cannot run some function."""
    functions: frozenset[int]
    """What it can run."""


class Kinds:
    """The kinds of a fleet and the bounds on how many workers are rented."""

    def __init__(self, catalogue: Catalogue, fleet: Fleet, latency: LatencyModel, least: int, most: int) -> None:
        """``most`` 0: all workers of the fleet."""
        grouped: dict[tuple[object, ...], list[int]] = {}
        for index, worker in enumerate(fleet.workers):
            grouped.setdefault((worker.gpu, worker.cpus, worker.host_bytes, worker.hour_usd), []).append(index)
        kinds = [_kind(catalogue, fleet, latency, tuple(group)) for group in grouped.values()]
        self.kinds: Sequence[WorkerKind] = sorted(kinds, key=_request_usd)
        self.most = min(most or len(fleet.workers), len(fleet.workers))
        self.floors = self._floors(len(catalogue.functions))
        """By kind: the least, so that every function has a worker that can run it."""
        self.least = max(least, sum(self.floors))

    def _floors(self, functions: int) -> list[int]:
        floors = [0] * len(self.kinds)
        for function in range(functions):
            able = [at for at, kind in enumerate(self.kinds) if function in kind.functions]
            if able and not any(floors[at] for at in able):
                floors[able[0]] = 1
        return floors

    def spread(self, total: int) -> list[int]:
        """Return so many workers by kind, within the bounds: what every function needs, then the cheapest first."""
        left = min(max(total, self.least), max(self.most, sum(self.floors))) - sum(self.floors)
        counts = list(self.floors)
        for at, kind in enumerate(self.kinds):
            more = min(left, len(kind.workers) - counts[at])
            counts[at] += more
            left -= more
        return counts

    def bounded(self, wanted: Sequence[int]) -> list[int]:
        """Return a wish by kind within the bounds; where the total is out of them, ``spread`` says which."""
        counts = [
            min(max(count, floor), len(kind.workers))
            for count, floor, kind in zip(wanted, self.floors, self.kinds, strict=True)
        ]
        return counts if self.least <= sum(counts) <= self.most else self.spread(sum(counts))

    def first(self, workers: int) -> tuple[int, ...]:
        """Return which workers are on when a run begins with so many."""
        chosen = [kind.workers[:count] for kind, count in zip(self.kinds, self.spread(workers), strict=True)]
        return tuple(sorted(index for group in chosen for index in group))


def _kind(catalogue: Catalogue, fleet: Fleet, latency: LatencyModel, workers: tuple[int, ...]) -> WorkerKind:
    worker = fleet.workers[workers[0]]
    seconds = [
        _task_seconds(catalogue, latency, workers[0], worker, function) for function in range(len(catalogue.functions))
    ]
    return WorkerKind(
        workers,
        fleet.hour_usd(worker),
        tuple(sum(seconds[function] for function in graph.functions) for graph in catalogue.graphs),
        frozenset(function for function, time in enumerate(seconds) if time < inf),
    )


def _task_seconds(catalogue: Catalogue, latency: LatencyModel, index: int, worker: Worker, function: int) -> float:
    """Return how long a worker that is always full takes for a task, at its best configuration; infinite: it cannot."""
    best = inf
    for cell, time in latency.cells(index, function).items():
        if can_hold(worker, catalogue, function, cell):
            share = max(cell.cpus / worker.cpus, cell.slices / worker.gpu.slices)
            best = min(best, share * time / cell.batch / SECOND)
    return best


def _request_usd(kind: WorkerKind) -> tuple[int, float]:
    """Return an order of kinds: those that run all graphs first, then by the rent of an average request."""
    able = [seconds for seconds in kind.seconds if seconds < inf]
    return len(kind.seconds) - len(able), kind.hour_usd * sum(able) / len(able) if able else inf
