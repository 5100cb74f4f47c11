"""Compute the result of a run: the flat object that ``--json`` prints, and what a comparison needs besides.

What is known only of several runs together (a change against a baseline, the spread over seeds) is added by
``replicated`` and ``against``.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headway.core.tape import FINAL_NAME
from headway.errors import ExperimentError, unknown_name
from headway.runs.domain import Outcome, Progress, RunResult, View, with_table
from headway.runs.folder.folder import claimed, store_result
from headway.runs.play import play
from headway.runs.registry import domain_of
from headway.runs.settings.files import Named
from headway.runs.settings.tables import check_measure
from headway.statistics import replications as compare

NOTHING_DRAWN = "nothing is drawn here: every seed gives the same run, so there is one; intervals are over its jobs"


def measured(experiment: Any, label: str = "", progress: Progress | None = None) -> Outcome:
    """Run an experiment and take its numbers; with a folder they are stored there too."""
    folder = Path(experiment.run.out) if experiment.run.out else None
    with claimed(folder):
        return numbers(play(domain_of(experiment).prepare(experiment), folder, progress), label)


def numbers(result: RunResult, label: str = "") -> Outcome:
    """Take the numbers of a run; they are stored in its folder, where it has one."""
    experiment = result.scene.experiment
    domain = domain_of(experiment)
    stopped = f"{domain.view.stopped_line(result)}; {_where(result)}" if result.stopped else ""
    if stopped and result.folder is None:  # nobody asks for them, and of a long tape they take long
        return Outcome({}, (), stopped)
    outcome = domain.view.numbers(result)
    flat = outcome.row | {
        "wall_s": result.wall_s,
        "peak_rss_bytes": result.peak_rss_bytes,
        "digest": result.tape.digest,
        "stopped": result.stopped,
        "seed": experiment.run.seed,
        "seeds": 1,
    }
    if label:
        flat["variant"] = label
    row = {key: flat[key] for key in domain.view.first_keys} | flat
    if result.folder is not None:
        store_result(result.folder, row)
    return replace(outcome, row=row, stopped=stopped, drawn=domain.draws(experiment))


def _where(result: RunResult) -> str:
    return "without --out nothing is kept" if result.folder is None else f"the tape is {result.folder / FINAL_NAME}"


# --- several seeds --------------------------------------------------------------------------------------------


def seeded(experiment: Any) -> list[Any]:
    """Return the experiment once for each of its seeds, each with its own folder; once where nothing is drawn."""
    count = check_measure(experiment.measure).seeds
    first, out = experiment.run.seed, experiment.run.out
    if count == 1 or not domain_of(experiment).draws(experiment):
        return [experiment]
    return [
        with_run(experiment, seed=seed, out=str(Path(out) / f"seed-{seed}") if out else "")
        for seed in range(first, first + count)
    ]


def with_run(experiment: Any, **changes: Any) -> Any:
    """Return the experiment with other values in its table ``run``."""
    return with_table(experiment, "run", **changes)


def replicated(experiment: Any, outcomes: Sequence[Outcome]) -> Outcome:
    """Return the runs of all seeds of an experiment as one outcome."""
    if len(outcomes) == 1:
        only = outcomes[0]
        return replace(only, notes=(*only.notes, NOTHING_DRAWN)) if experiment.measure.seeds > 1 else only
    rule = domain_of(experiment).view.replication
    row = compare.over_seeds([outcome.row for outcome in outcomes], experiment.measure.confidence, rule)
    notes = tuple(dict.fromkeys(note for outcome in outcomes for note in outcome.notes))
    return Outcome(row, notes, drawn=True)


# --- against a baseline ---------------------------------------------------------------------------------------


def baseline_of(experiments: Sequence[Named]) -> int:
    """Return which of several runs the others are compared with: as ``measure.baseline`` names it, else the first."""
    wanted = next((each.measure.baseline for _, each in experiments if each.measure.baseline), "")
    if not wanted:
        return 0
    short = [label or each.policy.name for label, each in experiments]
    asked = [each.policy.name for _, each in experiments]
    for names in (short, asked, [domain_of(each).policy_name(each) for _, each in experiments]):
        if wanted in names:
            return names.index(wanted)
    raise ExperimentError(unknown_name("baseline", wanted, short))


def against(outcomes: Sequence[Outcome], baseline: int, view: View) -> list[dict[str, Any]]:
    """Return the rows of several runs, each with its change against one of them."""
    reference = outcomes[baseline]
    name = str(reference.row.get("variant") or reference.row["policy"])
    rows = [
        {**outcome.row, "baseline": name, **view.changes(outcome, None if index == baseline else reference)}
        for index, outcome in enumerate(outcomes)
    ]
    return view.together(rows)
