"""The overhead of a batch is the one with which a simulation takes as long as the requests took."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headway.experiment.fleet import overhead
from headway.live.serving.server import Server
from headway.units import MICROSECOND, MILLISECOND

APP = """\
import headway as hw

@hw.task(cpus=1, example=lambda count: [1] * count)
def first(values): return values

@hw.task(cpus=1)
def left(values): return values

@hw.task(cpus=1)
def right(values): return values

@hw.task(cpus=1)
def last(lefts, rights): return lefts

diamond = hw.graph("diamond", first >> {left, right} >> last)
"""
TIMES_MS = {"first": 2, "left": 3, "right": 5, "last": 1}


@pytest.mark.parametrize("true", [0, 700 * MICROSECOND, 3 * MILLISECOND])
def test_a_known_overhead_is_found(true: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (app := tmp_path / "app.py").write_text(APP)
    rows = "".join(f"[functions.{name}]\ncells = [[1, 1, 0, {ms}]]\n" for name, ms in TIMES_MS.items())
    (profile := tmp_path / "app.profile.toml").write_text(rows)

    async def taken(server: Server, examples: Mapping[str, Any]) -> list[tuple[str, int]]:
        assert list(examples) == ["diamond"]
        return [("diamond", 8 * MILLISECOND + 3 * true)] * 4  # both branches at a time: three batches in turn

    monkeypatch.setattr(overhead, "_latencies", taken)
    found = overhead.overhead_of(app, profile, "cpu")
    assert abs(found - true) < 20 * MICROSECOND  # inputs take some microseconds on the way
    assert profile.read_text() == rows
