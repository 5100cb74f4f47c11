"""``headway whatif``: a stored run continued from a moment of it under changes."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from headway.cli.app import app
from headway.cli.flags import JsonFlag, RunArgument, SkipFlag, TrustFlag
from headway.cli.results import show_answer
from headway.errors import ExperimentError
from headway.experiment.registry import domain_of
from headway.experiment.stored import stored

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
    view = domain_of(run.scene.experiment).view
    show_answer(view.whatif(run, at, None if out is None else Path(out), given), as_json)
