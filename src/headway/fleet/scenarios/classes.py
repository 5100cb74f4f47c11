"""Classes of requests in a run: the experiment's, else the scenario's; shares, graphs, tenants and deadlines of each.

What an experiment says comes before what its scenario says; in each of them a class comes before the whole workload.
"""

from collections.abc import Mapping, Sequence
from math import fsum

from headway.errors import ExperimentError, unknown_name
from headway.fleet.scenarios.build import Built
from headway.fleet.scenarios.tables.classes import Classes, typed
from headway.fleet.scenarios.tables.settings import ServingExperiment, split_slo


def classes_of(experiment: ServingExperiment, built: Built) -> Classes:
    """Return the classes of a run by name; empty where it has none."""
    if given := experiment.workload.classes:
        return typed(given, [graph.name for graph in built.catalogue.graphs])
    return dict(built.workload.classes)


def shares_of(classes: Classes) -> list[float]:
    """Return the share of each class among the requests; they sum to 1."""
    weights = [table.rate if table.share is None else table.share for table in classes.values()]
    total = fsum(weight or 0.0 for weight in weights)
    return [(weight or 0.0) / total for weight in weights]


def rate_of(experiment: ServingExperiment, built: Built) -> float | None:
    """Return the sum of the classes' rates; None where they have none, or the experiment gives a rate or a load."""
    workload, classes = experiment.workload, classes_of(experiment, built)
    rates = [table.rate for table in classes.values() if table.rate is not None]
    if not rates:
        return None
    asked = workload.rate is not None or workload.load is not None
    if asked and workload.classes:
        key = "rate" if workload.rate is not None else "load"
        raise ExperimentError(f"workload.{key}: the classes have rates of their own; give one of both")
    return None if asked else fsum(rates)


def mixes_of(experiment: ServingExperiment, built: Built) -> list[tuple[float, ...]]:
    """Return by class the share of each graph among its requests; one row, of all requests, without classes."""
    names = [graph.name for graph in built.catalogue.graphs]
    asked, plain = experiment.workload.mix, built.workload.mix
    if not (classes := classes_of(experiment, built)):
        return [_weights(plain if asked is None else asked, names)]
    own = bool(experiment.workload.classes)
    rows = []
    for table in classes.values():
        first, second = (table.mix, asked) if own else (asked, table.mix)
        rows.append(_weights(next((mix for mix in (first, second) if mix is not None), plain), names))
    return rows


def slo_texts(experiment: ServingExperiment, built: Built) -> list[dict[str, str]]:
    """Return by class the deadline of each graph as it was written; one row, for all requests, without classes."""
    asked, plain = split_slo(experiment.workload.slo)[0], built.workload.slo
    names = [graph.name for graph in built.catalogue.graphs]
    classes = classes_of(experiment, built)
    own = bool(experiment.workload.classes)
    texts = [table.slo for table in classes.values()] if classes else [""]
    return [
        {name: (text or asked if own else asked or text) or plain.get(name, "") for name in names} for text in texts
    ]


def tenant_names(experiment: ServingExperiment, built: Built, count: int) -> list[str]:
    """Return the tenants of a run: ``count`` numbered ones, and after them those that classes name."""
    names = [str(number) for number in range(count)]
    named = [table.tenant for table in classes_of(experiment, built).values() if table.tenant]
    return list(dict.fromkeys([*names, *named]))


def _weights(mix: Mapping[str, float], names: Sequence[str]) -> tuple[float, ...]:
    for name in mix:
        if name not in names:
            raise ExperimentError(f"mix: {unknown_name('graph', name, names)}")
    weights = [float(mix.get(name, 0.0)) for name in names] if mix else [1.0] * len(names)
    total = sum(weights)
    if total <= 0:
        raise ExperimentError("mix is empty: no graph has a weight above 0")
    return tuple(weight / total for weight in weights)
