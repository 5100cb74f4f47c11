"""The commands: flags become the tables of an experiment, results become a table or JSON."""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from headway import experiment
from headway.cli import STOPPED, console
from headway.cli.app import app
from headway.cli.flags import (
    BackfillFlag,
    ByFlag,
    ClusterFlag,
    CpusFlag,
    EstimatesFlag,
    FailuresFlag,
    FormatFlag,
    GpusFlag,
    JsonFlag,
    LoadFlag,
    MapFlag,
    MemoryFlag,
    MigrationCostFlag,
    MigrationFlag,
    NodesFlag,
    OutFlag,
    PictureFlag,
    PlacementFlag,
    PoliciesFlag,
    PolicyFlag,
    PreemptionCostFlag,
    PreemptionFlag,
    ProcessesFlag,
    QuantumFlag,
    RunArgument,
    SeedFlag,
    SetFlag,
    SkipFlag,
    StrictFlag,
    TraceFlag,
    document_of,
    split_policies,
)
from headway.cli.runs import MOST_GROUPS, Outcome, apart, play, under_each
from headway.errors import ExperimentError, TapeError
from headway.formats import toml
from headway.formats.plugins import resolve
from headway.report import tables
from headway.report.bars import bars
from headway.report.story import story as tell
from headway.training.audit import audit as audit_tape
from headway.training.job import Job
from headway.training.replay import first_difference
from headway.training.replay import replay as replay_tape

DEMO_NODES = 128
DEMO_LOAD = 1.15
DEMO_COST = "60s"
DEMO_POLICIES = (
    *("fifo", "fifo+fit", "fifo+easy", "sjf", "srtf", "las", "tiresias", "ftf", "drf", "multifactor+easy", "qssf"),
)


@app.command()
def simulate(
    trace: TraceFlag = None,
    format: FormatFlag = None,
    columns: MapFlag = None,
    cluster: ClusterFlag = None,
    nodes: NodesFlag = None,
    gpus_per_node: GpusFlag = None,
    policy: PolicyFlag = "fifo",
    backfill: BackfillFlag = None,
    placement: PlacementFlag = None,
    preemption: PreemptionFlag = None,
    preemption_cost: PreemptionCostFlag = None,
    migration: MigrationFlag = None,
    migration_cost: MigrationCostFlag = None,
    estimates: EstimatesFlag = None,
    quantum: QuantumFlag = None,
    failures: FailuresFlag = None,
    cpus_per_node: CpusFlag = None,
    memory_per_node: MemoryFlag = None,
    load: LoadFlag = None,
    skip_infeasible: SkipFlag = None,
    strict: StrictFlag = None,
    seed: SeedFlag = None,
    out: OutFlag = None,
    as_json: JsonFlag = False,
    by: ByFlag = None,
    overrides: SetFlag = None,
) -> None:
    """Run one policy over a trace.

    headway simulate --trace jobs.csv --format headway --nodes 16 --gpus-per-node 8 --policy fifo --backfill easy

    headway simulate --trace venus.csv.gz --format helios-csv --nodes 80 --gpus-per-node 8 --policy srtf --out runs/srtf
    """
    document = document_of(locals(), overrides)
    _finish(play(list(experiment.variants(document, "flags"))), as_json, by, single=True)


@app.command()
def compare(
    policies: PoliciesFlag,
    trace: TraceFlag = None,
    format: FormatFlag = None,
    columns: MapFlag = None,
    cluster: ClusterFlag = None,
    nodes: NodesFlag = None,
    gpus_per_node: GpusFlag = None,
    backfill: BackfillFlag = None,
    placement: PlacementFlag = None,
    preemption: PreemptionFlag = None,
    preemption_cost: PreemptionCostFlag = None,
    migration: MigrationFlag = None,
    migration_cost: MigrationCostFlag = None,
    estimates: EstimatesFlag = None,
    quantum: QuantumFlag = None,
    failures: FailuresFlag = None,
    cpus_per_node: CpusFlag = None,
    memory_per_node: MemoryFlag = None,
    load: LoadFlag = None,
    skip_infeasible: SkipFlag = None,
    strict: StrictFlag = None,
    seed: SeedFlag = None,
    out: OutFlag = None,
    as_json: JsonFlag = False,
    by: ByFlag = None,
    picture: PictureFlag = None,
    overrides: SetFlag = None,
    processes: ProcessesFlag = 1,
) -> None:
    """Run several policies over the same trace, side by side.

    headway compare --trace jobs.csv --format headway --nodes 16 --gpus-per-node 8 --policies fifo,sjf,srtf,las

    headway compare --trace jobs.csv --nodes 16 --gpus-per-node 8 --policies "fifo+easy,tiresias(thresholds=1h/10h)"
    """
    document = document_of(locals(), overrides)
    document.setdefault("policy", {}).pop("name", None)
    _finish(play(under_each(document, split_policies(policies)), processes), as_json, by, picture, out)


@app.command()
def run(
    path: Annotated[str, typer.Argument(help="An experiment as TOML.", metavar="EXPERIMENT.toml")],
    out: OutFlag = None,
    as_json: JsonFlag = False,
    by: ByFlag = None,
    picture: PictureFlag = None,
    overrides: SetFlag = None,
    processes: ProcessesFlag = 1,
) -> None:
    """Run an experiment from a TOML file; with variants, a run for each.

    headway run experiments/example.toml --set policy.name=srtf --set cluster.nodes=20
    """
    given = [*(overrides or ()), *([f"run.out={json.dumps(out)}"] if out is not None else ())]
    experiments = experiment.same_jobs(experiment.read(path, given))
    _finish(play(apart(experiments), processes), as_json, by, picture, out, single=len(experiments) == 1)


@app.command()
def demo(
    jobs: Annotated[int, typer.Option(help="Jobs to draw.", min=1, max=1_000_000)] = 20_000,
    seed: SeedFlag = 0,
    as_json: JsonFlag = False,
    picture: PictureFlag = None,
    processes: ProcessesFlag = 1,
) -> None:
    """Compare policies on a drawn workload: 1,024 GPUs, no files needed.

    headway demo

    headway demo --jobs 50000 --seed 7
    """
    document: toml.Document = {
        "trace": {"synthetic": {"jobs": jobs, "load": DEMO_LOAD}},
        "cluster": {"nodes": DEMO_NODES, "gpus_per_node": 8},
        "costs": {"preemption": DEMO_COST, "migration": DEMO_COST},
        "run": {"seed": seed or 0},
    }
    console.note(
        f"{jobs:,} jobs like those of the Philly cluster, on {DEMO_NODES} nodes with 8 GPUs each, 60 s a preemption"
    )
    _finish(play(under_each(document, DEMO_POLICIES), processes), as_json, picture=picture)


@app.command()
def policies(as_json: JsonFlag = False) -> None:
    """List every part that a policy can be made of.

    headway policies

    Parts are joined by +, options stand in brackets: headway simulate … --policy "tiresias(thresholds=1h/10h)+easy+fgd"
    """
    resolve("")
    console.print_json(tables.parts()) if as_json else console.out().print(tables.parts_table())


@app.command()
def story(
    folder: RunArgument,
    job: Annotated[str, typer.Argument(help="A job, by its id in the trace or its number.", metavar="JOB")],
    as_json: JsonFlag = False,
) -> None:
    """Tell what happened to one job and, for each stretch of waiting, why.

    headway story runs/srtf 17
    """
    stored = _stored(folder)
    scene = stored.scene
    told = tell(
        scene.cluster,
        scene.jobs,
        stored.tape,
        scene.policy(),
        _job(scene.jobs, job),
        speed=scene.speed(),
        costs=scene.costs(),
    )
    if as_json:
        console.print_json(told.record())
    else:
        console.out().print("\n".join(told.lines()), markup=False, highlight=False, soft_wrap=True)


@app.command()
def replay(folder: RunArgument) -> None:
    """Ask the policy again, event by event, and say whether it decides the same.

    headway replay runs/srtf
    """
    stored = _stored(folder, "what is there was checked")
    scene = stored.scene
    again = replay_tape(
        scene.cluster, scene.jobs, stored.tape, scene.policy(), speed=scene.speed(), costs=scene.costs()
    )
    if (difference := first_difference(stored.tape, again)) is not None:
        console.note(f"different: {difference}")
        raise typer.Exit(1)
    console.out().print(f"identical: {len(again):,} rows, digest {again.digest}", highlight=False, soft_wrap=True)


@app.command()
def audit(folder: RunArgument) -> None:
    """Check a tape against every rule: nothing overbooked, all work delivered, quotas kept.

    headway audit runs/srtf
    """
    stored = _stored(folder, "what is there was checked")
    scene = stored.scene
    findings = audit_tape(
        scene.cluster,
        scene.jobs,
        stored.tape,
        policy=scene.policy(),
        speed=scene.speed(),
        costs=scene.costs(),
        complete=stored.complete,
    )
    for finding in findings[:20]:
        console.note(str(finding))
    if findings:
        console.note(f"{len(findings):,} findings in {len(stored.tape):,} rows")
        raise typer.Exit(1)
    console.out().print(
        f"nothing found in {len(stored.tape):,} rows, digest {stored.tape.digest}", highlight=False, soft_wrap=True
    )


def _finish(
    outcomes: Iterator[Outcome],
    as_json: bool,
    by: Sequence[str] | None = None,
    picture: str | None = None,
    out: str | None = None,
    *,
    single: bool = False,
) -> None:
    """Print what came out; a run that was stopped ends the program with 130."""
    tables.check_groups(by or ())
    if picture is not None:
        _check_picture(Path(picture), out)
    rows: list[dict[str, Any]] = []
    notes: dict[str, list[str]] = {}
    stopped = ""
    for outcome in outcomes:
        if outcome.stopped:
            stopped = outcome.stopped
            break
        rows.append(outcome.row)
        for note in outcome.notes:
            notes.setdefault(note, []).append(str(outcome.row.get("variant") or outcome.row["policy"]))
    if as_json and (rows or not single):
        console.print_json(rows[0] if single else rows)
    elif rows:
        _show(rows, by or ())
    if picture is not None and rows:
        _draw(rows, picture)
    for line in _told_once(notes, len(rows)):
        console.note(f"note: {line}")
    if stopped:
        console.note(stopped)
        sys.exit(STOPPED)


def _show(rows: Sequence[Mapping[str, Any]], groups: Sequence[str]) -> None:
    """The tables: all of them where they are piped, what a terminal has room for else."""
    table, left_out = tables.fitting(rows, console.out().width) if sys.stdout.isatty() else (tables.comparison(rows), 0)
    console.out(tables.width_of(table)).print(table)
    if left_out:
        columns = "1 column does" if left_out == 1 else f"{left_out} columns do"
        console.note(f"note: {columns} not fit: a wider terminal or --json shows {'it' if left_out == 1 else 'them'}")
    for group in groups:
        if tables.has_group(rows, group):
            console.out().print("", tables.grouped(rows, group))
        else:
            console.note(
                f"note: --by {group}: no {group}s in the results (there are where they are 2 to {MOST_GROUPS})"
            )


def _check_picture(picture: Path, out: str | None) -> None:
    """Refuse a picture that could not be written, before anything runs; the folder of the runs is yet to be made."""
    if picture.suffix.lower() != ".svg":
        raise ExperimentError(f"--picture {picture}: the name must end in .svg")
    folder = picture.parent
    if out is not None and folder.resolve() == Path(out).resolve():
        return
    if not folder.is_dir():
        raise ExperimentError(f"--picture {picture}: there is no folder {folder}")
    if picture.is_dir() or not os.access(picture if picture.exists() else folder, os.W_OK):
        raise ExperimentError(f"--picture {picture}: cannot be written")


def _draw(rows: Sequence[Mapping[str, Any]], picture: str) -> None:
    try:
        Path(picture).write_text(bars(rows, "Mean time to completion"), encoding="utf-8")
    except OSError as problem:
        raise ExperimentError(f"--picture {picture}: cannot be written ({problem.strerror or problem})") from None
    console.note(f"picture: {picture}")


def _told_once(notes: Mapping[str, Sequence[str]], runs: int) -> Iterator[str]:
    """Notes with the runs that they are about; what only differs after its semicolon is told once."""
    alike: dict[str, list[str]] = {}
    for note in notes:
        alike.setdefault(note.partition(";")[0], []).append(note)
    for head, same in alike.items():
        names = [name for note in same for name in notes[note]]
        whose = "" if len(names) == runs else f"{', '.join(names)}: "
        yield f"{whose}{same[0] if len(same) == 1 else head}"


def _stored(folder: str, checked: str = "") -> experiment.StoredRun:
    """A run of which there is something to look at; one that was cut short is checked as far as it goes."""
    stored = experiment.open_run(folder)
    if not len(stored.tape):
        raise TapeError(f"run folder {folder}: the tape holds no step yet")
    if checked and not stored.complete:
        console.note(f"note: the run was cut short after {len(stored.tape):,} rows; {checked}")
    return stored


def _job(jobs: Sequence[Job], wanted: str) -> int:
    """The number of a job that was named by its id in the trace, or by its number."""
    for job in jobs:
        if job.name == wanted:
            return job.id
    if wanted.isdecimal() and int(wanted) < len(jobs):
        return int(wanted)
    names = [job.name or str(job.id) for job in (jobs[0], jobs[-1])]
    raise TapeError(f"job {wanted!r} is not in this run: its {len(jobs):,} jobs go from {names[0]} to {names[1]}")
