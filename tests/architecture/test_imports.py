"""Imports point one way, and heavy libraries stay where they belong.

The direction is a contract of import-linter, in pyproject.toml. Which package may import which library is here.
"""

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.architecture.source import FILES, PACKAGE, ROOT, imported, inside, name, package

ONLY_IN = {
    "polars": {
        *("formats/table.py", "formats/times.py", "show"),
        *("jobs/metrics", "jobs/show", "jobs/slurm/accounting", "jobs/traces"),
        *("fleet/show", "fleet/traces", "gpu/share/recorded", "gpu/show"),
    },
    "plotly": {"show"},
    "matplotlib": {"show"},
    "typer": {"cli"},
    "ray": {"fleet/ray", "runs/sweep/ray_pool.py"},
    "fastapi": {"fleet/live/doors"},
    "starlette": {"fleet/live/doors"},
    "uvicorn": {"fleet/live/doors"},
    "torch": {"fleet/live", "fleet/profiling", "program"},
}
"""Folders and files that may import a library, and no others."""
OUTSTANDING = 68
"""Imports that point the wrong way still, listed in pyproject.toml: a number that only falls."""
STANDS_ALONE = {"core": {"numpy", "pyarrow"}, "program": {"torch", "threadpoolctl"}}
"""Packages that use the standard library and these only."""


def lint_imports(source: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter with the contracts of this repository over the package in ``source``."""
    program = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [program, "--no-cache", "--config", ROOT / "pyproject.toml"],
        cwd=source,
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_contracts_of_import_linter_hold() -> None:
    result = lint_imports(PACKAGE.parent)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("importer", "line", "contract"),
    [
        ("core/intruder.py", "import headway.jobs.model.job", "Imports point one way"),
        ("jobs/model/intruder.py", "import headway.jobs.sim.cluster", "Imports inside jobs point one way"),
        ("fleet/model/intruder.py", "import headway.fleet.sim.fleet", "Imports inside fleet point one way"),
        ("gpu/model/intruder.py", "import headway.gpu.sim.gpu", "Imports inside gpu point one way"),
        ("jobs/sim/intruder.py", "import headway.fleet.model.fleet", "Imports point one way"),
        ("runs/intruder.py", "import headway.jobs.model.job", "Imports point one way"),
        ("jobs/policies/intruder.py", "import polars", "needs neither polars nor plotly"),
        ("jobs/rules/intruder.py", "import polars", "needs neither polars nor plotly"),
        ("gpu/sim/intruder.py", "import polars", "needs neither polars nor plotly"),
        ("unlisted.py", "", "Imports point one way"),
    ],
)
def test_the_contracts_catch_a_wrong_import(tmp_path: Path, importer: str, line: str, contract: str) -> None:
    shutil.copytree(PACKAGE, tmp_path / "headway", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "headway" / importer).write_text(line)
    result = lint_imports(tmp_path)
    assert result.returncode != 0
    assert any(contract in row and "BROKEN" in row for row in result.stdout.splitlines()), result.stdout + result.stderr


def test_the_list_of_imports_that_point_the_wrong_way_only_gets_shorter() -> None:
    """What a contract lists and nobody imports is an error of import-linter, so the list holds nothing else."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    listed = {line for contract in contracts for line in contract.get("ignore_imports", ())}
    assert len([line for line in listed if not line.startswith("headway -> ")]) == OUTSTANDING


def test_every_place_that_is_named_is_there() -> None:
    assert [place for places in ONLY_IN.values() for place in places if not (PACKAGE / place).exists()] == []


def misplaced(path: Path, source: str) -> list[str]:
    """Return the libraries that a file imports and that do not belong there."""
    roots = {module.partition(".")[0] for module in imported(ast.parse(source))}
    here = package(path)
    allowed = sys.stdlib_module_names | {"headway"} | STANDS_ALONE[here] if here in STANDS_ALONE else roots
    return sorted(
        root for root in roots if root not in allowed or not inside(path, ONLY_IN.get(root, {here, f"{here}.py"}))
    )


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_library_is_imported_only_where_it_belongs(path: Path) -> None:
    assert misplaced(path, path.read_text()) == []


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("jobs/sim/intruder.py", "import polars as pl"),
        ("jobs/show/intruder.py", "import plotly.graph_objects"),
        ("runs/intruder.py", "from matplotlib import pyplot"),
        ("runs/settings/intruder.py", "import typer"),
        ("fleet/live/intruder.py", "import ray"),
        ("fleet/live/intruder.py", "from fastapi import FastAPI"),
        ("jobs/live/intruder.py", "def later():\n    import torch"),
        ("core/intruder.py", "import msgspec"),
        ("program/intruder.py", "import numpy"),
    ],
)
def test_a_library_in_the_wrong_place_is_caught(where: str, line: str) -> None:
    assert misplaced(PACKAGE / where, line)


def test_a_queue_of_programs_needs_neither_polars_nor_plotly() -> None:
    """Machines with GPUs may have neither: the daemon, its commands and its client start without."""
    without = "import sys; sys.modules.update(polars=None, plotly=None)"
    wanted = "headway.jobs.live.ground, headway.cli.jobs.queue, headway.jobs.live.client"
    done = subprocess.run(
        [sys.executable, "-c", f"{without}; import {wanted}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
