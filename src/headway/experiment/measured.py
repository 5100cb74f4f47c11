"""A run and its numbers: the flat object that ``--json`` prints, and what a comparison needs besides.

Everything about one run is here. What is known only of several together (a change against a baseline, the spread over
seeds) is added where they come together, by ``replicated`` and ``against``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import numpy as np

from headway import experiment
from headway.core.tape import FINAL_NAME
from headway.errors import ExperimentError, unknown_name
from headway.experiment.folder import check_folder, claimed, store_result
from headway.formats.settings import Experiment, check_measure
from headway.metrics import compare
from headway.metrics.bootstrap import UNKNOWN, mean_interval, quantile_interval
from headway.metrics.compare import Change, Sample
from headway.metrics.series import FloatArray
from headway.metrics.training.jobs import job_table, preempted_free
from headway.metrics.training.ledger import Ledger
from headway.metrics.training.summary import as_json, of_ledger, percentile
from headway.metrics.training.tenants import by_partition, by_tenant
from headway.metrics.window import Window, check_texts, window_of
from headway.training.rows import Kind
from headway.units import SECOND, format_duration

FIRST_KEYS = (
    *("policy", "jobs", "finished", "jct_mean_s", "jct_p50_s", "jct_p99_s", "wait_mean_s", "makespan_s"),
    *("gpu_utilisation", "fragmentation_mean", "preemptions", "migrations", "lost_gpu_hours", "events"),
    *("wall_s", "jobs_per_s", "peak_rss_bytes"),
)
"""What every reader of results relies on, in this order; more follows."""
MOST_GROUPS = 100
"""Up to so many tenants or partitions have a row of their own in the results."""
NOTHING_DRAWN = "nothing is drawn here: every seed gives the same run, so there is one; intervals are over its jobs"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to: its numbers, and what to say about it."""

    row: dict[str, Any]
    notes: tuple[str, ...]
    stopped: str = ""
    """How far it got, where it was stopped before its end."""
    sample: Sample | None = None
    """Its measured jobs, for a paired comparison; None for runs of several seeds."""
    drawn: bool = False
    """Whether another seed would have given another run."""


def measured(each: Experiment, label: str = "", progress: experiment.Progress | None = None) -> Outcome:
    """Run an experiment and take its numbers; with a folder they are stored there too."""
    table = check_measure(each.measure)
    check_texts(table.jobs, table.warmup)
    folder = Path(each.run.out) if each.run.out else None
    with claimed(folder):
        scene = experiment.prepare(each)
        window = window_of(scene.jobs, table.jobs, table.warmup)
        return numbers(experiment.play(scene, folder, progress), label, window)


def numbers(result: experiment.RunResult, label: str = "", window: Window | None = None) -> Outcome:
    """The numbers of a run, of the jobs in the window; stored in its folder, where it has one."""
    each = result.scene.experiment
    table = each.measure
    ledger = Ledger(result.tape, result.scene.jobs, result.scene.cluster)
    summary = of_ledger(ledger, window)
    flat: dict[str, Any] = dict(as_json(summary, result.policy))
    flat |= {
        "allocation": result.allocation,
        "decide_p99_ms": _decide_p99_ms(result.decide_ns),
        "of_bound_mean": fmean(shares) if (shares := _of_bound(result.bounds)) else None,
        "of_bound_min": min(shares, default=None),
        "wall_s": result.wall_s,
        "jobs_per_s": summary.jobs / result.wall_s,
        "peak_rss_bytes": result.peak_rss_bytes,
        "skipped": len(result.scene.skipped),
        "digest": result.tape.digest,
        "stopped": result.stopped,
        "seed": each.run.seed,
        "seeds": 1,
        "confidence": table.confidence or None,
    }
    if label:
        flat["variant"] = label
    flat |= intervals(ledger, window, table.confidence)
    flat |= _groups(ledger, window)
    row = {key: flat[key] for key in FIRST_KEYS} | flat
    if result.folder is not None:
        store_result(result.folder, row)
    stopped = _how_far(result) if result.stopped else ""
    return Outcome(row, _notes(result, row, ledger), stopped, _sample(ledger, window), draws(each))


def _of_bound(bounds: Sequence[tuple[int, int]]) -> list[float]:
    """What each division reached of the most that it could have."""
    return [reached / most for reached, most in bounds if most]


def _decide_p99_ms(decide_ns: Sequence[int]) -> float | None:
    """What all but the slowest hundredth of the decisions took at most; None where they were not measured."""
    return percentile(np.sort(np.array(decide_ns, dtype=np.int64)), 99) / 10**6 if decide_ns else None


def _notes(result: experiment.RunResult, row: Mapping[str, Any], ledger: Ledger) -> tuple[str, ...]:
    notes = [*result.notes]
    if row["overload"]:
        notes.append(f"overload: {row['overload']}")
    if row["growing"]:
        notes.append(row["growing"])
    if row["preemptions"] and preempted_free(ledger, result.scene.costs()):
        notes.append("preemptions cost nothing here: --preemption-cost 60s charges them")
    return tuple(notes)


def intervals(ledger: Ledger, window: Window | None, level: float) -> dict[str, float | None]:
    """How sure the mean and two percentiles of JCT and the mean wait are; None where there is no saying."""
    jct = _jct(ledger, window)
    wait = np.where(ledger.completed, ledger.wait / SECOND, np.nan)[_chosen(window)]
    found = {
        "jct_mean": mean_interval(jct, level=level) if level else UNKNOWN,
        "jct_p50": quantile_interval(jct, 0.5, level=level) if level else UNKNOWN,
        "jct_p99": quantile_interval(jct, 0.99, level=level) if level else UNKNOWN,
        "wait_mean": mean_interval(wait, level=level) if level else UNKNOWN,
    }
    sure = {name: compare.known(interval) or (None, None) for name, interval in found.items()}
    return {f"{name}_{end}_s": sure[name][side] for name in sure for side, end in enumerate(("low", "high"))}


def _chosen(window: Window | None) -> slice:
    return slice(None) if window is None else window.jobs


def _jct(ledger: Ledger, window: Window | None) -> FloatArray:
    """JCTs of measured jobs in submission order; nan for those that did not complete."""
    jct: FloatArray = np.where(ledger.completed, (ledger.end - ledger.submit) / SECOND, np.nan)[_chosen(window)]
    return jct


def _sample(ledger: Ledger, window: Window | None) -> Sample:
    jobs = ledger.jobs[_chosen(window)]
    return Sample(tuple(job.name or str(job.id) for job in jobs), _jct(ledger, window))


def _groups(ledger: Ledger, window: Window | None) -> dict[str, Any]:
    """A row a tenant and a partition, where there are several but not so many that nobody would read them."""
    several = range(2, MOST_GROUPS + 1)
    jobs = ledger.jobs[_chosen(window)]
    groups = {"tenants": {job.tenant for job in jobs}, "partitions": {job.partition for job in jobs}}
    makers = {"tenants": by_tenant, "partitions": by_partition}
    wanted = [key for key, names in groups.items() if len(names) in several]
    table = job_table(ledger) if wanted else None
    if table is not None and window is not None:
        table = table.filter((table["id"] >= window.first) & (table["id"] < window.last))
    return {key: makers[key](ledger, table).to_dicts() for key in wanted}


def _how_far(result: experiment.RunResult) -> str:
    kinds = result.tape.column("kind")
    arrived = int((kinds == Kind.ARRIVED).sum())
    ended = int(((kinds == Kind.FINISHED) | (kinds == Kind.CANCELLED) | (kinds == Kind.FAILED)).sum())
    kept = "without --out nothing is kept" if result.folder is None else f"the tape is {result.folder / FINAL_NAME}"
    return (
        f"{result.policy} stopped at {format_duration(result.reached)}: {arrived:,} of {len(result.scene.jobs):,} jobs "
        f"had arrived, {ended:,} had ended; {kept}"
    )


# --- several seeds --------------------------------------------------------------------------------------------


def draws(each: Experiment) -> bool:
    """Whether the seed matters: drawn jobs or models, failures, users' estimates, wrong profiles, random placement."""
    other = _with_seed(each, each.run.seed + 1)
    return bool(
        each.trace.synthetic is not None
        or each.trace.synergy is not None
        or each.trace.models
        or each.speed.error
        or each.failures.mtbf != ""
        or each.trace.estimates == "user"
        or experiment.policy_of(each).name != experiment.policy_of(other).name
    )


def _with_seed(each: Experiment, seed: int, out: str = "") -> Experiment:
    return msgspec.structs.replace(each, run=msgspec.structs.replace(each.run, seed=seed, out=out))


def seeded(each: Experiment) -> list[Experiment]:
    """The experiment once for each of its seeds, each with its own folder; once where nothing is drawn."""
    count = check_measure(each.measure).seeds
    if count == 1 or not draws(each):
        return [each]
    out = each.run.out
    if out:
        check_folder(Path(out))
    seeds = range(each.run.seed, each.run.seed + count)
    return [_with_seed(each, seed, str(Path(out) / f"seed-{seed}") if out else "") for seed in seeds]


def replicated(each: Experiment, outcomes: Sequence[Outcome]) -> Outcome:
    """The runs of all seeds of an experiment as one outcome."""
    if len(outcomes) == 1:
        only = outcomes[0]
        return replace(only, notes=(*only.notes, NOTHING_DRAWN)) if each.measure.seeds > 1 else only
    row = compare.over_seeds([outcome.row for outcome in outcomes], each.measure.confidence)
    notes = tuple(dict.fromkeys(note for outcome in outcomes for note in outcome.notes))
    return Outcome(row, notes, drawn=True)


# --- against a baseline ---------------------------------------------------------------------------------------


def baseline_of(experiments: Sequence[tuple[str, Experiment]]) -> int:
    """Which of several runs the others are compared with: the one that ``measure.baseline`` names, else the first."""
    wanted = next((each.measure.baseline for _, each in experiments if each.measure.baseline), "")
    if not wanted:
        return 0
    names = [label or each.policy.name for label, each in experiments]
    if wanted in names:
        return names.index(wanted)
    full = [experiment.policy_of(each).name for _, each in experiments]
    if wanted in full:
        return full.index(wanted)
    raise ExperimentError(unknown_name("baseline", wanted, names))


def against(outcomes: Sequence[Outcome], baseline: int) -> list[dict[str, Any]]:
    """The rows of several runs, each with its change against one of them."""
    reference = outcomes[baseline]
    name = str(reference.row.get("variant") or reference.row["policy"])
    rows = []
    for index, outcome in enumerate(outcomes):
        found = Change() if index == baseline else _changed(outcome, reference)
        rows.append({**outcome.row, "baseline": name, **found.row()})
    return rows


def _changed(outcome: Outcome, reference: Outcome) -> Change:
    row, other = outcome.row, reference.row
    level = row["confidence"] or 0.0
    if "runs" not in row and "runs" not in other and outcome.sample is not None and reference.sample is not None:
        return compare.changed(outcome.sample, reference.sample, level)
    return compare.changed_over_seeds(row, other, level, (outcome.drawn, reference.drawn))


def told_changes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each row whose change is not over all that it, or the baseline, measured."""
    lines = []
    for row in rows:
        name, over = row.get("variant") or row["policy"], row.get("jct_change_over")
        if over == compare.DIFFERENT_JOBS:
            lines.append(f"{name}: measures other jobs than {row['baseline']}; its change has no interval")
        elif over:
            lines.append(f"{name}: its change against {row['baseline']} is over {over}")
    return lines
