"""Compare simulated starts with recorded ones: how far a replay of a site's history is off (docs/guides/backtest.md).

The error of a job is its simulated start less its recorded one: above 0 the simulation has it wait longer than it did.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from headway.formats.dates import Calendar
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.metrics.sizes import NOTHING, SIZE_CLASSES, gpu_type_of, size_class
from headway.jobs.metrics.summary import percentile
from headway.jobs.metrics.window import Window
from headway.jobs.model.job import Job
from headway.statistics.series import IntArray
from headway.units import SECOND

FEWEST_RANKED = 3
"""Fewer jobs have no rank correlation worth a number."""
GROUPS = ("size", "partition", "qos", "account", "user", "gpu_type", "reason")
"""What jobs are told apart by."""
Mask = npt.NDArray[np.bool_]


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
    share: float = 1.0
    """Of the absolute errors of all jobs, added up."""
    rank_correlation: float | None = None
    """Spearman's, of recorded and simulated waits: 1 when the same jobs wait longest. None where it is not defined."""


@dataclass(frozen=True, slots=True)
class Backtest:
    """A replay against what was recorded."""

    policy: str
    jobs: int
    """Jobs that were replayed and are measured."""
    compared: int
    """Those of them that started in both; errors are over these."""
    only_recorded: int
    only_simulated: int
    whole: Errors
    groups: Mapping[str, tuple[Errors, ...]]
    """By each of ``GROUPS``: sizes from the narrowest up, others by name."""
    table: pl.DataFrame
    """One row a measured job."""
    given: frozenset[str] = frozenset()
    """Which rules of the site were known, of ``remedies.RULES``."""
    limits: frozenset[str] = frozenset()
    """The names of the limits that were known."""

    @property
    def rank_correlation(self) -> float | None:
        """Return that of all jobs."""
        return self.whole.rank_correlation

    @property
    def by_size(self) -> tuple[Errors, ...]:
        """Return the errors by size."""
        return self.groups["size"]

    @property
    def by_partition(self) -> tuple[Errors, ...]:
        """Return the errors by partition."""
        return self.groups["partition"]

    def record(self) -> dict[str, Any]:
        """Return one object for ``--json``."""
        return {
            "policy": self.policy,
            "jobs": self.jobs,
            "compared": self.compared,
            "rules_given": sorted(self.given),
            "only_recorded": self.only_recorded,
            "only_simulated": self.only_simulated,
            **{key: value for key, value in asdict(self.whole).items() if key not in ("group", "jobs", "share")},
            **{f"by_{name}": [asdict(group) for group in groups] for name, groups in self.groups.items()},
        }


def backtest(
    ledger: Ledger,
    waits: Mapping[str, int],
    policy: str,
    window: Window | None = None,
    reasons: Mapping[str, str] | None = None,
    calendar: Calendar | None = None,
) -> Backtest:
    """Compare first starts with the recorded ones, given by the time from arrival to start of each job by its name.

    Times from the arrival do not depend on which job the run begins with. Jobs outside of the window are not compared.
    """
    jobs = ledger.jobs
    inside = np.zeros(len(jobs), dtype=np.bool_)
    inside[slice(None) if window is None else window.jobs] = True
    was = inside & np.fromiter((job.name in waits for job in jobs), np.bool_, len(jobs))
    recorded = np.fromiter((waits.get(job.name, 0) for job in jobs), np.int64, len(jobs))
    came = inside & (ledger.first_start >= 0)
    simulated = ledger.first_start - ledger.submit
    both = was & came
    labels = labelled(jobs, reasons or {})
    errors = partial(_errors, recorded, simulated, float(np.abs((simulated - recorded)[both]).sum()) / SECOND)
    return Backtest(
        policy=policy,
        jobs=int(inside.sum()),
        compared=int(both.sum()),
        only_recorded=int((was & ~came).sum()),
        only_simulated=int((came & ~was).sum()),
        whole=errors("all", both),
        groups={name: _grouped(name, labels[name], both, errors) for name in GROUPS},
        table=_table(ledger, inside, labels, np.where(was, recorded, -1), np.where(came, simulated, -1), calendar),
    )


def labelled(jobs: Sequence[Job], reasons: Mapping[str, str]) -> dict[str, list[str]]:
    """Return what each job is counted under, by each of ``GROUPS``; a dash where nothing is said."""
    return {
        "size": [size_class(job.width_milli) for job in jobs],
        "partition": [job.partition or "(any)" for job in jobs],
        "qos": [job.qos or NOTHING for job in jobs],
        "account": [job.tenant for job in jobs],
        "user": [job.user or NOTHING for job in jobs],
        "gpu_type": [gpu_type_of(job) for job in jobs],
        "reason": [reasons.get(job.name) or NOTHING for job in jobs],
    }


def _grouped(name: str, labels: list[str], both: Mask, errors: Callable[[str, Mask], Errors]) -> tuple[Errors, ...]:
    codes, texts = _codes(labels)
    present = list(np.unique(codes[both]).tolist())
    present.sort(key=lambda code: SIZE_CLASSES.index(texts[code]) if name == "size" else texts[code])
    return tuple(errors(texts[code], both & (codes == code)) for code in present)


def _codes(labels: list[str]) -> tuple[IntArray, list[str]]:
    position = {name: index for index, name in enumerate(dict.fromkeys(labels))}
    return np.fromiter(map(position.__getitem__, labels), np.int64, len(labels)), list(position)


def _table(
    ledger: Ledger,
    inside: Mask,
    labels: Mapping[str, list[str]],
    recorded: IntArray,
    simulated: IntArray,
    calendar: Calendar | None,
) -> pl.DataFrame:
    """Return one row a measured job: who it is, when it arrived, how long it waited and how long in the simulation."""
    chosen = np.flatnonzero(inside).tolist()
    jobs = [ledger.jobs[at] for at in chosen]
    dates = [] if calendar is None else [pl.Series("submit", [calendar.iso(job.submit) for job in jobs], pl.String)]
    columns = [
        pl.Series("name", [job.name or str(job.id) for job in jobs], pl.String),
        *dates,
        pl.Series("submit_s", [job.submit / SECOND for job in jobs], pl.Float64),
        *(pl.Series(name, [labels[name][at] for at in chosen], pl.String) for name in GROUPS),
        pl.Series("gpus", [job.width_milli / 1000 for job in jobs], pl.Float64),
    ]
    waits = [
        pl.Series(
            f"wait_{name}_s", [None if each < 0 else each / SECOND for each in values[inside].tolist()], pl.Float64
        )
        for name, values in (("recorded", recorded), ("simulated", simulated))
    ]
    both = pl.col("wait_simulated_s") - pl.col("wait_recorded_s")
    return pl.DataFrame([*columns, *waits]).with_columns(both.alias("error_s"))


def _errors(recorded: IntArray, simulated: IntArray, total_s: float, group: str, chosen: Mask) -> Errors:
    """Return the errors over the chosen jobs, which are called so."""
    error = (simulated - recorded)[chosen] / SECOND
    if not error.size:
        return Errors(group, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    size = np.sort(np.abs(error))
    return Errors(
        group,
        int(error.size),
        float(recorded[chosen].mean() / SECOND),
        float(simulated[chosen].mean() / SECOND),
        percentile(size, 50),
        percentile(size, 90),
        float(error.mean()),
        float(size.sum()) / total_s if total_s else 0.0,
        _correlation(recorded[chosen], simulated[chosen]),
    )


def _correlation(first: IntArray, second: IntArray) -> float | None:
    if len(first) < FEWEST_RANKED:
        return None
    a, b = (pl.Series(values).rank().to_numpy() for values in (first, second))
    spread = float(a.std() * b.std())
    return float(((a - a.mean()) * (b - b.mean())).mean()) / spread if spread else None
