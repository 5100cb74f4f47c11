"""Summarise a run in one record: the numbers that a table shows and ``--json`` prints.

Definitions: docs/reference/metrics.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any

import numpy as np

from headway.core.tape import Tape
from headway.jobs.metrics.fragmentation import fragmentation
from headway.jobs.metrics.groups import GROUPS, jain, tenant_fairness
from headway.jobs.metrics.host import FIELDS
from headway.jobs.metrics.jobs import (
    bounded_slowdown,
    failed_gpu_seconds,
    finish_time_fairness,
    gpu_seconds,
    lost_gpu_seconds,
    slowdown,
)
from headway.jobs.metrics.ledger import FIRST_ACTION, Ledger
from headway.jobs.metrics.overload import overload
from headway.jobs.metrics.timeline import Timeline, timeline
from headway.jobs.metrics.window import Window, arrivals_of, span_of, still_growing
from headway.jobs.model.cluster import Cluster
from headway.jobs.model.job import Job
from headway.jobs.model.rows import FOR_OTHERS, Kind
from headway.statistics.replications import Replication
from headway.statistics.series import FloatArray, IntArray, Series
from headway.units import SECOND

NODE = "node"
Json = dict[str, str | int | float | bool | None]
Count = float
"""A number of things; a mean of such numbers need not be whole."""
WHILE_ARRIVING = "_while_arriving"
"""Ends the names of means over the time in which measured jobs arrive; over the span where they come all at once."""

REPLICATION = Replication(
    intervals=(("jct_mean", "_s"), ("jct_p50", "_s"), ("jct_p99", "_s"), ("wait_mean", "_s")),
    of_one_seed=(
        *("seed", "digest", "stopped", "jobs", "jct_mean_s", "wait_mean_s", "gpu_utilisation", "makespan_s"),
        *("gpu_utilisation_while_arriving", "tail_s"),
    ),
    groups={key: group for group, key in GROUPS.items()} | {"limits": "limit"},
)
"""How the results of several seeds become one."""
_ACTIONS = [Kind.START, *FOR_OTHERS, Kind.WARN, Kind.MIGRATE, Kind.REALLOCATE, Kind.WAKE_AT]


@dataclass(frozen=True, slots=True)
class Spread:
    """How a quantity is distributed over jobs; percentiles interpolate linearly. All None over no jobs."""

    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None
    max: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """All numbers of one run, or their means over runs of several seeds. Times are in seconds."""

    jobs: Count
    measured_jobs: Count
    to_come: Count
    finished: Count
    failed: Count
    cancelled: Count
    unfinished: Count
    completed: Count
    jct_s: Spread
    wait_s: Spread
    slowdown: Spread
    bounded_slowdown: Spread
    ftf: Spread
    makespan_s: float
    throughput_per_hour: float
    gpu_utilisation: float
    effective_gpu_utilisation: float
    gpu_availability: float
    cpu_utilisation: float | None
    memory_utilisation: float | None
    fragmentation: dict[str, float]
    fgd_fragmentation: float
    queue_mean: float
    queue_max: Count
    waiting_gpus_mean: float
    running_mean: float
    preemptions: Count
    migrations: Count
    evictions: Count
    failed_attempts: Count
    node_failures: Count
    gpu_hours: float
    lost_gpu_hours: float
    failed_gpu_hours: float
    jain_tenants: float | None
    jain_jobs: float | None
    refusals: Count
    events: Count
    actions: Count
    overload: str | None
    growing: str | None
    storage_utilisation: float | None = None
    reallocations: Count = 0
    gpu_utilisation_while_arriving: float | None = None
    """None, like what follows, in results of a version that did not measure it."""
    effective_gpu_utilisation_while_arriving: float | None = None
    cpu_utilisation_while_arriving: float | None = None
    memory_utilisation_while_arriving: float | None = None
    storage_utilisation_while_arriving: float | None = None
    queue_mean_while_arriving: float | None = None
    tail_s: float | None = None

    @property
    def fragmentation_mean(self) -> float:
        """Return the level ``node``, averaged over time."""
        return self.fragmentation[NODE]


def spread(values: FloatArray | IntArray, unit: int = 1) -> Spread:
    """Return mean, percentiles and maximum, divided by a unit; nan values do not count."""
    known: FloatArray | IntArray = values[~np.isnan(values)]
    if not len(known):
        return Spread(None, None, None, None, None)
    known.sort()
    p50, p90, p99 = (percentile(known, percent) / unit for percent in (50, 90, 99))
    return Spread(float(known.mean(dtype=np.longdouble) / unit), p50, p90, p99, float(known[-1]) / unit)


def percentile(ordered: FloatArray | IntArray, percent: int) -> float:
    """Return the percentile, linear between the two nearest ranks; the rank is computed in integers."""
    rank, hundredths = divmod(percent * (len(ordered) - 1), 100)
    if not hundredths:
        return float(ordered[rank])
    low, high = ordered[rank].item(), ordered[rank + 1].item()
    return float(low + (high - low) * hundredths / 100)


def summarise(tape: Tape, jobs: Sequence[Job], cluster: Cluster) -> Summary:
    """Return all numbers of one run, interrupted or not."""
    return of_ledger(Ledger(tape, jobs, cluster))


def of_ledger(ledger: Ledger, window: Window | None = None) -> Summary:
    """Return the summary of a tape that was read already; with a window, of the jobs and time that it measures."""
    lines, fragments = timeline(ledger), fragmentation(ledger)
    start, end = span_of(ledger, window)
    _, last = arrivals_of(ledger, window)
    chosen = slice(None) if window is None else window.jobs
    completed = ledger.completed[chosen]
    fairness = finish_time_fairness(ledger)[chosen]
    hours = (end - start) / (3600 * SECOND)
    came = ledger.arrived | (ledger.withdrawn >= 0)
    jobs = int(came.sum())
    kinds = np.bincount(ledger.kind, minlength=int(max(Kind)) + 1)
    ended_by = ledger.ended_by[chosen]
    return Summary(
        jobs=jobs,
        measured_jobs=int(came[chosen].sum()),
        to_come=len(ledger.jobs) - jobs,
        finished=int((ended_by == Kind.FINISHED).sum()),
        failed=int((ended_by == Kind.FAILED).sum()),
        cancelled=int((np.isin(ended_by, (Kind.CANCELLED, Kind.KILL)) | (ledger.withdrawn[chosen] >= 0)).sum()),
        unfinished=int((ledger.arrived & ~ledger.ended)[chosen].sum()),
        completed=int(completed.sum()),
        jct_s=spread(ledger.jct[chosen][completed], SECOND),
        wait_s=spread(ledger.wait[chosen][completed], SECOND),
        slowdown=spread(slowdown(ledger)[chosen]),
        bounded_slowdown=spread(bounded_slowdown(ledger)[chosen]),
        ftf=spread(fairness),
        makespan_s=(end - start) / SECOND,
        throughput_per_hour=int(completed.sum()) / hours if hours else 0.0,
        **_over_time(ledger, lines, start, end),
        **_while_arriving(_over_time(ledger, lines, start, last if last > start else end)),
        tail_s=(end - last) / SECOND,
        fragmentation={level: series.mean(start, end) for level, series in fragments.levels.items()},
        fgd_fragmentation=fragments.fgd.mean(start, end),
        preemptions=int(ledger.counted(*FOR_OTHERS)[chosen].sum()),
        migrations=int(ledger.counted(Kind.MIGRATE)[chosen].sum()),
        evictions=int(ledger.counted(Kind.EVICTED)[chosen].sum()),
        failed_attempts=int(ledger.counted(Kind.FAILED)[chosen].sum()),
        node_failures=_within(ledger, Kind.NODE_FAILED, start, end) if window else int(kinds[Kind.NODE_FAILED]),
        gpu_hours=float(gpu_seconds(ledger, ledger.held)[chosen].sum()) / 3600,
        lost_gpu_hours=float(lost_gpu_seconds(ledger)[chosen].sum()) / 3600,
        failed_gpu_hours=float(failed_gpu_seconds(ledger)[chosen].sum()) / 3600,
        jain_tenants=tenant_fairness(ledger, chosen),
        jain_jobs=jain(fairness[~np.isnan(fairness)]),
        refusals=_within(ledger, Kind.REFUSED, start, end) if window else int(kinds[Kind.REFUSED]),
        events=int(kinds[:FIRST_ACTION].sum()),
        actions=int(kinds[_ACTIONS].sum()),
        overload=overload(ledger),
        growing=still_growing(ledger, window),
        reallocations=int(ledger.counted(Kind.REALLOCATE)[chosen].sum()),
    )


def _within(ledger: Ledger, kind: Kind, start: int, end: int) -> int:
    """Count the rows of a kind between two instants, both included."""
    times = ledger.time[ledger.rows(kind)]
    return int(((times >= start) & (times <= end)).sum())


def _over_time(ledger: Ledger, lines: Timeline, start: int, end: int) -> dict[str, Any]:
    """Return means and maxima over the time between two instants."""
    gpus = ledger.cluster.gpus
    nodes = ledger.cluster.nodes

    def share(series: Series, capacity: int, unit: int = 1) -> float:
        return series.mean(start, end) * unit / capacity if capacity else 0.0

    def host(series: Series | None, field: str, unit: int) -> float | None:
        there = sum(getattr(node, field) or 0 for node in nodes)
        return None if series is None else share(series, there, unit)

    held = zip(("cpu", "memory", "storage"), (lines.cpus, lines.memory_bytes, lines.storage), FIELDS, strict=True)
    return {
        "gpu_utilisation": share(lines.allocated, gpus),
        "effective_gpu_utilisation": share(lines.effective, gpus),
        "gpu_availability": share(lines.gpus_up, gpus),
        **{f"{name}_utilisation": host(series, *of) for name, series, of in held},
        "queue_mean": lines.waiting.mean(start, end),
        "queue_max": round(lines.waiting.peak(start, end)),
        "waiting_gpus_mean": lines.waiting_gpus.mean(start, end),
        "running_mean": lines.running.mean(start, end),
    }


def _while_arriving(means: Mapping[str, Any]) -> dict[str, Any]:
    """Return those means over time that are also taken while jobs arrive, by their names."""
    names = {each.name for each in fields(Summary)}
    return {name: value for key, value in means.items() if (name := f"{key}{WHILE_ARRIVING}") in names}


def as_json(summary: Summary, policy: str) -> Json:
    """Return one flat object, times in seconds; the caller adds what only it knows (wall time, memory)."""
    flat: Json = {"policy": policy, "jobs": summary.jobs, "gpu_utilisation_over_makespan": summary.gpu_utilisation}
    for name in summary.__slots__:
        value = getattr(summary, name)
        if isinstance(value, Spread):
            flat |= {key: getattr(value, part) for part, key in _keys(name).items()}
        elif isinstance(value, dict):
            flat["fragmentation_mean"] = summary.fragmentation_mean
            flat |= {f"{name}_{level}": share for level, share in value.items()}
        else:
            flat[name] = value
    return flat


def from_json(flat: Mapping[str, Any]) -> Summary:
    """Return the numbers in such an object, an earlier version's included; what else it holds is not looked at."""
    values: dict[str, Any] = {}
    for each in fields(Summary):
        if each.type is Spread:
            values[each.name] = Spread(**{part: flat[key] for part, key in _keys(each.name).items()})
        elif each.name == "fragmentation":
            levels = [key for key in flat if key.startswith("fragmentation_") and key != "fragmentation_mean"]
            values[each.name] = {key.removeprefix("fragmentation_"): flat[key] for key in levels}
        elif each.name in flat or each.default is MISSING:
            values[each.name] = flat[each.name]
    return Summary(**values)


def _keys(name: str) -> dict[str, str]:
    """Return what the parts of a spread are called in a flat object."""
    stem, unit = (name[:-2], "_s") if name.endswith("_s") else (name, "")
    return {part: f"{stem}_{part}{unit}" for part in Spread.__slots__}
