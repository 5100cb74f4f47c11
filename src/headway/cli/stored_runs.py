"""Define the commands about stored runs: report, story, distance, explain, whatif, export, audit and replay."""

import sys
import webbrowser
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from headway.cli import console
from headway.cli.answers import show_answer
from headway.cli.app import app
from headway.cli.flags import ForceFlag, JsonFlag, RunArgument, TrustFlag
from headway.cli.options import Given, argument, command, option
from headway.cli.results import write_page
from headway.errors import ExperimentError
from headway.files import write_whole
from headway.runs.folder.exports import check_sheet
from headway.runs.folder.pages import check_target, folders
from headway.runs.folder.stored import stored as opened
from headway.runs.registry import domain_of
from headway.runs.result import Run
from headway.units import format_size


@app.command()
def report(
    runs: Annotated[
        list[str], typer.Argument(help="Folders of runs (--out), or a folder that holds several.", metavar="RUN…")
    ],
    out: Annotated[str, typer.Option("--out", "-o", help="The file to write.", metavar="FILE.html")] = "report.html",
    baseline: Annotated[
        str | None, typer.Option(help="The run that others are measured against; the first if left out.")
    ] = None,
    title: Annotated[str, typer.Option(help="A line above the headline.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is not a report.")] = False,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    trust: TrustFlag = False,
) -> None:
    """Show one run, or several side by side, on a page of its own: figures, tables and a map of the cluster.

    headway report runs/srtf -o srtf.html

    headway report runs/fifo runs/srtf runs/las -o comparison.html --baseline fifo --open
    """
    target = Path(out)
    check_target(target, force)
    write_page(folders(runs, console.note), target, baseline=baseline, title=title, trust=trust)
    if open_it:
        webbrowser.open(target.resolve().as_uri())


@app.command()
def story(
    folder: RunArgument,
    job: Annotated[
        str | None,
        typer.Argument(
            help="A job, by its id in the trace or its number; a request, by its number; a program, by its name.",
            metavar="JOB",
        ),
    ] = None,
    whole: Annotated[bool, typer.Option("--all", help="Every stretch of a long wait.")] = False,
    trust: TrustFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Tell what happened to one job, request or program, and what it waited for.

    headway story runs/srtf 17
    """
    stored = opened(folder, "what is there is told", trust=trust, note=console.note)
    if job is None:
        what = domain_of(stored.scene.experiment).subject
        known = f" ({stored.scene.subjects()})" if stored.scene.subjects() else ""
        raise ExperimentError(f"story of which {what}? Write headway story {folder} {what.upper()}{known}")
    told = Run(stored).story(job, whole=whole)
    for line in stored.scene.omissions("story"):
        console.note(line)
    show_answer(told, as_json)


@app.command()
def distance(
    folder: RunArgument,
    other: Annotated[
        str | None,
        typer.Argument(help="Another run of the same workload. Left out: the simulation of a live run.", metavar="RUN"),
    ] = None,
    trust: TrustFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Say how far one run is from another of the same workload, or a live run from its simulation.

    headway distance runs/live

    headway distance runs/live runs/simulated
    """
    first, second = (
        None if each is None else Run(opened(each, "what is there is compared", trust=trust, note=console.note))
        for each in (folder, other)
    )
    assert first is not None
    show_answer(first.distance(second), as_json)


@app.command()
def explain(
    folder: RunArgument,
    job: Annotated[
        str | None,
        typer.Argument(
            help="A job, by its id in the trace or its number; a request, by its number. Without: all late requests.",
            metavar="JOB",
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            help="When, since the run began: 36h, 2d 3h, end. Left out: the middle of its first wait.", metavar="TIME"
        ),
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(
            help="Continuations for the expected start; if left out, 40, or 30 of large runs.", min=5, max=1000
        ),
    ] = None,
    trust: TrustFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Say why a job does not run at a time and when to expect its start, or why a request of a fleet was late.

    headway explain runs/srtf 17 --at "2d 3h"

    headway explain runs/compass 17
    """
    run = Run(opened(folder, "what is there is explained", trust=trust, note=console.note))
    said: list[str] = []

    def early(lines: Sequence[str]) -> None:
        said.extend(lines)
        console.say(*lines)
        sys.stdout.flush()

    answer = run.explain(job, at, draws, early=None if as_json else early)
    answer.shown = answer.shown[len(said) :]
    show_answer(answer, as_json)


_changed = partial(option, panel="Changes")
_KEYED = "NAME.KEY=VALUE"


@command(
    app,
    "whatif",
    [
        argument("folder", str, "The folder of a run (--out).", "RUN"),
        option("at", str, "Of jobs, from when on: 2d, 36h, 50% of the run, end.", default="", metavar="TIME"),
        _changed(
            "add_nodes",
            list[str] | None,
            "10 of the usual kind, 4xh100:8 of a type with 8 GPUs, 4@debug in a partition.",
        ),
        _changed("remove_nodes", str | None, "n3,n7 or how many, the last first.", metavar="NODES|COUNT"),
        _changed("policy", str | None, "Another policy, in full; it starts fresh."),
        _changed("quota", list[str] | None, "GPUs guaranteed to a tenant, or none.", metavar="TENANT=GPUS"),
        _changed(
            "limit", list[str] | None, "The most of a tenant's GPUs, or of a limit; or none.", metavar="NAME=VALUE"
        ),
        _changed("qos", list[str] | None, "A limit or key of a Slurm QOS: long.MaxTRESPU=gres/gpu=32.", metavar=_KEYED),
        _changed("partition", list[str] | None, "A key of a Slurm partition: debug.PriorityTier=2.", metavar=_KEYED),
        _changed("preempt", list[str] | None, "How a QOS is preempted: scavenger=off.", metavar="NAME=HOW"),
        _changed("shares", list[str] | None, "Shares of an account: bio=40.", metavar="ACCOUNT=SHARES"),
        _changed("gpu_speed", list[str] | None, "Speed of a type against the reference.", metavar="TYPE=SPEED"),
        _changed("upgrade", list[str] | None, "Replace GPUs of one type by another.", metavar="OLD=NEW"),
        _changed("failures", str | None, "mtbf=30d,repair=4h for one node, or off.", metavar="MEANS|off"),
        _changed("load", str | None, "Let jobs or requests arrive so many times as fast from there on."),
        _changed("add_workers", str | None, "Of a fleet: so many more.", metavar="COUNT"),
        _changed("remove_workers", str | None, "Of a fleet: so many fewer, the last first.", metavar="COUNT"),
        _changed("memory", str | None, "Of a fleet: GPU memory as a factor of the scenario's, 0.5.", metavar="FACTOR"),
        _changed("slo", str | None, "Of a fleet: deadlines, 500ms or 3x.", metavar="TIME|FACTORx"),
        _changed("start", str | None, "Of a fleet: cold or warm."),
        _changed("set", list[str] | None, "Keys of policy, failures, costs or serving.", metavar="KEY=VALUE"),
        option("skip_infeasible", bool | None, "Drop and count jobs that could never run.", "--skip-infeasible"),
        option("out", str | None, "New folder for what came out.", metavar="FOLDER"),
        option("report", str | None, "Of jobs: a page of who gains and who loses.", metavar="FILE.html"),
        option("csv", str | None, "Of jobs: the same by group, as a table.", metavar="FILE.csv"),
        option(
            "trust", bool, "Run the Python file that the run folder names, if it names one.", "--trust", default=False
        ),
        option("as_json", bool, "Print JSON, times in seconds.", "--json", default=False),
    ],
    "Continue a run of jobs from a moment of it under changes, or play a run of a fleet again, and say who gains.\n\n"
    "headway whatif runs/srtf --at 50% --policy srtf+easy --failures mtbf=30d,repair=4h --json\n\n"
    "headway whatif runs/compass --add-workers 1",
)
def whatif(given: Given) -> None:
    """Continue a run under changes."""
    folder = None if given["out"] is None else Path(given["out"])
    if folder is not None and not given["out"].strip():
        raise ExperimentError("--out is empty: give it a value, or leave it out")
    own = ("folder", "at", "out", "report", "csv", "trust", "as_json")
    changes = {name: given[name] for name in given if name not in own}
    if given["report"] is not None:
        check_target(Path(given["report"]), False, "--report", () if folder is None else (folder,))
    if given["csv"] is not None:
        check_sheet(given["csv"])
    run = opened(given["folder"], trust=given["trust"])
    view = domain_of(run.scene.experiment).view
    answer = view.whatif(run, given["at"], folder, changes)
    if not answer.stopped:
        for flag in ("report", "csv"):
            if (text := given[flag]) is not None:
                written = view.whatif_written(flag, answer.record())
                write_whole(Path(text), written, ExperimentError, f"--{flag} {text}")
                answer.notes.append(f"{flag}: {text}")
    show_answer(answer, given["as_json"])


@app.command()
def summary(folder: RunArgument, trust: TrustFlag = False) -> None:
    """Say what a run came to in fifteen lines, to paste into a mail.

    headway summary runs/srtf
    """
    stored = opened(folder, "what is there is told", trust=trust, note=console.note)
    console.say(*domain_of(stored.scene.experiment).view.brief(stored))


@app.command()
def export(
    folder: RunArgument,
    perfetto: Annotated[
        str | None, typer.Option(help="A trace for ui.perfetto.dev or chrome://tracing.", metavar="FILE.json[.gz]")
    ] = None,
    parquet: Annotated[str | None, typer.Option(help="Tables for notebooks, as Parquet.", metavar="FOLDER")] = None,
    csv: Annotated[str | None, typer.Option(help="The same tables, as CSV.", metavar="FOLDER")] = None,
    force: ForceFlag = False,
    trust: TrustFlag = False,
) -> None:
    """Write a run as files for other programs: a trace to look at, tables to compute with.

    headway export runs/srtf --perfetto srtf.json.gz

    headway export runs/srtf --parquet tables --csv sheets
    """
    stored_run = opened(folder, "what is there is exported", trust=trust, note=console.note)
    for file in Run(stored_run).export(perfetto=perfetto, parquet=parquet, csv=csv, force=force):
        what = "events" if file.path.suffix in (".json", ".gz") else "rows"
        console.say(f"{file.path}: {file.rows:,} {what}, {format_size(file.size_bytes)}")


@app.command()
def replay(folder: RunArgument, trust: TrustFlag = False) -> None:
    """Ask the policy again, event by event, and say whether it decides the same.

    headway replay runs/srtf
    """
    stored = opened(folder, "what is there was checked", trust=trust, note=console.note)
    if (difference := Run(stored).replay()) is not None:
        console.note(f"different: {difference}")
        raise typer.Exit(1)
    console.say(f"identical: {len(stored.tape):,} rows, digest {stored.tape.digest}")


@app.command()
def audit(folder: RunArgument, trust: TrustFlag = False) -> None:
    """Check a tape against every rule: nothing overbooked, all work delivered, quotas kept.

    headway audit runs/srtf
    """
    stored = opened(folder, "what is there was checked", trust=trust, note=console.note)
    findings = Run(stored).audit()
    for line in stored.scene.omissions("audit"):
        console.note(line)
    for finding in findings[:20]:
        console.note(str(finding))
    if findings:
        console.note(f"{len(findings):,} findings in {len(stored.tape):,} rows")
        raise typer.Exit(1)
    console.say(f"sound: {len(stored.tape):,} rows checked, nothing wrong; digest {stored.tape.digest}")
