"""``headway whatif``: a stored run continued from a moment of it under changes."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.cli import STOPPED, console
from headway.cli.app import app
from headway.cli.flags import JsonFlag, RunArgument, SkipFlag, TrustFlag
from headway.errors import ExperimentError
from headway.experiment.domain import StoredRun
from headway.experiment.jobs import asking
from headway.experiment.jobs.scene import JobsScene
from headway.experiment.jobs.whatif import WhatIf
from headway.experiment.registry import domain_of
from headway.experiment.stored import stored
from headway.report.differences import tables, widest
from headway.report.progress import progress_bar
from headway.units import counted, format_duration

_MOST_NAMED = 6
_option = partial(typer.Option, rich_help_panel="Changes")
AtFlag = Annotated[str, typer.Option("--at", help="From when on: 2d, 36h, 50% of the run, end.", metavar="TIME")]
AddFlag = Annotated[
    list[str] | None,
    _option("--add-nodes", help="10 of the usual kind, 4xh100:8 of a type with 8 GPUs, 4@debug in a partition."),
]
RemoveFlag = Annotated[
    str | None, _option("--remove-nodes", help="n3,n7 or how many, the last first.", metavar="NODES|COUNT")
]
OtherPolicyFlag = Annotated[str | None, _option("--policy", help="Another policy, in full; it starts fresh.")]
QuotaFlag = Annotated[
    list[str] | None, _option("--quota", help="GPUs guaranteed to a tenant, or none.", metavar="TENANT=GPUS")
]
LimitFlag = Annotated[
    list[str] | None, _option("--limit", help="The most GPUs that a tenant may hold, or none.", metavar="TENANT=GPUS")
]
SpeedFlag = Annotated[
    list[str] | None, _option("--gpu-speed", help="Speed of a type against the reference.", metavar="TYPE=SPEED")
]
UpgradeFlag = Annotated[
    list[str] | None, _option("--upgrade", help="Replace GPUs of one type by another.", metavar="OLD=NEW")
]
OtherFailuresFlag = Annotated[
    str | None, _option("--failures", help="mtbf=30d,repair=4h for one node, or off.", metavar="MEANS|off")
]
LaterLoadFlag = Annotated[str | None, _option("--load", help="Let jobs arrive so many times as fast from there on.")]
ChangeFlag = Annotated[
    list[str] | None, _option("--set", help="Keys of policy, costs or failures.", metavar="KEY=VALUE")
]
FolderFlag = Annotated[str | None, typer.Option("--out", help="New folder for what came out.", metavar="FOLDER")]


@app.command()
def whatif(
    folder: RunArgument,
    at: AtFlag,
    add_nodes: AddFlag = None,
    remove_nodes: RemoveFlag = None,
    policy: OtherPolicyFlag = None,
    quota: QuotaFlag = None,
    limit: LimitFlag = None,
    gpu_speed: SpeedFlag = None,
    upgrade: UpgradeFlag = None,
    failures: OtherFailuresFlag = None,
    load: LaterLoadFlag = None,
    overrides: ChangeFlag = None,
    skip_infeasible: SkipFlag = None,
    out: FolderFlag = None,
    trust: TrustFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Continue a run from a moment of it under changes, and say who gains and who loses.

    headway whatif runs/srtf --at 2d --add-nodes 10

    headway whatif runs/srtf --at 50% --policy srtf+easy --failures mtbf=30d,repair=4h --json
    """
    given = {
        "add_nodes": add_nodes,
        "remove_nodes": remove_nodes,
        "policy": policy,
        "quota": quota,
        "limit": limit,
        "gpu_speed": gpu_speed,
        "upgrade": upgrade,
        "failures": failures,
        "load": load,
        "set": overrides,
        "skip_infeasible": skip_infeasible,
    }
    if out is not None and not out.strip():
        raise ExperimentError("--out is empty: give it a value, or leave it out")
    run = stored(folder, trust=trust)
    if not isinstance(run.scene, JobsScene):
        domain_of(run.scene.experiment).view.whatif(run, at, None, given)
    with progress_bar(f"from {at} on") as told:
        answer = asking.ask(run, at, given, None if out is None else Path(out), told)
    if answer.found.after.stopped:
        console.note(answer.kept[0])
        sys.exit(STOPPED)
    console.print_json(answer.result) if as_json else _show(answer.found, answer.result)
    for line in (*_notes(run, answer.found), *answer.kept):
        console.note(line)


def _show(found: WhatIf, result: dict[str, Any]) -> None:
    shown = list(tables(result))
    out = console.out(widest(shown))
    what = "; ".join(found.plan.told) or "nothing changes"
    console.say(f"From {format_duration(found.at)} on: {what}")
    jobs = f"{counted(result['jobs'], 'job')} {'was' if result['jobs'] == 1 else 'were'} not over by then or came later"
    sooner = "ends sooner after it arrives" if result["better"] == 1 else "end sooner after they arrive"
    lines = [f"{jobs}: {result['better']:,} of them {sooner}, {result['worse']:,} later", *_without(found), ""]
    console.say(*lines)
    for position, table in enumerate(shown):
        out.print(*([""] if position else []), table)


def _without(found: WhatIf) -> Iterator[str]:
    """The line about jobs that are compared with nothing."""
    if not found.left_out:
        return
    jobs = [found.jobs[job] for job in found.left_out]
    named = [job.name or str(job.id) for job in jobs[:_MOST_NAMED]]
    more = f" and {len(jobs) - _MOST_NAMED:,} more" if len(jobs) > _MOST_NAMED else ""
    yield (
        f"{counted(len(jobs), 'job')} can never run after the change and {'is' if len(jobs) == 1 else 'are'} left out "
        f"of both sides: {', '.join(named)}{more}"
    )


def _notes(run: StoredRun, found: WhatIf) -> Iterator[str]:
    if found.plan.nothing:
        same = "the same" if found.after.tape.digest == found.before.digest else "NOT the same"
        yield f"note: nothing was to change: the rest of the tape is {same}, row for row"
    last = run.scene.jobs[-1].submit
    if found.at >= last and not found.plan.nothing:
        yield f"note: all jobs had arrived by {format_duration(last)}; an earlier --at concerns more of them"
    if not run.complete:
        yield "note: the run was cut short; what it is compared with is its continuation without changes"
    yield from (f"note: {note}" for note in found.plan.notes)
    if not found.plan.same_failures:
        yield (
            "note: failures are drawn: the difference is that of one draw. The same for runs with other seeds "
            "(--seed) tells how much of it is chance"
        )
    if found.left_out:
        jobs = counted(len(found.left_out), "job")
        yield f"note: before is the run continued without {jobs} that can never run after the change"
