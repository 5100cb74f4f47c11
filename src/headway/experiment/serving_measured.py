"""A serving run and its numbers: the flat object that ``--json`` prints, over one seed or several."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from headway import experiment
from headway.core.tape import FINAL_NAME
from headway.errors import ExperimentError, unknown_name
from headway.experiment import serving
from headway.experiment.folder import check_folder, store_result
from headway.formats.serving_settings import ServingExperiment, warmup_share
from headway.metrics.bootstrap import replicated_interval
from headway.metrics.compare import change, known, merged
from headway.metrics.serving.summary import messages, summarise
from headway.serving.bound import least_cost
from headway.serving.rows import Kind
from headway.units import MICROSECOND, MILLISECOND, format_duration

FIRST_KEYS = (
    *("policy", "requests", "completed", "dropped", "slowdown_mean", "slowdown_p50", "slowdown_p95"),
    *("latency_p50_s", "latency_p99_s", "cache_hit_rate", "bytes_fetched", "workers_used", "slo_hit_rate"),
    *("cost_per_request_usd", "cost_total_usd", "decide_p50_us", "decide_p99_us", "tasks", "tasks_per_s", "wall_s"),
    "peak_rss_bytes",
)
"""What every reader of results relies on, in this order; more follows."""
OF_ONE_SEED = (
    *("seed", "digest", "requests", "measured", "dropped", "slowdown_mean", "slowdown_p50", "slo_hit_rate"),
    "cost_per_request_usd",
)
"""What is kept of each run when those of several seeds become one row."""
REPLICATED = ("slowdown_mean", "slo_hit_rate", "cost_per_request_usd")
"""Numbers that have an interval over seeds."""
COMPARED = (("slowdown_mean", "slowdown_change"), ("cost_per_request_usd", "cost_change"))


@dataclass(frozen=True, slots=True)
class ServingOutcome:
    """What a run came to: its numbers, and what to say about it."""

    row: dict[str, Any]
    notes: tuple[str, ...]
    stopped: str = ""


def measured(each: ServingExperiment, label: str = "", progress: experiment.Progress | None = None) -> ServingOutcome:
    """Run an experiment and take its numbers; with a folder they are stored there too."""
    result = serving.run(each, progress)
    row = numbers(result, label)
    if result.folder is not None:
        store_result(result.folder, row)
    return ServingOutcome(row, _notes(result, row), _how_far(result) if result.stopped else "")


def _notes(result: serving.ServingResult, row: Mapping[str, Any]) -> tuple[str, ...]:
    notes = [*result.scene.notes]
    policy = result.scene.policy()
    if policy.central and not result.scene.central():
        notes.append(f"{policy.name} decides in one place and reads every row as it is, whatever the control")
    if row["dropped"] > row["requests"] // 100:
        unmeasured = f" ({row['dropped_warmup']:,} of them in the warm-up, which is not measured)"
        dropped = f"{row['dropped']:,} of {row['requests']:,} requests{unmeasured if row['dropped_warmup'] else ''}"
        what = f"{dropped} were given up because they could not be in time"
        notes.append(f"{what}; {policy.name}(drop=off) answers them late" if hasattr(policy, "drop") else what)
    return tuple(notes)


def numbers(result: serving.ServingResult, label: str = "") -> dict[str, Any]:
    """The flat object of a run."""
    scene = result.scene
    built = scene.built
    share = warmup_share(scene.experiment)
    summary = summarise(
        built.catalogue,
        built.fleet,
        scene.requests,
        result.tape,
        latency=scene.latency(),
        warmup=share,
        policy=result.policy,
    )
    flat = dict(summary)
    decided = np.array(result.decide_ns, dtype=np.int64)
    flat |= {
        "decide_p50_us": float(np.percentile(decided, 50)) / MICROSECOND if len(decided) else None,
        "decide_p99_us": float(np.percentile(decided, 99)) / MICROSECOND if len(decided) else None,
        "optimality_gap": optimality_gap(scene, flat["cost_per_request_usd"]),
        "messages": messages(result.tape, result.pushes, len(built.fleet.workers), central=scene.central()),
        "pushes": result.pushes,
        "staleness_mean_ms": result.stale_ns / result.reads / MILLISECOND if result.reads else 0.0,
        "tasks_per_s": flat["tasks"] / result.wall_s,
        "wall_s": result.wall_s,
        "peak_rss_bytes": result.peak_rss_bytes,
        "scenario": scene.experiment.serving.scenario,
        "digest": result.tape.digest,
        "stopped": result.stopped,
        "seed": scene.experiment.run.seed,
        "seeds": 1,
    }
    if label:
        flat["variant"] = label
    return {key: flat[key] for key in FIRST_KEYS} | flat


def optimality_gap(scene: serving.ServingScene, paid_usd: float | None) -> float | None:
    """How far a request's cost is above that of the cheapest configurations in time; None where nothing bounds it."""
    latency, fleet = scene.latency(), scene.built.fleet
    asked = Counter(
        (request.graph, request.deadline - request.arrival) for request in scene.requests if request.deadline
    )
    least = total = 0.0
    for (graph, within), count in asked.items():
        if (cost := least_cost(latency, fleet, scene.built.catalogue.graphs[graph], within)) is not None:
            least += count * cost
            total += count
    return paid_usd / (least / total) - 1 if paid_usd is not None and least else None


def _how_far(result: serving.ServingResult) -> str:
    kinds = result.tape.column("kind")
    arrived, done = int((kinds == Kind.ARRIVED).sum()), int((kinds == Kind.DONE).sum())
    kept = "without --out nothing is kept" if result.folder is None else f"the tape is {result.folder / FINAL_NAME}"
    return (
        f"{result.policy} stopped at {format_duration(result.reached)}: {arrived:,} of {len(result.scene.requests):,} "
        f"requests had arrived, {done:,} were answered; {kept}"
    )


# --- several seeds, several policies ----------------------------------------------------------------------------


def seeded(each: ServingExperiment) -> list[ServingExperiment]:
    """The experiment once for each of its seeds, each with its own folder."""
    count, out, first = each.measure.seeds, each.run.out, each.run.seed
    if count == 1:
        return [each]
    if out:
        check_folder(Path(out))
    found = []
    for seed in range(first, first + count):
        run = msgspec.structs.replace(each.run, seed=seed, out=str(Path(out) / f"seed-{seed}") if out else "")
        found.append(msgspec.structs.replace(each, run=run))
    return found


def replicated(each: ServingExperiment, outcomes: Sequence[ServingOutcome]) -> ServingOutcome:
    """The runs of all seeds of an experiment as one outcome: numbers are means over seeds, some with intervals."""
    if len(outcomes) == 1:
        return outcomes[0]
    rows = [outcome.row for outcome in outcomes]
    row = {key: merged([one.get(key) for one in rows]) for key in rows[0] if key != "graphs"}
    row["seeds"] = len(rows)
    row["peak_rss_bytes"] = max(one["peak_rss_bytes"] for one in rows)
    for key in REPLICATED:
        values = [math.nan if one[key] is None else one[key] for one in rows]
        interval = (
            known(replicated_interval(values, level=each.measure.confidence)) if each.measure.confidence else None
        )
        row[f"{key}_low"], row[f"{key}_high"] = interval or (None, None)
    row["runs"] = [{key: one[key] for key in OF_ONE_SEED} for one in rows]
    notes = tuple(dict.fromkeys(note for outcome in outcomes for note in outcome.notes))
    return ServingOutcome(row, notes)


def baseline_of(experiments: Sequence[tuple[str, ServingExperiment]]) -> int:
    """Which of several runs the others are compared with: the one that ``measure.baseline`` names, else the first."""
    wanted = next((each.measure.baseline for _, each in experiments if each.measure.baseline), "")
    names = [label or each.policy.name for label, each in experiments]
    if wanted and wanted not in names:
        raise ExperimentError(unknown_name("baseline", wanted, names))
    return names.index(wanted) if wanted else 0


def against(outcomes: Sequence[ServingOutcome], baseline: int) -> list[dict[str, Any]]:
    """The rows of several runs, each with its changes against one of them."""
    reference: Mapping[str, Any] = outcomes[baseline].row
    name = str(reference.get("variant") or reference["policy"])
    rows = []
    for index, outcome in enumerate(outcomes):
        found = {
            changed: None if index == baseline else change(outcome.row[key], reference[key])
            for key, changed in COMPARED
        }
        rows.append({**outcome.row, "baseline": name, **found})
    return rows
