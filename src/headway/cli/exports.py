"""``headway export``: a run as files for other programs."""

from typing import Annotated

import typer

from headway.cli import console
from headway.cli.app import app
from headway.cli.flags import RunArgument, TrustFlag
from headway.experiment.result import Run
from headway.experiment.stored import stored
from headway.units import format_size

PerfettoFlag = Annotated[
    str | None,
    typer.Option("--perfetto", help="A trace for ui.perfetto.dev or chrome://tracing.", metavar="FILE.json[.gz]"),
]
ParquetFlag = Annotated[
    str | None, typer.Option("--parquet", help="Tables for notebooks, as Parquet.", metavar="FOLDER")
]
CsvFlag = Annotated[str | None, typer.Option("--csv", help="The same tables, as CSV.", metavar="FOLDER")]
ForceFlag = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]


@app.command()
def export(
    folder: RunArgument,
    perfetto: PerfettoFlag = None,
    parquet: ParquetFlag = None,
    csv: CsvFlag = None,
    force: ForceFlag = False,
    trust: TrustFlag = False,
) -> None:
    """Write a run as files for other programs: a trace to look at, tables to compute with.

    headway export runs/srtf --perfetto srtf.json.gz

    headway export runs/srtf --parquet tables --csv sheets
    """
    found = stored(folder, "what is there is exported", trust=trust, note=console.note)
    for file in Run(found).export(perfetto=perfetto, parquet=parquet, csv=csv, force=force):
        what = "events" if file.path.suffix in (".json", ".gz") else "rows"
        console.say(f"{file.path}: {file.rows:,} {what}, {format_size(file.size_bytes)}")
