"""Make the page of a plan: what each policy needs, and slow-down over the number of workers."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from headway.fleet.show.terminal import plan as plans
from headway.show import sections
from headway.show.figures import Figure, labels, layout_of, line_style
from headway.show.formatting import NOTHING, dollars, percent, plain
from headway.show.page import assembled

Row = Mapping[str, Any]
QUESTIONS = (
    ("table", "What does each policy need?", "Numbers"),
    ("mean", "How does the mean slow-down fall with workers?", "Mean"),
    ("p95", "How does the 95th percentile of the slow-down fall?", "p95"),
)
_BEYOND = 1.5
"""How far the curves go, as a multiple of the most workers that a policy needs."""


def build(rows: Sequence[Row], enough: str, notes: Sequence[str], scenario: str) -> str:
    """Return the whole page; of each policy the best kind of worker is drawn."""
    best: dict[str, Row] = {}
    for row in rows:
        best.setdefault(row["policy"], row)
    drawn = [row for row in best.values() if row["curve"]]
    names = labels([row["policy"] for row in drawn])
    lines = [line_style(index, len(drawn), len(drawn)) for index in range(len(drawn))]
    figures = {
        "mean": _figure(drawn, names, lines, "slowdown_mean", "mean slow-down"),
        "p95": _figure(drawn, names, lines, "slowdown_p95", "slow-down, 95th percentile"),
    }
    key = sections.key([plain(name) for name in names], -1)
    caption = "Marked: the fewest workers that are enough. Every point is a run of all requests of a trial."
    bodies = {
        "table": _table(rows),
        "mean": key + sections.figure("mean", "Mean slow-down over workers, a line a policy", caption),
        "p95": key + sections.figure("p95", "95th percentile of the slow-down over workers, a line a policy", caption),
    }
    (answer,) = plans.sentences(rows)
    facts = [("Scenario", escape(scenario))]
    told = [escape(line.removeprefix("note: ")) for line in notes if line.startswith("note: ")]
    hero = sections.hero(escape(answer), escape(enough), facts, told)
    return assembled(
        "", escape(answer), hero, QUESTIONS, bodies, lines=list(zip(names, lines, strict=True)), figures=figures
    )


def _figure(
    rows: Sequence[Row], names: Sequence[str], lines: Sequence[Mapping[str, Any]], key: str, what: str
) -> Figure:
    """Return a line a policy, with a ring around the number of workers that it needs."""
    needed = max((row["workers"] or 0 for row in rows), default=0)
    furthest = _BEYOND * needed if needed else float("inf")
    data = []
    for index, row in enumerate(rows):
        points = [point for point in row["curve"] if point[key] is not None and point["workers"] <= furthest]
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "x": [point["workers"] for point in points],
                "y": [float(f"{point[key]:.5g}") for point in points],
                "name": names[index],
                "line": dict(lines[index]),
                "marker": {
                    "color": lines[index]["color"],
                    "size": [14 if point["workers"] == row["workers"] else 5 for point in points],
                },
                "meta": index,
                "hovertemplate": "%{y:,.3~g}× with %{x} workers<extra>%{fullData.name}</extra>",
            }
        )
    axes = {
        "xaxis": {"title": {"text": "workers"}},
        "yaxis": {"title": {"text": what}, "type": "log", "tickformat": "~g", "ticksuffix": "×"},
    }
    return {"data": data, "layout": layout_of(380, **axes)}


def _table(rows: Sequence[Row]) -> str:
    heads = ("policy", "worker", "workers", "in time", "slow-down, mean", "p95", "$/hour", "one fewer")
    made = []
    for row in rows:
        cells = [
            plain(row["worker"]),
            f"{row['workers']:,}" if row["workers"] else "none is enough",
            percent(row["slo_hit_rate"]),
            *(NOTHING if row[key] is None else f"{row[key]:,.2f}×" for key in ("slowdown_mean", "slowdown_p95")),
            NOTHING if row["cost_hour_usd"] is None else dollars(row["cost_hour_usd"]),
            percent(row["slo_hit_rate_one_fewer"]),
        ]
        made.append(sections.row(plain(row["policy"]), cells))
    return sections.table(heads, made, "Plans")
