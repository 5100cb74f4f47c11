"""Everything inside headway that benchmarks and golden digests touch: one small module, so that they outlive a change.

Cases describe what to run in plain dictionaries, texts and paths. What the package calls its modules, functions and
commands is known here and nowhere else in ``bench/cases.py``, ``bench/run.py`` and ``tests/golden``. A comparison of
two checkouts loads the adapter of each from its own ``bench/`` folder: whoever moves a module mends this file, in the
same commit, and keeps the names below.

A document holds the tables of an experiment file. One with a table ``serving`` is about a fleet; one with a table
``kernels`` (``high``, ``low``, ``think``, ``seconds``) is about programs on one GPU; any other is about jobs.
"""

import io
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from headway.cli import main
from headway.core.tape import COLUMNS, Tape
from headway.fleet.model.rows import Kind as ServingKind
from headway.fleet.policies import registry as serving_names
from headway.fleet.traces import registry as requests
from headway.formats import toml
from headway.gpu.model.rows import Kind as KernelKind
from headway.gpu.policies import registry as kernel_names
from headway.jobs.model.rows import Kind
from headway.jobs.policies import registry as training_names
from headway.jobs.tables import cluster as cluster_table
from headway.jobs.traces import registry
from headway.jobs.traces.clusters import file as cluster_file
from headway.runs.play import play
from headway.runs.registry import domain_of
from headway.runs.settings.files import variants

Document = Mapping[str, Any]
_OF_EVERY_RUN = ("seed", "seeds", "stopped", "variant", "baseline", "slowdown_change", "low_share_change")


class Prepared:
    """A run before it begins: what was read and drawn is there, nothing was played."""

    def __init__(self, document: Document, first: int = 0) -> None:
        """``first``: only so many jobs of the trace, the first to come."""
        self.scale = scale_of(document)
        ((_, experiment),) = variants(_named(document), "case")
        self.scene: Any = domain_of(experiment).prepare(experiment)
        if first:
            self.scene = replace(self.scene, jobs=self.scene.jobs[:first])

    def play(self, folder: Path | None = None) -> Tape:
        """Play it out, in memory or into a folder."""
        return play(self.scene, folder).tape

    def ended(self, tape: Tape) -> int:
        """Jobs that finished, failed or were cancelled; requests that were answered or given up; kernels that ended."""
        kinds = tape.column("kind")
        if self.scale == "kernels":
            return int((kinds == KernelKind.FINISHED).sum())
        if self.scale == "serving":
            return int((kinds == ServingKind.DONE).sum() + (kinds == ServingKind.DROP).sum())
        ends = tape.of(Kind.FINISHED, Kind.FAILED, Kind.CANCELLED)
        return int(np.unique(ends[:, COLUMNS.index("subject")]).size)  # a job that is tried again fails more than once


def decisions(tape: Tape) -> int:
    """Return how often the policy was asked: once an instant, and each instant left a row."""
    return int(np.unique(tape.column("time")).size)


def tape_bytes(folder: Path) -> int:
    """Return the size of the tape of a run on disk."""
    return sum(path.stat().st_size for path in folder.glob("tape.*"))


def scale_of(document: Document) -> str:
    """The time scale that a document is about: training, serving or kernels."""
    return next((scale for scale in ("serving", "kernels") if scale in document), "training")


def _named(document: Document) -> dict[str, Any]:
    """The document as an experiment file says it."""
    scale = {"training": "jobs", "serving": "fleet", "kernels": "gpu"}[scale_of(document)]
    return {"scale": scale, **{"gpu" if key == "kernels" else key: value for key, value in document.items()}}


# --- names ----------------------------------------------------------------------------------------------------


def names(scale: str) -> dict[str, list[str]]:
    """Every part or policy of a scale that comes with headway, by kind."""
    if scale == "serving":
        return {"policy": _own(serving_names.POLICIES)}
    if scale == "kernels":
        return {"policy": _own(kernel_names.POLICIES)}
    return {
        "order": _own(training_names.ORDERS),
        "backfill": _own(training_names.BACKFILLS),
        "placement": _own(training_names.PLACEMENTS),
        "migration": _own(training_names.MIGRATIONS),
        "allocation": _own(training_names.ALLOCATIONS),
    }


def _own(table: Mapping[str, type]) -> list[str]:
    """The names that headway itself has; a user's own classes may be registered beside them."""
    return [name for name, part in table.items() if part.__module__.startswith("headway.")]


# --- commands -------------------------------------------------------------------------------------------------


def command(*arguments: str) -> str:
    """Run the command line in this process and return what it printed; raise with its complaint where it failed."""
    said, complained = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(said), redirect_stderr(complained):
            main(list(arguments))
    except SystemExit as end:
        if end.code not in (0, None):
            raise RuntimeError(f"headway {' '.join(arguments)}: {complained.getvalue().strip()}") from None
    return said.getvalue()


def numbers(document: Document, policies: Sequence[str], scratch: Path) -> list[dict[str, Any]]:
    """The rows that a comparison of policies prints as JSON; the first policy is the baseline."""
    each = [{"name": policy, "set": {"policy": {"name": policy}}} for policy in policies]
    path = scratch / "experiment.toml"
    path.write_text(toml.write({**_named(document), "variants": each}), encoding="utf-8")
    found = json.loads(command("run", str(path), "--json"))
    rows = found if isinstance(found, list) else [found]
    if scale_of(document) == "kernels":  # what runs of all scales have came later than the numbers that are kept
        return [{key: value for key, value in row.items() if key not in _OF_EVERY_RUN} for row in rows]
    return rows


def run(document: Document, folder: Path) -> None:
    """Leave the folder of a run, with its results."""
    path = folder.with_name(f"{folder.name}.toml")
    path.write_text(
        toml.write({**_named(document), "run": {**document.get("run", {}), "out": str(folder)}}), encoding="utf-8"
    )
    command("run", str(path), "--json")


def story(folder: Path, subject: str) -> str:
    """What is told of one job or request of a run."""
    return command("story", str(folder), subject)


def explain(folder: Path, job: str, draws: int) -> str:
    """Why one job of a run waited in the middle of its first wait."""
    return command("explain", str(folder), job, "--draws", str(draws))


def report(folders: Iterable[Path], target: Path) -> str:
    """Write the page of some runs and return its text."""
    command("report", *map(str, folders), "-o", str(target), "--force")
    return target.read_text(encoding="utf-8")


def export(folder: Path, target: Path) -> None:
    """Write a run for other programs: Perfetto's trace, tables as Parquet and as CSV."""
    given = ("--perfetto", f"{target}/trace.json", "--parquet", f"{target}/parquet", "--csv", f"{target}/csv")
    command("export", str(folder), *given, "--force")


def compare_text(document: Document, policies: Sequence[str], scratch: Path) -> str:
    """The table that a comparison prints; its columns of wall time differ from run to run."""
    each = [{"name": policy, "set": {"policy": {"name": policy}}} for policy in policies]
    path = scratch / "experiment.toml"
    path.write_text(toml.write({**_named(document), "variants": each}), encoding="utf-8")
    return command("run", str(path))


# --- files ----------------------------------------------------------------------------------------------------


def read_trace(path: Path, format: str, columns: str = "") -> int:
    """Rows of a trace of jobs or of requests, once it was read and checked."""
    if format in requests.REQUEST_FORMATS:
        return len(requests.load_requests(path).arrival)
    return registry.load(path, columns=columns).rows


def read_cluster(paths: Sequence[Path]) -> int:
    """Nodes of the cluster that some files describe together."""
    table, *_ = cluster_file.read([str(path) for path in paths])
    return len(cluster_table.build(table).nodes)


# --- the program ----------------------------------------------------------------------------------------------


def start() -> str:
    """What the command line prints of all policies, in a process of its own: most of it is imports."""
    return subprocess.run(
        [sys.executable, "-m", "headway", "policies"], capture_output=True, text=True, check=True
    ).stdout
