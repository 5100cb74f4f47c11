"""Describe a trace in plain numbers: the answer of ``headway trace inspect``, a pure function of what was read.

Jobs are taken as the trace gives them, before any scheduling: a job brings width × time until it ends, and it *wants*
its GPUs from the moment of its submission on, as if the cluster had room for all. Times are seconds, in floating
point: nothing here goes back into a run.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from headway.fleet.traces.registry import REQUEST_READERS
from headway.fleet.traces.trace import RequestTrace
from headway.jobs.model.job import Job, Outcome
from headway.jobs.traces.build import DEFAULTS
from headway.jobs.traces.oddities import Columns, Oddity, jumps, oddities
from headway.jobs.traces.registry import READERS
from headway.jobs.traces.trace import Dropped, Trace, by_rule, too_many_dropped
from headway.units import DAY, HOUR, MINUTE, SECOND, WHOLE_GPU_MILLI

FloatArray = npt.NDArray[np.float64]

TOP = 5
"""So many tenants, users, … are named."""
EXAMPLES = 3
"""So many bad rows are shown for each rule."""
MOST_ROWS = 1000
"""So many bad rows are listed in all."""
MOST_STEPS = 400
_STEPS = tuple(step // SECOND for step in (SECOND, MINUTE, 10 * MINUTE, HOUR, DAY, 7 * DAY, 28 * DAY, 365 * DAY))
_HOUR_S = HOUR // SECOND
_OWNERS = (("tenants", "tenant"), ("users", "user"), ("partitions", "partition"), ("qos", "qos"), ("models", "model"))


def inspect(trace: Trace, gpus: int = 0) -> dict[str, Any]:
    """Summarise a trace under the keys of ``docs/reference/trace-metrics.md``.

    With ``gpus``, also compare it with a cluster of so many.
    """
    jobs = trace.jobs
    columns = _columns(trace)
    brought = columns.width * columns.run
    return {
        "format": trace.format,
        "rows": trace.rows,
        "jobs": len(jobs),
        **left_out(trace.dropped),
        "span_s": columns.span,
        **_dates(trace),
        "gpus_max": max((job.gpus for job in jobs), default=0),
        "gpu_hours": float(brought.sum()) / _HOUR_S,
        "cpu_hours": float((columns.cpus * columns.run).sum()) / _HOUR_S,
        "cpu_only": int((columns.width == 0).sum()),
        "widths": _widths(columns.width, brought),
        **spread("duration", columns.run[columns.ran]),
        **_load(columns, gpus),
        **{key: _owners(jobs, field, brought) for key, field in _OWNERS},
        "gpu_types": _owners(jobs, "gpu_types", brought),
        "outcomes": _outcomes(jobs, brought),
        "estimates": _estimates(columns),
        "oddities": [asdict(oddity) for oddity in oddities(jobs, columns, gpus)],
        "notes": [*trace.notes, *_refused(trace.dropped, trace.rows - trace.passed_over)],
    }


def _dates(trace: Trace) -> dict[str, str | None]:
    """Return the dates of the first and the last submission; None where the trace has none."""
    if trace.calendar is None or not trace.jobs:
        return {"first_date": None, "last_date": None}
    return {f"{name}_date": trace.calendar.iso(trace.jobs[at].submit) for name, at in (("first", 0), ("last", -1))}


def inspect_requests(trace: RequestTrace) -> dict[str, Any]:
    """Summarise a trace of requests; it holds no jobs."""
    arrival = trace.arrival / SECOND
    span = float(arrival[-1] - arrival[0]) if arrival.size else 0.0
    edges = edges_of(span)
    return {
        "format": trace.format,
        "rows": trace.rows,
        "jobs": 0,
        "requests": len(trace),
        **left_out(trace.dropped),
        "span_s": span,
        "gpus_max": 0,
        **spread("input_tokens", trace.input_tokens.astype(np.float64), ""),
        **spread("output_tokens", trace.output_tokens.astype(np.float64), ""),
        "requests_per_second_mean": len(trace) / span if span else None,
        "requests_per_second_peak": int(np.unique(np.floor(arrival), return_counts=True)[1].max(initial=0)),
        "step_s": float(edges[1] - edges[0]) if span else None,
        "submissions": _counted(edges, arrival) if span else [],
        "blocks": sum(map(len, trace.hash_ids)),
        "blocks_seen_before": _seen_before(trace.hash_ids),
        "oddities": [asdict(oddity) for oddity in (*jumps(arrival), *_wordless(trace))],
        "notes": [*trace.notes, *_refused(trace.dropped, trace.rows)],
    }


def _refused(dropped: Sequence[Dropped], rows: int) -> Iterator[str]:
    """Yield the reason for which other commands would refuse the file, if there is one."""
    if reason := too_many_dropped(dropped, rows):
        yield f"{reason}: refused elsewhere, unless told to go on with --skip-bad-rows"


def _seen_before(hash_ids: Iterable[Sequence[int]]) -> int:
    """Count blocks of prompts that an earlier request held too: what a cache of prefixes could spare."""
    seen: set[int] = set()
    again = 0
    for blocks in hash_ids:
        again += sum(block in seen for block in blocks)
        seen.update(blocks)
    return again


def _wordless(trace: RequestTrace) -> Iterator[Oddity]:
    for key, tokens in (("input", trace.input_tokens), ("output", trace.output_tokens)):
        if count := int((tokens == 0).sum()):
            yield Oddity(f"no-{key}", count, f"{count:,} request{'s have' if count > 1 else ' has'} no {key} token")


def formats() -> list[dict[str, str]]:
    """Return the formats that can be read, each with what its files hold and what its module says it is."""
    readers = [*((reader, "jobs") for reader in READERS), *((reader, "requests") for reader in REQUEST_READERS)]
    return [
        {
            "name": reader.NAME,
            "holds": holds,
            "description": (reader.__doc__ or "").strip().partition("\n")[0].replace("``", ""),
        }
        for reader, holds in readers
    ]


def _columns(trace: Trace) -> Columns:
    """Return the numbers of a trace's jobs; one of which the trace tells that it never started ran no time at all."""
    jobs = trace.jobs

    def ran(job: Job) -> int:
        return 0 if job.patience and trace.starts and job.name not in trace.starts else job.ends_after

    def column(of: Callable[[Job], int], unit: int) -> FloatArray:
        return np.fromiter(map(of, jobs), dtype=np.float64, count=len(jobs)) / unit

    submit = column(attrgetter("submit"), SECOND)
    return Columns(
        submit=submit - submit[:1],
        run=column(ran, SECOND),
        width=column(attrgetter("width_milli"), WHOLE_GPU_MILLI),
        cpus=column(attrgetter("cpu_milli"), 1000),
        estimate=column(attrgetter("estimate"), SECOND),
        failed=column(attrgetter("outcome"), 1) == Outcome.FAILS,
    )


def left_out(dropped: Sequence[Dropped]) -> dict[str, Any]:
    """Return the rows that were dropped: how many, why (the commonest rule first), and the first of them one by one."""
    return {
        "dropped": len(dropped),
        "dropped_jobs": sum(row.jobs for row in dropped),
        "dropped_by_rule": [
            {
                "column": rows[0].column,
                "rule": rows[0].rule,
                "fault": rows[0].fault,
                "rows": len(rows),
                "examples": [{"line": row.line, "value": row.value} for row in rows[:EXAMPLES]],
            }
            for rows in by_rule(dropped)
        ],
        "dropped_rows": [
            {"line": row.line, "column": row.column, "value": row.value, "rule": row.rule}
            for row in dropped[:MOST_ROWS]
        ],
    }


def spread(name: str, values: FloatArray, unit: str = "_s") -> dict[str, float | None]:
    """Return mean, percentiles and maximum of some values; None where there are none."""
    if not values.size:
        return {f"{name}_{part}{unit}": None for part in ("mean", "p50", "p90", "p99", "max")}
    p50, p90, p99 = np.percentile(values, (50, 90, 99))
    parts = {"mean": values.mean(), "p50": p50, "p90": p90, "p99": p99, "max": values.max()}
    return {f"{name}_{part}{unit}": float(value) for part, value in parts.items()}


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0


def _widths(width: FloatArray, brought: FloatArray) -> list[dict[str, Any]]:
    """Return a row for each width, the narrowest first; 0 is a job without GPUs."""
    values, kind = np.unique(width, return_inverse=True)
    counts, time = np.bincount(kind), np.bincount(kind, brought)
    return [
        {
            "gpus": int(value) if value == int(value) else float(value),
            "jobs": int(count),
            "jobs_share": _share(count, width.size),
            "gpu_hours": float(each) / _HOUR_S,
            "gpu_hours_share": _share(each, brought.sum()),
        }
        for value, count, each in zip(values, counts, time, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """GPUs wanted over time: a level from each instant on, and how much was wanted up to it."""

    times: FloatArray
    level: FloatArray
    passed: FloatArray

    def mean(self, edges: FloatArray) -> FloatArray:
        """Return the mean between each two edges."""
        upto = np.interp(edges, self.times, self.passed)
        return np.asarray(np.diff(upto) / np.diff(edges), dtype=np.float64)


def _wanted(columns: Columns) -> _Wanted:
    times = np.concatenate((columns.submit, columns.submit + columns.run))
    milli = np.rint(columns.width * WHOLE_GPU_MILLI).astype(np.int64)
    change = np.concatenate((milli, -milli))
    order = np.lexsort((change, times))  # what ends at an instant ends before what begins
    times, level = times[order], np.cumsum(change[order]) / WHOLE_GPU_MILLI
    passed = np.concatenate(([0.0], np.cumsum(level[:-1] * np.diff(times))))
    return _Wanted(times, level, passed)


def edges_of(span: float) -> FloatArray:
    """Return the steps in which a span is shown: seconds, minutes, hours, days, …; the last may be cut short."""
    step = next((step for step in _STEPS if span <= step * MOST_STEPS), _STEPS[-1])
    return np.append(np.arange(0.0, span, step), span)


def _counted(edges: FloatArray, times: FloatArray) -> list[int]:
    """Count the times in each step."""
    step = np.searchsorted(edges, times, side="right").clip(1, edges.size - 1) - 1
    return [int(count) for count in np.bincount(step, minlength=edges.size - 1)]


def _load(columns: Columns, gpus: int) -> dict[str, Any]:
    span = columns.span
    if not span:
        peak = float(columns.width.sum()) if columns.width.size else 0.0
        return {
            "offered_gpus": None, "wanted_gpus_mean": None, "wanted_gpus_peak": peak,
            "step_s": None, "wanted_gpus": [], "submissions": [],
            **({"gpus": gpus, "load": None, "over_share": None} if gpus else {}),
        }  # fmt: skip
    wanted, edges = _wanted(columns), edges_of(span)
    offered = float((columns.width * columns.run).sum() / span)
    inside = wanted.times <= span
    return {
        "offered_gpus": offered,
        "wanted_gpus_mean": float(wanted.mean(np.array([0.0, span]))[0]),
        "wanted_gpus_peak": float(wanted.level[inside].max()),
        "step_s": float(edges[1] - edges[0]),
        "wanted_gpus": [round(value, 3) for value in wanted.mean(edges).tolist()],
        "submissions": _counted(edges, columns.submit),
        **({"gpus": gpus, "load": offered / gpus, "over_share": _over(wanted, span, gpus)} if gpus else {}),
    }


def _over(wanted: _Wanted, span: float, gpus: int) -> float:
    """Return the share of the time in which more is wanted than there is."""
    lasts = np.diff(np.append(wanted.times.clip(max=span), span))
    return float(lasts[wanted.level > gpus].sum() / span)


def _owners(jobs: Sequence[Job], field: str, brought: FloatArray) -> dict[str, Any]:
    """Count the different values of a field, and name those that bring the most GPU time."""
    names = list(map(attrgetter(field), jobs))
    positions = {name: at for at, name in enumerate(dict.fromkeys(names))}
    kind = np.fromiter(map(positions.__getitem__, names), dtype=np.int64, count=len(names))
    counts, time = np.bincount(kind), np.bincount(kind, brought)
    given = [at for name, at in positions.items() if name != DEFAULTS[field]]
    listed = list(positions)
    most = sorted(given, key=lambda at: (-time[at], -counts[at], listed[at]))[:TOP]
    return {
        "count": len(given),
        "top": [
            {
                "name": ";".join(listed[at]) if field == "gpu_types" else listed[at],
                "jobs": int(counts[at]),
                "gpu_hours": float(time[at]) / _HOUR_S,
                "gpu_hours_share": _share(time[at], brought.sum()),
            }
            for at in most
        ],
    }


def _outcomes(jobs: Sequence[Job], brought: FloatArray) -> dict[str, Any]:
    kind = np.fromiter((int(job.outcome) for job in jobs), dtype=np.int64, count=len(jobs))
    counts, time = np.bincount(kind, minlength=3), np.bincount(kind, brought, minlength=3)
    return {
        outcome.name.lower(): {
            "jobs": int(counts[outcome]),
            "jobs_share": _share(counts[outcome], len(jobs)),
            "gpu_hours_share": _share(time[outcome], brought.sum()),
        }
        for outcome in Outcome
    }


def _estimates(columns: Columns) -> dict[str, Any]:
    """Count the jobs with an estimate, and say how far it is from the time that they ran."""
    given = (columns.estimate > 0) & columns.ran
    ratio = columns.estimate[given] / columns.run[given]
    known = spread("ratio", ratio, "")
    return {
        "jobs": int(given.sum()),
        "jobs_share": _share(given.sum(), given.size),
        "too_short": int((columns.outlived & ~columns.cut_off).sum()),
        **{key: known[key] for key in ("ratio_p50", "ratio_p90")},
    }
