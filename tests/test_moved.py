"""What imports a path of an earlier version ends in a line that names the new one; CHANGELOG has the same table."""

import re
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from headway import plugins
from headway.errors import ExperimentError
from headway.moved import MODULES

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("from headway.training.policies.parts import Order", "headway.training.policies.parts is headway.jobs now"),
        ("from headway.training.policies.parts import (\n    Order,\n)", "training.policies.parts is headway.jobs now"),
        ("from headway.training.policies.orders.srtf import Srtf", "policies.… is in headway.jobs.policies now"),
        ("from headway import units, traces", "headway.traces is headway.jobs.traces now"),
        ("from headway import (\n    units,\n    traces,\n)", "headway.traces is headway.jobs.traces now"),
        ("from headway.units import SECOND; from headway.training.job import Job", "job is headway.jobs.model.job now"),
        ("import os, headway.training.job", "headway.training.job is headway.jobs.model.job now"),
        ("from headway.profiling.model_colocation import x", "is headway.fleet.profiling.colocation now"),
        ("from headway.serving.scalers import x", "headway.serving.scalers is headway.fleet.policies.scalers now"),
        ("import headway as hw\nhw.training", "headway.training is headway.jobs now"),
        ("from headway import kernels", "headway.kernels is headway.gpu now"),
        ("import headway.serving.actions as actions", "headway.serving.actions is headway.fleet now"),
        (
            "def part():\n    from headway.profiling import job\npart()",
            "headway.profiling.job is headway.jobs.profiling now",
        ),
    ],
)
def test_a_file_that_imports_an_old_path_is_told_the_new_one(tmp_path: Path, line: str, told: str) -> None:
    (tmp_path / "mine.py").write_text(f"{line}\n")
    with pytest.raises(ExperimentError) as refused:
        plugins.resolve(f"{tmp_path}/mine.py:Mine")
    assert str(refused.value).endswith(told)
    assert re.search(r"mine.py: cannot be loaded .*, line \d of mine.py: ", str(refused.value))


def test_an_installed_part_that_imports_an_old_path_is_told_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("mine", "headway.kernels.policies.parts:KernelsPolicy", plugins.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point])
    with pytest.raises(ExperimentError, match=r"entry point mine of .* headway\.kernels is headway\.gpu now$"):
        plugins._installed.__wrapped__()


@pytest.mark.parametrize(
    "line", ["import headway.nonsense", "import nonsense", "from headway.jobs import Orderr", "1 / 0"]
)
def test_what_never_was_has_no_new_place(tmp_path: Path, line: str) -> None:
    (tmp_path / "mine.py").write_text(f"{line}\n")
    with pytest.raises(ExperimentError, match=r"line 1 of mine\.py$"):
        plugins.resolve(f"{tmp_path}/mine.py:Mine")


def test_old_paths_are_gone_and_new_ones_are_there() -> None:
    for old, new in MODULES.items():
        with pytest.raises(ImportError):
            import_module(old)
        for there in re.findall(r"headway[.\w]+", new):
            import_module(there)


def test_the_changelog_has_the_same_table() -> None:
    rows = re.findall(r"^\| `(headway[\w.]+)` \| (.+?) \|$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert {old: new.replace("`", "") for old, new in rows} == MODULES
    assert len(rows) <= 30
