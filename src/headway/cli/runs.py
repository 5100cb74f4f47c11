"""Running one or several experiments from the command line: folders, processes, progress, and what each came to."""

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from headway import experiment
from headway.cli.blame import blamed
from headway.cli.console import err
from headway.core.tape import FINAL_NAME
from headway.errors import ExperimentError
from headway.formats import toml
from headway.formats.settings import Experiment
from headway.metrics.training.jobs import job_table
from headway.metrics.training.ledger import Ledger
from headway.metrics.training.summary import as_json, of_ledger
from headway.metrics.training.tenants import by_partition, by_tenant
from headway.training.rows import Kind
from headway.units import format_duration

FIRST_KEYS = (
    *("policy", "jobs", "finished", "jct_mean_s", "jct_p50_s", "jct_p99_s", "wait_mean_s", "makespan_s"),
    *("gpu_utilisation", "fragmentation_mean", "preemptions", "migrations", "lost_gpu_hours", "events"),
    *("wall_s", "jobs_per_s", "peak_rss_bytes"),
)
"""What every reader of results relies on, in this order; more follows."""
MOST_GROUPS = 100
"""Up to so many tenants or partitions have a row of their own in the results."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to: its numbers, and what to say about it."""

    row: dict[str, Any]
    notes: tuple[str, ...]
    stopped: str = ""
    """How far it got, where it was stopped before its end."""


def measure(each: Experiment, label: str = "", progress: experiment.Progress | None = None) -> Outcome:
    """Run an experiment and take its numbers; with a folder they are stored there too."""
    try:
        return _measured(each, label, progress)
    except Exception as problem:
        if (line := blamed(problem)) is None:
            raise
        raise ExperimentError(line) from problem  # here: no traceback comes back from another process


def _measured(each: Experiment, label: str, progress: experiment.Progress | None) -> Outcome:
    result = experiment.run(each, progress)
    ledger = Ledger(result.tape, result.scene.jobs, result.scene.cluster)
    summary = of_ledger(ledger)
    flat: dict[str, Any] = dict(as_json(summary, result.policy))
    flat |= {
        "wall_s": result.wall_s,
        "jobs_per_s": summary.jobs / result.wall_s,
        "peak_rss_bytes": result.peak_rss_bytes,
        "skipped": len(result.scene.skipped),
        "digest": result.tape.digest,
        "stopped": result.stopped,
    }
    if label:
        flat["variant"] = label
    flat |= _groups(ledger)
    row = {key: flat[key] for key in FIRST_KEYS} | flat
    if result.folder is not None:
        experiment.store_result(result.folder, row)
    notes = [*result.notes]
    if summary.overload:
        notes.append(f"overload: {summary.overload}")
    if summary.preemptions and not summary.lost_gpu_hours:
        notes.append("preemptions cost nothing here: --preemption-cost 60s charges them")
    return Outcome(row, tuple(notes), _how_far(result) if result.stopped else "")


def _groups(ledger: Ledger) -> dict[str, Any]:
    """A row a tenant and a partition, where there are several but not so many that nobody would read them."""
    several = range(2, MOST_GROUPS + 1)
    jobs = ledger.jobs
    groups = {"tenants": {job.tenant for job in jobs}, "partitions": {job.partition for job in jobs}}
    makers = {"tenants": by_tenant, "partitions": by_partition}
    wanted = [key for key, names in groups.items() if len(names) in several]
    table = job_table(ledger) if wanted else None
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


def under_each(document: toml.Document, specs: Sequence[str]) -> list[tuple[str, Experiment]]:
    """The same experiment under each policy, each with its own folder."""
    experiments = []
    for spec in specs:
        toml.put(document, "policy.name", spec)
        experiments.append(("", toml.typed(document, Experiment, "flags")))
    return apart(experiments, [e.policy.name for _, e in experiments])


def apart(experiments: list[tuple[str, Experiment]], names: Sequence[str] = ()) -> list[tuple[str, Experiment]]:
    """Runs that would share a folder get one each below it."""
    out = experiments[0][1].run.out
    if len(experiments) == 1 or not out:
        return experiments
    experiment.check_folder(Path(out))
    apart = []
    taken: set[str] = set()
    for index, (label, each) in enumerate(experiments):
        name = re.sub(r"[^\w.+=-]+", "_", label or names[index]).strip("._") or "run"
        name = name if name not in taken else f"{name}-{index + 1}"
        taken.add(name)
        folder = str(Path(out) / name)
        apart.append((label, msgspec.structs.replace(each, run=msgspec.structs.replace(each.run, out=folder))))
    return apart


def play(experiments: Sequence[tuple[str, Experiment]], processes: int = 1) -> Iterator[Outcome]:
    """The outcome of each experiment, as it ends."""
    if processes > 1 and len(experiments) > 1:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            yield from pool.map(measure, [each for _, each in experiments], [label for label, _ in experiments])
        return
    for label, each in experiments:
        with _progress(label or each.policy.name) as told:
            outcome = measure(each, label, told)
        yield outcome


@contextmanager
def _progress(name: str) -> Iterator[experiment.Progress | None]:
    """A bar on stderr: how far the trace is, and how many jobs have arrived and ended. None where nobody looks."""
    if not err().is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[at]}"), TimeElapsedColumn())
    with Progress(*columns, console=err(), transient=True) as bar:
        task = bar.add_task(name, total=1.0, at="")

        def told(now: int, last: int, waiting: int, running: int) -> None:
            at = f"{format_duration(now)} of {format_duration(last)} · {waiting:,} waiting, {running:,} running"
            bar.update(task, completed=min(1.0, now / last if last else 1.0), at=at)

        yield told
