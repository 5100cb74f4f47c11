"""A report: one HTML file that holds everything it shows and asks nothing of a network.

The template, the style and the scripts lie beside this module; plotly.js comes from the installed package. The same
runs give the same bytes: no time of day and no absolute path is written.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from html import escape
from importlib import resources
from typing import Any

from plotly.offline import get_plotlyjs

from headway import __version__
from headway.errors import InputError
from headway.report import figures, sections
from headway.report.packing import deflated
from headway.report.thin import without_tail
from headway.report.training import clustermap, first_screen as first
from headway.report.training.causes import WaitCauses, why_waited
from headway.report.training.headline import answer, at_once, in_full
from headway.report.training.measured import Comparison, Measured
from headway.report.training.panels import panels_of
from headway.report.words import duration, listed, percent, plain
from headway.units import SECOND

MARK = "<!-- headway report -->"
"""In the first lines of each report: what may be written over without asking."""
MOST_MAP_BYTES = 8_500_000
"""For all maps together: with plotly.js and the rest a report stays under 15 MB."""
MOST_DRAWN_GPUS = 60_000
Question = tuple[str, str, str]
"""The anchor of a section, what it answers, and its name in the navigation."""
ABOUT_ONE: Question = ("table", "What are the numbers?", "Numbers")
"""What the first section answers where there is one run."""
QUESTIONS: tuple[Question, ...] = (
    ("table", "How do the runs compare?", "Numbers"),
    ("map", "What ran where, and when?", "Cluster map"),
    ("times", "How long do jobs take, and wait?", "Times"),
    ("over-time", "How full was the cluster?", "Over time"),
    ("waited", "Who waited, and why?", "Waiting"),
    ("fairness", "Who got what?", "Fairness"),
    ("lost", "What was lost?", "Lost"),
    ("longest", "Which jobs waited longest?", "Longest waits"),
)

Tell = Callable[[str, float], None]
"""Told what is being done, and which share of all is done."""


def silent(_what: str, _share: float) -> None:
    """Nobody looks."""


@dataclass
class Parts:
    """What a page is put together from."""

    figures: dict[str, Any] = field(default_factory=dict)
    maps: dict[str, Any] = field(default_factory=dict)
    payloads: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """About the maps."""


def build(both: Comparison, title: str = "", tell: Tell = silent) -> str:
    """Return the whole page."""
    parts = Parts()
    runs = len(both.runs)
    waited: list[tuple[WaitCauses | None, str]] = []
    for index, run in enumerate(both.runs):
        tell(f"{run.label}: measuring", (index + 0.1) / (runs + 1))
        _ = run.summary, run.table, run.jct_interval, run.wait_interval
        waited.append(_causes(run, tell, index, runs))
    found, problems = zip(*waited, strict=True)
    tell("figures", runs / (runs + 1))
    _figures(both, found, parts)
    tell("cluster map", (runs + 0.4) / (runs + 1))
    _maps(both, parts)
    tell("page", (runs + 0.8) / (runs + 1))
    return assembled(
        title,
        re.sub(r"<[^>]+>", "", answer(both)),
        first.hero(both),
        QUESTIONS if runs > 1 else [ABOUT_ONE, *QUESTIONS[1:]],
        _bodies(both, found, problems, parts),
        {"table": _about_numbers(both), "map": _about_figures(both), "over-time": _about_time(both)},
        lines=[(run.label, figures.line_of(both, index)) for index, run in enumerate(both.runs)],
        figures=parts.figures,
        maps=parts.maps,
        picker=sections.picker([plain(run.label) for run in both.runs], both.best, [in_full(run) for run in both.runs]),
        payloads=parts.payloads,
    )


def assembled(
    title: str,
    otherwise: str,
    hero: str,
    questions: Iterable[Question],
    bodies: Mapping[str, str],
    leads: Mapping[str, str] | None = None,
    *,
    lines: Sequence[tuple[str, Mapping[str, Any]]],
    figures: Mapping[str, Any],
    maps: Mapping[str, Any] | None = None,
    picker: str = "",
    payloads: Sequence[str] = (),
) -> str:
    """Return a page: the template with style, scripts and what they need, and a section for each question with a body.

    ``otherwise`` is its name untitled, ``lines`` are the runs by label with the look of their line.
    """
    asked = [(anchor, question, short) for anchor, question, short in questions if bodies[anchor]]
    told = leads or {}
    runs = [{"label": label, "line": line} for label, line in lines]
    scripts = {"plotly": get_plotlyjs(), "map_script": _file("clustermap.js"), "script": _file("page.js")}
    pieces = {
        **scripts,
        "allowed": _allowed(scripts.values()),
        "mark": MARK,
        "title": escape(title) if title else otherwise,
        "heading": f'<p class="title">{escape(title)}</p>' if title else "",
        "version": escape(__version__),
        "style": _file("page.css"),
        "runs": picker,
        "nav": "".join(f'<a href="#{anchor}">{short}</a>' for anchor, _, short in asked),
        "body": "\n".join([hero, *(sections.section(a, text, bodies[a], told.get(a, "")) for a, text, _ in asked)]),
        "facts": _json({"runs": runs, "figures": figures, "maps": maps or {}}),
        "payloads": "\n".join(
            f'<script type="text/plain" id="payload-{index}">{text}</script>' for index, text in enumerate(payloads)
        ),
    }
    # one pass: what a trace's names bring in is never looked at for places to fill
    return re.sub(r"\{\{(\w+)\}\}", lambda place: pieces[place[1]], _file("page.html"))


def _file(name: str) -> str:
    return resources.files("headway.report").joinpath(name).read_text(encoding="utf-8")


def _allowed(scripts: Iterable[str]) -> str:
    """Return what a browser is to hold the page to: no script but these is run, and nothing is asked of a network."""
    digests = [b64encode(sha256(text.encode()).digest()).decode() for text in scripts]
    run = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {run}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _json(value: Any) -> str:
    """JSON that may stand in a script element: it can neither end it nor begin another."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


# --- parts ----------------------------------------------------------------------------------------------------


def _causes(run: Measured, tell: Tell, index: int, runs: int) -> tuple[WaitCauses | None, str]:
    """Return why the jobs of a run waited; or why that cannot be said."""
    scene, horizon = run.stored.scene, max(1, run.ledger.horizon)

    def progress(time: int) -> None:
        tell("why jobs waited", (index + 0.2 + 0.8 * time / horizon) / (runs + 1))

    try:
        found = why_waited(
            scene.cluster,
            scene.jobs,
            run.stored.tape,
            scene.policy(),
            scene.speed(),
            scene.costs(),
            ledger=run.ledger,
            window=run.window,
            progress=progress,
        )
    except InputError as problem:  # a policy from a file that is gone, or a tape that another one wrote
        return None, f"Why jobs waited cannot be told: {problem}"
    return found, ""


def _figures(both: Comparison, found: Sequence[WaitCauses | None], parts: Parts) -> None:
    drawn = parts.figures
    drawn["jct"] = figures.distribution(both, [run.jct for run in both.runs], "time to completion")
    drawn["wait"] = figures.distribution(both, [run.wait for run in both.runs], "wait")
    drawn["time"] = figures.over_time(both)
    drawn["causes-runs"] = figures.causes_of_runs(both, found)
    for index, each in enumerate(found):
        if each is not None and each.rows:
            drawn[f"causes-tenant-{index}"] = figures.causes_by(each, "tenant")
            drawn[f"causes-size-{index}"] = figures.causes_by(each, "size")
    column = "tenant" if len(sections.groups(both, "tenant")) > 1 else "size"
    names = sections.groups(both, column)
    rho = [figures.grouped_mean(run, column, "ftf") for run in both.runs]
    waits = [
        {name: None if value is None else value / 3600 for name, value in each.items()}
        for each in (figures.grouped_mean(run, column, "wait_s") for run in both.runs)
    ]
    drawn["rho"] = figures.dots(both, names, rho, "ρ, mean over jobs", even=1.0)
    drawn["group-wait"] = figures.dots(both, names, waits, "hours, mean over jobs")
    drawn["lost"] = figures.lost(both)


def _maps(both: Comparison, parts: Parts) -> None:
    """A map for each run, the baseline's and the best one's first, as long as there is room."""
    ranked = list(dict.fromkeys((both.base, both.best, *range(len(both.runs)))))
    left = MOST_MAP_BYTES
    shared: dict[bytes, int] = {}
    without, coarse = [], []
    for index in ranked:
        run = both.runs[index]
        cluster = run.stored.scene.cluster
        packed = None
        if 0 < cluster.gpus <= MOST_DRAWN_GPUS:
            workload = _shared(clustermap.pack_workload(run.stored.scene.jobs), shared, parts)
            left -= len(parts.payloads[workload]) if workload == len(parts.payloads) - 1 else 0
            room = left // 2 if len(ranked) > 1 and index == both.base else left  # the baseline's comes first
            packed = clustermap.pack(run.ledger, run.lines, without_tail(run.bulk, run.ledger.horizon), room)
        if packed is None:
            without.append(run)
            continue
        if packed.tick > packed.finest:
            coarse.append(f"{plain(run.label)} every {duration(packed.tick / SECOND)}")
        left -= len(packed.text)
        parts.payloads.append(packed.text)
        parts.maps[str(index)] = {
            "cluster": clustermap.describe(cluster),
            "payload": len(parts.payloads) - 1,
            "workload": workload,
        }
    if coarse:
        parts.notes.append(f"To keep this file small the map shows the state of {listed(coarse)}.")
    if without:
        names = listed([plain(run.label) for run in without])
        small = any(0 < run.stored.scene.cluster.gpus <= MOST_DRAWN_GPUS for run in without)
        why = "to keep this file small" if small else "there is no GPU to draw, or there are too many"
        parts.notes.append(f"No map of {names}: {why}.")


def _shared(data: bytes, shared: dict[bytes, int], parts: Parts) -> int:
    """Return the payload with these bytes: packed once, whatever number of runs has them."""
    if data not in shared:
        parts.payloads.append(deflated(data))
        shared[data] = len(parts.payloads) - 1
    return shared[data]


# --- the page -------------------------------------------------------------------------------------------------


def _bodies(
    both: Comparison, found: Sequence[WaitCauses | None], problems: Sequence[str], parts: Parts
) -> dict[str, str]:
    """Return what answers each question."""
    key = sections.key([plain(run.label, 80) for run in both.runs], both.base, [in_full(run) for run in both.runs])
    jct = sections.figure("jct", "Share of jobs by time to completion", "time to completion")
    wait = sections.figure("wait", "Share of jobs by wait", "wait: all time without what they asked for")
    shown = listed([panel.partition(",")[0] for panel, _, _ in panels_of(both)])
    time = sections.figure("time", f"Over time: {shown}")
    return {
        "table": sections.comparison(both),
        "map": _map_body(both, parts),
        "times": f'{key}<div class="pair">{jct}{wait}</div>',
        "over-time": key + time,
        "waited": sections.waited(both, found, problems, parts.figures),
        "fairness": key + sections.fairness(both),
        "lost": sections.lost(both, parts.figures["lost"]),
        "longest": "".join(sections.for_run(i, sections.longest(run)) for i, run in enumerate(both.runs)),
    }


def _about_numbers(both: Comparison) -> str:
    lines = []
    seeds = max(len(run.seeds) for run in both.runs)
    if seeds:
        where = "" if all(run.seeds for run in both.runs) else ", where another seed gives another run"
        lines.append(f"Numbers are means over the runs of {seeds} seeds{where}.")
    if level := both.baseline.level:
        how = "Student’s t over these runs" if seeds else "from blocks of consecutive jobs drawn again and again"
        lines.append(f"Small numbers below means and changes are {percent(level, 0)} intervals, {how}.")
        if len(both.runs) > 1 and both.same_jobs:
            lines.append(f"Changes compare the same {'seeds' if seeds else 'jobs'} in both runs.")
    if all(at_once(run.numbers) for run in both.runs):
        lines.append("All jobs arrive at once, so use is counted over the makespan.")
    else:
        lines.append(
            "Use is counted while jobs arrive, from the first submission to the last; "
            "the tail of the makespan goes from there to the last completion."
        )
    return " ".join(lines)


def _about_figures(both: Comparison) -> str:
    """Return which of the runs of several seeds the rest of the page is about."""
    shown = {int(run.seeds[0]["seed"]) for run in both.runs if run.seeds}
    if not shown:
        return ""
    which = f"seed {shown.pop()}" if len(shown) == 1 else "the first seed of each"
    return f"The map, and all figures and tables from here on, show the runs of {which}."


def _about_time(both: Comparison) -> str:
    lines = []
    if any(run.window is not None for run in both.runs):
        lines.append("The whole run is shown, as on the map; all other sections are about the measured jobs.")
    if len(both.runs) == 1:
        lines.append("Lines are means over a stretch of time, bands how far it went up and down.")
    if figures.shown_until(both) < max(run.ledger.horizon for run in both.runs):
        lines.append("The axis begins without the long end of the last few jobs: drag to zoom, double-click for all.")
    return " ".join(lines)


def _map_body(both: Comparison, parts: Parts) -> str:
    notes = "".join(f'<p class="note">{note}</p>' for note in parts.notes)
    if not parts.maps:
        return notes
    missing = "".join(
        sections.for_run(index, '<p class="note">There is no map of this run.</p>')
        if str(index) not in parts.maps
        else ""
        for index in range(len(both.runs))
    )
    return f"{_file('clustermap.html')}{missing}{notes}"
