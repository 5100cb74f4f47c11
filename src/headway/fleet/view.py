"""Show runs of a fleet: their numbers, tables, stories and pages."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from headway.core.tape import Tape
from headway.fleet.ask import questions, whatif
from headway.fleet.ask.explanation import LateExplanation, RequestExplanation
from headway.fleet.ask.questions import request_number
from headway.fleet.experiment.scene import FleetScene
from headway.fleet.metrics.controller import controller_overload
from headway.fleet.metrics.least_cost import least_cost
from headway.fleet.metrics.ledger import Ledger
from headway.fleet.metrics.summary import messages, summarise
from headway.fleet.model.catalogue import Catalogue
from headway.fleet.model.fleet import Fleet
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind
from headway.fleet.pairing import paired
from headway.fleet.scenarios.tables.settings import warmup_share
from headway.fleet.show import export as serving_export
from headway.fleet.show.page import figures, page as serving_page
from headway.fleet.show.perfetto import trace_events
from headway.fleet.show.story import RequestStory as Story, story
from headway.fleet.show.terminal import brief, comparison as serving_tables, sweep as serving_sweep
from headway.fleet.traces.draw import chosen
from headway.runs.answer import Answer, Early
from headway.runs.domain import Outcome, Row, RunResult, Shown, StoredRun, Tell, View
from headway.show.export import Tables, Written, write_pieces
from headway.show.figures import labels, latencies, line_style
from headway.show.names import shortened
from headway.show.progress import progress_bar
from headway.statistics.replications import Replication
from headway.units import MICROSECOND, MILLISECOND, SECOND, format_duration


class FleetView(View):
    """Runs of a fleet."""

    first_keys = (
        *("policy", "requests", "completed", "dropped", "slowdown_mean", "slowdown_p50", "slowdown_p95"),
        *("latency_p50_s", "latency_p99_s", "cache_hit_rate", "bytes_fetched", "workers_used", "slo_hit_rate"),
        *("cost_per_request_usd", "cost_total_usd", "decide_p50_us", "decide_p99_us", "tasks", "tasks_per_s", "wall_s"),
        "peak_rss_bytes",
    )
    compared = (("slowdown_mean", "slowdown_change"), ("cost_per_request_usd", "cost_change"))
    replication = Replication(
        intervals=(("slowdown_mean", ""), ("slo_hit_rate", ""), ("cost_per_request_usd", "")),
        of_one_seed=(
            *("seed", "digest", "requests", "measured", "dropped", "slowdown_mean", "slowdown_p50", "slo_hit_rate"),
            "cost_per_request_usd",
        ),
        left_out=("graphs", "classes", "tenants"),
    )

    def numbers(self, result: RunResult) -> Outcome:
        """Take the numbers of the measured requests."""
        scene, state = result.scene, result.end.state
        row = _summary(scene, result.tape, result.policy)
        decided = np.array(result.decide_ns, dtype=np.int64)
        row |= {
            "decide_p50_us": float(np.percentile(decided, 50)) / MICROSECOND if len(decided) else None,
            "decide_p99_us": float(np.percentile(decided, 99)) / MICROSECOND if len(decided) else None,
            "optimality_gap": optimality_gap(scene, row["cost_per_request_usd"]),
            "messages": messages(result.tape, state.pushes, len(scene.built.fleet.workers), central=scene.central()),
            "pushes": state.pushes,
            "staleness_mean_ms": state.stale_ns / state.reads / MILLISECOND if state.reads else 0.0,
            "tasks_per_s": row["tasks"] / result.wall_s,
            "scenario": scene.experiment.serving.scenario,
        }
        if scene.decision_time() is not None:
            row["controller"] = scene.experiment.serving.controller
        if (load := scene.experiment.workload.load) is not None:
            row |= {"load": load, "rate_per_s": chosen(scene.experiment, scene.built, scene.requests).rate}
        overload = controller_overload(scene.built.fleet, result.tape, row["gpu_utilisation"])
        return Outcome(row, (*_notes(scene, row), *([overload] if overload else ())))

    def stopped_line(self, result: RunResult) -> str:
        """Count the requests that had arrived and were answered."""
        kinds = result.tape.column("kind")
        arrived, done = int((kinds == Kind.ARRIVED).sum()), int((kinds == Kind.DONE).sum())
        return (
            f"{result.policy} stopped at {format_duration(result.reached)}: {arrived:,} of "
            f"{len(result.scene.requests):,} requests had arrived, {done:,} were answered"
        )

    def comparison(self, rows: Sequence[Row], width: int | None = None) -> tuple[Table, int]:
        """Return one line a run."""
        return (serving_tables.comparison(rows), 0) if width is None else serving_tables.fitting(rows, width)

    def details(self, rows: Sequence[Row], by: Sequence[str] = ()) -> list[Table]:
        """Return the graphs, classes and tenants of one run."""
        parts = (("graph", "graphs", 1), ("class", "classes", 0), ("tenant", "tenants", 1))
        shown = [(key, rows[0].get(name, ()), least) for key, name, least in parts if len(rows) == 1]
        return [serving_tables.parts(key, groups) for key, groups, least in shown if len(groups) > least]

    def pivot(self, rows: Sequence[Row], across: str) -> Table | None:
        """Return requests in time and their cost, where there are deadlines."""
        return serving_sweep.pivot(rows, across)

    def sweep_remarks(self, rows: Sequence[Row]) -> list[str]:
        """Say which policies are best, and how often."""
        return serving_sweep.remarks(rows)

    def stays(self, stored: StoredRun) -> dict[str, float]:
        """Return the latency of each request that was answered, by graph and number."""
        built, scene = stored.scene.built, stored.scene
        ledger = Ledger(built.catalogue, built.fleet, scene.requests, stored.tape)
        taken = zip(scene.requests, ledger.answered.tolist(), ledger.latency.tolist(), strict=True)
        names = [graph.name for graph in built.catalogue.graphs]
        return {f"{names[each.graph]} {each.id}": latency / SECOND for each, answered, latency in taken if answered}

    def paired(self, first: StoredRun, second: StoredRun) -> tuple[dict[str, float], dict[str, float]]:
        """Return the latencies of two runs; a request of the second has the name that it has in the first."""
        ones, others = _arrivals(first), _arrivals(second)
        named = {
            f"{graph} {number}": f"{graph} {same}"
            for graph, numbers in paired(ones, others).items()
            for number, same in numbers.items()
        }
        return self.stays(first), {named.get(key, f"? {key}"): took for key, took in self.stays(second).items()}

    def story(self, stored: StoredRun, subject: str) -> Story:
        """Tell where the time of one request went."""
        scene: FleetScene = stored.scene
        return story(*_parts(stored), request_number(stored, subject), scene.groups)

    def explain(
        self, stored: StoredRun, subject: str, at: str | None, draws: int | None, early: Early = None
    ) -> RequestExplanation | LateExplanation:
        """Say why a request was late; without one, what made late requests late."""
        return questions.explain(stored, subject, at, draws)

    def whatif(self, stored: StoredRun, at: str, folder: Path | None, changes: Mapping[str, Any]) -> Answer:
        """Play a run again under changes, with the same requests, and say what changes."""
        with progress_bar("what if") as told:
            return whatif.ask(stored, at, changes, folder, told)

    def brief(self, stored: StoredRun) -> list[str]:
        """Return the numbers of a run under the names that tables have."""
        return brief.lines(stored.result)

    def page(self, runs: Sequence[Shown], baseline: int, title: str, tell: Tell) -> str:
        """Make the page: answer, latencies, where time went, what each worker did."""
        return serving_page.build([_shown(run) for run in runs], baseline, title)

    def figures(self, runs: Sequence[Shown], baseline: int) -> Mapping[str, Callable[[], dict[str, Any]]]:
        """Return distributions of latency and slow-down, where time goes, and requests under way."""
        names = labels(shortened([run.label for run in runs]))
        lines = [line_style(index, baseline, len(runs)) for index in range(len(runs))]
        times = [figures.Times(*_parts(run.stored)) for run in runs]
        return {
            "latency": lambda: latencies(names, lines, [each.latency_s for each in times]),
            "slowdown": lambda: figures.slowdowns(names, lines, [each.slowdown for each in times]),
            "spent": lambda: figures.spent(names, times),
            "over-time": lambda: figures.under_way(names, lines, times),
        }

    def trace_events(self, stored: StoredRun, path: Path, tell: Tell) -> Written:
        """Write every worker over time."""
        return write_pieces(path, trace_events(*_parts(stored), stored.folder.name))

    def tables(self, stored: StoredRun) -> Tables:
        """Return requests, tasks, batches and workers."""
        return serving_export.tables(*_parts(stored), stored.scene.groups)


VIEW = FleetView()


def _summary(scene: FleetScene, tape: Tape, policy: str) -> dict[str, Any]:
    """Return the numbers that a tape alone says."""
    return dict(
        summarise(
            scene.built.catalogue,
            scene.built.fleet,
            scene.requests,
            tape,
            latency=scene.latency(),
            warmup=warmup_share(scene.experiment),
            policy=policy,
            groups=scene.groups,
        )
    )


def _shown(run: Shown) -> serving_page.Shown:
    """Return a run as its page shows it: every number from the tape, for a stored one may have been changed."""
    scene: FleetScene = run.stored.scene
    variant, policy = (run.stored.result.get(key) or "" for key in ("variant", "policy"))
    row = _summary(scene, run.stored.tape, str(policy or run.label)) | {
        "variant": str(variant),
        "seed": scene.experiment.run.seed,
        "stopped": not run.stored.complete,
        "scenario": scene.experiment.serving.scenario,
    }
    row["overload"] = controller_overload(scene.built.fleet, run.stored.tape, row["gpu_utilisation"])
    return serving_page.Shown(row, *_parts(run.stored), live=bool(run.stored.scene.experiment.serving.engine))


def _parts(stored: StoredRun) -> tuple[Catalogue, Fleet, Sequence[Request], Tape]:
    scene: FleetScene = stored.scene
    return scene.built.catalogue, scene.built.fleet, scene.requests, stored.tape


def _notes(scene: FleetScene, row: Row) -> tuple[str, ...]:
    notes = [*scene.notes]
    policy = scene.policy()
    if policy.central and not scene.central():
        notes.append(f"{policy.name} always decides centrally with fresh rows, whatever the control")
    if row["dropped"] > row["requests"] // 100:
        unmeasured = f" ({row['dropped_warmup']:,} of them in the warm-up, which is not measured)"
        dropped = f"{row['dropped']:,} of {row['requests']:,} requests{unmeasured if row['dropped_warmup'] else ''}"
        verb = "was given up because it" if row["dropped"] == 1 else "were given up because they"
        what = f"{dropped} {verb} could not be in time"
        notes.append(f"{what}; {policy.name}(drop=off) answers them late" if hasattr(policy, "drop") else what)
    return tuple(notes)


def optimality_gap(scene: FleetScene, paid_usd: float | None) -> float | None:
    """Return how far the cost of a request is above its lower bound, as a share; None where there is no bound."""
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


def _arrivals(stored: StoredRun) -> dict[str, list[tuple[int, int]]]:
    """Return by graph when its requests arrived, each with its number."""
    found: dict[str, list[tuple[int, int]]] = {}
    for request in stored.scene.requests:
        name = stored.scene.built.catalogue.graphs[request.graph].name
        found.setdefault(name, []).append((request.arrival, request.id))
    return {name: sorted(arrivals) for name, arrivals in found.items()}
