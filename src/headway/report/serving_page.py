"""The report of runs of a fleet: one HTML file, in the template that the other reports have.

The answer in a sentence; the runs side by side; how long requests take and how far that is from their critical path;
where the time went; what each worker did over time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from headway.core.tape import Tape
from headway.report import serving_figures as figures
from headway.report.names import shortened
from headway.report.page import assembled
from headway.report.sections import figure, for_run, section
from headway.report.serving_tables import FORMATS
from headway.report.words import plain
from headway.serving.catalogue import Catalogue
from headway.serving.fleet import Fleet
from headway.serving.request import Request

QUESTIONS = (
    ("table", "How do the runs compare?", "Numbers"),
    ("times", "How long do requests take?", "Times"),
    ("spent", "Where does the time go?", "Spent"),
    ("workers", "What did each worker do, and when?", "Workers"),
    ("graphs", "Which pipelines suffer?", "Pipelines"),
)
_TABLE = (
    ("slow-down, mean", "slowdown_mean"),
    ("p50", "slowdown_p50"),
    ("p95", "slowdown_p95"),
    ("latency p50", "latency_p50_s"),
    ("p99", "latency_p99_s"),
    ("in time", "slo_hit_rate"),
    ("dropped", "dropped"),
    ("$ for 1,000", "cost_per_request_usd"),
    ("cache hits", "cache_hit_rate"),
    ("fetched", "bytes_fetched"),
    ("GPU use", "gpu_utilisation"),
    ("workers used", "workers_used"),
    ("mean batch", "batch_mean"),
    ("messages", "messages"),
)


@dataclass(frozen=True, slots=True)
class Shown:
    """A run as a page shows it."""

    row: Mapping[str, Any]
    catalogue: Catalogue
    fleet: Fleet
    requests: Sequence[Request]
    tape: Tape

    @property
    def label(self) -> str:
        """What it is called."""
        return str(self.row.get("variant") or self.row["policy"])


def build(runs: Sequence[Shown], baseline: int = 0, title: str = "") -> str:
    """The whole page."""
    names = shortened([run.label for run in runs])
    lines = [figures.line_of(index, baseline, len(runs)) for index in range(len(runs))]
    measured = [figures.Times(run.catalogue, run.fleet, run.requests, run.tape) for run in runs]
    drawn = {
        "latency": figures.distribution(names, lines, [each.latency_s for each in measured], "latency"),
        "slowdown": figures.slowdowns(names, lines, [each.slowdown for each in measured]),
        "spent": figures.spent(names, measured),
        **{f"workers-{index}": figures.workers(each) for index, each in enumerate(measured)},
        "graphs": figures.by_graph(names, lines, [run.row for run in runs]),
    }
    key = _key(names) if len(runs) > 1 else ""
    latency = figure("latency", "Share of requests by latency", "latency")
    slowdown = figure("slowdown", "Share of requests by slow-down", "slow-down against the critical path")
    bodies = {
        "table": _table(runs, names, baseline),
        "times": f'{key}<div class="pair">{latency}{slowdown}</div>',
        "spent": figure(
            "spent",
            "Mean time of the tasks of a request: computing, loading, in queues",
            "tasks that ran side by side are added up",
        ),
        "workers": "".join(
            for_run(index, figure(f"workers-{index}", "Share of time that each worker computed, loaded and stood idle"))
            for index in range(len(runs))
        ),
        "graphs": key + figure("graphs", "Mean slow-down by pipeline"),
    }
    body = "\n".join([_hero(runs, names, baseline), *(section(a, q, bodies[a]) for a, q, _ in QUESTIONS)])
    facts = {
        "runs": [{"label": name, "line": line} for name, line in zip(names, lines, strict=True)],
        "figures": drawn,
        "maps": {},
    }
    nav = "".join(f'<a href="#{anchor}">{short}</a>' for anchor, _, short in QUESTIONS)
    return assembled(body, title, _answer(runs, names, baseline), facts, nav=nav, runs=_picker(names, best_of(runs)))


def best_of(runs: Sequence[Shown]) -> int:
    """The run with most requests in time, where there are deadlines, at the least cost; else the least slow-down."""
    rows = [run.row for run in runs]
    if all(row.get("slo_hit_rate") is not None for row in rows):
        return min(
            range(len(rows)), key=lambda i: (-round(rows[i]["slo_hit_rate"], 3), rows[i]["cost_per_request_usd"])
        )
    return min(range(len(rows)), key=lambda i: rows[i]["slowdown_mean"] if rows[i]["slowdown_mean"] else float("inf"))


def _answer(runs: Sequence[Shown], names: Sequence[str], baseline: int) -> str:
    best = best_of(runs)
    row, other = runs[best].row, runs[baseline].row
    deadline = row.get("slo_hit_rate") is not None
    said = (
        f"{100 * row['slo_hit_rate']:.1f} % in time"
        if deadline
        else f"{row['slowdown_mean']:.2f} times the critical path"
    )
    if len(runs) == 1:
        return f"{plain(names[0])}: {said}"
    if best == baseline:
        return f"{plain(names[best])} is not beaten: {said}"
    than = f"{100 * other['slo_hit_rate']:.1f} %" if deadline else f"{other['slowdown_mean']:.2f}"
    return f"{plain(names[best])} answers requests best: {said}, against {than} with {plain(names[baseline])}"


def _hero(runs: Sequence[Shown], names: Sequence[str], baseline: int) -> str:
    run = runs[0]
    row = run.row
    facts = (
        ("scenario", escape(str(row.get("scenario", "")))),
        ("requests", f"{row['requests']:,.0f}"),
        ("workers", f"{len(run.fleet.workers):,}"),
        ("pipelines", ", ".join(escape(graph.name) for graph in run.catalogue.graphs)),
        ("seed", f"{row['seed']:g}"),
    )
    items = "".join(f"<div><dt>{what}</dt><dd>{which}</dd></div>" for what, which in facts)
    lead = "Everything here is simulated: run times are those of the profiles, with their spread."
    answer = _answer(runs, names, baseline)
    head = f'<header class="hero" id="answer"><h1>{answer}</h1><p class="lead">{lead}</p>'
    return f'{head}<dl class="facts">{items}</dl></header>'


def _table(runs: Sequence[Shown], names: Sequence[str], baseline: int) -> str:
    shown = [(head, key) for head, key in _TABLE if any(run.row.get(key) is not None for run in runs)]
    heads = "".join(f'<th scope="col">{head}</th>' for head, _ in shown)
    best = best_of(runs)
    lines = []
    for index, (run, name) in enumerate(zip(runs, names, strict=True)):
        role = "best" if index == best and len(runs) > 1 else "base" if index == baseline and len(runs) > 1 else ""
        cells = "".join(f"<td>{escape(FORMATS[key](run.row.get(key)))}</td>" for _, key in shown)
        lines.append(f'<tr class="{role}"><th scope="row">{plain(name)}</th>{cells}</tr>')
    return (
        f'<div class="scroll"><table><thead><tr><th scope="col">policy</th>{heads}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _key(names: Sequence[str]) -> str:
    stroke = '<svg width="26" height="8" aria-hidden="true"><line x1="0" y1="4" x2="26" y2="4"></line></svg>'
    items = "".join(f"<li data-key={index}>{stroke}{plain(name)}</li>" for index, name in enumerate(names))
    return f'<ul class="key">{items}</ul>'


def _picker(names: Sequence[str], first: int) -> str:
    if len(names) == 1:
        return ""
    options = "".join(
        f'<option value="{index}"{" selected" if index == first else ""}>{plain(name)}</option>'
        for index, name in enumerate(names)
    )
    return f'<label class="picker">Looking at <select id="run">{options}</select></label>'
