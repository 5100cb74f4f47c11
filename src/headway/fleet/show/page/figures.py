"""Draw the figures of a fleet's report, as what plotly.js reads; colours are names of the page's palette.

Runs, pipelines and workers have numbers for places on an axis and their names as its labels: two of the same name stay
apart, and a name is never read as a number or a date.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from headway.core.tape import Tape
from headway.fleet.metrics.ledger import Ledger
from headway.fleet.metrics.summary import critical_paths
from headway.fleet.metrics.tokens import generates, token_times
from headway.fleet.model.catalogue import Catalogue
from headway.fleet.model.fleet import Fleet
from headway.fleet.model.latency import LatencyModel
from headway.fleet.model.request import Request
from headway.fleet.show.history.history import PARTS, TaskHistory
from headway.fleet.show.history.presence import FAILED, OFF, STARTING
from headway.fleet.show.terminal.comparison import with_texts
from headway.show.downsample import bucketed, rounded
from headway.show.figures import Figure, distribution, labels, layout_of, least
from headway.show.formatting import axis_of
from headway.statistics.series import FloatArray, IntArray, Series, from_changes
from headway.units import SECOND

BUCKETS = 200
"""Stretches of time in the picture of the workers."""
MOST_LABELS = 40
"""Workers whose name stands at the axis; of more every other, third, … has one."""
LONGEST = 28
"""Letters of a name at an axis."""
_RARE = ("controller", "lost")
"""Parts that are shown only where there are any."""
_SHARES = ["0 %", "50 %", "100 %"]
_COLOURS = {"run": "@run", "load": "@s1", "wait": "@wait", "controller": "@s5", "transfer": "@s2", "lost": "@s3"}
GONE = (("off", (OFF,), "@rest"), ("starting", (STARTING,), "@s2"), ("out of service", (FAILED,), "@wait"))
"""What a worker that takes nothing is, and its colour."""


class Times:
    """What the figures need of one run; ``skip``: so many of the first requests are not measured."""

    def __init__(
        self, catalogue: Catalogue, fleet: Fleet, requests: Sequence[Request], tape: Tape, skip: int = 0
    ) -> None:
        self.catalogue, self.fleet, self.requests, self.tape = catalogue, fleet, requests, tape
        self.history = TaskHistory(catalogue, fleet, requests, tape)
        answered = self.history.answered
        self.measured = [request for request in requests[skip:] if request.id in answered]
        """Those that were answered."""

    @cached_property
    def least(self) -> IntArray:
        """Return the critical path of each graph."""
        return critical_paths(self.catalogue, LatencyModel(self.catalogue, self.fleet))

    @cached_property
    def latency_s(self) -> FloatArray:
        """Return the latency of each measured request."""
        answered = self.history.answered
        times = [answered[request.id][0] - request.arrival for request in self.measured]
        return np.array(times, dtype=np.float64) / SECOND

    @cached_property
    def slowdown(self) -> FloatArray:
        """Return the slow-down of each measured request against its critical path."""
        least = [self.least[request.graph] for request in self.measured]
        return self.latency_s * SECOND / np.maximum(np.array(least, dtype=np.float64), 1.0)

    @cached_property
    def tokens(self) -> tuple[FloatArray, FloatArray]:
        """Return seconds to the first token, and for each further one, of the measured requests that have them."""
        if not generates(self.catalogue):
            return np.zeros(0), np.zeros(0)
        times = token_times(Ledger(self.catalogue, self.fleet, self.requests, self.tape))
        kept = np.isin([request.id for request in self.requests], [request.id for request in self.measured])
        return times.to_first_s[kept & times.seen], times.per_token_s[kept & times.several]

    @cached_property
    def spent(self) -> list[dict[str, int]]:
        """Return where the time of each measured request went."""
        return [self.history.spent(each.id) for each in self.measured]

    @cached_property
    def parts(self) -> dict[str, float]:
        """Return the mean seconds of each part; together the mean latency."""
        count = max(1, len(self.spent))
        return {part: sum(each[part] for each in self.spent) / count / SECOND for part in PARTS}

    @cached_property
    def alive(self) -> Series:
        """Return how many requests are under way over time."""
        history = self.history
        begun = list(history.arrived.values())
        ended = [time for time, _ in history.answered.values()] + list(history.dropped.values())
        changes = np.array([1] * len(begun) + [-1] * len(ended), dtype=np.int64)
        return from_changes(np.array(begun + ended, dtype=np.int64), changes)


def _places(names: Sequence[str], every: int = 1) -> dict[str, Any]:
    """Return an axis with a place for each name, the first at the top."""
    shown = range(0, len(names), every)
    ticks = {"tickvals": list(shown), "ticktext": [names[at] for at in shown]}
    return {**ticks, "range": [len(names) - 0.5, -0.5], "automargin": True, "showgrid": False}


# --- distributions ----------------------------------------------------------------------------------------------


def slowdowns(names: Sequence[str], lines: Sequence[Mapping[str, Any]], values: Sequence[FloatArray]) -> Figure:
    """Return the share of requests up to a slow-down, one line a run."""
    floor = max(min(least(values, 1.0), 1.0), 1e-3)
    return distribution(names, lines, values, floor, "latency / critical path", "×")


def tokens(names: Sequence[str], lines: Sequence[Mapping[str, Any]], runs: Sequence[Times]) -> dict[str, Figure]:
    """Return the shares of requests up to a time to the first token and up to one for each further token."""
    drawn = {}
    for at, (anchor, what) in enumerate((("first-token", "to the first token"), ("per-token", "for a further token"))):
        values = [run.tokens[at] for run in runs]
        if any(len(each) for each in values):
            floor = max(least(values, 1e-3), 1e-9)
            drawn[anchor] = distribution(names, lines, values, floor, f"seconds {what}", " s")
    return drawn


# --- where time goes --------------------------------------------------------------------------------------------


def spent(names: Sequence[str], runs: Sequence[Times]) -> Figure:
    """Draw the mean latency by what it is spent on, a bar a run."""
    shown = [each for each in PARTS.items() if each[0] not in _RARE or any(run.parts[each[0]] for run in runs)]
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "y": list(range(len(names))),
            "x": [float(f"{1000 * run.parts[part]:.5g}") for run in runs],
            "name": what,
            "marker": {"color": _COLOURS[part]},
            "customdata": list(names),
            "hovertemplate": f"%{{x:,.4~g}} ms {what}<extra>%{{customdata}}</extra>",
        }
        for part, what in shown
    ]
    axis = {"title": {"text": "milliseconds, mean over requests"}, "rangemode": "tozero"}
    return {"data": data, "layout": layout_of(80 + 36 * len(names), barmode="stack", xaxis=axis, yaxis=_places(names))}


def under_way(names: Sequence[str], lines: Sequence[Mapping[str, Any]], runs: Sequence[Times]) -> Figure:
    """Draw the requests that have arrived and not ended, over time; a line a run."""
    end = max((run.history.horizon for run in runs), default=0)
    size, unit = axis_of(max(end / SECOND, 1e-9))
    stretches = [bucketed(run.alive, 0, max(1, run.history.horizon)) for run in runs]
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": rounded(stretch.middles / SECOND / size),
            "y": rounded(stretch.mean, 3),
            "name": names[index],
            "line": dict(lines[index]),
            "meta": index,
            "hovertemplate": f"%{{y:,.3~g}} at %{{x:.4~g}} {unit}<extra>%{{fullData.name}}</extra>",
        }
        for index, stretch in enumerate(stretches)
    ]
    axes = {"xaxis": _time(end, size, unit), "yaxis": {"title": {"text": "requests"}, "rangemode": "tozero"}}
    return {"data": data, "layout": layout_of(280, **axes)}


def _time(end: int, size: float, unit: str) -> dict[str, Any]:
    """Return an axis of time that can be zoomed into."""
    last = max(end, 1) / SECOND / size
    return {"title": {"text": unit}, "range": [0, last], "minallowed": 0, "maxallowed": last}


# --- workers ----------------------------------------------------------------------------------------------------


def held(run: Times, width: int) -> FloatArray:
    """Return the share of each worker's GPU that batches held, by worker and interval of time."""
    end = run.history.horizon
    busy = np.zeros((len(run.fleet.workers), BUCKETS))
    for batch_run in run.history.batch_runs.values():
        share = batch_run.slices / max(1, run.fleet.workers[batch_run.worker].gpu.slices)
        _spread(busy[batch_run.worker], batch_run.begin, batch_run.until(end), width, share)
    return np.minimum(busy, 1.0)


def _spread(row: FloatArray, since: int, until: int, width: int, amount: float) -> None:
    """Add an amount to the stretches between two times, in proportion to how much of each is between them."""
    first, last = since // width, min(BUCKETS - 1, max(since, until - 1) // width)
    for bucket in range(first, last + 1):
        inside = min(until, (bucket + 1) * width) - max(since, bucket * width)
        row[bucket] += amount * max(0, inside) / width


def workers(run: Times) -> Figure:
    """Draw how busy each worker was over time: a row a worker; where it was not there in other colours."""
    end = run.history.horizon
    width = max(1, -(-end // BUCKETS))
    size, unit = axis_of(max(end / SECOND, 1e-9))
    names = labels([worker.name for worker in run.fleet.workers])
    count = len(names)
    middles = [float(f"{(bucket + 0.5) * width / SECOND / size:.5g}") for bucket in range(BUCKETS)]
    common = {
        "type": "heatmap",
        "x": middles,
        "y": list(range(count)),
        "customdata": [[name] * BUCKETS for name in names],
        "showscale": False,
    }
    where = f"<b>%{{customdata}}</b> at %{{x:.4~g}} {unit}: "
    data = [
        {
            **common,
            "z": np.rint(100 * held(run, width)).astype(int).tolist(),
            "zmin": 0,
            "zmax": 100,
            "colorscale": [[0, "@free"], [1, "@accent"]],
            "showscale": True,
            "colorbar": {"thickness": 10, "outlinewidth": 0, "tickvals": [0, 50, 100], "ticktext": _SHARES},
            "hovertemplate": f"{where}%{{z}} % held<extra></extra>",
        }
    ]
    for what, kinds, colour in GONE:
        if (z := _gone(run, kinds, width)) is not None:
            painted = {"z": z, "zmin": 0, "zmax": 1, "colorscale": [[0, colour], [1, colour]]}
            data.append({**common, **painted, "hovertemplate": f"{where}{what}<extra></extra>"})
    height = min(900, 96 + max(3, 22 if count <= 20 else 12) * count)
    axes = {"xaxis": _time(end, size, unit), "yaxis": _places(names, -(-count // MOST_LABELS))}
    return {"data": data, "layout": layout_of(height, **axes)}


def _gone(run: Times, kinds: Sequence[str], width: int) -> list[list[int | None]] | None:
    """Return by worker and interval whether a worker was of some kinds for most of it; None where none ever was."""
    stretches = list(run.history.presence.of(*kinds))
    share = np.zeros((len(run.fleet.workers), BUCKETS))
    for worker, _, since, until in stretches:
        _spread(share[worker], since, until, width, 1.0)
    return [[1 if most >= 0.5 else None for most in row] for row in share.tolist()] if stretches else None


# --- pipelines --------------------------------------------------------------------------------------------------


def by_graph(
    names: Sequence[str], lines: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], key: str
) -> Figure | None:
    """Draw a number of each pipeline, a dot a run: ``slowdown_mean`` or ``slo_hit_rate``; None where no run has it."""
    whole = [str(graph["graph"]) for row in rows for graph in row.get("graphs", ()) if graph.get(key) is not None]
    graphs = list(dict.fromkeys(whole))
    if not graphs:
        return None
    share = key == "slo_hit_rate"
    data: list[Figure] = []
    for index, row in enumerate(rows):
        known = [with_texts(graph) for graph in row.get("graphs", ()) if graph.get(key) is not None]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [float(f"{(100 if share else 1) * graph[key]:.5g}") for graph in known],
                "y": [graphs.index(str(graph["graph"])) for graph in known],
                "name": names[index],
                "marker": {"color": lines[index]["color"], "size": 11},
                "customdata": [labels([str(graph["graph"])])[0] for graph in known],
                "meta": index,
                "text": [f", {graph.get('dropped_of_all', 'none')} dropped" for graph in known] if share else [],
                "hovertemplate": ("%{x:.1f} % in time%{text}" if share else "%{x:.2f}×")
                + "<extra>%{fullData.name}, %{customdata}</extra>",
            }
        )
    percents = {"title": {"text": "answered in time"}, "range": [-2, 102], "ticksuffix": " %"}
    axis = percents if share else _slow_axis([value for trace in data for value in trace["x"]])
    places = {**_places(labels(graphs)), "showgrid": True}
    return {"data": data, "layout": layout_of(96 + 38 * len(graphs), xaxis=axis, yaxis=places)}


def _slow_axis(values: Sequence[float]) -> dict[str, Any]:
    """Return an axis from 0, or a logarithmic one where that would leave most dots in a corner."""
    axis = {"title": {"text": "mean slow-down"}, "tickformat": "~g"}
    if max(values) > 10 * max(min(values), 1e-9):
        return {**axis, "type": "log", "dtick": 1 if max(values) > 1000 * min(values) else "D2"}
    return {**axis, "rangemode": "tozero"}
