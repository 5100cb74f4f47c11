"""Compare two continuations of one run job by job: which jobs gain or lose, and the sums for each tenant.

Both ledgers are of the whole run and have the same jobs; they are the same up to a time. Compared are jobs that were
not over by then, and, of these, those that completed both ways. Jobs that could never run under the changes are in
neither way after that time, so that nobody gains by their absence; what they came to in the run itself is told beside.

Seconds are rounded to whole microseconds: the changes themselves take nanoseconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headway.jobs.metrics.changes import changed
from headway.jobs.metrics.groups import GROUPS
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.metrics.sizes import gpu_type_of
from headway.jobs.metrics.timeline import timeline
from headway.jobs.model.rows import FOR_OTHERS, Kind
from headway.statistics.intervals import LEVEL
from headway.statistics.replications import Sample, change
from headway.statistics.series import FloatArray, IntArray
from headway.units import MILLISECOND, SECOND, WHOLE_GPU_MILLI

MOST_JOBS = 10
"""So many of those that gain and of those that lose most are named."""
_NOTICED = MILLISECOND
"""By less a job neither gains nor loses: the changes themselves take nanoseconds."""
_DIGITS = 6
"""Of seconds."""


@dataclass(frozen=True, slots=True, eq=False)
class Difference:
    """A run without and with changes after a time."""

    before: Ledger
    after: Ledger
    at: int
    compared: npt.NDArray[np.bool_]
    """Jobs that were not over by then and could run both ways."""
    left_out: tuple[int, ...] = ()
    """Jobs that could never run under the changes, in order of submission; neither way has them after that time."""
    recorded: Ledger | None = None
    """The run with them, as it was."""

    @property
    def both(self) -> npt.NDArray[np.bool_]:
        """Return which of these jobs completed both ways: all means are over them."""
        return self.compared & self.before.completed & self.after.completed

    @property
    def gains_s(self) -> FloatArray:
        """Return how much shorter each JCT is with the changes; 0 if hardly, or if one way did not complete."""
        gained = self.before.jct - self.after.jct
        return np.where(self.both & (np.abs(gained) >= _NOTICED), gained, 0) / SECOND


def difference(
    before: Ledger, after: Ledger, at: int, left_out: Sequence[int] = (), recorded: Ledger | None = None
) -> Difference:
    """Return what differs after ``at``.

    Jobs that are left out are not compared, but listed with their values in ``recorded``.
    """
    compared = ~(before.ended & (before.end <= at))
    compared[list(left_out)] = False
    return Difference(before, after, at, compared, tuple(left_out), recorded)


def as_json(difference: Difference, level: float = LEVEL) -> dict[str, Any]:
    """Return all of it, flat where it can be: numbers before and after with the relative change, tenants, jobs.

    ``level`` is the confidence level of the intervals; 0 for none.
    """
    both = difference.both
    gains = difference.gains_s
    sides = (("before", difference.before), ("after", difference.after))
    until = min(_last_end(ledger, difference.at) for _, ledger in sides)
    whole = {name: _side(difference, ledger, both, until) for name, ledger in sides}
    return {
        "jobs": int(difference.compared.sum()),
        "completed": int(both.sum()),
        "left_out": len(difference.left_out),
        "better": int((gains > 0).sum()),
        "worse": int((gains < 0).sum()),
        **whole,
        "change": {key: change(whole["after"][key], value) for key, value in whole["before"].items()},
        "confidence": level or None,
        **_interval(difference, both, level),
        **{key: rows for group, key in GROUPS.items() if (rows := _members(difference, group, level)) is not None},
        "gain": _named(difference, np.argsort(-gains, kind="stable"), gains > 0),
        "lose": [*_never_run(difference), *_named(difference, np.argsort(gains, kind="stable"), gains < 0)],
    }


def _last_end(ledger: Ledger, at: int) -> int:
    return max(int(ledger.end.max(initial=at)), at)


def _side(
    difference: Difference, ledger: Ledger, jobs: npt.NDArray[np.bool_], until: int
) -> dict[str, float | int | None]:
    """Return the numbers of one way: of jobs over their whole life, of the cluster after the time.

    How busy it is is told of the same stretch both ways, while both have jobs: else one that ends late counts as idle
    GPUs on its side alone.
    """
    at = difference.at
    jct, wait = _of(ledger.jct, jobs), _of(ledger.wait, jobs)
    late = ledger.time > at
    held = timeline(ledger).allocated
    gpus = ledger.cluster.gpus
    return {
        "jct_mean_s": _mean(jct),
        "jct_p50_s": _quantile(jct, 0.5),
        "jct_p99_s": _quantile(jct, 0.99),
        "wait_mean_s": _mean(wait),
        "wait_p99_s": _quantile(wait, 0.99),
        "never_started": int((difference.compared & ledger.ended & (ledger.first_start < 0)).sum()),
        "end_s": _seconds(_last_end(ledger, at)),
        "gpus": gpus,
        "gpu_utilisation": held.mean(at, until) / gpus if gpus and until > at else None,
        "preemptions": int((late & np.isin(ledger.kind, FOR_OTHERS)).sum()),
        "migrations": int((late & (ledger.kind == Kind.MIGRATE)).sum()),
        "evictions": int((late & (ledger.kind == Kind.EVICTED)).sum()),
        "node_failures": int((late & (ledger.kind == Kind.NODE_FAILED)).sum()),
    }


def _interval(difference: Difference, jobs: npt.NDArray[np.bool_], level: float) -> dict[str, float | None]:
    """Return the interval of the relative change of these jobs' mean JCT, paired by job."""
    after, before = (Sample((), _of(ledger.jct, jobs)) for ledger in (difference.after, difference.before))
    low, high = changed(after, before, level).interval or (None, None)
    return {"jct_change_low": low, "jct_change_high": high}


def _members(difference: Difference, group: str, level: float) -> list[dict[str, Any]] | None:
    """Return a row a tenant, user, … that has a job to compare or one that is left out, by name.

    None where a group has no more than one member; tenants have their row in any case.
    """
    names, codes = _codes(difference.before, group)
    if len(names) < 2 and group != "tenant":
        return None
    left_out = np.zeros(len(codes), dtype=np.bool_)
    left_out[list(difference.left_out)] = True
    rows = []
    for code in sorted(range(len(names)), key=names.__getitem__):
        theirs = difference.compared & (codes == code)
        without = int((left_out & (codes == code)).sum())
        if not theirs.any() and not without:
            continue
        both = difference.both & theirs
        counts = {"jobs": int(theirs.sum()), "completed": int(both.sum()), "left_out": without}
        row: dict[str, Any] = {group: names[code], **counts}
        for key in ("jct", "wait"):
            first, second = (_mean(_of(getattr(ledger, key), both)) for ledger in (difference.before, difference.after))
            row |= {f"{key}_before_s": first, f"{key}_after_s": second, f"{key}_change": change(second, first)}
        rows.append(row | _interval(difference, both, level))
    return rows


def _codes(ledger: Ledger, group: str) -> tuple[list[Any], IntArray]:
    if group != "gpu_type":
        return ledger.codes(group)
    values = [gpu_type_of(job) for job in ledger.jobs]
    position = {name: index for index, name in enumerate(dict.fromkeys(values))}
    return list(position), np.fromiter(map(position.__getitem__, values), np.int64, len(values))


def _named(difference: Difference, order: IntArray, which: npt.NDArray[np.bool_]) -> list[dict[str, Any]]:
    """Return the first of these jobs in an order, with what they came to both ways."""
    return [_job(job, difference.before, difference.after) for job in order[which[order]][:MOST_JOBS].tolist()]


def _never_run(difference: Difference) -> list[dict[str, Any]]:
    """Return the widest of the jobs that are left out: they lose whatever they had."""
    recorded = difference.recorded or difference.before
    widest = sorted(difference.left_out, key=lambda job: -recorded.jobs[job].width_milli)
    return [_job(job, recorded, None) for job in widest[:MOST_JOBS]]


def _job(job: int, before: Ledger, after: Ledger | None) -> dict[str, Any]:
    """Return a job with what it came to both ways; None where it did not complete, and where it never runs."""
    described = before.jobs[job]
    row: dict[str, Any] = {
        "job": described.name or str(job),
        "tenant": described.tenant,
        "gpus": described.width_milli / WHOLE_GPU_MILLI,
        "never_runs": after is None,
    }
    for key in ("jct", "wait"):
        for side, ledger in (("before", before), ("after", after)):
            known = ledger is not None and ledger.completed[job]
            row[f"{key}_{side}_s"] = _seconds(int(getattr(ledger, key)[job])) if known else None
    return row


def _of(values: IntArray, jobs: npt.NDArray[np.bool_]) -> FloatArray:
    return np.round(values[jobs] / SECOND, _DIGITS)


def _seconds(time: int) -> float:
    return round(time / SECOND, _DIGITS)


def _mean(values: FloatArray) -> float | None:
    return round(float(values.mean()), _DIGITS) if len(values) else None


def _quantile(values: FloatArray, part: float) -> float | None:
    return round(float(np.quantile(values, part)), _DIGITS) if len(values) else None
