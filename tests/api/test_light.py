"""``import headway`` costs next to nothing: a training program may do it in every process."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import headway as hw
from tests.architecture.test_public_names import API

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("polars", "numpy", "msgspec", "typer", "rich", "plotly", "pyarrow", "scipy", "networkx", "torch", "ray")


def told(program: str) -> str:
    """Run a program of its own; return what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert ended.stderr == ""
    return ended.stdout


@pytest.mark.parametrize("more", ["", "; hw.__version__; dir(hw); hw.HeadwayError; hw.step; hw.steps"])
def test_the_import_brings_nothing_heavy_along(more: str) -> None:
    program = (
        f"import sys; before = set(sys.modules); import headway as hw{more}; print(sorted(set(sys.modules) - before))"
    )
    loaded = ast.literal_eval(told(program))
    assert not [name for name in loaded if name.partition(".")[0] in HEAVY]
    own = [name for name in loaded if name.startswith("headway")]
    assert len(own) <= 8, own
    assert len(loaded) <= 60, loaded


def test_the_public_names() -> None:
    assert sorted(name for name in hw._NAMES) == API
    assert set(API) <= set(dir(hw))
    for name in API:
        assert getattr(hw, name).__doc__, name
    with pytest.raises(AttributeError, match="has no attribute 'simulat'"):
        hw.simulat  # noqa: B018
