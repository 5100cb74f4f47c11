"""Make the report of runs of training jobs: one HTML file, in the template that all reports have.

The answer in a sentence; the runs side by side; the map of the cluster; completion times and waits; use over time; why
jobs waited; fairness; lost GPU-hours; the longest waits.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headway.errors import InputError
from headway.jobs.metrics.waits.by_cause import WaitCauses, why_waited
from headway.jobs.show.page import clustermap, figures, first_screen, sections
from headway.jobs.show.page.headline import answer, at_once, in_full
from headway.jobs.show.page.measured import Comparison, Measured
from headway.jobs.show.page.panels import panels_of
from headway.show.formatting import duration, listed, percent, plain
from headway.show.page import ABOUT_ONE, Question, assembled, deflated, template_file
from headway.show.progress import Tell
from headway.show.sections import figure, for_run, key as key_of_runs, picker
from headway.show.training_downsample import without_tail
from headway.units import SECOND

MOST_MAP_BYTES = 8_500_000
"""For all maps together: with plotly.js and the rest a report stays under 15 MB."""
MOST_DRAWN_GPUS = 60_000
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


def silent(_what: str, _share: float) -> None:
    """Report progress to nobody."""


@dataclass
class Parts:
    """The figures, maps and payloads that a page is assembled from."""

    figures: dict[str, Any] = field(default_factory=dict)
    maps: dict[str, Any] = field(default_factory=dict)
    payloads: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """About the maps."""


def build(compared: Comparison, title: str = "", tell: Tell = silent) -> str:
    """Return the whole page."""
    parts = Parts()
    runs = len(compared.runs)
    waited: list[tuple[WaitCauses | None, str]] = []
    for index, run in enumerate(compared.runs):
        tell(f"{run.label}: measuring", (index + 0.1) / (runs + 1))
        _ = run.summary, run.table, run.jct_interval, run.wait_interval
        waited.append(_causes(run, tell, index, runs))
    causes, problems = zip(*waited, strict=True)
    tell("figures", runs / (runs + 1))
    _figures(compared, causes, parts)
    tell("cluster map", (runs + 0.4) / (runs + 1))
    _maps(compared, parts)
    tell("page", (runs + 0.8) / (runs + 1))
    return assembled(
        title,
        re.sub(r"<[^>]+>", "", answer(compared)),
        first_screen.hero(compared),
        QUESTIONS if runs > 1 else [ABOUT_ONE, *QUESTIONS[1:]],
        _bodies(compared, causes, problems, parts),
        {"table": _about_numbers(compared), "map": _about_figures(compared), "over-time": _about_time(compared)},
        lines=[(run.label, figures.line_of(compared, index)) for index, run in enumerate(compared.runs)],
        figures=parts.figures,
        maps=parts.maps,
        picker=picker(
            [plain(run.label) for run in compared.runs], compared.best, [in_full(run) for run in compared.runs]
        ),
        payloads=parts.payloads,
    )


def _causes(run: Measured, tell: Tell, index: int, runs: int) -> tuple[WaitCauses | None, str]:
    """Return why the jobs of a run waited; or None and why that cannot be computed."""
    scene, horizon = run.stored.scene, max(1, run.ledger.horizon)

    def progress(time: int) -> None:
        tell("why jobs waited", (index + 0.2 + 0.8 * time / horizon) / (runs + 1))

    try:
        causes = why_waited(
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
    return causes, ""


def _figures(compared: Comparison, causes: Sequence[WaitCauses | None], parts: Parts) -> None:
    drawn = parts.figures
    drawn["jct"] = figures.distribution(compared, [run.jct for run in compared.runs], "time to completion")
    drawn["wait"] = figures.distribution(compared, [run.wait for run in compared.runs], "wait")
    drawn["time"] = figures.over_time(compared)
    drawn["causes-runs"] = figures.causes_of_runs(compared, causes)
    for index, of_run in enumerate(causes):
        if of_run is not None and of_run.rows:
            drawn[f"causes-tenant-{index}"] = figures.causes_by(of_run, "tenant")
            drawn[f"causes-size-{index}"] = figures.causes_by(of_run, "size")
    column = "tenant" if len(sections.groups(compared, "tenant")) > 1 else "size"
    names = sections.groups(compared, column)
    rho = [figures.grouped_mean(run, column, "ftf") for run in compared.runs]
    waits = [
        {name: None if value is None else value / 3600 for name, value in of_run.items()}
        for of_run in (figures.grouped_mean(run, column, "wait_s") for run in compared.runs)
    ]
    drawn["rho"] = figures.dots(compared, names, rho, "ρ, mean over jobs", even=1.0)
    drawn["group-wait"] = figures.dots(compared, names, waits, "hours, mean over jobs")
    drawn["lost"] = figures.lost(compared)


def _maps(compared: Comparison, parts: Parts) -> None:
    """Add a map for each run, the baseline's and the best one's first, as long as there is room."""
    ranked = list(dict.fromkeys((compared.base, compared.best, *range(len(compared.runs)))))
    left = MOST_MAP_BYTES
    shared: dict[bytes, int] = {}
    without, coarse = [], []
    for index in ranked:
        run = compared.runs[index]
        cluster = run.stored.scene.cluster
        packed = None
        if 0 < cluster.gpus <= MOST_DRAWN_GPUS:
            workload = _shared(clustermap.pack_workload(run.stored.scene.jobs), shared, parts)
            left -= len(parts.payloads[workload]) if workload == len(parts.payloads) - 1 else 0
            room = left // 2 if len(ranked) > 1 and index == compared.base else left  # the baseline's comes first
            packed = clustermap.pack(run.ledger, run.lines, without_tail(run.bulk, run.ledger.horizon), room)
        if packed is None:
            without.append(run)
            continue
        if packed.tick > packed.finest:
            coarse.append(f"{plain(run.label)} every {duration(packed.tick / SECOND)}")
        left -= len(packed.text)
        parts.payloads.append(packed.text)
        dates = run.stored.scene.past.calendar
        parts.maps[str(index)] = {
            "cluster": clustermap.describe(cluster),
            **({} if dates is None else {"begins": f"{dates.shown(0).replace(' ', 'T')}Z"}),
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
    """Return the index of the payload with these bytes; runs with the same bytes share one."""
    if data not in shared:
        parts.payloads.append(deflated(data))
        shared[data] = len(parts.payloads) - 1
    return shared[data]


def _bodies(
    compared: Comparison, causes: Sequence[WaitCauses | None], problems: Sequence[str], parts: Parts
) -> dict[str, str]:
    """Return the body of each section by its anchor."""
    key = key_of_runs(
        [plain(run.label, 80) for run in compared.runs], compared.base, [in_full(run) for run in compared.runs]
    )
    jct = figure("jct", "Share of jobs by time to completion", "time to completion")
    wait = figure("wait", "Share of jobs by wait", "wait: all time without what they asked for")
    shown = listed([panel.partition(",")[0] for panel, _, _ in panels_of(compared)])
    time = figure("time", f"Over time: {shown}")
    return {
        "table": sections.comparison(compared),
        "map": _map_body(compared, parts),
        "times": f'{key}<div class="pair">{jct}{wait}</div>',
        "over-time": key + time,
        "waited": sections.waited(compared, causes, problems, parts.figures),
        "fairness": key + sections.fairness(compared),
        "lost": sections.lost(compared, parts.figures["lost"]),
        "longest": "".join(for_run(i, sections.longest(run)) for i, run in enumerate(compared.runs)),
    }


def _about_numbers(compared: Comparison) -> str:
    lines = []
    seeds = max(len(run.seeds) for run in compared.runs)
    if seeds:
        where = "" if all(run.seeds for run in compared.runs) else ", where another seed gives another run"
        lines.append(f"Numbers are means over the runs of {seeds} seeds{where}.")
    if level := compared.baseline.level:
        how = "Student’s t over these runs" if seeds else "from blocks of consecutive jobs drawn again and again"
        lines.append(f"Small numbers below means and changes are {percent(level, 0)} intervals, {how}.")
        if len(compared.runs) > 1 and compared.same_jobs:
            lines.append(f"Changes compare the same {'seeds' if seeds else 'jobs'} in both runs.")
    if all(at_once(run.numbers) for run in compared.runs):
        lines.append("All jobs arrive at once, so use is counted over the makespan.")
    else:
        lines.append(
            "Use is counted while jobs arrive, from the first submission to the last; "
            "the tail of the makespan goes from there to the last completion."
        )
    return " ".join(lines)


def _about_figures(compared: Comparison) -> str:
    """Return which of the runs of several seeds the rest of the page is about."""
    shown = {int(run.seeds[0]["seed"]) for run in compared.runs if run.seeds}
    if not shown:
        return ""
    which = f"seed {shown.pop()}" if len(shown) == 1 else "the first seed of each"
    return f"The map, and all figures and tables from here on, show the runs of {which}."


def _about_time(compared: Comparison) -> str:
    lines = []
    if any(run.window is not None for run in compared.runs):
        lines.append("The whole run is shown, as on the map; all other sections are about the measured jobs.")
    if len(compared.runs) == 1:
        lines.append("Lines are means over a stretch of time, bands how far it went up and down.")
    if figures.shown_until(compared) < max(run.ledger.horizon for run in compared.runs):
        lines.append("The axis begins without the long end of the last few jobs: drag to zoom, double-click for all.")
    return " ".join(lines)


def _map_body(compared: Comparison, parts: Parts) -> str:
    notes = "".join(f'<p class="note">{note}</p>' for note in parts.notes)
    if not parts.maps:
        return notes
    missing = "".join(
        for_run(index, '<p class="note">There is no map of this run.</p>') if str(index) not in parts.maps else ""
        for index in range(len(compared.runs))
    )
    return f"{template_file('clustermap.html', 'headway.jobs.show.page')}{missing}{notes}"
