"""Draw the figures of a report on training jobs, as what plotly.js reads (see ``show.figures``)."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, cast

import numpy as np
import polars as pl

from headway.formats.dates import Calendar
from headway.jobs.metrics.waits.by_cause import WaitCauses
from headway.jobs.model.causes import CauseKind
from headway.jobs.show.formatting import size_label, size_labels
from headway.jobs.show.page import trust
from headway.jobs.show.page.measured import FAILED, Comparison, Measured
from headway.jobs.show.page.panels import panels_of
from headway.show.downsample import cdf, rounded
from headway.show.figures import Figure, layout_of, line_style
from headway.show.formatting import axis_of, clipped
from headway.show.training_downsample import stretched, without_tail
from headway.statistics.series import FloatArray, Series
from headway.units import SECOND

COLOURS = 10
"""Colours of the palette that stand for something."""
MOST_BARS = 16
"""Tenants with a bar of their own; the rest stand together."""
MOST_WEEK_ENDS = 60
"""Of more, none is shaded."""
OTHERS = "all others"
_DASHES = ("solid", "dash", "dot", "dashdot")
_SHAPES = ("", "/", "x", ".")
_HATCH = {"fgcolor": "@paper", "fgopacity": 0.55, "solidity": 0.2, "size": 7}
_TICKS = (
    *((1e-9, "1 ns"), (1e-6, "1 µs"), (1e-3, "1 ms"), (1, "1 s"), (10, "10 s"), (60, "1 min"), (600, "10 min")),
    *((3600, "1 h"), (21_600, "6 h"), (86_400, "1 d"), (864_000, "10 d"), (8_640_000, "100 d")),
)
_CAUSES = {
    CauseKind.CAPACITY: "too few GPUs free",
    CauseKind.FRAGMENTATION: "free GPUs not together",
    CauseKind.HEAD_OF_LINE: "held back by the job ahead",
    CauseKind.ORDER: "others go first",
    CauseKind.RESERVATION: "would delay a reservation",
    CauseKind.QUOTA: "tenant at its quota",
    CauseKind.NODES_DOWN: "nodes down or drained",
    CauseKind.ROUND: "policy decides later",
    CauseKind.HOST: "CPUs or memory short",
    CauseKind.PLACEMENT: "placement rule",
    CauseKind.LIMIT: "held back by a limit",
    CauseKind.GRACE: "victims have grace",
    CauseKind.REQUEUED: "just requeued",
    CauseKind.RESERVED: "nodes reserved in advance",
}
_LONGEST = 32
"""Letters of the name of a run."""
_WIDE = 5.0
"""From the least to the most so much apart, a logarithmic axis has ticks at 1, 2 and 5 alone."""


def label(text: str, most: int = 28) -> str:
    """Return text from a trace for plotly: it reads some HTML, so none is left."""
    return escape(clipped(text, most), quote=False)


def names_of(compared: Comparison) -> list[str]:
    """Return the names of the runs for plotly, all distinct, so that each has a bar of its own."""
    return [label(name, _LONGEST) for name in compared.cut(_LONGEST)]


def line_of(compared: Comparison, index: int) -> dict[str, Any]:
    """Return the line style of a run."""
    return line_style(index, compared.base, len(compared.runs), _DASHES)


def distribution(compared: Comparison, values: Sequence[FloatArray], what: str) -> Figure:
    """Draw the share of jobs up to a time, one line a run."""
    known = [times[~np.isnan(times)] for times in values]
    longest = max((float(times.max()) for times in known if len(times)), default=1.0)
    floor = 1.0 if longest >= 10 or not longest else max(longest / 1e4, 1e-9)
    top = max(longest, floor * 10)
    data = []
    for index, (name, times) in enumerate(zip(names_of(compared), values, strict=True)):
        x, share = _to_the_edges(*cdf(times, floor), floor, top)
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": rounded(x),
                "y": rounded(100 * share),
                "name": name,
                "line": {**line_of(compared, index), "shape": "hv" if len(x) < 200 else "linear"},
                "meta": index,
                "hovertemplate": "%{y:.1f} % within %{customdata}<extra>%{fullData.name}</extra>",
                "customdata": [_tick_text(value) for value in x.tolist()],
            }
        )
    ticks = [(at, text) for at, text in _TICKS if floor <= at <= top * 1.01]
    axis = {
        "type": "log",
        "title": {"text": what},
        "range": [float(np.log10(floor)), float(np.log10(top)) + 0.05],
        "tickvals": [at for at, _ in ticks],
        "ticktext": [f"≤ {text}" if at == floor else text for at, text in ticks],
    }
    percents = {"title": {"text": "jobs"}, "range": [0, 101], "ticksuffix": " %", "dtick": 25}
    return {"data": data, "layout": layout_of(340, xaxis=axis, yaxis=percents)}


def _to_the_edges(x: FloatArray, share: FloatArray, floor: float, top: float) -> tuple[FloatArray, FloatArray]:
    """Return a distribution that spans the axis: 0 before its first value, 1 after its last."""
    if not len(x):
        return x, share
    if x[0] > floor:
        x, share = np.append(floor, x), np.append(0.0, share)
    return (np.append(x, top), np.append(share, 1.0)) if x[-1] < top else (x, share)


def _tick_text(seconds: float) -> str:
    size, unit = next(((s, u) for s, u in ((86400, "d"), (3600, "h"), (60, "min")) if seconds >= 2 * s), (1, "s"))
    return f"{seconds / size:.3g} {unit}"


def over_time(compared: Comparison) -> Figure:
    """Draw what is in use, jobs and GPUs that wait, and fragmentation, above each other on one axis of time."""
    panels = panels_of(compared)
    shown, whole = shown_until(compared), max(run.ledger.horizon for run in compared.runs)
    size, unit = axis_of(max(shown, 1) / SECOND)
    data: list[dict[str, Any]] = []
    layout = layout_of(180 * len(panels), hovermode="x", annotations=[])
    layout["margin"]["t"] = 4
    height = 1 / len(panels)
    for row, (title, mark, lines) in enumerate(panels):
        number = "" if row == 0 else str(row + 1)
        low = 1 - (row + 1) * height + 0.02
        top = 1 - row * height - 0.045
        layout[f"yaxis{number}"] = {"domain": [low, top], "rangemode": "tozero", "nticks": 4, "anchor": "x"}
        layout["annotations"].append(_heading(title, top))
        for index, series in enumerate(lines):
            data.extend(_stretch(compared, index, series, (size, 100.0 if mark else 1.0), (shown, f"y{number}")))
        if mark:
            layout[f"yaxis{number}"] |= {"range": [0, 102], "ticksuffix": " %", "dtick": 50}
    layout["xaxis"] = {"anchor": f"y{len(panels)}"}
    if (dates := trust.calendar_of(compared)) is not None:
        _put_dates(data, layout, dates, size, (max(shown, 1), max(whole, 1)))
    else:
        layout["xaxis"] |= {
            "title": {"text": f"{unit} since the run began"},
            "range": [0, max(shown, 1) / SECOND / size],
            "minallowed": 0,
            "maxallowed": max(whole, 1) / SECOND / size,
        }
    return {"data": data, "layout": layout}


def _put_dates(
    data: list[dict[str, Any]], layout: dict[str, Any], dates: Calendar, size: float, ends: tuple[int, int]
) -> None:
    """Turn an axis of time into one of dates, with week-ends shaded."""
    for line in data:
        line["x"] = [dates.shown(round(at * size * SECOND)) for at in line["x"]]
    first, shown, whole = (dates.shown(time) for time in (0, *ends))
    limits = {"range": [first, shown], "minallowed": first, "maxallowed": whole}
    layout["xaxis"] |= {"type": "date", "title": {"text": f"{dates.about()}; week-ends shaded"}, **limits}
    rests = list(dates.week_ends(0, ends[1]))
    if len(rests) > MOST_WEEK_ENDS:
        return
    box = {"type": "rect", "yref": "paper", "y0": 0, "y1": 1, "layer": "below", "line": {"width": 0}}
    layout["shapes"] = [
        {**box, "x0": dates.shown(since), "x1": dates.shown(until), "fillcolor": "@ink/0.06"} for since, until in rests
    ]


def shown_until(compared: Comparison) -> int:
    """Return where the axis of time ends at first."""
    return without_tail(max(run.bulk for run in compared.runs), max(run.ledger.horizon for run in compared.runs))


def _heading(text: str, y: float) -> dict[str, Any]:
    return {
        "text": text,
        "x": 0,
        "xref": "paper",
        "xanchor": "left",
        "y": y,
        "yref": "paper",
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"size": 13, "color": "@ink"},
    }


def _stretch(
    compared: Comparison, index: int, series: Series, scales: tuple[float, float], where: tuple[int, str]
) -> list[Figure]:
    """Return the mean over stretches of time; for one run alone also how far it went up and down."""
    run = compared.runs[index]
    size, scale = scales
    shown, axis = where
    buckets = stretched(series, shown, run.ledger.horizon)
    x = rounded(buckets.middles / SECOND / size, 5)
    style = line_of(compared, index)
    line = {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "y": rounded(buckets.mean * scale),
        "yaxis": axis,
        "name": names_of(compared)[index],
        "meta": index,
        "line": {**style, "width": 1.6},
        "hovertemplate": "%{y:.3~s}<extra>%{fullData.name}</extra>",
    }
    if len(compared.runs) > 1:
        return [line]
    band = {
        "type": "scatter",
        "mode": "lines",
        "yaxis": axis,
        "fill": "toself",
        "hoverinfo": "skip",
        "x": [*x, *x[::-1]],
        "y": [*rounded(buckets.high * scale), *rounded(buckets.low * scale)[::-1]],
        "fillcolor": f"{style['color']}/0.18",
        "line": {"width": 0},
        "meta": index,
        "name": "",
    }
    return [band, line]


def stacked(
    names: Sequence[str], parts: Mapping[str, Sequence[float]], colours: Mapping[str, int], axis: str
) -> Figure:
    """Draw horizontal bars, one a name (already safe for plotly), divided into parts; the first name on top."""
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "y": list(names),
            "x": rounded(np.array(values)),
            "name": part,
            "marker": {
                "color": f"@s{colours[part] % COLOURS}",
                "line": {"width": 0},
                "pattern": {"shape": _SHAPES[colours[part] // 5 % len(_SHAPES)], "fillmode": "overlay", **_HATCH},
            },
            "hovertemplate": "%{y}: %{x:,.1f}<extra>%{fullData.name}</extra>",
        }
        for part, values in parts.items()
    ]
    layout = layout_of(
        72 + 28 * len(names),
        barmode="stack",
        bargap=0.32,
        xaxis={"title": {"text": axis}, "rangemode": "tozero"},
        yaxis={"autorange": "reversed", "automargin": True, "type": "category", "ticksuffix": "  "},
    )
    layout["margin"] |= {"l": 10, "t": 8}
    return {"data": data, "layout": layout}


def causes_by(causes: WaitCauses, key: str) -> Figure:
    """Draw waiting time by tenant or size, divided by cause."""
    totals = {record[key]: record["job_hours"] for record in causes.by(key)}
    if key == "size":
        order = [name for name in size_labels() if name in {size_label(size) for size in totals}]
        of = {name: size_label(name) for name in totals}
    else:
        kept = list(totals)[: MOST_BARS - 1] if len(totals) > MOST_BARS else list(totals)
        of = {name: label(name) if name in kept else OTHERS for name in totals}
        order = list(dict.fromkeys(of.values()))
    return _by_cause(causes.by(key, "cause"), lambda record: of[record[key]], order)


def causes_of_runs(compared: Comparison, causes: Sequence[WaitCauses | None]) -> Figure:
    """Draw the waiting time of each run, divided by cause."""
    names = names_of(compared)
    told = [(name, of_run) for name, of_run in zip(names, causes, strict=True) if of_run]
    records = [{**record, "run": name} for name, of_run in told for record in of_run.by("cause")]
    return _by_cause(records, lambda record: record["run"], names)


def _by_cause(records: Sequence[Mapping[str, Any]], name_of: Any, order: Sequence[str]) -> Figure:
    kinds = [kind for kind in CauseKind if any(record["cause"] == kind for record in records)]
    position = {name: index for index, name in enumerate(order)}
    parts = {_CAUSES[kind]: [0.0] * len(order) for kind in kinds}
    for record in records:
        parts[_CAUSES[CauseKind(record["cause"])]][position[name_of(record)]] += record["job_hours"]
    colours = {text: index for index, text in enumerate(_CAUSES.values())}
    ranked = dict(sorted(parts.items(), key=lambda item: -sum(item[1])))
    return stacked(order, ranked, colours, "job-hours waited")


def lost(compared: Comparison) -> Figure:
    """Draw the GPU-hours without lasting progress of each run, by what took them."""
    kinds = [kind for kind in compared.runs[0].lost if kind != FAILED]
    parts = {
        kind: [run.lost[kind] for run in compared.runs]
        for kind in kinds
        if any(run.lost[kind] for run in compared.runs)
    }
    colours = {kind: index for index, kind in enumerate(kinds)}
    return stacked(names_of(compared), parts, colours, "GPU-hours")


def dots(
    compared: Comparison,
    groups: Sequence[str],
    values: Sequence[Mapping[str, float | None]],
    axis: str,
    *,
    even: float | None = None,
) -> Figure:
    """Draw one row a group, one dot a run. With ``even``, on a logarithmic axis with a line at that value."""
    data = []
    for index, name_of_run in enumerate(names_of(compared)):
        shown = [(label(name), values[index].get(name)) for name in groups]
        points = [(name, value) for name, value in shown if value is not None and (even is None or value > 0)]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name_of_run,
                "meta": index,
                "x": rounded(np.array([value for _, value in points], dtype=np.float64)),
                "y": [name for name, _ in points],
                "marker": {"size": 11, "color": line_of(compared, index)["color"], "symbol": _symbol(compared, index)},
                "hovertemplate": "%{y}: %{x:.3g}<extra>%{fullData.name}</extra>",
            }
        )
    names = [label(name) for name in groups]
    layout = layout_of(
        90 + 26 * len(groups),
        xaxis={"title": {"text": axis}, "rangemode": "tozero"},
        yaxis={
            "type": "category",
            "categoryorder": "array",
            "categoryarray": names,
            "autorange": "reversed",
            "automargin": True,
            "ticksuffix": "  ",
        },
    )
    layout["margin"] |= {"l": 10, "t": 12}
    if even is not None:
        drawn = [value for each in data for value in cast("list[float]", each["x"])]
        wide = bool(drawn) and max(drawn) >= _WIDE * min(drawn)  # else 1, 2 and 5 alone may leave no tick at all
        layout["xaxis"] |= {"type": "log", "tickformat": ".3~r", **({"dtick": "D2"} if wide else {"nticks": 6})}
        line = {"color": "@ink", "width": 1, "dash": "dot"}
        layout["shapes"] = [{"type": "line", "x0": even, "x1": even, "yref": "paper", "y0": 0, "y1": 1, "line": line}]
    return {"data": data, "layout": layout}


def _symbol(compared: Comparison, index: int) -> str:
    """Return a shape besides the colour; the baseline's is open."""
    if len(compared.runs) > 1 and index == compared.base:
        return "circle-open"
    return ("circle", "diamond", "square", "triangle-up", "cross", "x")[index % 6]


def grouped_mean(run: Measured, key: str, column: str) -> dict[str, float | None]:
    """Return the mean of a column of the job table, by group."""
    means = run.table.group_by(key).agg(pl.col(column).mean())
    return dict(zip(means[key].to_list(), means[column].to_list(), strict=True))
