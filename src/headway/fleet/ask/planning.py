"""Answer how many workers each of some policies needs, with the curve of slow-down over workers as a page if asked."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headway.errors import ExperimentError
from headway.files import write_whole
from headway.fleet.ask import mixed_plans
from headway.fleet.ask.capacity_planning import Plan, Search, part_of, prepared, searched
from headway.fleet.experiment.scene import load_note, policy_name, policy_of
from headway.fleet.policies.scalers.registry import build as build_scaler
from headway.fleet.scenarios import file as scenario_file
from headway.fleet.scenarios.file import Built
from headway.fleet.scenarios.limits import deadlines, mix_of
from headway.fleet.scenarios.tables.settings import ServingExperiment, check, split_slo
from headway.fleet.show.page import plan as plan_page
from headway.fleet.show.terminal import plan as shown
from headway.fleet.traces.draw import chosen
from headway.jobs.tables.cluster import within
from headway.runs.answer import Answer
from headway.runs.domain import with_table
from headway.runs.folder.pages import check_target
from headway.runs.sweep.measurements import Known, with_measured
from headway.show.progress import share_bar
from headway.units import counted, exact_duration, format_size

POINTS = 8
"""Numbers of workers at which the curves of a page are measured, besides those that the search tried."""
_BEYOND = 1.25
"""How far the curves go beyond the most workers that a policy needs."""


class NotEnoughError(ExperimentError):
    """Raised when no number of workers of any kind answers in time; ``rows`` holds the best trial of each kind."""

    def __init__(self, line: str, rows: list[dict[str, Any]]) -> None:
        super().__init__(line)
        self.rows = rows


def answer(experiments: Sequence[ServingExperiment], target: float, report: str | None = None) -> Answer:
    """Return the plans of each policy as an answer; raise NotEnoughError where no kind of worker is enough for any."""
    within("in-time", target, 0.01, 1)
    if report is not None:
        _check_report(Path(report))
    if build_scaler(experiments[0].serving.autoscale) is not None:
        raise ExperimentError("a plan is of a fleet that stays as it is: leave --autoscale out")
    known: Known = {}
    at_rate = [_at_rate(with_measured(check(each), known)) for each in experiments]
    names = [policy_name(each) for each, _ in at_rate]
    with share_bar("plan") as progress:
        found, mixes, told_of = [], [], []
        for index, (each, _) in enumerate(at_rate):
            ready, part = prepared(each), part_of(progress, index, len(at_rate))
            told_of += [f"note: {line}" for line in ready[1].notes]
            found.append(searched(*ready, target, part))
            mixes.append(mixed_plans.cheapest(*ready, target, [plan for plan, _ in found[-1]], part))
        if report is not None:
            found = _with_curves(found)
        for plans, mixed in zip(found, mixes, strict=True):
            if mixed.plan is not None:
                plans.insert(0, (mixed.plan, plans[0][1]))
    rows = [{"policy": name, **plan.record()} for name, plans in zip(names, found, strict=True) for plan, _ in plans]
    first, notes = at_rate[0]
    if not any(row["workers"] for row in rows):
        row = rows[0]
        why = f"{row['policy']}, {row['worker']}" if len(names) > 1 else row["worker"]
        raise NotEnoughError(f"no kind of worker answers {100 * target:g} % in time; {why}: {row['why_not']}", rows)
    told = [*shown.of_policies(rows), enough(first, target), *shown.sentences(rows)]
    notes = [
        *notes,
        *dict.fromkeys(told_of),
        *shown.notes(rows),
        *dict.fromkeys(mixed.note for mixed in mixes if mixed.note),
    ]
    if len(names) > 1:
        notes += [f"note: {line}" for line in fidelity_notes([each for each, _ in at_rate])]
    if report is not None:
        text = plan_page.build(rows, enough(first, target), notes, first.serving.scenario)
        write_whole(Path(report), text, ExperimentError, f"--report {report}")
        notes.append(f"report: {report}")
    return Answer(rows, told, notes)


def _check_report(path: Path) -> None:
    if path.suffix.lower() not in (".html", ".htm"):
        raise ExperimentError(f"--report {path}: the name must end in .html")
    check_target(path, False, "--report")


def _at_rate(experiment: ServingExperiment) -> tuple[ServingExperiment, list[str]]:
    """Return the experiment with the rate that its load means for the scenario's own fleet, and a note on it."""
    workload = experiment.workload
    if workload.load is None:
        if workload.rate is None:
            raise ExperimentError(
                "a plan needs a rate: give --rate 4, or --load 0.6 of what the scenario's fleet serves"
            )
        return experiment, []
    rate = chosen(experiment, scenario_file.load(experiment)).rate
    assert rate is not None
    return with_table(experiment, "workload", load=None, rate=rate), [load_note(workload.load, rate)]


def enough(experiment: ServingExperiment, target: float) -> str:
    """Return what counts as enough, in a line."""
    workload, built = experiment.workload, scenario_file.load(experiment)
    slo = split_slo(workload.slo)[0]
    within_slo = "their deadline" if not slo else f"{slo[:-1]} times their critical path" if slo[-1] in "Lx×" else slo
    graphs = [graph for graph, share in zip(built.catalogue.graphs, mix_of(experiment, built), strict=True) if share]
    told = _token_deadline("have their first token within", [graph.ttft for graph in graphs])
    told += _token_deadline("have each further token, in the mean, within", [graph.tpot for graph in graphs])
    if not told or any(map(any, deadlines(experiment, built))):
        told.insert(0, f"are answered within {within_slo}")
    trial = f"{counted(workload.requests or 0, 'request')} a trial at {workload.rate:g} a second"
    return f"enough: {100 * target:g} % of the requests {' and '.join(told)} ({trial})"


def _token_deadline(text: str, limits: Sequence[int]) -> list[str]:
    """Return a line on a deadline of tokens; none where no graph has one."""
    given = sorted({limit for limit in limits if limit})
    return [f"{text} {' or '.join(exact_duration(limit) for limit in given)}"] if given else []


def _with_curves(found: list[list[tuple[Plan, Search]]]) -> list[list[tuple[Plan, Search]]]:
    """Return the plans with the curve of each policy's best kind measured at the same numbers of workers."""
    tried = [count for plans in found for count in plans[0][1].tried]
    if not tried:
        return found
    needed = max(plans[0][0].workers for plans in found) or max(tried)
    counts = spread(min(tried), max(min(tried) + 1, math.ceil(_BEYOND * needed)))
    made = []
    for (plan, search), *others in found:
        curve = search.curve(counts) if search.tried else ()
        made.append([(replace(plan, curve=curve), search), *others])
    return made


def spread(low: int, high: int) -> list[int]:
    """Return whole numbers from one to another, each about as many times the one before."""
    ratio = (high / low) ** (1 / (POINTS - 1))
    return sorted({round(low * ratio**step) for step in range(POINTS)})


# --- what the simulation gives policies beyond their papers ---------------------------------------------------------


def fidelity_notes(experiments: Sequence[ServingExperiment]) -> list[str]:
    """Return what ``--fidelity true`` gives the scenario and each policy that its paper's own simulation does not."""
    if experiments[0].serving.fidelity == "authors":
        return ["fidelity authors: scenario and policies are as the papers simulate them"]
    given = [line for line in (_scenario_note(experiments[0]), *map(_policy_note, experiments)) if line]
    if not given:
        return []
    return [f"fidelity true gives more than the papers' own simulations: {'; '.join(given)} (--fidelity authors: not)"]


def _policy_note(experiment: ServingExperiment) -> str:
    own, theirs = policy_of(experiment), policy_of(with_table(experiment, "serving", fidelity="authors"))
    keys = [key for key in own.authors if getattr(own, key, None) != getattr(theirs, key, None)]
    said = ", ".join(f"{key} {_said(getattr(own, key))} for {_said(getattr(theirs, key))}" for key in keys)
    return f"{own.name} has {said}" if said else ""


def _said(value: Any) -> str:
    return ("off", "on")[value] if isinstance(value, bool) else str(value)


def _scenario_note(experiment: ServingExperiment) -> str:
    own, theirs = (scenario_file.load(with_table(experiment, "serving", fidelity=each)) for each in ("true", "authors"))
    said = []
    if len(own.catalogue.models) != len(theirs.catalogue.models):
        said.append(f"graphs share models ({_models(own)} for {_models(theirs)})")
    if own.fleet.links.write_back != theirs.fleet.links.write_back:
        said.append("evicting costs no write-back")
    return " and ".join(said)


def _models(built: Built) -> str:
    models = built.catalogue.models
    return f"{len(models)} of {format_size(sum(model.size_bytes for model in models))}"
