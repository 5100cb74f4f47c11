"""Show runs of training jobs: their numbers, tables, stories and pages."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from rich.table import Table

from headway.jobs.ask import questions
from headway.jobs.ask.backtest import judgement
from headway.jobs.ask.explanation import Explanation
from headway.jobs.experiment.scene import JobsScene
from headway.jobs.metrics.backtest.recorded import recorded_past
from headway.jobs.metrics.backtest.verdict import UNKNOWN as UNJUDGED, spread
from headway.jobs.metrics.changes import DIFFERENT_JOBS, Change, changed, changed_batches, changed_over_seeds
from headway.jobs.metrics.cost import costs, rates, uncounted
from headway.jobs.metrics.groups import GROUPS, by_group
from headway.jobs.metrics.jobs import job_table, preemptions_were_free
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.metrics.sizes import gpu_type_of
from headway.jobs.metrics.summary import REPLICATION, as_json, of_ledger, percentile
from headway.jobs.metrics.waits.by_limit import by_limit
from headway.jobs.metrics.window import Window
from headway.jobs.model.job_names import job_number
from headway.jobs.model.rows import ENDS, Kind
from headway.jobs.policies.registry import describe
from headway.jobs.rules.eligibility.audit import has_terms
from headway.jobs.show.bars import bars
from headway.jobs.show.export import tables as notebook
from headway.jobs.show.page import figures, page, trust, whatif as whatif_page
from headway.jobs.show.page.measured import Comparison, Measured
from headway.jobs.show.story.dated import Dated
from headway.jobs.show.story.story import Story, story
from headway.jobs.show.terminal import brief, comparison as tables
from headway.jobs.show.terminal.sweep import pivot
from headway.jobs.tables.settings import JobsMeasureTable
from headway.jobs.traces.trace import SLURM
from headway.runs.answer import Answer, Early
from headway.runs.domain import Outcome, Row, RunResult, Shown, StoredRun, Tell, View
from headway.show.export import Tables, Written
from headway.show.progress import progress_bar, share_bar
from headway.statistics.intervals import UNKNOWN, mean_interval, quantile_interval
from headway.statistics.replications import Batches, Sample, change, known
from headway.statistics.series import FloatArray
from headway.units import SECOND, format_duration

MOST_GROUPS = 100
"""Up to so many tenants or partitions have a row of their own in the results."""


class JobsView(View):
    """Runs of training jobs."""

    first_keys = (
        *("policy", "jobs", "finished", "jct_mean_s", "jct_p50_s", "jct_p99_s", "wait_mean_s", "makespan_s"),
        *("gpu_utilisation", "fragmentation_mean", "preemptions", "migrations", "lost_gpu_hours", "events"),
        *("wall_s", "jobs_per_s", "peak_rss_bytes"),
    )
    replication = REPLICATION
    averages_on_page = True

    def numbers(self, result: RunResult) -> Outcome:
        """Take the numbers of the measured jobs."""
        scene, table = result.scene, result.scene.experiment.measure
        window = scene.window()
        ledger = Ledger(result.tape, scene.jobs, scene.cluster)
        summary = of_ledger(ledger, window)
        allocation = result.end.policy.allocation
        shares = [] if allocation is None else [reached / most for reached, most in allocation.bounds if most]
        row: dict[str, Any] = dict(as_json(summary, result.policy)) | {
            "allocation": "" if allocation is None else describe(allocation),
            "decide_p99_ms": _decide_p99_ms(result.decide_ns),
            "of_bound_mean": fmean(shares) if shares else None,
            "of_bound_min": min(shares, default=None),
            "jobs_per_s": summary.jobs / result.wall_s,
            "skipped": len(scene.skipped),
            "confidence": table.confidence or None,
        }
        row |= _intervals(ledger, window, table.confidence)
        row |= _groups(ledger, window) | _past(ledger, result, window) | _costs(ledger, window, table)
        if scene.cluster.limits or has_terms(scene.jobs, "throttle"):
            row["limits"] = by_limit(ledger, result.tape)
        return Outcome(row, _notes(scene, row, ledger), sample=_sample(ledger, window))

    def stays(self, stored: StoredRun) -> dict[str, float]:
        """Return the time to completion of each job that was completed."""
        sample = _sample(Ledger(stored.tape, stored.scene.jobs, stored.scene.cluster), None)
        return {name: time for name, time in zip(sample.names, sample.jct_s.tolist(), strict=True) if time == time}

    def stopped_line(self, result: RunResult) -> str:
        """Count the jobs that had arrived and ended."""
        kinds = result.tape.column("kind")
        arrived = int((kinds == Kind.ARRIVED).sum())
        ended = int(np.isin(kinds, ENDS).sum())
        return (
            f"{result.policy} stopped at {format_duration(result.reached)}: {arrived:,} of "
            f"{len(result.scene.jobs):,} jobs had arrived, {ended:,} had ended"
        )

    def changes(self, outcome: Outcome, reference: Outcome | None) -> dict[str, Any]:
        """Return how far the mean time to completion is from the baseline's, paired by job or by seed."""
        return (Change() if reference is None else _changed(outcome, reference)).row()

    def together(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return runs side by side; those without a verdict of their own have that of the site's policy among them."""
        judged = spread(rows)
        return [
            {**row, "verdict": judged} if (row.get("verdict") or {}).get("level") == UNJUDGED else row for row in rows
        ]

    def comparison(self, rows: Sequence[Row], width: int | None = None) -> tuple[Table, int]:
        """Return one line a run."""
        return (tables.comparison(rows), 0) if width is None else tables.fitting(rows, width)

    def legend(self, rows: Sequence[Row], table: Table) -> str:
        """Explain the columns that are not plain."""
        return tables.legend(rows, table)

    def check_details(self, by: Sequence[str]) -> None:
        """Refuse a group that there is no table for."""
        tables.check_groups(by)

    def details(self, rows: Sequence[Row], by: Sequence[str] = ()) -> list[Table]:
        """Return a table by tenant, partition, level, limit, …, for each that is asked for and there."""
        spent = [tables.costs(rows)] if any(row.get("costs") for row in rows) else []
        return spent + [each for group in by if tables.has_group(rows, group) for each in tables.grouped(rows, group)]

    def missing_details(self, rows: Sequence[Row], by: Sequence[str]) -> list[str]:
        """Say which groups there are not."""
        lacking = [group for group in by if not tables.has_group(rows, group)]
        return [
            f"--by {each}: no {tables.several(each)} in the results (there are where they are 2 to {MOST_GROUPS})"
            for each in lacking
        ]

    def remarks(self, rows: Sequence[Row]) -> list[str]:
        """Say where a change is not over all that was measured."""
        lines = []
        if (judged := spread(rows)) is not None:
            lines.append(f"verdict: {judged['text']}")
        for row in rows:
            name, over = row.get("variant") or row["policy"], row.get("jct_change_over")
            if over == DIFFERENT_JOBS:
                lines.append(f"{name}: measures other jobs than {row['baseline']}; its change has no interval")
            elif over:
                lines.append(f"{name}: its change against {row['baseline']} is over {over}")
        return lines

    def pivot(self, rows: Sequence[Row], across: str) -> Table | None:
        """Return mean times to completion, a line for each combination of the other keys."""
        return pivot(rows, across)

    def sweep_remarks(self, rows: Sequence[Row]) -> list[str]:
        """Count combinations that are overloaded, …, and say how far to trust them."""
        counts = {
            "are overloaded: their waits grow with the trace": "overload",
            "have a queue that grows all through what is measured": "growing",
            "change over some of the seeds, or between different jobs: jct_change_over in --json": "jct_change_over",
        }
        counted = [(sum(1 for row in rows if row.get(key)), what) for what, key in counts.items()]
        remarks = [f"{count:,} of {len(rows):,} combinations {what}" for count, what in counted if count]
        return [*remarks, *trust.sweep_lines(rows)]

    def picture(self, rows: Sequence[Row]) -> str:
        """Draw mean times to completion as bars."""
        return bars(rows, "Mean time to completion")

    def story(self, stored: StoredRun, subject: str) -> Story | Dated:
        """Tell what happened to one job and, for each stretch of waiting, why."""
        scene: JobsScene = stored.scene
        number = job_number(scene.jobs, subject)
        told = story(
            scene.cluster,
            scene.jobs,
            stored.tape,
            scene.policy_if_trusted(),
            number,
            speed=scene.speed(),
            costs=scene.costs(),
            name=scene.policy_name(),
            now=questions.now(stored) or 0,
        )
        return told if scene.calendar is None else Dated(told, scene.calendar)

    def explain(
        self, stored: StoredRun, subject: str, at: str | None, draws: int | None, early: Early = None
    ) -> Explanation | Dated:
        """Say why a job does not run at a time, which moves would admit it, and when to expect its start."""
        job = job_number(stored.scene.jobs, subject)
        time = questions.moment_of(stored, at, job)
        dates = stored.scene.calendar
        with ExitStack() as bar:
            tell = bar.enter_context(share_bar("explain"))

            def known(explanation: Explanation) -> None:
                nonlocal tell
                if early is not None:
                    bar.close()  # lines are not printed between those of a bar
                    lines = explanation.first_lines()
                    early(lines if dates is None else Dated(explanation, dates).dated(lines))
                    tell = bar.enter_context(share_bar("explain"))

            def resuming(now: int, _state: object) -> None:
                tell(f"taking the run up: {format_duration(now)}", now / time if time else 1.0)

            def drawing(done: int, count: int) -> None:
                tell(f"going on: {done} of {count} continuations", done / count)

            told = questions.explain(stored, job, time, draws, resuming, known, drawing)
        return told if dates is None else Dated(told, dates)

    def whatif(self, stored: StoredRun, at: str, folder: Path | None, changes: Mapping[str, Any]) -> Answer:
        """Continue a run from a moment of it under changes, and say who gains and who loses."""
        with progress_bar(f"from {at} on") as told:
            return questions.ask(stored, at, changes, folder, told)

    def whatif_written(self, kind: str, record: Row) -> str:
        """Return who gains and who loses as a page, or by group as CSV."""
        return whatif_page.build(record) if kind == "report" else whatif_page.sheet(record).write_csv()

    def brief(self, stored: StoredRun) -> list[str]:
        """Return the numbers of a run, the recorded past beside them, and how far to trust it."""
        return brief.lines(stored.result, stored.scene)

    def page(self, runs: Sequence[Shown], baseline: int, title: str, tell: Tell) -> str:
        """Make the page: answer, distributions, causes of waiting, fairness, losses, a map of every GPU."""
        return page.build(compared(runs, baseline), title, tell)

    def figures(self, runs: Sequence[Shown], baseline: int) -> Mapping[str, Callable[[], dict[str, Any]]]:
        """Return distributions of waits and times to completion, use over time, and what was lost."""
        both = compared(runs, baseline)
        return {
            "waits": lambda: figures.distribution(both, [run.wait for run in both.runs], "wait"),
            "jct": lambda: figures.distribution(both, [run.jct for run in both.runs], "time to completion"),
            "time": lambda: figures.over_time(both),
            "lost": lambda: figures.lost(both),
        }

    def trace_events(self, stored: StoredRun, path: Path, tell: Tell) -> Written:
        """Write every GPU over time."""
        return notebook.write_perfetto(_ledger(stored), path, stored.folder.name, lambda share: tell(path.name, share))

    def tables(self, stored: StoredRun) -> Tables:
        """Return jobs, stays, tenants, nodes and the timeline."""
        return notebook.tables(_ledger(stored), stored.tape, stored.scene.calendar)


VIEW = JobsView()


def compared(runs: Sequence[Shown], baseline: int) -> Comparison:
    """Return runs as their page compares them."""
    skipped = [run.stored.result.get("skipped") for run in runs]
    shown = tuple(
        Measured(
            run.label,
            run.shown_folder,
            run.stored,
            left_out if isinstance(left_out, int) else 0,
            run.name,
            run.seeds,
            run.drawn,
        )
        for run, left_out in zip(runs, skipped, strict=True)
    )
    return Comparison(shown, baseline)


def _ledger(stored: StoredRun) -> Ledger:
    return Ledger(stored.tape, stored.scene.jobs, stored.scene.cluster)


def _decide_p99_ms(decide_ns: Sequence[int]) -> float | None:
    """Return what all but the slowest hundredth of the decisions took at most; None where they were not measured."""
    return percentile(np.sort(np.array(decide_ns, dtype=np.int64)), 99) / 10**6 if decide_ns else None


def _notes(scene: JobsScene, row: Row, ledger: Ledger) -> tuple[str, ...]:
    notes = [*scene.notes]
    if row["overload"]:
        notes.append(f"overload: {row['overload']}")
    if row["growing"]:
        notes.append(row["growing"])
    if row["preemptions"] and preemptions_were_free(ledger, scene.costs()):
        notes.append("preemptions cost nothing here: --preemption-cost 60s charges them")
    notes.extend(uncounted(row))
    return tuple(notes)


def _intervals(ledger: Ledger, window: Window | None, level: float) -> dict[str, float | None]:
    """Return confidence intervals of the mean and two percentiles of JCT and of the mean wait; None if unknown."""
    jct = _jct(ledger, window)
    wait = np.where(ledger.completed, ledger.wait / SECOND, np.nan)[_chosen(window)]
    intervals = {
        "jct_mean": mean_interval(jct, level=level) if level else UNKNOWN,
        "jct_p50": quantile_interval(jct, 0.5, level=level) if level else UNKNOWN,
        "jct_p99": quantile_interval(jct, 0.99, level=level) if level else UNKNOWN,
        "wait_mean": mean_interval(wait, level=level) if level else UNKNOWN,
    }
    sure = {name: known(interval) or (None, None) for name, interval in intervals.items()}
    return {f"{name}_{end}_s": sure[name][side] for name in sure for side, end in enumerate(("low", "high"))}


def _chosen(window: Window | None) -> slice:
    return slice(None) if window is None else window.jobs


def _jct(ledger: Ledger, window: Window | None) -> FloatArray:
    """Return the JCTs of measured jobs in submission order; nan for those that did not complete."""
    jct: FloatArray = np.where(ledger.completed, (ledger.end - ledger.submit) / SECOND, np.nan)[_chosen(window)]
    return jct


def _sample(ledger: Ledger, window: Window | None) -> Sample:
    jobs = ledger.jobs[_chosen(window)]
    return Sample(tuple(job.name or str(job.id) for job in jobs), _jct(ledger, window))


def _groups(ledger: Ledger, window: Window | None) -> dict[str, Any]:
    """Return a row a tenant, partition, QOS, user and GPU type, where there are several but not too many to read.

    Of more users those with most GPU time are kept.
    """
    jobs = ledger.jobs[_chosen(window)]
    table: Any = None
    found: dict[str, Any] = {}
    for group, key in GROUPS.items():
        members = len({gpu_type_of(job) if group == "gpu_type" else getattr(job, group) for job in jobs})
        if members < 2 or (members > MOST_GROUPS and group != "user"):
            continue
        if table is None:
            table = job_table(ledger)
            if window is not None:
                table = table.filter((table["id"] >= window.first) & (table["id"] < window.last))
        rows = by_group(ledger, group, table)
        found[key] = rows.top_k(MOST_GROUPS, by="gpu_hours").sort(group).to_dicts()
    return found


def _costs(ledger: Ledger, window: Window | None, table: JobsMeasureTable) -> dict[str, Any]:
    """Return what the GPUs that were held cost, where prices or watts are given."""
    price, watts = (rates(getattr(table, key), f"--{key}", ledger.cluster) for key in ("price", "watts"))
    return costs(ledger, window, price, watts)


def _past(ledger: Ledger, result: RunResult, window: Window | None) -> dict[str, Any]:
    """Return what the log says beside the numbers: dates, the recorded past, how far to trust it, and caveats."""
    scene: JobsScene = result.scene
    past, found = scene.past, dict[str, Any]()
    if (dates := past.calendar) is not None:
        found |= {"begins": dates.iso(0), "ends": dates.iso(ledger.horizon), "time_zone": dates.about()}
    if past.has_starts:
        told = past.ran, past.requeued, past.eligible
        found["recorded"] = recorded_past(scene.jobs, past.waits, scene.cluster.gpus, window, *told)
    if past.source == SLURM:
        found |= {"verdict": judgement(ledger, scene, result.policy).record(), "caveats": past.caveats}
    return found


def _changed(outcome: Outcome, reference: Outcome) -> Change:
    row, other = outcome.row, reference.row
    level = row["confidence"] or 0.0
    if "runs" not in row and "runs" not in other and (not outcome.drawn or row["seed"] == other["seed"]):
        mine, base = outcome.sample, reference.sample
        if isinstance(mine, Sample) and isinstance(base, Sample):
            return changed(mine, base, level)
        if isinstance(mine, Batches) and isinstance(base, Batches):
            return changed_batches(mine, base, change(row["jct_mean_s"], other["jct_mean_s"]), level)
    return changed_over_seeds(row, other, level, (outcome.drawn, reference.drawn))
