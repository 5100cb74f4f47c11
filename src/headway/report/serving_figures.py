"""The figures of a fleet's report, as what plotly.js draws; colours are names of the page's palette."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from headway.core.tape import Tape
from headway.metrics.series import FloatArray
from headway.report.serving_story import Stay, stays_of
from headway.report.thin import cdf, rounded
from headway.report.words import plain
from headway.serving.catalogue import Catalogue
from headway.serving.fleet import Fleet
from headway.serving.latency import LatencyModel
from headway.serving.request import Request
from headway.serving.rows import Kind
from headway.units import SECOND

Figure = dict[str, Any]
COLOURS = 8
BUCKETS = 200
"""Stretches of time in the picture of the workers."""


class Times:
    """What the figures need of one run."""

    def __init__(self, catalogue: Catalogue, fleet: Fleet, requests: Sequence[Request], tape: Tape) -> None:
        self.catalogue, self.fleet, self.requests, self.tape = catalogue, fleet, requests, tape

    @cached_property
    def stays(self) -> list[Stay]:
        """All batches."""
        return list(stays_of(self.tape).values())

    @cached_property
    def _least(self) -> list[int]:
        base = LatencyModel(self.catalogue, self.fleet).base
        least = [min(row[function] for row in base) for function in range(len(self.catalogue.functions))]
        return [graph.critical_path([least[task.function] for task in graph.tasks]) for graph in self.catalogue.graphs]

    @cached_property
    def _answered(self) -> tuple[FloatArray, FloatArray]:
        graph_of = {request.id: request.graph for request in self.requests}
        rows = self.tape.of(Kind.DONE)
        latency = rows[:, 6].astype(np.float64)
        least = np.array([self._least[graph_of[request]] for request in rows[:, 2].tolist()], dtype=np.float64)
        return latency / SECOND, latency / np.maximum(least, 1.0)

    @property
    def latency_s(self) -> FloatArray:
        """Of each request that was answered."""
        return self._answered[0]

    @property
    def slowdown(self) -> FloatArray:
        """Of each request that was answered, against its critical path."""
        return self._answered[1]

    @cached_property
    def parts(self) -> dict[str, float]:
        """Mean milliseconds a task: computing, loading, in a queue."""
        queued: dict[tuple[int, int], int] = {}
        waited = 0
        for row in self.tape.of(Kind.QUEUED, Kind.TASK_ARRIVED, Kind.READY, Kind.TASK).tolist():
            if row[1] == Kind.TASK:
                waited += row[0] - queued.pop((row[2], row[5]), row[0])
            else:
                queued[row[2], row[5]] = row[0]
        ended = [stay for stay in self.stays if stay.end >= 0]
        answered = max(1, len(self.latency_s))
        return {
            "in queues": waited / answered / 1e6,
            "loading": sum((stay.start - stay.begin) * stay.tasks for stay in ended) / answered / 1e6,
            "computing": sum((stay.end - stay.start) * stay.tasks for stay in ended) / answered / 1e6,
        }


def line_of(index: int, baseline: int, runs: int) -> dict[str, Any]:
    """How the line of a run looks: the baseline of a comparison is grey and dashed."""
    if runs > 1 and index == baseline:
        return {"color": "@muted", "width": 2, "dash": "dash"}
    place = index - (index > baseline) if runs > 1 else 0
    dashes = ("solid", "dot", "dashdot")
    return {"color": f"@s{place % COLOURS}", "width": 2, "dash": dashes[place // COLOURS % len(dashes)]}


def _layout(height: int, **more: Any) -> dict[str, Any]:
    margin = {"l": 56, "r": 16, "t": 28, "b": 48}
    return {"height": height, "margin": margin, "hovermode": "closest", "showlegend": False, **more}


def distribution(
    names: Sequence[str], lines: Sequence[Mapping[str, Any]], values: Sequence[FloatArray], what: str
) -> Figure:
    """The share of requests up to a time, one line a run."""
    known = [each[np.isfinite(each)] for each in values]
    floor = max(1e-4, min((float(each.min()) for each in known if len(each)), default=1e-3))
    data = [_curve(names, lines, index, each, floor, " s") for index, each in enumerate(known)]
    axis = {"type": "log", "title": {"text": f"{what}, seconds"}}
    return {"data": data, "layout": _layout(340, xaxis=axis, yaxis=_percents())}


def slowdowns(names: Sequence[str], lines: Sequence[Mapping[str, Any]], values: Sequence[FloatArray]) -> Figure:
    """The share of requests up to a slow-down, one line a run."""
    data = [_curve(names, lines, index, each, 1.0, "×") for index, each in enumerate(values)]
    axis = {"type": "log", "title": {"text": "latency / critical path"}}
    return {"data": data, "layout": _layout(340, xaxis=axis, yaxis=_percents())}


def _percents() -> dict[str, Any]:
    return {"title": {"text": "requests"}, "range": [0, 101], "ticksuffix": " %", "dtick": 25}


def _curve(
    names: Sequence[str], lines: Sequence[Mapping[str, Any]], index: int, values: FloatArray, floor: float, unit: str
) -> Figure:
    x, share = cdf(values, floor)
    return {
        "type": "scatter",
        "mode": "lines",
        "x": rounded(x),
        "y": rounded(100 * share),
        "name": plain(names[index]),
        "line": dict(lines[index]),
        "meta": index,
        "hovertemplate": "%{y:.1f} % within %{x:.3g}" + unit + "<extra>%{fullData.name}</extra>",
    }


def spent(names: Sequence[str], runs: Sequence[Times]) -> Figure:
    """Where the time of the tasks of a request goes, a bar a run."""
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "y": [plain(name) for name in names],
            "x": [round(run.parts[part], 3) for run in runs],
            "name": part,
            "marker": {"color": colour},
            "hovertemplate": f"%{{x:,.0f}} ms {part}<extra>%{{y}}</extra>",
        }
        for part, colour in (("computing", "@s0"), ("loading", "@s1"), ("in queues", "@wait"))
    ]
    axis = {"title": {"text": "milliseconds of all tasks of a request, mean"}}
    ranks = {"autorange": "reversed", "automargin": True}
    legend = {"orientation": "h", "y": 1.18, "x": 0}
    layout = _layout(110 + 34 * len(names), barmode="stack", xaxis=axis, yaxis=ranks)
    return {"data": data, "layout": {**layout, "showlegend": True, "legend": legend}}


def workers(run: Times) -> Figure:
    """How busy each worker was, over time: a line a worker, darker is busier."""
    end = int(run.tape.column("time")[-1]) if len(run.tape) else 1
    width = max(1, -(-end // BUCKETS))
    busy = np.zeros((len(run.fleet.workers), BUCKETS))
    for stay in run.stays:
        until = stay.end if stay.end >= 0 else stay.lost if stay.lost >= 0 else end
        share = stay.slices / max(1, run.fleet.workers[stay.worker].gpu.slices)
        first, last = stay.begin // width, min(BUCKETS - 1, max(stay.begin, until - 1) // width)
        for bucket in range(first, last + 1):
            inside = min(until, (bucket + 1) * width) - max(stay.begin, bucket * width)
            busy[stay.worker, bucket] += share * max(0, inside) / width
    data = {
        "type": "heatmap",
        "z": np.round(100 * np.minimum(busy, 1.0), 1).tolist(),
        "x": [round((bucket + 0.5) * width / SECOND, 4) for bucket in range(BUCKETS)],
        "y": [plain(worker.name) for worker in run.fleet.workers],
        "zmin": 0,
        "zmax": 100,
        "colorscale": "Blues",
        "reversescale": True,
        "colorbar": {"ticksuffix": " %", "thickness": 10},
        "hovertemplate": "%{y} at %{x:.1f} s: %{z:.0f} % held<extra></extra>",
    }
    height = min(900, 130 + 16 * len(run.fleet.workers))
    axes = {"xaxis": {"title": {"text": "seconds"}}, "yaxis": {"automargin": True, "autorange": "reversed"}}
    return {"data": [data], "layout": _layout(height, **axes)}


def by_graph(names: Sequence[str], lines: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Mean slow-down of each pipeline, a dot a run."""
    data = []
    for index, row in enumerate(rows):
        graphs = [each for each in row.get("graphs", ()) if each.get("slowdown_mean") is not None]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [round(each["slowdown_mean"], 4) for each in graphs],
                "y": [plain(str(each["graph"])) for each in graphs],
                "name": plain(names[index]),
                "marker": {"color": lines[index]["color"], "size": 11},
                "meta": index,
                "hovertemplate": "%{x:.2f}×<extra>%{fullData.name}, %{y}</extra>",
            }
        )
    axis = {"type": "log", "title": {"text": "mean slow-down"}}
    count = max((len(row.get("graphs", ())) for row in rows), default=1)
    return {"data": data, "layout": _layout(130 + 40 * count, xaxis=axis, yaxis={"automargin": True})}
