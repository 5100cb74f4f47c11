"""Several runs side by side: how far each is from a baseline, how sure that is, and runs of several seeds as one.

It takes the flat objects that ``--json`` prints, so what a table shows is what a script reads.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headway.metrics.bootstrap import Interval, paired_interval, replicated_change, replicated_interval, summed_interval
from headway.metrics.series import FloatArray

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Replication:
    """How the rows of several seeds become one."""

    intervals: tuple[tuple[str, str], ...]
    """Numbers with an interval over seeds, as stem and ending: the bounds are stem_low ending and stem_high ending."""
    of_one_seed: tuple[str, ...]
    """What is kept of each run."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """Lists of rows that are merged by a key: tenants by tenant."""
    left_out: tuple[str, ...] = ()
    """Keys that mean nothing over several seeds."""


MOST_BATCHES = 256
DIFFERENT_JOBS = "different jobs"
"""What a change is over that compares means of jobs that cannot be paired."""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """What a paired comparison needs of a run: the measured jobs in submission order."""

    names: tuple[str, ...]
    jct_s: FloatArray
    """nan for a job that did not complete."""

    @property
    def digest(self) -> str:
        """Of the names: equal for runs that measured the same jobs."""
        return hashlib.sha256("\n".join(self.names).encode()).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class Batches:
    """A sample small enough to be kept with a result."""

    digest: str
    """Of the names that were measured."""
    sums: Sequence[Any]
    """Sum and count of each stretch."""


@dataclass(frozen=True, slots=True)
class Change:
    """How far a mean JCT is from another, and how sure that is: both over the same jobs or seeds."""

    value: float | None = None
    interval: Interval | None = None
    over: str | None = None
    """What it is over, where that is not all that either has: '98 jobs in common'."""

    def row(self) -> dict[str, Any]:
        """As it stands in a row of results."""
        low, high = self.interval or (None, None)
        return {
            "jct_change": self.value,
            "jct_change_low": low,
            "jct_change_high": high,
            "jct_change_over": self.over,
        }


def changes(runs: Sequence[Row], key: str, baseline: int = 0) -> list[float | None]:
    """Return how far a number of each run is from that of the baseline, the first unless said: -0.25 is a quarter less.

    None for the baseline itself, and where either is unknown or the baseline's is 0.
    """
    return [
        None if index == baseline else change(run.get(key), runs[baseline].get(key)) for index, run in enumerate(runs)
    ]


def change(value: float | None, reference: float | None) -> float | None:
    """Return how far a number is from another; None where either is unknown or that is 0."""
    return None if value is None or not reference else value / reference - 1


def changed(sample: Sample, reference: Sample, level: float) -> Change:
    """Return the relative change of the mean JCT between two runs, over the jobs that both measured.

    Runs over the same jobs are paired as they stand; where one left some out, by name. ``level`` 0: no interval.
    """
    if sample.names == reference.names:
        pairs, over = (sample.jct_s, reference.jct_s), None
    elif found := _common(sample, reference):
        pairs, over = found, f"{_counted(len(found[0]), 'job')} in common"
    else:
        return Change(change(mean(sample.jct_s), mean(reference.jct_s)), over=DIFFERENT_JOBS)
    value = change(mean(pairs[0]), mean(pairs[1]))
    sure = level > 0 and value is not None
    return Change(value, known(paired_interval(*pairs, level=level)) if sure else None, over)


def _common(sample: Sample, reference: Sample) -> tuple[FloatArray, FloatArray] | None:
    """The JCTs of the jobs that both name, in the order of the first; None where there are none, or names clash."""
    if any(len(set(each.names)) != len(each.names) for each in (sample, reference)):
        return None
    others = dict(zip(reference.names, reference.jct_s.tolist(), strict=True))
    pairs = [(mine, others[name]) for name, mine in zip(sample.names, sample.jct_s, strict=True) if name in others]
    both = np.array(pairs, dtype=np.float64)
    return (both[:, 0], both[:, 1]) if pairs else None


def mean(values: FloatArray) -> float | None:
    """Of what is known; None of nothing."""
    found = values[np.isfinite(values)]
    return float(found.mean()) if len(found) else None


def known(interval: Interval) -> Interval | None:
    """Return an interval, or None where there is none."""
    return interval if math.isfinite(interval[0]) and math.isfinite(interval[1]) else None


# --- batches: a sample small enough to be kept with a result ---------------------------------------------------


def batches(sample: Sample) -> list[tuple[float, int]]:
    """Sum and count of JCTs in up to 256 stretches of consecutive jobs: enough to pair runs by."""
    edges = np.linspace(0, len(sample.jct_s), min(MOST_BATCHES, max(1, len(sample.jct_s))) + 1).round().astype(int)
    counts = np.isfinite(sample.jct_s)
    values = np.where(counts, sample.jct_s, 0.0)
    return [
        (float(values[start:end].sum()), int(counts[start:end].sum()))
        for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    ]


def changed_batches(mine: Batches, reference: Batches, value: float | None, level: float) -> Change:
    """Return a change between two runs of which batches were kept; ``value`` is the change of their means."""
    if mine.digest != reference.digest:
        return Change(value, over=DIFFERENT_JOBS)
    if not level or value is None or len(mine.sums) != len(reference.sums) or not mine.sums:
        return Change(value)
    sums = np.hstack((np.array(mine.sums, dtype=np.float64), np.array(reference.sums)))
    return Change(value, known(summed_interval(sums, level=level)))


# --- several seeds --------------------------------------------------------------------------------------------


def over_seeds(rows: Sequence[Row], level: float, rule: Replication) -> dict[str, Any]:
    """Return runs of several seeds as one row: means over seeds, with intervals; each run's own are in ``runs``.

    What is the same in all is kept as it is; what is neither a number nor the same is that of the first that has any.
    """
    whole = {key: merged([row.get(key) for row in rows]) for key in rows[0] if key not in rule.left_out}
    whole["seeds"] = len(rows)
    whole["peak_rss_bytes"] = max(row["peak_rss_bytes"] for row in rows)
    for stem, unit in rule.intervals:
        values = [_number(row[f"{stem}{unit}"]) for row in rows]
        interval = known(replicated_interval(values, level=level)) if level else None
        low, high = interval or (None, None)
        whole |= {f"{stem}_low{unit}": low, f"{stem}_high{unit}": high}
    for group, key in rule.groups.items():
        if group in whole:
            whole[group] = _merged_groups([row.get(group, []) for row in rows], key)
    whole["runs"] = [{key: row.get(key) for key in rule.of_one_seed} for row in rows]
    return whole


def by_seed(row: Row, drawn: bool) -> dict[int, float]:
    """Return the mean JCT of each run of a row; empty where nothing is drawn, so that every seed gives the same."""
    runs = row.get("runs") or ([row] if drawn else [])
    return {run["seed"]: _number(run["jct_mean_s"]) for run in runs}


def changed_over_seeds(row: Row, reference: Row, level: float, drawn: tuple[bool, bool] = (False, False)) -> Change:
    """Return the relative change of the mean JCT over the seeds that both have, paired by seed.

    ``drawn`` says of a row without ``runs`` whether it is that of its seed alone; else it is paired with each.
    """
    mine, others = by_seed(row, drawn[0]), by_seed(reference, drawn[1])
    seeds = sorted(mine.keys() & others.keys() if mine and others else mine or others)
    if not seeds:
        return Change(over="no seed in common")
    pairs = np.array(
        [
            (mine.get(seed, _number(row["jct_mean_s"])), others.get(seed, _number(reference["jct_mean_s"])))
            for seed in seeds
        ]
    )
    pairs = pairs[np.isfinite(pairs).all(axis=1)]
    value = change(mean(pairs[:, 0]), mean(pairs[:, 1]))
    interval = known(replicated_change(pairs[:, 0], pairs[:, 1], level=level)) if level else None
    fewer = mine and others and len(pairs) < max(len(mine), len(others))
    return Change(value, interval, f"{_counted(len(pairs), 'seed')} in common" if fewer else None)


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _number(value: float | None) -> float:
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
