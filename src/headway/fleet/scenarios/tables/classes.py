"""Classes of requests: ``[workload.classes.NAME]`` of an experiment or a scenario, typed and checked.

All classes of a workload have a share, or all have a rate. A key that is left out is the workload's.
"""

from collections.abc import Mapping, Sequence
from math import fsum, isfinite
from typing import Any

from msgspec import Struct

from headway.errors import ExperimentError, InputError, unknown_name
from headway.fleet.scenarios.tables.settings import MOST_A_SECOND, parse_slo
from headway.formats import toml
from headway.jobs.tables.cluster import within

MOST_CLASSES = 100
HIGHEST_PRIORITY = 100
_TOLERANCE = 1e-6
"""How far the sum of all shares may be from 1: numbers are written with few digits."""


class ClassTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """One class of requests."""

    share: float | None = None
    """Of all requests; the shares of all classes sum to 1."""
    rate: float | None = None
    """Instead of a share: requests a second. The workload's rate is the sum, unless it is given."""
    slo: str = ""
    """How long a request of the class may take: 500ms, 1.2L or none; empty: as the workload says."""
    priority: int = 0
    """Higher goes first, under policies that respect it."""
    tenant: str = ""
    """Who sends its requests; empty: one of the workload's tenants, drawn evenly."""
    mix: dict[str, float] | None = None
    """Weights of the graphs by name; None: as the workload says."""


Classes = dict[str, ClassTable]


def typed(tables: Mapping[str, Mapping[str, Any]], graphs: Sequence[str], where: str = "") -> Classes:
    """Return the classes of a workload, checked; ``graphs``: the names that a mix may have."""
    begin = f"{where}, " if where else ""
    if len(tables) > MOST_CLASSES:
        raise ExperimentError(f"{begin}classes: {len(tables):,} are too many; at most {MOST_CLASSES}")
    classes = {}
    for name, table in tables.items():
        at = f"{begin}class {name}"
        if not name.strip():
            raise ExperimentError(f"{begin}class {name!r}: give it a name")
        if not isinstance(table, dict):
            raise ExperimentError(f'{at}: is {table!r}: must be a table, like {{ share = 0.3, slo = "500ms" }}')
        try:
            classes[name] = _checked(toml.typed(table, ClassTable, at), graphs, at)
        except InputError as problem:
            text = str(problem)
            raise ExperimentError(text if text.startswith(at) else f"{at}: {text}") from None
    _check_sum(classes, begin)
    return classes


def _checked(table: ClassTable, graphs: Sequence[str], at: str) -> ClassTable:
    if (table.share is None) == (table.rate is None):
        raise ExperimentError(f"{at}: needs a share of the requests or a rate, one of them")
    key, value, most = ("share", table.share, 1.0) if table.rate is None else ("rate", table.rate, MOST_A_SECOND)
    assert value is not None
    if not (isfinite(value) and 0 < value <= most):
        none = ", so that it has requests; leave the class out if it has none" if not value else ""
        raise ExperimentError(f"{at}: {key} {value:g} must be above 0 and at most {most:,.0f}{none}")
    within(f"{at}: priority", table.priority, 0, HIGHEST_PRIORITY)
    parse_slo(table.slo, f"{at}: slo")
    for graph, weight in (table.mix or {}).items():
        if graph not in graphs:
            raise ExperimentError(f"{at}, mix: {unknown_name('graph', graph, graphs)}")
        if not (isfinite(weight) and weight >= 0):
            raise ExperimentError(f"{at}, mix: the weight {weight!r} of {graph} must be a number, at least 0")
    if table.mix is not None and not any(table.mix.values()):
        raise ExperimentError(f"{at}, mix: no graph has a weight above 0")
    return table


def _check_sum(classes: Classes, begin: str) -> None:
    shares = {name: table.share for name, table in classes.items() if table.share is not None}
    if not shares:
        return
    if others := [name for name in classes if name not in shares]:
        first = next(iter(shares))
        raise ExperimentError(f"{begin}classes: {first} has a share and {others[0]} a rate: give all the same of both")
    if abs((total := fsum(shares.values())) - 1) > _TOLERANCE:
        listed = ", ".join(f"{name} {share:g}" for name, share in shares.items())
        raise ExperimentError(f"{begin}classes: the shares sum to {total:g} ({listed}): they must sum to 1")
