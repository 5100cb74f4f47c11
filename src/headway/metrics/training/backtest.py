"""Compare simulated starts with recorded ones: how far a replay of a site's history is off (docs/guides/backtest.md).

The error of a job is its simulated start less its recorded one: above 0 the simulation has it wait longer than it did.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from headway.metrics.series import IntArray
from headway.metrics.training.ledger import Ledger
from headway.metrics.training.sizes import SIZE_CLASSES, size_class
from headway.metrics.training.summary import percentile
from headway.units import SECOND

FEWEST_RANKED = 3
"""Fewer jobs have no rank correlation worth a number."""


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors over some jobs, in seconds. ``error_p50_s`` and ``error_p90_s`` are of absolute errors."""

    group: str
    jobs: int
    wait_recorded_mean_s: float
    wait_simulated_mean_s: float
    error_p50_s: float
    error_p90_s: float
    bias_s: float
    """The mean error, with its sign."""


@dataclass(frozen=True, slots=True)
class Backtest:
    """A replay against what was recorded."""

    policy: str
    jobs: int
    """Jobs that were replayed."""
    compared: int
    """Those of them that started in both; errors are over these."""
    only_recorded: int
    only_simulated: int
    whole: Errors
    rank_correlation: float | None
    """Spearman's, of recorded and simulated waits: 1 when the same jobs wait longest. None where it is not defined."""
    by_size: tuple[Errors, ...]
    by_partition: tuple[Errors, ...]

    def record(self) -> dict[str, Any]:
        """Return one object for ``--json``."""
        return {
            "policy": self.policy,
            "jobs": self.jobs,
            "compared": self.compared,
            "only_recorded": self.only_recorded,
            "only_simulated": self.only_simulated,
            **{key: value for key, value in asdict(self.whole).items() if key not in ("group", "jobs")},
            "rank_correlation": self.rank_correlation,
            "by_size": [asdict(group) for group in self.by_size],
            "by_partition": [asdict(group) for group in self.by_partition],
        }


def backtest(ledger: Ledger, waits: Mapping[str, int], policy: str) -> Backtest:
    """Compare first starts with the recorded ones, given by the time from arrival to start of each job by its name.

    Times from the arrival do not depend on which job the run begins with.
    """
    jobs = ledger.jobs
    was = np.fromiter((job.name in waits for job in jobs), np.bool_, len(jobs))
    recorded = np.fromiter((waits.get(job.name, 0) for job in jobs), np.int64, len(jobs))
    came = ledger.first_start >= 0
    simulated = ledger.first_start - ledger.submit
    both = was & came
    names, partitions = ledger.codes("partition")
    widths = np.array([size_class(width) for width in ledger.width.tolist()], dtype=object)
    errors = partial(_errors, recorded, simulated)
    sizes = sorted(set(widths[both].tolist()), key=SIZE_CLASSES.index)
    return Backtest(
        policy=policy,
        jobs=len(ledger.jobs),
        compared=int(both.sum()),
        only_recorded=int((was & ~came).sum()),
        only_simulated=int((came & ~was).sum()),
        whole=errors("all", both),
        rank_correlation=_correlation(recorded[both], simulated[both]),
        by_size=tuple(errors(size, both & (widths == size)) for size in sizes),
        by_partition=tuple(
            errors(name or "(any)", chosen)
            for code, name in sorted(enumerate(names), key=lambda pair: str(pair[1]))
            if (chosen := both & (partitions == code)).any()
        ),
    )


def _errors(recorded: IntArray, simulated: IntArray, group: str, chosen: npt.NDArray[np.bool_]) -> Errors:
    """Return the errors over the chosen jobs, which are called so."""
    error = (simulated - recorded)[chosen] / SECOND
    if not error.size:
        return Errors(group, 0, 0.0, 0.0, 0.0, 0.0, 0.0)
    size = np.sort(np.abs(error))
    return Errors(
        group,
        int(error.size),
        float(recorded[chosen].mean() / SECOND),
        float(simulated[chosen].mean() / SECOND),
        percentile(size, 50),
        percentile(size, 90),
        float(error.mean()),
    )


def _correlation(first: IntArray, second: IntArray) -> float | None:
    if len(first) < FEWEST_RANKED:
        return None
    a, b = (pl.Series(values).rank().to_numpy() for values in (first, second))
    spread = float(a.std() * b.std())
    return float(((a - a.mean()) * (b - b.mean())).mean()) / spread if spread else None
