"""Figures of the page of a broker's tape: slow-down with its interval, harvest, GPU time and boldness over time."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from headway.gpu.share.recorded.metrics import MILLION, Floats, Longs, SharedProgram, SharedRun
from headway.show import figures
from headway.show.downsample import rounded
from headway.show.figures import Figure
from headway.show.formatting import axis_of
from headway.units import SECOND

MOST_POINTS = 300
"""Stretches of time in a figure."""
MOST_LINES = 8
"""Programs in a figure: those with most in it. So many colours tell lines apart."""
HARVESTED, WORK = 5, 4
"""Columns of a program's counters."""


def slowdown(run: SharedRun) -> Figure:
    """Return the slow-down of each program above, its interval as a band, and the aim."""
    size, unit = axis_of(max(1.0, run.until / SECOND))
    measured = _most([program for program in run.programs if len(program.slowdown)], lambda each: len(each.slowdown))
    data = []
    for program, name in zip(measured, _names(measured), strict=True):
        points = _medians(program.slowdown[:, :4])
        x = rounded(points[:, 0] / SECOND / size)
        value, low, high = (rounded(points[:, column] / MILLION) for column in (1, 2, 3))
        colour = _colour(run, program)
        edge = {"type": "scatter", "mode": "lines", "x": x, "line": {"width": 0}, "hoverinfo": "skip"}
        data.append({**edge, "y": low, "showlegend": False})
        data.append({**edge, "y": high, "fill": "tonexty", "fillcolor": f"{colour}/0.18", "showlegend": False})
        line = {"color": colour, "width": 2}
        data.append(
            {
                **_line(name, x, value, line, f"%{{y:.3f}}× (%{{customdata[0]:.3f}} to %{{customdata[1]:.3f}}) {unit}"),
                "customdata": [list(each) for each in zip(low, high, strict=True)],
            }
        )
    data.append(_aim(run, size))
    layout = _layout(run, size, unit, "times as long as alone")
    layout["yaxis"]["range"] = _range(run, measured)
    return {"data": data, "layout": layout}


def harvest(run: SharedRun) -> Figure:
    """Return the share of time of the GPU that each program got while one above was at work."""
    return _shares(run, HARVESTED, "of the GPU's time, harvested")


def work(run: SharedRun) -> Figure:
    """Return the share of time of the GPU that each program's kernels take, as the shim predicts it."""
    return _shares(run, WORK, "of the GPU's time")


def boldness(run: SharedRun) -> Figure:
    """Return how much of the idle time of each program above others were allowed to use."""
    size, unit = axis_of(max(1.0, run.until / SECOND))
    bold = _most([program for program in run.programs if program.boldness[:, 1].any()], lambda each: len(each.boldness))
    data = []
    for program, name in zip(bold, _names(bold), strict=True):
        steps = np.vstack((program.boldness, [[program.ended, program.boldness[-1, 1]]]))
        x, y = rounded(steps[:, 0] / SECOND / size), rounded(steps[:, 1] / MILLION)
        line = {"color": _colour(run, program), "width": 2, "shape": "hv"}
        data.append(_line(name, x, y, line, f"%{{y:.3~g}} at %{{x:.4~g}} {unit}"))
    return {"data": data, "layout": _layout(run, size, unit, "boldness", rangemode="tozero")}


def _shares(run: SharedRun, column: int, what: str) -> Figure:
    """Return how fast a counter of each program grew, in percent of the time."""
    size, unit = axis_of(max(1.0, run.until / SECOND))
    shown = _most([each for each in run.programs if each.last[column - 1]], lambda each: each.last[column - 1])
    data = []
    for program, name in zip(shown, _names(shown), strict=True):
        times, rate = _means(*program.rate(column), program.joined)
        x, y = rounded(times / SECOND / size, 5), rounded(100 * rate)
        line = {"color": _colour(run, program), "width": 2}
        data.append(_line(name, x, y, line, f"%{{y:.3~g}} % at %{{x:.4~g}} {unit}"))
    layout = _layout(run, size, unit, what, rangemode="tozero", ticksuffix=" %")
    return {"data": data, "layout": layout}


# --- parts --------------------------------------------------------------------------------------------------------


def _line(name: str, x: list[float], y: list[float], line: dict[str, object], hover: str) -> Figure:
    template = f"{hover}<extra>%{{fullData.name}}</extra>"
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "name": name, "line": line, "hovertemplate": template}


def _layout(run: SharedRun, size: float, unit: str, what: str, **axis: object) -> Figure:
    top = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"color": "@ink"}}
    return figures.layout_of(
        300,
        showlegend=True,
        legend=top,
        margin={"l": 56, "r": 16, "t": 44, "b": 48},
        xaxis={"title": {"text": unit}, "range": [0, round(run.until / SECOND / size, 4)]},
        yaxis={"title": {"text": what}, **axis},
    )


def _colour(run: SharedRun, program: SharedProgram) -> str:
    """Return the colour of a program, the same in all figures of a page."""
    return f"@s{run.programs.index(program) % MOST_LINES}"


def _aim(run: SharedRun, size: float) -> Figure:
    """Return the aim as a line of steps."""
    steps = np.vstack((run.aims, [[run.until, *run.aims[-1, 1:]]])) if len(run.aims) else run.aims
    x, y = rounded(steps[:, 0] / SECOND / size), rounded(steps[:, 2] / MILLION)
    line = {"color": "@muted", "width": 2, "dash": "dash", "shape": "hv"}
    return _line("aim", x, y, line, "%{y:.3f}×")


def _range(run: SharedRun, measured: Sequence[SharedProgram]) -> list[float]:
    """Return what the axis shows: values, the aim and 1, and of the intervals all but the widest."""
    values = [1.0, *(run.aims[:, 2] / MILLION).tolist()]
    for program in measured:
        values += (program.slowdown[:, 1] / MILLION).tolist()
        values += np.percentile(program.slowdown[:, 2] / MILLION, [25]).tolist()
        values += np.percentile(program.slowdown[:, 3] / MILLION, [75]).tolist()
    low, high = min(values), max(values)
    edge = 0.06 * max(0.05, high - low)
    return [round(low - edge, 4), round(high + edge, 4)]


def _names(programs: Sequence[SharedProgram]) -> list[str]:
    return figures.labels([program.name for program in programs])


def _most(programs: Sequence[SharedProgram], size: Callable[[SharedProgram], int]) -> list[SharedProgram]:
    """Return the programs with most, in the order in which they joined."""
    chosen = {program.number for program in sorted(programs, key=size, reverse=True)[:MOST_LINES]}
    return [program for program in programs if program.number in chosen]


def _medians(rows: Longs) -> Floats:
    """Return rows of at most so many moments: of each stretch the median of each column."""
    if len(rows) <= MOST_POINTS:
        return rows.astype(np.float64)
    return np.array([np.median(part, axis=0) for part in np.array_split(rows, MOST_POINTS)])


def _means(times: Longs, rate: Floats, begun: int) -> tuple[Floats, Floats]:
    """Return mean rates over at most so many stretches; each at its end."""
    if len(times) <= MOST_POINTS:
        return times.astype(np.float64), rate
    passed = np.diff(times, prepend=begun)
    edges = np.linspace(0, len(times), MOST_POINTS + 1).astype(int)
    mean = [np.average(rate[a:b], weights=passed[a:b]) for a, b in pairwise(edges.tolist())]
    return times[edges[1:] - 1].astype(np.float64), np.array(mean)
