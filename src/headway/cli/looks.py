"""The commands that look at one run: the story of a job or request, the audit, the replay."""

from typing import Annotated

import typer

from headway.cli import console
from headway.cli.app import app
from headway.cli.flags import JsonFlag, RunArgument, TrustFlag
from headway.cli.results import show_answer
from headway.errors import ExperimentError
from headway.experiment.registry import domain_of
from headway.experiment.result import Run
from headway.experiment.stored import stored as opened


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
    told = Run(stored).story(job)
    for line in stored.scene.untold("story"):
        console.note(line)
    show_answer(told, as_json)


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
    for line in stored.scene.untold("audit"):
        console.note(line)
    for finding in findings[:20]:
        console.note(str(finding))
    if findings:
        console.note(f"{len(findings):,} findings in {len(stored.tape):,} rows")
        raise typer.Exit(1)
    console.say(f"sound: {len(stored.tape):,} rows checked, nothing wrong; digest {stored.tape.digest}")
