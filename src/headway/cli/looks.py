"""The commands that look at one run: the story of a job or request, the audit, the replay."""

from typing import Annotated

import typer

from headway.cli import console, serving
from headway.cli.app import app
from headway.cli.flags import JsonFlag, RunArgument, TrustFlag
from headway.cli.stored import job_number as _job
from headway.cli.stored import stored as _stored
from headway.experiment import is_serving
from headway.formats.plugins import TRUST
from headway.report.story import story as tell
from headway.training.audit import audit as audit_tape
from headway.training.replay import first_difference
from headway.training.replay import replay as replay_tape


@app.command()
def story(
    folder: RunArgument,
    job: Annotated[
        str,
        typer.Argument(help="A job, by its id in the trace or its number; a request, by its number.", metavar="JOB"),
    ],
    trust: TrustFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Tell what happened to one job, or one request, and for each stretch of waiting why.

    headway story runs/srtf 17
    """
    if is_serving(folder):
        serving.story(folder, job, as_json, trust)
        return
    stored = _stored(folder, trust=trust)
    scene = stored.scene
    policy = scene.policy_if_trusted()
    told = tell(
        scene.cluster,
        scene.jobs,
        stored.tape,
        policy,
        _job(scene.jobs, job),
        speed=scene.speed(),
        costs=scene.costs(),
        name=scene.policy_name(),
    )
    if policy is None:
        console.note(_without("why it waited is left out"))
    if as_json:
        console.print_json(told.record())
    else:
        console.say(*told.lines())


@app.command()
def replay(folder: RunArgument, trust: TrustFlag = False) -> None:
    """Ask the policy again, event by event, and say whether it decides the same.

    headway replay runs/srtf
    """
    if is_serving(folder):
        serving.replay(folder, trust)
        return
    stored = _stored(folder, "what is there was checked", trust=trust)
    scene = stored.scene
    again = replay_tape(
        scene.cluster,
        scene.jobs,
        stored.tape,
        scene.policy(),
        speed=scene.speed(),
        costs=scene.costs(),
        complete=stored.complete,
    )
    if (difference := first_difference(stored.tape, again)) is not None:
        console.note(f"different: {difference}")
        raise typer.Exit(1)
    console.say(f"identical: {len(again):,} rows, digest {again.digest}")


@app.command()
def audit(folder: RunArgument, trust: TrustFlag = False) -> None:
    """Check a tape against every rule: nothing overbooked, all work delivered, quotas kept.

    headway audit runs/srtf
    """
    if is_serving(folder):
        serving.audit(folder, trust)
        return
    stored = _stored(folder, "what is there was checked", trust=trust)
    scene = stored.scene
    policy = scene.policy_if_trusted()
    findings = audit_tape(
        scene.cluster,
        scene.jobs,
        stored.tape,
        policy=policy,
        speed=scene.speed(),
        costs=scene.costs(),
        completions=scene.completions(),
        complete=stored.complete,
    )
    if policy is None:
        console.note(_without("what only it could prove, guarantees of tenants and shares, was not checked"))
    for finding in findings[:20]:
        console.note(str(finding))
    if findings:
        console.note(f"{len(findings):,} findings in {len(stored.tape):,} rows")
        raise typer.Exit(1)
    console.say(f"nothing found in {len(stored.tape):,} rows, digest {stored.tape.digest}")


def _without(what: str) -> str:
    """The note on what is not done because a policy's own file is not run."""
    return f"note: the policy is a Python file that the run folder names and was not run: {what} ({TRUST} runs it)"
