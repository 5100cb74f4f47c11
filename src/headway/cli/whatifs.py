"""``headway whatif``: a stored run continued from a moment of it under changes."""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from headway import experiment
from headway.cli import STOPPED, console
from headway.cli.app import app
from headway.cli.flags import JsonFlag, RunArgument, SkipFlag, TrustFlag, split_failures
from headway.cli.progress import progress_bar
from headway.cli.stored import stored
from headway.errors import ExperimentError
from headway.experiment.changes import Changes
from headway.experiment.folder import check_folder, claimed
from headway.experiment.measured import numbers
from headway.experiment.whatif import WhatIf, auditable, check_writable, store, time_of, what_if
from headway.metrics.training.difference import as_json, difference
from headway.metrics.training.ledger import Ledger
from headway.report.differences import tables, widest
from headway.units import SECOND, counted, format_duration

Value = TypeVar("Value")
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
    changes = Changes(
        add_nodes=[part for text in add_nodes or () for part in text.split(",")],
        remove_nodes=_given("--remove-nodes", remove_nodes),
        policy=_given("--policy", policy),
        quota=_pairs("--quota", quota, _gpus),
        limit=_pairs("--limit", limit, _gpus),
        gpu_speed=_pairs("--gpu-speed", gpu_speed, float),
        upgrade=_pairs("--upgrade", upgrade, str),
        failures=None if failures is None else {} if failures.strip() == "off" else split_failures(failures),
        load=_given("--load", load),
        overrides=overrides or (),
    )
    run = stored(folder, trust=trust)
    target = None if out is None else Path(_given("--out", out))
    if target is not None:
        check_folder(target)
        check_writable(target)
    time = time_of(at, run)
    with claimed(target):
        with progress_bar(f"from {format_duration(time)} on") as told:
            found = what_if(run, time, changes, skip_infeasible=bool(skip_infeasible), folder=target, progress=told)
        if found.after.stopped:
            console.note(_stopped(found, target))
            sys.exit(STOPPED)
        result = _result(run, found)
        kept = _keep(target, found, result)
    if as_json:
        console.print_json(result)
    else:
        _show(found, result)
    for line in (*_notes(run, found), *kept):
        console.note(line)


def _keep(target: Path | None, found: WhatIf, result: dict[str, Any]) -> list[str]:
    if target is None:
        return []
    if found.after.folder is not None:
        numbers(found.after)  # and into the folder with them
    return [store(target, found, result)]


def _result(run: experiment.StoredRun, found: WhatIf) -> dict[str, Any]:
    """Everything that is printed."""
    before = Ledger(found.before, found.jobs, run.scene.cluster)
    after = Ledger(found.after.tape, found.after.scene.jobs, found.after.scene.cluster)
    recorded = Ledger(found.recorded, found.jobs, run.scene.cluster) if found.left_out else None
    differs = difference(before, after, found.at, found.left_out, recorded)
    return {
        "run": str(run.folder),
        "at_s": found.at / SECOND,
        "policy_before": run.scene.policy().name,
        "policy_after": found.after.policy,
        "changes": list(found.plan.told),
        **as_json(differs, run.scene.experiment.measure.confidence),
        "digest": found.after.tape.digest,
    }


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


def _notes(run: experiment.StoredRun, found: WhatIf) -> Iterator[str]:
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
            "(simulate --seed) tells how much of it is chance"
        )
    if found.left_out:
        jobs = counted(len(found.left_out), "job")
        yield f"note: before is the run continued without {jobs} that can never run after the change"


def _stopped(found: WhatIf, target: Path | None) -> str:
    kept = (
        f"the tape is in {target}"
        if target is not None and auditable(found.plan, found.left_out)
        else "nothing is kept"
    )
    return f"stopped at {format_duration(found.after.reached)}; {kept}"


def _given(flag: str, text: str | None) -> str:
    if text is not None and not text.strip():
        raise ExperimentError(f"{flag} is empty: give it a value, or leave it out")
    return (text or "").strip()


def _pairs(flag: str, texts: Sequence[str] | None, read: Callable[[str], Value]) -> dict[str, Value]:
    """``a=1,b=2``, in one flag or several."""
    found: dict[str, Value] = {}
    for part in (part for text in texts or () for part in text.split(",")):
        name, _, value = (piece.strip() for piece in part.rpartition("="))
        if not name or not value:
            raise ExperimentError(f"{flag} {part!r} is not understood: write it like {flag} NAME=VALUE")
        if name in found:
            raise ExperimentError(f"{flag}: {name} is given twice")
        try:
            found[name] = read(value)
        except ValueError:
            kind = "a number" if read is float else "a whole number"
            raise ExperimentError(f"{flag} {part[:60]}: {value[:40]!r} is not {kind}") from None
    return found


def _gpus(text: str) -> int | None:
    return None if text == "none" else int(text)
