"""Two ways in which one run could go on, job by job: who gains, who loses, and what it comes to for each tenant.

Both ledgers are of the whole run and have the same jobs; they are the same up to a time. Compared are jobs that were
not over by then, and, of these, those that completed both ways.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headway.metrics.bootstrap import LEVEL
from headway.metrics.compare import Sample, change, paired
from headway.metrics.series import FloatArray, IntArray
from headway.metrics.training.ledger import Ledger
from headway.metrics.training.timeline import timeline
from headway.training.rows import Kind
from headway.units import MILLISECOND, SECOND, WHOLE_GPU_MILLI

MOST_JOBS = 10
"""So many of those that gain and of those that lose most are named."""
_NOTICED = MILLISECOND
"""By less a job neither gains nor loses: the changes themselves take nanoseconds."""


@dataclass(frozen=True, slots=True, eq=False)
class Difference:
    """A run without and with changes after a time."""

    before: Ledger
    after: Ledger
    at: int
    compared: npt.NDArray[np.bool_]
    """Jobs that were not over by then and could run both ways."""

    @property
    def both(self) -> npt.NDArray[np.bool_]:
        """Of these, those that completed both ways: what all means are over."""
        both: npt.NDArray[np.bool_] = self.compared & self.before.completed & self.after.completed
        return both

    @property
    def gains_s(self) -> FloatArray:
        """By how much each job's JCT is shorter with the changes; 0 where it did not complete both ways, or hardly."""
        gained = (self.before.end - self.before.submit) - (self.after.end - self.after.submit)
        gains: FloatArray = np.where(self.both & (np.abs(gained) >= _NOTICED), gained, 0) / SECOND
        return gains


def difference(before: Ledger, after: Ledger, at: int, left_out: Sequence[int] = ()) -> Difference:
    """What differs after ``at``; jobs that are left out of one are not compared."""
    over = before.ended & (before.end <= at)
    compared = ~over
    compared[list(left_out)] = False
    return Difference(before, after, at, compared)


def as_json(found: Difference, level: float = LEVEL) -> dict[str, Any]:
    """All of it, flat where it can be: numbers before and after with the relative change, tenants, jobs.

    ``level`` is how sure the intervals are; 0 for none.
    """
    both = found.both
    gains = found.gains_s
    sides = (("before", found.before), ("after", found.after))
    whole = {name: _side(ledger, found.at, both, found.compared) for name, ledger in sides}
    return {
        "jobs": int(found.compared.sum()),
        "completed": int(both.sum()),
        "better": int((gains > 0).sum()),
        "worse": int((gains < 0).sum()),
        **whole,
        "change": {key: change(whole["after"][key], value) for key, value in whole["before"].items()},
        "confidence": level or None,
        **_interval(found, both, level),
        "tenants": list(_tenants(found, level)),
        "gain": _named(found, np.argsort(-gains, kind="stable"), gains > 0),
        "lose": _named(found, np.argsort(gains, kind="stable"), gains < 0),
    }


def _side(
    ledger: Ledger, at: int, jobs: npt.NDArray[np.bool_], compared: npt.NDArray[np.bool_]
) -> dict[str, float | int | None]:
    """The numbers of one way: of jobs over their whole life, of the cluster after the time."""
    jct, wait = _of(ledger.end - ledger.submit, jobs), _of(ledger.wait, jobs)
    end = max(int(ledger.end.max(initial=at)), at)
    late = ledger.time > at
    held = timeline(ledger).allocated
    gpus = ledger.cluster.gpus
    return {
        "jct_mean_s": _mean(jct),
        "jct_p50_s": _quantile(jct, 0.5),
        "jct_p99_s": _quantile(jct, 0.99),
        "wait_mean_s": _mean(wait),
        "wait_p99_s": _quantile(wait, 0.99),
        "never_started": int((compared & ledger.ended & (ledger.first_start < 0)).sum()),
        "end_s": end / SECOND,
        "gpus": gpus,
        "gpu_utilisation": held.mean(at, end) / gpus if gpus and end > at else None,
        "preemptions": int((late & (ledger.kind == Kind.PREEMPT)).sum()),
        "migrations": int((late & (ledger.kind == Kind.MIGRATE)).sum()),
        "evictions": int((late & (ledger.kind == Kind.EVICTED)).sum()),
        "node_failures": int((late & (ledger.kind == Kind.NODE_FAILED)).sum()),
    }


def _interval(found: Difference, jobs: npt.NDArray[np.bool_], level: float) -> dict[str, float | None]:
    """Where the relative change of the mean JCT of these jobs lies, each with and without the changes being a pair."""
    samples = [Sample((), _of(_jct(ledger), jobs)) for ledger in (found.after, found.before)]
    low, high = (paired(samples[0], samples[1], level) if level else None) or (None, None)
    return {"jct_change_low": low, "jct_change_high": high}


def _tenants(found: Difference, level: float) -> list[dict[str, Any]]:
    """A row a tenant that has a job to compare, by name."""
    names, codes = found.before.codes("tenant")
    rows = []
    for code in sorted(range(len(names)), key=names.__getitem__):
        theirs = found.compared & (codes == code)
        if not theirs.any():
            continue
        both = found.both & theirs
        row: dict[str, Any] = {"tenant": names[code], "jobs": int(theirs.sum()), "completed": int(both.sum())}
        for key, way in (("jct", _jct), ("wait", _wait)):
            first, second = (_mean(_of(way(ledger), both)) for ledger in (found.before, found.after))
            row |= {f"{key}_before_s": first, f"{key}_after_s": second, f"{key}_change": change(second, first)}
        rows.append(row | _interval(found, both, level))
    return rows


def _named(found: Difference, order: IntArray, which: npt.NDArray[np.bool_]) -> list[dict[str, Any]]:
    """The first of these jobs in an order, with what they came to both ways."""
    rows = []
    for job in order[which[order]][:MOST_JOBS].tolist():
        described = found.before.jobs[job]
        rows.append(
            {
                "job": described.name or str(job),
                "tenant": described.tenant,
                "gpus": described.width_milli / WHOLE_GPU_MILLI,
                "jct_before_s": float(_jct(found.before)[job] / SECOND),
                "jct_after_s": float(_jct(found.after)[job] / SECOND),
                "wait_before_s": float(found.before.wait[job] / SECOND),
                "wait_after_s": float(found.after.wait[job] / SECOND),
            }
        )
    return rows


def _jct(ledger: Ledger) -> IntArray:
    return ledger.end - ledger.submit


def _wait(ledger: Ledger) -> IntArray:
    return ledger.wait


def _of(values: IntArray, jobs: npt.NDArray[np.bool_]) -> FloatArray:
    seconds: FloatArray = values[jobs] / SECOND
    return seconds


def _mean(values: FloatArray) -> float | None:
    return float(values.mean()) if len(values) else None


def _quantile(values: FloatArray, part: float) -> float | None:
    return float(np.quantile(values, part)) if len(values) else None
