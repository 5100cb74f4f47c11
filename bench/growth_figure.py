"""Tables and the figure of ``scripts/bench --growth``: what a second of CPU time gets done, by jobs and by GPUs.

The figure is one description for plotly (``figure``); ``svg`` draws the same description as a small file for the
documents, in colours that follow the reader's light or dark setting.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from bench.growth import POLICIES
from bench.growth_rows import Row, exponent, measured_only
from headway.show.figures import Figure, layout_of
from headway.show.frames import figure as plotly_figure

SERIES = {"jobs": "jobs, on 1,000 GPUs", "gpus": "GPUs, with 10 jobs for each"}
OTHERS = {
    "Synergy": (5, 15),
    "Gavel": (37, 52),
    "Helios": (23, 130),
    "AnalySIM,<br>preempting": (2_100, 3_800),
    "AnalySIM": (8_000, 38_000),
}
"""Jobs a second of other simulators, measured by others on comparable jobs: docs/background/benchmarks.md."""
_PANELS = {"jobs": (0.0, 0.26), "gpus": (0.31, 0.58), "others": (0.62, 1.0)}
_WIDTH, _HEIGHT = 1040, 400
_MARGIN = {"l": 70, "r": 20, "t": 60, "b": 60}
_SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up", "circle-open")


def groups(rows: Iterable[Row], series: str) -> Iterator[tuple[str, list[Row]]]:
    """Yield each policy with its rows of a series, the smallest first."""
    inside = [row for row in rows if row.series == series]
    for policy in [*POLICIES, *sorted({row.policy for row in inside} - set(POLICIES))]:
        if found := [row for row in inside if row.policy == policy]:
            yield policy, sorted(found, key=lambda row: row.point.size)


# --- tables ---------------------------------------------------------------------------------------------------


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a table in Markdown for each series: a line a policy, jobs a CPU second at each size."""
    for series, title in SERIES.items():
        lines = dict(groups(rows, series))
        if not lines:
            continue
        sizes = sorted({row.point.size for found in lines.values() for row in found})
        yield from ("", f"Jobs a CPU second by {title}:", "")
        yield f"| policy | {' | '.join(f'{size:,}' for size in sizes)} | power | peak MB | tape, bytes a job |"
        yield f"|{'---|' * (len(sizes) + 4)}"
        for policy, found in lines.items():
            at = {row.point.size: row for row in found}
            cells = [_cell(at[size]) if size in at else "" for size in sizes]
            yield f"| `{policy}` | {' | '.join([*cells, *_ends(measured_only(found))])} |"


def _cell(row: Row) -> str:
    return row.note.partition(":")[0].partition(",")[0] if row.jobs_per_s is None else f"{row.jobs_per_s:,.0f}"


def _ends(found: Sequence[Row]) -> tuple[str, str, str]:
    """Return the last columns: how CPU time grew at the end, and memory and tape of the largest point."""
    power = exponent(found)
    last = found[-1] if found else None
    if last is None or last.peak_bytes is None or last.tape_bytes is None:
        return "", "", ""
    return (
        "" if power is None else f"{power:.2f}",
        f"{last.peak_bytes / 1e6:,.0f}",
        f"{last.tape_bytes / last.jobs:.0f}",
    )


# --- the figure -----------------------------------------------------------------------------------------------


def figure(rows: Sequence[Row]) -> Figure:
    """Return the figure for plotly: a panel a series, and the other simulators beside them, on one axis of rates."""
    data, layout = [], layout_of(_HEIGHT, showlegend=True, width=_WIDTH, margin=_MARGIN)
    layout["legend"] = {"orientation": "h", "x": 0, "y": 1.14}
    layout["yaxis"] = {"type": "log", "title": {"text": "jobs a CPU second"}, "range": [0.5, 5.2], **_decades(0, 5)}
    sizes = [row.point.size for row in measured_only(rows)]
    low, high = math.floor(math.log10(min(sizes, default=10))), math.ceil(math.log10(max(sizes, default=100)))
    for number, (series, title) in enumerate(SERIES.items(), 1):
        here = [math.log10(row.point.size) for row in measured_only(rows) if row.series == series]
        edges = [min(here, default=low) - 0.15, max(here, default=high) + 0.15]
        axis = {"type": "log", "title": {"text": title}, "domain": _PANELS[series], "range": edges}
        layout[f"xaxis{number}"] = {**axis, **_decades(low, high)}
        data += [_line(policy, found, f"x{number}") for policy, found in groups(measured_only(rows), series)]
    layout["xaxis3"] = {
        "title": {"text": "other simulators"},
        "domain": _PANELS["others"],
        "range": [-0.6, len(OTHERS) - 0.4],
        "tickvals": list(range(len(OTHERS))),
        "ticktext": list(OTHERS),
        "tickangle": 0,
        "tickfont": {"size": 12},
    }
    data += [_range(name, place, *ends) for place, (name, ends) in enumerate(OTHERS.items())]
    layout["xaxis"] = layout.pop("xaxis1")
    return {"data": data, "layout": layout}


def _line(policy: str, found: Sequence[Row], axis: str) -> dict[str, Any]:
    place = POLICIES.index(policy) if policy in POLICIES else len(POLICIES)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [row.point.size for row in found],
        "y": [row.jobs_per_s for row in found],
        "xaxis": axis.replace("x1", "x"),
        "name": policy,
        "legendgroup": policy,
        "showlegend": axis == "x1",
        "line": {"color": f"@s{place}", "width": 2},
        "marker": {"symbol": _SYMBOLS[place % len(_SYMBOLS)], "size": 7},
        "customdata": [[row.jobs, row.gpus, row.cpu_s, round((row.peak_bytes or 0) / 1e6)] for row in found],
        "hovertemplate": "%{y:,.0f} jobs a CPU second<br>%{customdata[0]:,} jobs, %{customdata[1]:,} GPUs"
        "<br>%{customdata[2]} s, %{customdata[3]:,} MB<extra>%{fullData.name}</extra>",
    }


def _range(name: str, place: int, least: int, most: int) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [place, place],
        "y": [least, most],
        "xaxis": "x3",
        "name": name,
        "showlegend": False,
        "line": {"color": "@rest", "width": 16},
        "hovertemplate": f"{least:,} to {most:,} jobs a second<extra>{name}</extra>",
    }


def _decades(low: int, high: int) -> dict[str, Any]:
    powers = range(low, high + 1)
    return {"tickvals": [10**power for power in powers], "ticktext": [f"{10**power:,}" for power in powers]}


def draw(rows: Sequence[Row], path: Path) -> list[Path]:
    """Write the figure beside a CSV, as a page that asks nothing of a network and as SVG, and return where."""
    drawn, targets = figure(rows), [path.with_suffix(".html"), path.with_suffix(".svg")]
    plotly_figure(drawn).write_html(targets[0])
    targets[1].write_text(svg(drawn), encoding="utf-8")
    return targets


# --- the same as SVG ------------------------------------------------------------------------------------------


def svg(drawn: Figure) -> str:
    """Return a figure of lines as SVG."""
    layout = drawn["layout"]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {layout["width"]} {layout["height"]}" role="img">',
        f"<title>{escape(layout['yaxis']['title']['text'])}</title><style>{_style()}</style>",
    ]
    for key in sorted(key for key in layout if key.startswith("xaxis")):
        parts += _panel(layout, key)
    left = layout["margin"]["l"]
    for trace in drawn["data"]:
        parts += _drawn_line(layout, trace)
        if trace["showlegend"]:
            parts.append(f'<path d="M{left} 26h22" {_stroke(trace)}/>')
            parts.append(f'<text x="{left + 28}" y="31">{escape(trace["name"])}</text>')
            left += 60 + 8 * len(trace["name"])
    return "\n".join([*parts, "</svg>", ""])


def _style() -> str:
    """Return the colours of a page, light and dark, as variables."""
    text = resources.files("headway.show").joinpath("page.css").read_text(encoding="utf-8")
    names = ("paper", "ink", "muted", "grid", "rest", *(f"s{place}" for place in range(8)))
    both = {name: re.findall(rf"--{name}: (#[0-9a-f]{{6}})", text)[:2] for name in names}
    light, dark = (";".join(f"--{name}:{found[which]}" for name, found in both.items()) for which in (0, 1))
    return (
        f"svg{{{light};font:13px system-ui,sans-serif;background:var(--paper)}}"
        f"@media(prefers-color-scheme:dark){{svg{{{dark}}}}}"
        "text{fill:var(--ink)}.quiet{fill:var(--muted);font-size:12px}.grid{stroke:var(--grid)}path{fill:none}"
    )


def _at(axis: dict[str, Any], value: float, low: float, high: float) -> float:
    """Return where a value lies between two ends of the drawing."""
    first, last = axis["range"]
    place = math.log10(value) if axis.get("type") == "log" else value
    return round(low + (place - first) / (last - first) * (high - low), 1)


def _across(layout: dict[str, Any], axis: dict[str, Any]) -> tuple[float, float]:
    """Return the left and the right end of a panel."""
    left, inside = layout["margin"]["l"], layout["width"] - layout["margin"]["l"] - layout["margin"]["r"]
    return left + axis["domain"][0] * inside, left + axis["domain"][1] * inside


def _upwards(layout: dict[str, Any]) -> tuple[float, float]:
    """Return the lower and the upper end of all panels."""
    return layout["height"] - layout["margin"]["b"], layout["margin"]["t"]


def _panel(layout: dict[str, Any], key: str) -> Iterator[str]:
    """Yield the grid of a panel with what stands at it."""
    axis, rates, (low, high) = layout[key], layout["yaxis"], _upwards(layout)
    left, right = _across(layout, axis)
    for value, text in zip(rates["tickvals"], rates["ticktext"], strict=True):
        if not rates["range"][0] <= math.log10(value) <= rates["range"][1]:
            continue
        y = _at(rates, value, low, high)
        yield f'<path class="grid" d="M{left:.0f} {y}H{right:.0f}"/>'
        if axis["domain"][0] == 0:
            yield f'<text class="quiet" x="{left - 8:.0f}" y="{y + 4}" text-anchor="end">{text}</text>'
    for value, text in zip(axis["tickvals"], axis["ticktext"], strict=True):
        x = _at(axis, value, left, right)
        if left <= x <= right:
            for line, words in enumerate(text.split("<br>")):
                yield f'<text class="quiet" x="{x}" y="{low + 18 + 14 * line}" text-anchor="middle">{words}</text>'
    title = escape(axis["title"]["text"])
    yield f'<text x="{(left + right) / 2:.0f}" y="{low + 50}" text-anchor="middle">{title}</text>'
    if axis["domain"][0] == 0:
        where = f'transform="translate(16 {(low + high) / 2}) rotate(-90)"'
        yield f'<text {where} text-anchor="middle">{escape(rates["title"]["text"])}</text>'


def _stroke(trace: dict[str, Any]) -> str:
    return f'style="stroke:var(--{trace["line"]["color"][1:]})" stroke-width="{trace["line"]["width"]}"'


def _drawn_line(layout: dict[str, Any], trace: dict[str, Any]) -> Iterator[str]:
    axis = layout[trace["xaxis"].replace("x", "xaxis")]
    ends, (low, high) = _across(layout, axis), _upwards(layout)
    across = [_at(axis, value, *ends) for value in trace["x"]]
    places = list(zip(across, (_at(layout["yaxis"], value, low, high) for value in trace["y"]), strict=True))
    yield f'<path d="M{" ".join(f"{x},{y}" for x, y in places)}" {_stroke(trace)}/>'
    if "markers" in trace["mode"]:
        colour = trace["line"]["color"][1:]
        yield from (f'<circle cx="{x}" cy="{y}" r="3" style="fill:var(--{colour})"/>' for x, y in places)
