"""``headway export``: a run as files for other programs."""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from headway.cli import console
from headway.cli.app import app
from headway.cli.flags import RunArgument, TrustFlag
from headway.errors import ExperimentError
from headway.experiment.domain import StoredRun
from headway.experiment.folder import check_output, unproven
from headway.experiment.registry import domain_of
from headway.experiment.stored import stored
from headway.report.export import Written, check_file, kept_if_used, write_tables
from headway.report.progress import Tell, share_bar
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
    trace = None if perfetto is None else Path(perfetto)
    if trace is None and parquet is None and csv is None:
        raise ExperimentError("nothing to export: give --perfetto FILE.json.gz, --parquet FOLDER or --csv FOLDER")
    if parquet is not None and csv is not None and Path(parquet).resolve() == Path(csv).resolve():
        raise ExperimentError(f"--parquet and --csv name the same folder {csv}: give each its own")
    for flag, text in (("--perfetto", perfetto), ("--parquet", parquet), ("--csv", csv)):
        if text is not None:
            check_output(Path(text), flag)
    found = stored(folder, "what is there is exported", trust=trust, note=console.note)
    if trace is not None:
        if not trace.name.endswith((".json", ".json.gz")):
            raise ExperimentError(f"--perfetto {trace}: the name must end in .json or .json.gz")
        check_file(trace, force=force)
    targets = {kind: Path(tables) for kind, tables in (("parquet", parquet), ("csv", csv)) if tables is not None}
    with ExitStack() as stack:
        for tables in targets.values():
            stack.enter_context(kept_if_used(tables, force=force))
        made = _written(found, trace, targets)
    for file in made:
        what = "events" if file.path.suffix in (".json", ".gz") else "rows"
        line = f"{file.path}: {file.rows:,} {what}, {format_size(file.size_bytes)}"
        console.say(line)


def _written(found: StoredRun, trace: Path | None, targets: Mapping[str, Path]) -> list[Written]:
    """Write all files, and tell how far it is on stderr."""
    made: list[Written] = []
    view = domain_of(found.scene.experiment).view
    whole = len(targets) + (trace is not None)
    with share_bar("export") as tell, unproven(found.folder, found.result):
        tell("reading", 0.0)
        if trace is not None:
            made.append(view.trace_events(found, trace, lambda name, share: tell(name, share / whole)))
        tables = view.tables(found) if targets else {}
        for kind, folder in targets.items():
            before = whole - len(targets) + list(targets).index(kind)
            made += write_tables(tables, folder, kind, partial(_part, tell, kind, before, whole))
    return made


def _part(tell: Tell, kind: str, before: int, whole: int, name: str, share: float) -> None:
    tell(f"{name}.{kind}", (before + share) / whole)
