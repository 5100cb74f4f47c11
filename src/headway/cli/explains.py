"""``headway explain``: one job at one moment of a run."""

from typing import Annotated

import typer

from headway.cli import console
from headway.cli.app import app
from headway.cli.flags import JsonFlag, RunArgument, TrustFlag
from headway.cli.results import show_answer
from headway.experiment.result import Run
from headway.experiment.stored import stored

AtFlag = Annotated[
    str | None,
    typer.Option(
        "--at",
        help="When, since the run began: 36h, 2d 3h, end. Left out: the middle of its first wait.",
        metavar="TIME",
    ),
]
DrawsFlag = Annotated[
    int | None,
    typer.Option(
        "--draws", help="Continuations for the expected start; if left out, 40, or 30 of large runs.", min=5, max=1000
    ),
]


@app.command()
def explain(
    folder: RunArgument,
    job: Annotated[str, typer.Argument(help="A job, by its id in the trace or its number.", metavar="JOB")],
    at: AtFlag = None,
    draws: DrawsFlag = None,
    trust: TrustFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Say why a job does not run at a time, which moves or preemptions would admit it, and when to expect its start.

    headway explain runs/srtf 17

    headway explain runs/srtf 17 --at "2d 3h"
    """
    found = stored(folder, "what is there is explained", trust=trust, note=console.note)
    show_answer(Run(found).explain(job, at, draws), as_json)
