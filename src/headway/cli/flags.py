"""Define the options of commands that read runs and traces."""

from typing import Annotated

import typer

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON, times in seconds.")]
TrustFlag = Annotated[
    bool, typer.Option("--trust", help="Run the Python file that the run folder names, if it names one.")
]
ForceFlag = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]
RunArgument = Annotated[str, typer.Argument(help="The folder of a run (--out).", metavar="RUN")]
FormatFlag = Annotated[
    str | None, typer.Option(help="The format of the file (headway trace formats lists them); told by its beginning.")
]
MapFlag = Annotated[
    str | None,
    typer.Option("--map", help="Any table: gpus=num_gpus,submit=queued:ms,work=duration.", metavar="FIELD=COLUMN,…"),
]
StrictFlag = Annotated[
    bool | None,
    typer.Option("--strict/--lenient", help="Stop at the first bad row, or drop bad rows and explain them (default)."),
]
BadRowsFlag = Annotated[
    bool | None,
    typer.Option("--skip-bad-rows", help="Go on although one rule drops more than a tenth of the rows of a trace."),
]
StartFlag = Annotated[
    str, typer.Option("--from", help="Jobs submitted from 2026-03-01 on, or from 3d after the first.", metavar="DATE")
]
EndFlag = Annotated[str, typer.Option("--to", help="Jobs submitted before then.", metavar="DATE")]
