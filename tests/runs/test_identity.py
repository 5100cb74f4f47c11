"""The key of a cell: every file that a number may depend on is in it and no other, in the package as it is."""

import ast
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import headway
from headway.runs import identity

PACKAGE = Path(headway.__file__).parent
DECIDE = [
    *("units.py", "plugins.py", "core/scheduler.py", "core/tape.py", "formats/toml.py", "statistics/intervals.py"),
    *("runs/play.py", "runs/measured.py", "runs/domain.py", "runs/settings/tables.py", "runs/sweep/sweep.py"),
    *("profiling/pairs.py", "profiling/h200-pairs.json"),
    *("jobs/policies/orders/fifo.py", "jobs/policies/backfills/easy.py", "jobs/policies/allocations/headway/policy.py"),
    *("jobs/model/cluster.py", "jobs/state/state.py", "jobs/rules/limits/engine.py", "jobs/rules/quotas.py"),
    *("jobs/sim/cluster.py", "jobs/sim/faults.py", "jobs/experiment/scene.py", "jobs/experiment/speed.py"),
    *("jobs/tables/cluster.py", "jobs/traces/readers/philly.py", "jobs/traces/workloads/philly_like.py"),
    *("jobs/slurm/accounting/reader.py", "jobs/slurm/output/conf.py", "jobs/slurm/site/policy.py"),
    *("jobs/kubernetes/pods.py", "jobs/metrics/ledger.py", "jobs/metrics/waits/by_cause.py", "jobs/explain/explain.py"),
    *("jobs/ask/backtest.py", "jobs/domain.py", "jobs/view.py", "jobs/profiling/shipped/*.toml"),
    *("fleet/policies/headway/central/decide.py", "fleet/policies/compass/planner.py", "fleet/policies/scalers/use.py"),
    *("fleet/model/latency.py", "fleet/state/state.py", "fleet/sim/fleet.py", "fleet/experiment/scene.py"),
    *("fleet/scenarios/build.py", "fleet/scenarios/tables/profile.py", "fleet/traces/draw.py"),
    *("fleet/scenarios/shipped/esg-h200.toml", "fleet/scenarios/shipped/decoders/h200-decoder.toml"),
    *("fleet/metrics/ledger.py", "fleet/domain.py", "fleet/view.py"),
    *("gpu/policies/headway.py", "gpu/model/reflex.py", "gpu/control/dial.py", "gpu/sim/gpu.py", "gpu/metrics.py"),
    *("gpu/experiment/scene.py", "gpu/programs/load.py", "gpu/programs/shipped/bert.parquet", "gpu/domain.py"),
]
SHOW_OR_MOVE = [
    *("cli/app.py", "cli/jobs/queue.py", "cli/fleet/serve.py", "cli/gpu/share.py", "py.typed"),
    *("show/page.py", "show/page.js", "show/formatting.py", "door/frames.py", "device/nvidia.py", "device/mps.py"),
    *("jobs/live/queue.py", "jobs/live/local/runner.py", "jobs/slurm/live/engine.py", "jobs/slurm/shadow/tables.py"),
    *("jobs/show/page/page.py", "jobs/show/page/clustermap.js", "jobs/show/story/story.py"),
    *("fleet/live/server.py", "fleet/live/workers/worker.py", "fleet/live/doors/openapi.py"),
    *("fleet/live/load/sender.py", "fleet/ray/router.py", "fleet/show/page/page.py", "fleet/show/story.py"),
    *("gpu/share/broker/broker.py", "gpu/share/recorded/page.py", "gpu/share/shim/build.py", "gpu/show/page.py"),
]
ROOMS = [
    *("core", "formats", "statistics", "profiling"),
    *("jobs/model", "jobs/state", "jobs/rules", "jobs/policies", "jobs/sim", "jobs/tables", "jobs/traces"),
    *("jobs/experiment", "jobs/metrics", "jobs/slurm/accounting", "jobs/slurm/output", "jobs/slurm/site"),
    *("fleet/model", "fleet/state", "fleet/policies", "fleet/sim", "fleet/scenarios", "fleet/traces"),
    *("fleet/experiment", "fleet/metrics"),
    *("gpu/model", "gpu/control", "gpu/policies", "gpu/sim", "gpu/programs", "gpu/experiment"),
]
"""What a run is made from, room by room: all that it imports is to be in the key."""

_LEFT_OUT = {"cli", "device", "door", "live", "ray", "share", "show"}


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, to be written to."""
    return Path(
        shutil.copytree(
            PACKAGE, tmp_path_factory.mktemp("copied") / "headway", ignore=shutil.ignore_patterns("__pycache__", "*.so")
        )
    )


def changes(package: Path, name: str) -> bool:
    """Return whether the digest is another when one file is, the first that is so called."""
    path = min(package.glob(name))
    before, content = identity.code_of(package), path.read_bytes()
    try:
        path.write_bytes(content + b"\n")
        return identity.code_of(package) != before
    finally:
        path.write_bytes(content)


@pytest.mark.parametrize("name", DECIDE)
def test_what_a_number_may_depend_on_makes_other_cells(copied: Path, name: str) -> None:
    assert changes(copied, name)


@pytest.mark.parametrize("name", SHOW_OR_MOVE)
def test_what_shows_results_or_carries_them_out_makes_no_other_cells(copied: Path, name: str) -> None:
    assert not changes(copied, name)


def test_a_file_more_or_less_or_of_another_name_makes_other_cells(copied: Path) -> None:
    seen = {identity.code_of(copied)}
    path = copied / "gpu" / "programs" / "shipped" / "more.parquet"
    for name in ("", "other.parquet"):
        path.write_bytes(b"one") if not name else path.rename(path.with_name(name))
        seen.add(identity.code_of(copied))
    path.with_name("other.parquet").unlink()
    assert len(seen) == 3
    assert identity.code_of(copied) in seen
    compiled = copied / "fleet" / "scenarios" / "shipped" / "__pycache__" / "file.cpython-311.pyc"
    compiled.parent.mkdir()
    compiled.write_bytes(b"one")  # Python writes it when it pleases
    assert identity.code_of(copied) in seen
    shutil.rmtree(compiled.parent)


def test_the_code_is_that_of_this_package() -> None:
    assert identity.code() == identity.code_of(PACKAGE)


def test_every_folder_that_is_named_is_there() -> None:
    assert [name for name in (*identity._WITHOUT, *identity._SHIPPED) if not any((PACKAGE / name).rglob("*.*"))] == []


def test_everything_that_is_live_or_shown_is_left_out_and_all_data_is_in() -> None:
    found = {path.relative_to(PACKAGE).as_posix() for path in identity._sources(PACKAGE)}
    assert [name for name in sorted(found) if _LEFT_OUT & set(name.split("/")[:-1])] == []
    data = {path for kind in ("toml", "json", "parquet") for path in PACKAGE.rglob(f"*.{kind}")}
    assert len(data) > 30
    assert {path.relative_to(PACKAGE).as_posix() for path in data} - found == set()


def imported(path: Path) -> Iterator[str]:
    """Modules that a file imports anywhere in it, or takes names from, as paths without an ending."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
        elif isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        else:
            continue
        yield from (name.removeprefix("headway.").replace(".", "/") for name in names if name.startswith("headway."))


@pytest.mark.parametrize("room", ROOMS)
def test_what_a_run_is_made_from_imports_nothing_that_is_left_out(room: str) -> None:
    without = tuple(f"{name}/" for name in identity._WITHOUT)
    files = sorted((PACKAGE / room).rglob("*.py"))
    assert len(files) > 1
    wrong = [(path.name, name) for path in files for name in imported(path) if f"{name}/".startswith(without)]
    assert wrong == []
