"""Hold the waits of a shadow run against the real ones: what another policy would have saved, and how sure that is.

The saving of a job is its real wait less its wait in the shadow, below 0 for a loss. It is *booked* when the real job
has ended, as its run time is known then; until then it is *open* and in no sum. A booked job that still waits in the
shadow counts with its wait so far: its loss is at least that. The *error* of a job is what the shadow of the site's own
policy would book for it: its real wait less its wait in a simulation of that policy. A group's saving is *beyond the
error* where the lower end of its interval lies above everything that the interval of the error's mean reaches.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headway.jobs.metrics.ledger import Ledger
from headway.jobs.metrics.sizes import NOTHING
from headway.jobs.model.job import Job
from headway.statistics.intervals import LEVEL, Interval, mean_interval
from headway.units import HOUR, SECOND

GROUPS = ("tenant", "qos", "cause")
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Saving:
    """What some jobs would have saved; times in seconds unless said otherwise, None where there is no interval."""

    group: str
    jobs: int
    wait_real_mean_s: float
    wait_shadow_mean_s: float
    saved_mean_s: float
    saved_low_s: float | None
    saved_high_s: float | None
    saved_total_h: float
    error_mean_s: float | None
    """None where the site's own policy is not known."""
    error_low_s: float | None
    error_high_s: float | None
    beyond_error: bool | None
    """None where that cannot be said."""
    least_saved_s: float | None = None
    """Where it is beyond the error: the lower end of its interval less what the error reaches."""


@dataclass(frozen=True, slots=True)
class Savings:
    """What a policy would have saved at a site."""

    booked: int
    open: int
    """Jobs that have not ended in reality."""
    never_started: int
    """Jobs that left in reality before they started: they have no real wait."""
    waiting_in_shadow: int
    """Of those that are booked: they have not started in the shadow, and their loss grows."""
    provisional: int
    """Of those that are booked: their start in the shadow may still change, as others have not ended."""
    whole: Saving
    groups: Mapping[str, tuple[Saving, ...]]
    """By each of ``GROUPS``, the largest saving first."""

    def record(self) -> dict[str, Any]:
        """Return one object for ``--json``."""
        counts = ("booked", "open", "never_started", "waiting_in_shadow", "provisional")
        whole = {key: value for key, value in asdict(self.whole).items() if key not in ("group", "jobs")}
        named = {f"by_{name}": [asdict(each) for each in groups] for name, groups in self.groups.items()}
        return {**{name: getattr(self, name) for name in counts}, **whole, **named}


def waits_until(ledger: Ledger, at: int) -> tuple[Floats, Mask]:
    """Return how long each job waited for its first start, or has waited at a time, in seconds; and who has started."""
    started = ledger.first_start >= 0
    return (np.where(started, ledger.first_start, at) - ledger.submit) / SECOND, started


def savings(
    ledger: Ledger,
    at: int,
    settled: int,
    real: Sequence[int],
    ran: Sequence[int],
    causes: Sequence[str],
    *,
    site: Floats | None = None,
    carried: int = 0,
    level: float = LEVEL,
) -> Savings:
    """Compare the waits of a shadow run, as of a time, with the real ones.

    ``real``: by job the real wait in nanoseconds, below 0 where it did not start. ``ran``: below 0 for jobs that have
    ended in reality. ``site``: waits in a simulation of the site's own policy, in seconds. The first ``carried`` jobs
    were there before, and do not count.
    """
    count = len(ledger.jobs)
    known = ledger.arrived & (np.arange(count) >= carried)
    is_open = np.array(ran, dtype=np.int64) >= 0 if len(ran) else np.zeros(count, dtype=np.bool_)
    waited = np.array(real, dtype=np.int64) if len(real) else np.full(count, -1)
    booked = known & ~is_open & (waited >= 0)
    shadow, started = waits_until(ledger, at)
    rows = _Rows(waited / SECOND, shadow, site, level)
    labels = _labels(ledger.jobs, causes)
    return Savings(
        booked=int(booked.sum()),
        open=int((known & is_open).sum()),
        never_started=int((known & ~is_open & (waited < 0)).sum()),
        waiting_in_shadow=int((booked & ~started).sum()),
        provisional=int((booked & (~started | (ledger.first_start >= settled))).sum()),
        whole=rows.over("all", booked),
        groups={name: _grouped(labels[name], booked, rows.over) for name in GROUPS},
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    real: Floats
    shadow: Floats
    site: Floats | None
    level: float

    def over(self, group: str, chosen: Mask) -> Saving:
        """Return what the chosen jobs save, which are called so."""
        saved = (self.real - self.shadow)[chosen]
        low, high = _interval(saved, self.level)
        error = None if self.site is None else (self.real - self.site)[chosen]
        error_low, error_high = (None, None) if error is None else _interval(error, self.level)
        reach = None if error_low is None or error_high is None else max(abs(error_low), abs(error_high))
        return Saving(
            group,
            int(chosen.sum()),
            _mean(self.real[chosen]),
            _mean(self.shadow[chosen]),
            _mean(saved),
            low,
            high,
            float(saved.sum()) * SECOND / HOUR,
            None if error is None else _mean(error),
            error_low,
            error_high,
            None if low is None or reach is None else low > reach,
            low - reach if low is not None and reach is not None and low > reach else None,
        )


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else 0.0


def _interval(values: Floats, level: float) -> tuple[float | None, float | None]:
    found: Interval = mean_interval(values, level=level) if level else (math.nan, math.nan)
    return found if all(map(math.isfinite, found)) else (None, None)


def _labels(jobs: Sequence[Job], causes: Sequence[str]) -> dict[str, list[str]]:
    return {
        "tenant": [job.tenant for job in jobs],
        "qos": [job.qos or NOTHING for job in jobs],
        "cause": [cause or NOTHING for cause in causes] or [NOTHING] * len(jobs),
    }


def _grouped(labels: Sequence[str], booked: Mask, over: Callable[[str, Mask], Saving]) -> tuple[Saving, ...]:
    names = np.array(labels, dtype=object)
    found = [over(str(name), booked & (names == name)) for name in sorted(set(names[booked].tolist()))]
    return tuple(sorted(found, key=lambda each: (-each.saved_total_h, each.group)))
