"""Compare the JCT of runs with a baseline: relative changes with intervals, paired by job or by seed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headway.statistics.intervals import Interval, mean_interval, paired_interval, replicated_change, summed_interval
from headway.statistics.replications import Batches, Row, Sample, change, known, number
from headway.statistics.series import FloatArray

DIFFERENT_JOBS = "different jobs"
"""What a change is over that compares means of jobs that cannot be paired."""


@dataclass(frozen=True, slots=True)
class Change:
    """The relative change of a mean JCT, over the same jobs or seeds, with its interval."""

    value: float | None = None
    interval: Interval | None = None
    over: str | None = None
    """What it is over, where that is not all that either has: '98 jobs in common'."""
    seconds: float | None = None
    """The same in seconds, where a part of it has no interval; see ``in_seconds``."""
    seconds_interval: Interval | None = None

    @property
    def sure(self) -> Interval | None:
        """Return the interval to judge it by: of the relative change, else of the one in seconds."""
        return self.interval or self.seconds_interval

    def row(self) -> dict[str, Any]:
        """Return it as columns of a row of results."""
        low, high = self.interval or (None, None)
        return {
            "jct_change": self.value,
            "jct_change_low": low,
            "jct_change_high": high,
            "jct_change_over": self.over,
        }


def changes(runs: Sequence[Row], key: str, baseline: int = 0) -> list[float | None]:
    """Return the relative change of a number of each run from the baseline's: -0.25 is a quarter less.

    None for the baseline itself, and where either is unknown or the baseline's is 0.
    """
    return [
        None if index == baseline else change(run.get(key), runs[baseline].get(key)) for index, run in enumerate(runs)
    ]


def changed(sample: Sample, reference: Sample, level: float) -> Change:
    """Return the relative change of the mean JCT between two runs, over the jobs that both measured.

    Runs over the same jobs are paired as they stand; where one left some out, by name. ``level`` 0: no interval.
    """
    if sample.names == reference.names:
        pairs, over = (sample.jct_s, reference.jct_s), None
    elif common := _common(sample, reference):
        pairs, over = common, f"{_counted(len(common[0]), 'job')} in common"
    else:
        return Change(change(mean(sample.jct_s), mean(reference.jct_s)), over=DIFFERENT_JOBS)
    value = change(mean(pairs[0]), mean(pairs[1]))
    sure = level > 0 and value is not None
    return Change(value, known(paired_interval(*pairs, level=level)) if sure else None, over)


def in_seconds(found: Change, sample: Sample, reference: Sample, level: float) -> Change:
    """Return a change without an interval with the one in seconds, over the jobs that completed in both runs.

    A part of a mean that falls to 0, or nearly so, has no interval: the logarithm of nothing is not finite.
    """
    pairs = (sample.jct_s, reference.jct_s) if sample.names == reference.names else _common(sample, reference)
    if found.interval is not None or pairs is None:
        return found
    differences = pairs[0] - pairs[1]
    interval = known(mean_interval(differences, level=level)) if level > 0 else None
    return replace(found, seconds=mean(differences), seconds_interval=interval)


def _common(sample: Sample, reference: Sample) -> tuple[FloatArray, FloatArray] | None:
    """Return the JCTs of jobs in both runs, in the first one's order; None where there are none or names repeat."""
    if any(len(set(each.names)) != len(each.names) for each in (sample, reference)):
        return None
    others = dict(zip(reference.names, reference.jct_s.tolist(), strict=True))
    pairs = [(mine, others[name]) for name, mine in zip(sample.names, sample.jct_s, strict=True) if name in others]
    both = np.array(pairs, dtype=np.float64)
    return (both[:, 0], both[:, 1]) if pairs else None


def mean(values: FloatArray) -> float | None:
    """Return the mean of the finite values; None where there are none."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else None


def changed_batches(mine: Batches, reference: Batches, value: float | None, level: float) -> Change:
    """Return a change between two runs of which batches were kept; ``value`` is the change of their means."""
    if mine.digest != reference.digest:
        return Change(value, over=DIFFERENT_JOBS)
    if not level or value is None or len(mine.sums) != len(reference.sums) or not mine.sums:
        return Change(value)
    sums = np.hstack((np.array(mine.sums, dtype=np.float64), np.array(reference.sums)))
    return Change(value, known(summed_interval(sums, level=level)))


def by_seed(row: Row, drawn: bool) -> dict[int, float]:
    """Return the mean JCT of each run of a row; empty where nothing is drawn, so that every seed gives the same."""
    runs = row.get("runs") or ([row] if drawn else [])
    return {run["seed"]: number(run["jct_mean_s"]) for run in runs}


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
            (mine.get(seed, number(row["jct_mean_s"])), others.get(seed, number(reference["jct_mean_s"])))
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
