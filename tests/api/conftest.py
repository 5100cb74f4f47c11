"""What tests of the Python API share: a small workload, and a folder of one's own to work in."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import headway as hw

ROWS = {
    "submit_s": [0, 5, 5, 9, 30, 31, 200],
    "work_s": [60, 20, 45, 10, 70, 5, 1],
    "gpus": [2, 1, 4, 1, 3, 1, 4],
    "name": list("abcdefg"),
    "tenant": ["x", "y", "x", "y", "x", "x", "y"],
}


@pytest.fixture
def frame() -> pl.DataFrame:
    """Seven jobs of two tenants."""
    return pl.DataFrame(ROWS)


@pytest.fixture
def work(frame: pl.DataFrame) -> Any:
    """The same on two nodes of two GPUs."""
    return hw.Jobs(frame, nodes=2, gpus_per_node=2)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
