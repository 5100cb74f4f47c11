"""Write a run as files for other programs: a trace to look at, tables to compute with."""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from os import PathLike
from pathlib import Path

from headway.errors import ExperimentError
from headway.runs.domain import StoredRun
from headway.runs.folder.folder import check_output, explains_corrupt_tape
from headway.runs.registry import domain_of
from headway.show.export import Written, check_file, folder_for_output, write_tables
from headway.show.progress import Tell, share_bar

Target = str | PathLike[str] | None


def export(stored: StoredRun, perfetto: Target, parquet: Target, csv: Target, *, force: bool) -> list[Written]:
    """Write what is named of a run: a trace for Perfetto into a file, its tables into folders; all of it or nothing."""
    targets = {flag: Path(place) for flag, place in (("parquet", parquet), ("csv", csv)) if place is not None}
    trace = None if perfetto is None else Path(perfetto)
    if trace is None and not targets:
        raise ExperimentError("nothing to export: give --perfetto FILE.json.gz, --parquet FOLDER or --csv FOLDER")
    if len({place.resolve() for place in targets.values()}) < len(targets):
        raise ExperimentError(f"--parquet and --csv name the same folder {csv}: give each its own")
    for flag, place in {**({} if trace is None else {"perfetto": trace}), **targets}.items():
        check_output(place, f"--{flag}")
    if trace is not None:
        if not trace.name.endswith((".json", ".json.gz")):
            raise ExperimentError(f"--perfetto {trace}: the name must end in .json or .json.gz")
        check_file(trace, force=force)
    with ExitStack() as stack:
        for place in targets.values():
            stack.enter_context(folder_for_output(place, force=force))
        return _written(stored, trace, targets)


def _written(stored: StoredRun, trace: Path | None, targets: Mapping[str, Path]) -> list[Written]:
    """Write all files, and tell how far it is on stderr."""
    made: list[Written] = []
    view = domain_of(stored.scene.experiment).view
    whole = len(targets) + (trace is not None)
    with share_bar("export") as tell, explains_corrupt_tape(stored.folder, stored.result):
        tell("reading", 0.0)
        if trace is not None:
            made.append(view.trace_events(stored, trace, lambda name, share: tell(name, share / whole)))
        tables = view.tables(stored) if targets else {}
        for kind, folder in targets.items():
            before = whole - len(targets) + list(targets).index(kind)
            made += write_tables(tables, folder, kind, partial(_part, tell, kind, before, whole))
    return made


def _part(tell: Tell, kind: str, before: int, whole: int, name: str, share: float) -> None:
    tell(f"{name}.{kind}", (before + share) / whole)


def check_sheet(text: str, flag: str = "--csv") -> None:
    """Refuse a table that could not be written, before anything runs."""
    path = Path(text)
    check_output(path, flag)
    if path.suffix.lower() != ".csv":
        raise ExperimentError(f"{flag} {text}: the name must end in .csv")
    if not path.parent.is_dir():
        raise ExperimentError(f"{flag} {text}: there is no folder {path.parent}")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ExperimentError(f"{flag} {text}: cannot be written")
