"""Make the parts of figures that all reports use, as what plotly.js draws.

A figure is a plain dictionary of traces and layout, which is all that plotly.js reads; the tests hold them against
plotly's own schema. Colours are names of the page's palette (``@s0``, ``@ink``, ``@s0/0.2`` with an opacity), which the
page puts in when it draws: so one figure serves light and dark. A trace says in ``meta`` which run it belongs to.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from headway.show.downsample import cdf, rounded
from headway.show.names import cut_distinct
from headway.statistics.series import FloatArray

Figure = dict[str, Any]
LONGEST = 28
"""Letters of a name at an axis."""
_LINES = 8
"""Those of them that lines have."""
_DASHES = ("solid", "dot", "dashdot")
"""Of other lines than the baseline's, which alone has plain dashes."""


def labels(names: Sequence[str], most: int = LONGEST) -> list[str]:
    """Return names for plotly: it reads some HTML, so none is left."""
    return [escape(name, quote=False) for name in cut_distinct([name or "(no name)" for name in names], most)]


def line_style(index: int, baseline: int, runs: int, dashes: Sequence[str] = _DASHES) -> dict[str, Any]:
    """Return the line style of a run; the baseline of a comparison is grey and dashed."""
    if runs > 1 and index == baseline:
        return {"color": "@muted", "width": 2, "dash": "dash"}
    place = index - (index > baseline) if runs > 1 else 0
    return {"color": f"@s{place % _LINES}", "width": 2, "dash": dashes[place // _LINES % len(dashes)]}


def layout_of(height: int, **more: Any) -> dict[str, Any]:
    """Return the layout that all figures have in common, with ``more`` added."""
    return {
        "height": height,
        "margin": {"l": 56, "r": 16, "t": 28, "b": 48},
        "hovermode": "closest",
        "showlegend": False,
        **more,
    }


def parts_of(figure: Figure) -> list[tuple[str, str, str]]:
    """Return (name, colour, shape of its hatching) of each part of stacked bars, for a legend."""
    return [
        (trace["name"], trace["marker"]["color"].lstrip("@"), trace["marker"].get("pattern", {}).get("shape", ""))
        for trace in figure["data"]
    ]


def latencies(names: Sequence[str], lines: Sequence[Mapping[str, Any]], values: Sequence[FloatArray]) -> Figure:
    """Return the share of requests up to a latency in seconds, one line a run."""
    return distribution(names, lines, values, max(least(values, 1e-3), 1e-9), "latency, seconds", " s")


def distribution(
    names: Sequence[str],
    lines: Sequence[Mapping[str, Any]],
    values: Sequence[FloatArray],
    floor: float,
    what: str,
    unit: str,
) -> Figure:
    """Return the share of requests up to a value, one line a run."""
    top = max((float(samples.max()) for samples in values if len(samples)), default=floor)
    data = []
    for index, (name, samples) in enumerate(zip(names, values, strict=True)):
        x, share = cdf(samples, floor)
        if len(x):  # from nothing at the left to everything at the right
            x, share = np.concatenate(([x[0]], x, [top])), np.concatenate(([0.0], share, [1.0]))
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": rounded(x),
                "y": rounded(100 * share),
                "name": name,
                "line": {**lines[index], "shape": "hv" if len(x) < 200 else "linear"},
                "meta": index,
                "hovertemplate": "%{y:.1f} % within %{x:.3~g}" + unit + "<extra>%{fullData.name}</extra>",
            }
        )
    percents = {"title": {"text": "requests"}, "range": [0, 101], "ticksuffix": " %", "dtick": 25}
    ends = [float(np.log10(floor)) - 0.02, float(np.log10(max(top, floor * 2))) + 0.02]
    dtick = 1 if ends[1] - ends[0] > 3 else "D2"
    axis = {"type": "log", "title": {"text": what}, "range": ends, "tickformat": "~g", "dtick": dtick}
    return {"data": data, "layout": layout_of(340, xaxis=axis, yaxis=percents)}


def least(values: Sequence[FloatArray], otherwise: float) -> float:
    """Return the least of all values, or ``otherwise`` where there are none."""
    return min((float(samples.min()) for samples in values if len(samples)), default=otherwise)
