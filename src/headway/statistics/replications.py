"""Merge the results of several seeds into one row, and reduce the jobs of a run to what paired comparisons need.

It takes the flat objects that ``--json`` prints, so what a table shows is what a script reads.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headway.statistics.intervals import Interval, replicated_interval
from headway.statistics.series import FloatArray

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Replication:
    """Rules by which the rows of several seeds become one row."""

    intervals: tuple[tuple[str, str], ...]
    """Numbers with an interval over seeds, as stem and ending: the bounds are stem_low ending and stem_high ending."""
    of_one_seed: tuple[str, ...]
    """What is kept of each run."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """Lists of rows that are merged by a key: tenants by tenant."""
    left_out: tuple[str, ...] = ()
    """Keys that mean nothing over several seeds."""


MOST_BATCHES = 256


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """The measured jobs of a run in submission order, for paired comparisons."""

    names: tuple[str, ...]
    jct_s: FloatArray
    """nan for a job that did not complete."""

    @property
    def digest(self) -> str:
        """Return a digest of the names: equal for runs that measured the same jobs."""
        return hashlib.sha256("\n".join(self.names).encode()).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class Batches:
    """The JCTs of a run as sums of consecutive jobs: small enough to be stored with a result."""

    digest: str
    """Of the names that were measured."""
    sums: Sequence[Any]
    """Sum and count of each stretch."""


def change(value: float | None, reference: float | None) -> float | None:
    """Return the relative change from a reference; None where either is unknown or the reference is 0."""
    return None if value is None or not reference else value / reference - 1


def known(interval: Interval) -> Interval | None:
    """Return the interval, or None where its bounds are not finite."""
    return interval if math.isfinite(interval[0]) and math.isfinite(interval[1]) else None


# --- batches: a sample small enough to be kept with a result ---------------------------------------------------


def batches(sample: Sample) -> list[tuple[float, int]]:
    """Return sum and count of JCTs in up to 256 batches of consecutive jobs: enough to pair runs by."""
    edges = np.linspace(0, len(sample.jct_s), min(MOST_BATCHES, max(1, len(sample.jct_s))) + 1).round().astype(int)
    counts = np.isfinite(sample.jct_s)
    values = np.where(counts, sample.jct_s, 0.0)
    return [
        (float(values[start:end].sum()), int(counts[start:end].sum()))
        for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    ]


# --- several seeds --------------------------------------------------------------------------------------------


def over_seeds(rows: Sequence[Row], level: float, rule: Replication) -> dict[str, Any]:
    """Return runs of several seeds as one row: means over seeds, with intervals; each run's own are in ``runs``.

    What is the same in all is kept as it is; what is neither a number nor the same is that of the first that has any.
    """
    whole = {key: merged([row.get(key) for row in rows]) for key in rows[0] if key not in rule.left_out}
    whole["seeds"] = len(rows)
    whole["confidence"] = level or None
    whole["peak_rss_bytes"] = max(row["peak_rss_bytes"] for row in rows)
    for stem, unit in rule.intervals:
        values = [number(row[f"{stem}{unit}"]) for row in rows]
        interval = known(replicated_interval(values, level=level)) if level else None
        low, high = interval or (None, None)
        whole |= {f"{stem}_low{unit}": low, f"{stem}_high{unit}": high}
    for group, key in rule.groups.items():
        if group in whole:
            whole[group] = _merged_groups([row.get(group, []) for row in rows], key)
    whole["runs"] = [{key: row.get(key) for key in rule.of_one_seed} for row in rows]
    return whole


def number(value: float | None) -> float:
    """Return a number, nan where there is none."""
    return math.nan if value is None else value


def merged(values: Sequence[Any]) -> Any:
    """Merge the values of several runs into one: their mean, or what the first has."""
    first = next((value for value in values if value is not None), None)
    if all(value == values[0] for value in values):
        return values[0]
    if isinstance(first, bool):
        return any(values)
    if isinstance(first, int | float):
        numbers = [value for value in values if value is not None]
        return sum(numbers) / len(numbers)
    return first


def _merged_groups(tables: Sequence[Sequence[Row]], key: str) -> list[dict[str, Any]]:
    members: dict[str, list[Row]] = {}
    for table in tables:
        for member in table:
            members.setdefault(str(member[key]), []).append(member)
    named = list(members) if len(members) == len(tables[0]) else sorted(members)  # where all have the same: as they do
    return [{field: merged([each[field] for each in members[name]]) for field in members[name][0]} for name in named]
