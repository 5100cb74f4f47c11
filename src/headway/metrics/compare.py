"""Several runs side by side: how far each is from a baseline, how sure that is, and runs of several seeds as one.

It takes the flat objects that ``--json`` prints, so what a table shows is what a script reads.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headway.metrics.bootstrap import Interval, paired_interval, replicated_change, replicated_interval, summed_interval
from headway.metrics.series import FloatArray

Row = Mapping[str, Any]
MOST_BATCHES = 256
OF_ONE_SEED = ("seed", "digest", "stopped", "jobs", "jct_mean_s", "wait_mean_s", "gpu_utilisation", "makespan_s")
"""What is kept of each run when those of several seeds become one row."""
REPLICATED = (("jct_mean", "_s"), ("jct_p50", "_s"), ("jct_p99", "_s"), ("wait_mean", "_s"))
"""Numbers that have an interval."""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """What a paired comparison needs of a run: the measured jobs in submission order."""

    names: tuple[str, ...]
    jct_s: FloatArray
    """nan for a job that did not complete."""


def changes(runs: Sequence[Row], key: str, baseline: int = 0) -> list[float | None]:
    """How far a number of each run is from that of the baseline, the first unless said: -0.25 is a quarter less.

    None for the baseline itself, and where either is unknown or the baseline's is 0.
    """
    return [
        None if index == baseline else change(run.get(key), runs[baseline].get(key)) for index, run in enumerate(runs)
    ]


def change(value: float | None, reference: float | None) -> float | None:
    """How far a number is from another; None where either is unknown or that is 0."""
    return None if value is None or not reference else value / reference - 1


def paired(sample: Sample, reference: Sample, level: float) -> Interval | None:
    """Where the relative change of the mean JCT lies; None where the runs have no jobs in common.

    Runs over the same jobs are paired as they stand; where one left some out, by name.
    """
    if sample.names == reference.names:
        return known(paired_interval(sample.jct_s, reference.jct_s, level=level))
    if len(set(sample.names)) != len(sample.names) or len(set(reference.names)) != len(reference.names):
        return None
    others = dict(zip(reference.names, reference.jct_s.tolist(), strict=True))
    pairs = [(mine, others[name]) for name, mine in zip(sample.names, sample.jct_s, strict=True) if name in others]
    if not pairs:
        return None
    both = np.array(pairs, dtype=np.float64)
    return known(paired_interval(both[:, 0], both[:, 1], level=level))


def known(interval: Interval) -> Interval | None:
    """An interval, or None where there is none."""
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


def paired_batches(mine: Sequence[Any], reference: Sequence[Any], level: float) -> Interval | None:
    """The same as ``paired`` for two runs over as many jobs, of which batches were kept."""
    if len(mine) != len(reference) or not mine:
        return None
    return known(summed_interval(np.hstack((np.array(mine, dtype=np.float64), np.array(reference))), level=level))


# --- several seeds --------------------------------------------------------------------------------------------


def over_seeds(rows: Sequence[Row], level: float) -> dict[str, Any]:
    """Runs of several seeds as one row: numbers are means over seeds, with intervals; each run's own are in ``runs``.

    What is the same in all is kept as it is; what is neither a number nor the same is that of the first that has any.
    """
    merged = {key: _merged([row.get(key) for row in rows]) for key in rows[0]}
    merged["seeds"] = len(rows)
    merged["peak_rss_bytes"] = max(row["peak_rss_bytes"] for row in rows)
    for stem, unit in REPLICATED:
        values = [_number(row[f"{stem}{unit}"]) for row in rows]
        interval = known(replicated_interval(values, level=level)) if level else None
        low, high = (max(0.0, interval[0]), interval[1]) if interval else (None, None)  # no time is below 0
        merged |= {f"{stem}_low{unit}": low, f"{stem}_high{unit}": high}
    for group in ("tenants", "partitions"):
        if group in merged:
            merged[group] = _merged_groups([row.get(group, []) for row in rows], group.removesuffix("s"))
    merged["runs"] = [{key: row[key] for key in OF_ONE_SEED} for row in rows]
    return merged


def changed_over_seeds(row: Row, reference: Row, level: float) -> Interval | None:
    """The interval of the relative change of the mean JCT, paired by seed; what draws nothing is paired with each."""
    mine, others = ({run["seed"]: run["jct_mean_s"] for run in each.get("runs", [])} for each in (row, reference))
    seeds = sorted(mine.keys() & others.keys() if mine and others else mine or others)
    values, references = (
        [_number(of[seed] if of else each["jct_mean_s"]) for seed in seeds]
        for of, each in ((mine, row), (others, reference))
    )
    return known(replicated_change(values, references, level=level))


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _merged(values: Sequence[Any]) -> Any:
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
    return [
        {field: _merged([each[field] for each in same]) for field in same[0]} for _, same in sorted(members.items())
    ]
