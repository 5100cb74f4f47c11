"""Draw the class, graph and tenant of each request of a run, or take them from its trace.

Each has a random stream of its own: classes do not change which numbers draw the graphs.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headway.errors import TraceError, unknown_name
from headway.fleet.model.request import Groups
from headway.fleet.scenarios.classes import classes_of, mixes_of, shares_of, tenant_names
from headway.fleet.scenarios.file import Built
from headway.fleet.scenarios.limits import deadlines
from headway.fleet.scenarios.tables.settings import ServingExperiment
from headway.fleet.traces.trace import RequestTrace
from headway.streams import stream
from headway.units import counted

IntArray = npt.NDArray[np.int64]


class Drawn(NamedTuple):
    """What is known of each request besides its arrival and the worker that it reaches."""

    graphs: IntArray
    tenants: IntArray
    class_ids: IntArray
    priorities: IntArray
    limits: IntArray
    """How long it may take; 0: no deadline."""
    groups: Groups


def draw_groups(
    experiment: ServingExperiment,
    built: Built,
    count: int,
    tenants: int,
    trace: RequestTrace | None,
    notes: list[str],
) -> Drawn:
    """Return the groups of ``count`` requests; ``notes`` gets a line about each class that none is of."""
    seed, path = experiment.run.seed, experiment.workload.arrivals or built.workload.arrivals
    classes = classes_of(experiment, built)
    names = list(classes)
    class_ids = np.zeros(count, dtype=np.int64)
    if trace is not None and trace.classes:
        names = names or list(dict.fromkeys(trace.classes[:count]))
        class_ids = _positions(trace.classes[:count], names, path, "class", "class of the workload")
    elif classes:
        class_ids = _chosen(shares_of(classes), stream(seed, "serving.classes").random(count))
    if trace is not None and trace.graphs:
        known = [graph.name for graph in built.catalogue.graphs]
        graphs = _positions(trace.graphs[:count], known, path, "model", "graph of the scenario")
    else:
        numbers, graphs = stream(seed, "serving.graphs").random(count), np.zeros(count, dtype=np.int64)
        for index, mix in enumerate(mixes_of(experiment, built)):
            which = class_ids == index if classes else slice(None)
            graphs[which] = _chosen(mix, numbers[which])
    sent_by, tenant_list = _tenants(experiment, built, count, tenants, trace, class_ids)
    rows = np.array(deadlines(experiment, built), dtype=np.int64)
    priorities = np.array([table.priority for table in classes.values()] or [0], dtype=np.int64)
    at = class_ids if classes else np.zeros(count, dtype=np.int64)
    for index, table in enumerate(classes.values()):
        if not (class_ids == index).any():
            asked = f"share {table.share:g}" if table.rate is None else f"rate {table.rate:g}"
            notes.append(
                f"class {names[index]}: none of the {counted(count, 'request')} is of it ({asked}); ask for more"
            )
    return Drawn(graphs, sent_by, class_ids, priorities[at], rows[at, graphs], Groups(tuple(names), tuple(tenant_list)))


def uniform(seed: int, name: str, count: int, below: int) -> IntArray:
    """Draw whole numbers, each from one number of its stream whatever the bound is."""
    drawn = (stream(seed, name).random(count) * below).astype(np.int64)
    return np.minimum(drawn, below - 1)


def _chosen(shares: Sequence[float], numbers: npt.NDArray[np.float64]) -> IntArray:
    """Return for numbers between 0 and 1 the position that each chooses, by shares that sum to 1."""
    limits = np.cumsum(shares)
    return np.searchsorted(limits / limits[-1], numbers, side="right").astype(np.int64)


def _tenants(
    experiment: ServingExperiment,
    built: Built,
    count: int,
    tenants: int,
    trace: RequestTrace | None,
    class_ids: IntArray,
) -> tuple[IntArray, list[str]]:
    """Return the tenant of each request, and the names of all; no names where tenants are only numbers."""
    if trace is not None and trace.tenants:
        names = list(dict.fromkeys(trace.tenants[:count]))
        return _positions(trace.tenants[:count], names, "", "tenant", "tenant"), names
    drawn = uniform(experiment.run.seed, "serving.tenants", count, tenants)
    names = tenant_names(experiment, built, tenants)
    if len(names) == tenants:
        return drawn, []
    for index, table in enumerate(classes_of(experiment, built).values()):
        if table.tenant:
            drawn[class_ids == index] = names.index(table.tenant)
    return drawn, names


def _positions(values: Sequence[str], names: Sequence[str], path: str, what: str, known: str) -> IntArray:
    """Return the position of each value among names; raise for a value that is none."""
    at = {name: index for index, name in enumerate(names)}
    for value in dict.fromkeys(values):
        if value not in at:
            raise TraceError(f"trace {Path(path)}: {what} {value!r} is no {known}: {unknown_name(what, value, names)}")
    return np.array([at[value] for value in values], dtype=np.int64)
