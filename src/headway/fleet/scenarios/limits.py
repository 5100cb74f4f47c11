"""Limits of a scenario: the capacity of its fleet, and the fastest answer of each graph, checked before a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from headway.errors import ExperimentError
from headway.fleet.model.catalogue import Configuration, Function
from headway.fleet.model.fleet import MEMORY_SLICES, MIG, MIG_SPAN, Worker, find_slices
from headway.fleet.model.graph import Graph
from headway.fleet.model.latency import LatencyModel
from headway.fleet.scenarios.build import Built
from headway.fleet.scenarios.classes import classes_of, mixes_of, shares_of, slo_texts
from headway.fleet.scenarios.generating import check_expected_contexts
from headway.fleet.scenarios.tables.settings import ServingExperiment, parse_slo
from headway.fleet.scenarios.tables.tokens import MOST_BATCH
from headway.fleet.scenarios.tokens import TokenPairs, with_run_tokens
from headway.units import SECOND, counted, format_duration

MOST_OVERLOAD = 4.0
"""A rate up to this multiple of the capacity is run, with a note; a higher one is taken for a mistake."""
_NEAR = 1.0 + 1e-9


# --- time -------------------------------------------------------------------------------------------------------


def deadlines(experiment: ServingExperiment, built: Built) -> tuple[tuple[int, ...], ...]:
    """Return by class and graph how long a request may take, 0 for no limit; one row where there are no classes.

    No limit may be below the graph's fastest path.
    """
    guesses = "".join(f"; {note}" for note in built.guesses)  # a path of guesses may be longer than the real one
    latency, names = LatencyModel(built.catalogue, built.fleet), list(classes_of(experiment, built))
    rows = []
    for at, (texts, mix) in enumerate(zip(slo_texts(experiment, built), mixes_of(experiment, built), strict=True)):
        fixed = built.workload.limits[at] if built.workload.limits else None
        whose = f"class {names[at]}: " if names else ""
        rows.append(
            tuple(
                _limit(
                    latency,
                    graph,
                    texts[graph.name],
                    None if fixed is None else fixed[index],
                    mix[index],
                    around=(whose, guesses),
                )
                for index, graph in enumerate(built.catalogue.graphs)
            )
        )
    return tuple(rows)


def _limit(
    latency: LatencyModel, graph: Graph, text: str, fixed: int | None, share: float, around: tuple[str, str]
) -> int:
    """Return how long a request of a graph may take; raise where that is too short and such requests come.

    ``around``: what a refusal begins and ends with.
    """
    parsed = parse_slo(text) if fixed is None else (fixed, 0.0) if fixed else None
    given = 0 if parsed is None else parsed[0] or round(parsed[1] * latency.critical_path(graph))
    least = latency.fastest_path(graph)
    if parsed is not None and given < least and share:
        means = f" ({text})" if parsed[1] else ""
        raise ExperimentError(
            f"{around[0]}slo {format_duration(given)}{means} is below the critical path: graph {graph.name} takes "
            f"{format_duration(least)} at its fastest, {format_duration(least - given)} more{around[1]}"
        )
    return given


# --- what is asked for ------------------------------------------------------------------------------------------


def mix_of(experiment: ServingExperiment, built: Built) -> tuple[float, ...]:
    """Return the share of each graph among the requests; they sum to 1."""
    mixes = mixes_of(experiment, built)
    if not (classes := classes_of(experiment, built)):
        return mixes[0]
    shares = shares_of(classes)
    weights = [
        fsum(share * mix[graph] for share, mix in zip(shares, mixes, strict=True)) for graph in range(len(mixes[0]))
    ]
    total = fsum(weights)
    return tuple(weight / total for weight in weights)


# --- throughput -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kind:
    """Workers that are equal but for their names."""

    worker: Worker
    count: int

    def shares(self, cell: Configuration) -> tuple[float, ...]:
        """Return the shares of the CPUs, of the slices and of the MIG places of one worker that a batch takes."""
        gpu = self.worker.gpu
        mig = gpu.geometry == MIG and cell.slices
        places = MIG_SPAN.get(cell.slices, MEMORY_SLICES) / MEMORY_SLICES if mig else 0.0
        return cell.cpus / self.worker.cpus, cell.slices / gpu.slices, places

    def places(self, cell: Configuration) -> int:
        """Return how many batches of a configuration one worker holds at once."""
        held = ((self.worker.cpus, cell.cpus), (self.worker.gpu.slices, cell.slices))
        return min((there // each for there, each in held if each), default=MOST_BATCH)


def capacity_per_second(built: Built, mix: Sequence[float]) -> float:
    """Return the capacity of the fleet in requests a second, for any policy: CPUs and slices are always full.

    Each function runs in its most efficient configurations, weights are always resident and no request has a deadline,
    so that a real fleet has less.
    """
    calls = _calls(built, mix)
    return _programme(built, calls) if calls else float("inf")


def cheapest_per_second(built: Built, mix: Sequence[float]) -> float:
    """Return the requests a second that fill the fleet with every function at its cheapest configuration.

    The cheapest configuration of a function is the one with the least price of CPUs and slices for a request, batches
    being full; each kind of worker has its own and serves a mix of its own capacity. CPUs, slices or, with MIG, places
    bind, whichever is used up first. Workload loads are parts of this rate.
    """
    calls, total = _calls(built, mix), 0.0
    for kind in _kinds(built):
        busy = [0.0, 0.0, 0.0]
        for function, often in calls.items():
            cell, seconds = _cheapest(built, built.catalogue.functions[function], kind)
            for resource, share in enumerate(kind.shares(cell)):
                busy[resource] += often * share * seconds / cell.batch
        total += kind.count / max(busy)
    return total


def _cheapest(built: Built, function: Function, kind: _Kind) -> tuple[Configuration, float]:
    prices = built.fleet.prices

    def cost(option: tuple[Configuration, float]) -> tuple[float, float, Configuration]:
        cell, seconds = option
        price = (cell.cpus * prices.cpu_hour + cell.slices * prices.slice_hour) * seconds / cell.batch
        return price, max(kind.shares(cell)) * seconds / cell.batch, cell

    return min(_seconds(function, kind), key=cost)


def check_rate(experiment: ServingExperiment, built: Built, rate: float, recorded: TokenPairs = ()) -> str:
    """Raise for a rate far above the capacity, unless overload is allowed; return a note on a lower overload.

    ``recorded``: prompt and output tokens of the requests, where they are a trace's.
    """
    built = with_run_tokens(experiment, built, recorded)
    calls = _calls(built, mix_of(experiment, built))
    if not calls or rate <= _easily(built, calls):
        return ""
    most = _programme(built, calls)
    if rate <= most * _NEAR:
        return ""
    check_expected_contexts(built.catalogue)  # where nothing ever fits, no rate would help
    workers = counted(len(built.fleet.workers), "worker")
    told = f"rate {rate:g} is more than the fleet can carry: {workers}, at most {most:.3g} requests a second"
    if rate > most * MOST_OVERLOAD and not experiment.workload.overload:
        raise ExperimentError(f"{told}; lower it, add workers, or set workload.overload = true if this is meant")
    return f"{told}; queues grow until the last request has come"


def _calls(built: Built, mix: Sequence[float]) -> dict[int, float]:
    """Return how often a request calls each function."""
    calls: dict[int, float] = {}
    for graph, share in zip(built.catalogue.graphs, mix, strict=True):
        for task in graph.tasks if share else ():
            calls[task.function] = calls.get(task.function, 0.0) + share
    return calls


def _kinds(built: Built) -> list[_Kind]:
    counts: dict[tuple[object, ...], list[Worker]] = {}
    for worker in built.fleet.workers:
        counts.setdefault((worker.gpu, worker.cpus), []).append(worker)
    return [_Kind(workers[0], len(workers)) for workers in counts.values()]


def _seconds(function: Function, kind: _Kind) -> list[tuple[Configuration, float]]:
    cells: Mapping[Configuration, int] = function.profile.on(kind.worker.gpu.type)
    if function.generate is not None:  # as if each request had the whole worker, for its part of the engine's time
        whole = Configuration(1, kind.worker.cpus, kind.worker.gpu.slices)
        return [(whole, function.generate.saturated(min(map(kind.places, cells))) / SECOND)]
    gpu = kind.worker.gpu
    return [(cell, time / SECOND) for cell, time in cells.items() if find_slices(gpu, cell.slices, 0) is not None]


def _easily(built: Built, calls: Mapping[int, float]) -> float:
    """Return a rate that the fleet can surely carry: each kind of worker runs one configuration of each function."""
    total = 0.0
    for kind in _kinds(built):
        busy = sum(
            often
            * min(
                time / cell.batch * max(kind.shares(cell))
                for cell, time in _seconds(built.catalogue.functions[function], kind)
            )
            for function, often in calls.items()
        )
        total += kind.count / busy
    return total


def _programme(built: Built, calls: Mapping[int, float]) -> float:
    """Solve the linear program of batches a second by configuration and kind of worker for the largest rate."""
    import numpy as np
    from scipy.optimize import linprog

    kinds, functions = _kinds(built), list(calls)
    columns = [
        (at, row, cell, time)
        for at, kind in enumerate(kinds)
        for row, function in enumerate(functions)
        for cell, time in _seconds(built.catalogue.functions[function], kind)
    ]
    used = np.zeros((3 * len(kinds) + len(functions), len(columns) + 1))
    for column, (at, row, cell, time) in enumerate(columns):
        for resource, share in enumerate(kinds[at].shares(cell)):
            used[3 * at + resource, column] = share * time
        used[3 * len(kinds) + row, column] = -cell.batch
    used[3 * len(kinds) :, -1] = [calls[function] for function in functions]
    bounds = np.array([float(kind.count) for kind in kinds for _ in range(3)] + [0.0] * len(functions))
    aim = np.zeros(len(columns) + 1)
    aim[-1] = -1.0
    return float(linprog(aim, A_ub=used, b_ub=bounds, method="highs").x[-1])
